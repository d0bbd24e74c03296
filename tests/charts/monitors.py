"""The schemas of the objects that configure Prometheus: monitors of pods, and rules."""

from __future__ import annotations

import functools
from typing import Any

import yaml

from tests.tools.go_modules import Module

_OPERATOR = Module(
    "github.com/prometheus-operator/prometheus-operator", "v0.85.0", "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
)
_CRDS = {
    kind: f"example/prometheus-operator-crd/monitoring.coreos.com_{kind.lower()}s.yaml"
    for kind in ("PodMonitor", "PrometheusRule")
}

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
# As above: the part of ClusterRules that the charts use. Each group requires an interval, and a rule an expression.
_CLUSTER_RULES: dict[str, Any] = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["groups"],
            "properties": {
                "groups": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name", "interval", "rules"],
                        "properties": {
                            "name": {"type": "string"},
                            "interval": {"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"},
                            "rules": {
                                "type": "array",
                                "items": {
                                    "type": "object",
                                    "required": ["expr"],
                                    "properties": {
                                        **{name: {"type": "string"} for name in ("alert", "record", "expr", "for")},
                                        **{
                                            name: {"type": "object", "additionalProperties": {"type": "string"}}
                                            for name in ("labels", "annotations")
                                        },
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}
_MANAGED = {"PodMonitoring": _POD_MONITORING, "ClusterRules": _CLUSTER_RULES}
GROUPS = ("monitoring.coreos.com", "monitoring.googleapis.com")


@functools.cache
def schema(api_version: str, kind: str) -> dict[str, Any] | None:
    """Return the schema of a kind, in the form of a CRD. Returns None if neither operator defines the kind."""
    if api_version == "monitoring.googleapis.com/v1":
        return _MANAGED.get(kind)
    if api_version != "monitoring.coreos.com/v1" or kind not in _CRDS:
        return None
    crd = yaml.load(_OPERATOR.file(_CRDS[kind]).read_text(), yaml.CSafeLoader)
    [served] = crd["spec"]["versions"]
    found: dict[str, Any] = served["schema"]["openAPIV3Schema"]
    return found
