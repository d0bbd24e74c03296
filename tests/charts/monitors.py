"""The schemas of the objects that make Prometheus scrape pods: PodMonitor and PodMonitoring."""

from __future__ import annotations

import functools
from typing import Any

import yaml

from tests.tools.go_modules import Module

_OPERATOR = Module(
    "github.com/prometheus-operator/prometheus-operator", "v0.85.0", "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
)
_POD_MONITOR = "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml"

# The module of Google's operator (github.com/GoogleCloudPlatform/prometheus-engine) is not available from every Go
# proxy, and its CRDs are not published anywhere else that a test could read. So this is the part of its v1 that the
# charts use: selector and endpoints are required, and port and interval of each endpoint. A test reports any other
# field as unknown.
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
    """Return the schema of a kind, in the form of a CRD. Returns None if neither operator defines the kind."""
    if (api_version, kind) == ("monitoring.googleapis.com/v1", "PodMonitoring"):
        return _POD_MONITORING
    if (api_version, kind) != ("monitoring.coreos.com/v1", "PodMonitor"):
        return None
    crd = yaml.load(_OPERATOR.file(_POD_MONITOR).read_text(), yaml.CSafeLoader)
    [served] = crd["spec"]["versions"]
    found: dict[str, Any] = served["schema"]["openAPIV3Schema"]
    return found
