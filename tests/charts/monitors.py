"""The schemas of the objects that have pods scraped: PodMonitor and PodMonitoring."""

from __future__ import annotations

import functools
from typing import Any

import yaml

from tests.tools.go_modules import Module

_OPERATOR = Module(
    "github.com/prometheus-operator/prometheus-operator", "v0.85.0", "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
)
_POD_MONITOR = "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml"

# The module of Google's operator (github.com/GoogleCloudPlatform/prometheus-engine) is not to be had from every Go
# proxy, and its CRDs are published nowhere else that a test could read. So this is what its v1 has of the fields that
# we use: selector and endpoints are required, and of an endpoint port and interval; what is not here is unknown.
_POD_MONITORING: dict[str, Any] = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["selector", "endpoints"],
            "properties": {
                "selector": {
                    "type": "object",
                    "properties": {
                        "matchExpressions": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "required": ["key", "operator"],
                                "properties": {
                                    "key": {"type": "string"},
                                    "operator": {"type": "string"},
                                    "values": {"type": "array", "items": {"type": "string"}},
                                },
                            },
                        },
                    },
                },
                "endpoints": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 10,
                    "items": {
                        "type": "object",
                        "required": ["interval", "port"],
                        "properties": {
                            "port": {"x-kubernetes-int-or-string": True},
                            "interval": {"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"},
                        },
                    },
                },
            },
        },
    },
}
GROUPS = ("monitoring.coreos.com", "monitoring.googleapis.com")


@functools.cache
def schema(api_version: str, kind: str) -> dict[str, Any] | None:
    """The schema, as a CRD has it; None where that is no kind of either."""
    if (api_version, kind) == ("monitoring.googleapis.com/v1", "PodMonitoring"):
        return _POD_MONITORING
    if (api_version, kind) != ("monitoring.coreos.com/v1", "PodMonitor"):
        return None
    crd = yaml.load(_OPERATOR.file(_POD_MONITOR).read_text(), yaml.CSafeLoader)
    [served] = crd["spec"]["versions"]
    found: dict[str, Any] = served["schema"]["openAPIV3Schema"]
    return found
