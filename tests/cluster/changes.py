"""What differs between two states of an object, as an API server takes it: pure functions."""

from __future__ import annotations

from typing import Any

from tests.cluster.api import Object

SERVER_SET = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink")
DELETION = ("deletionTimestamp", "deletionGracePeriodSeconds")


def part_of(obj: Object, part: str) -> Object:
    """The object's metadata, without what the server sets, or another part of it; {} where it has none."""
    found: Object = without_server_fields(obj).get(part, {})
    return found


def stripped(run: Object) -> Object:
    """A run without what its creator decides: all of its spec but spec.suspend, and its labels."""
    metadata = run["metadata"]
    kept = {key: metadata[key] for key in ("name", "namespace", "finalizers", *DELETION) if key in metadata}
    return {
        **{key: run[key] for key in ("apiVersion", "kind")},
        "metadata": kept,
        "spec": {"suspend": run["spec"].get("suspend", False)},
        "status": run.get("status", {}),
    }


def without_server_fields(obj: Object) -> Object:
    """A copy as somebody would send it."""
    metadata = {key: value for key, value in obj["metadata"].items() if key not in (*SERVER_SET, *DELETION)}
    # A foreground deletion's finalizer is the server's to set.
    if "finalizers" in metadata:
        metadata["finalizers"] = [item for item in metadata["finalizers"] if item != "foregroundDeletion"]
    return {**obj, "metadata": metadata}


def difference(old: Any, new: Any) -> Object:
    """A merge patch that leads from `old` to `new`."""
    patch: Object = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            if below := difference(before, value):
                patch[key] = below
        elif before != value:
            patch[key] = value
    return patch


def deletion(obj: Object) -> tuple[Any, ...]:
    """By when the object is to be gone; Nones where nobody has asked for that."""
    return tuple(obj["metadata"].get(key) for key in DELETION)
