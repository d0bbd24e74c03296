"""Read a run config that others wrote: from an object's annotation, a Ray job's metadata, or a run's folder."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from launcher.json_object import is_shallow, is_surely_shallow, json_object
from launcher.k8s.shapes import Map, Shape, compiled, fault, number, text


def _real(value: Any) -> str:
    real = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return "" if real and abs(value) < 2**63 else "a number"


def _any(_value: Any) -> str:
    return ""


_SHAPE: Mapping[str, Shape] = {
    "run": {"name": text, "kind": text, "command": [text], "graceSeconds": _real},
    "team": {"name": text, "namespace": text},
    "slice": {"accelerator": text, "topology": text, "count": number, "hosts": number},
    "accelerator": {
        **dict.fromkeys(("name", "kind", "label", "topology"), text),
        **dict.fromkeys(("chips", "chipsPerHost", "hosts"), number),
    },
    "storage": {"kind": text, "bucket": text, "claim": text, "mountPath": text},
    "image": Map(_any),
    "train": Map(_any),
    "worker": {key: Map(_any) for key in ("env", "secretEnv", "envFrom")},
}
"""The keys that the launcher reads."""
_has_shape = compiled(_SHAPE)


def wrong(config: Mapping[str, Any]) -> str:
    """Return which key has a wrong type, as a clause; "" if none has."""
    if not is_shallow(config):
        return "it has too many levels"
    return "" if _has_shape(config) else fault(config, _SHAPE)


def parse(data: str | bytes) -> dict[str, Any]:
    """Return the run config in a JSON text; {} if it is not JSON, too deep, or a key has a wrong type."""
    config = json_object(data) or {}
    readable = _has_shape(config) and (is_surely_shallow(data) or is_shallow(config))
    return config if readable else {}
