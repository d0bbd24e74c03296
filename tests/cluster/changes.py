"""Differences between two states of an object, as patches that an API server accepts. Pure functions."""

from __future__ import annotations

from typing import Any

from tests.cluster.api import Object

SERVER_SET = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink")
DELETION = ("deletionTimestamp", "deletionGracePeriodSeconds")


def part_of(obj: Object, part: str) -> Object:
    """A part of the object, {} if it does not have it. Metadata is returned without the fields that the server sets."""
    found: Object = without_server_fields(obj).get(part, {})
    return found


def stripped(run: Object) -> Object:
    """A run without what its creator sets: its labels, and its spec except spec.suspend."""
    metadata = run["metadata"]
    kept = {key: metadata[key] for key in ("name", "namespace", "finalizers", *DELETION) if key in metadata}
    return {
        **{key: run[key] for key in ("apiVersion", "kind")},
        "metadata": kept,
        "spec": {"suspend": run["spec"].get("suspend", False)},
        "status": run.get("status", {}),
    }


def without_server_fields(obj: Object) -> Object:
    """A copy without the fields that the server sets, as a client sends it."""
    metadata = {key: value for key, value in obj["metadata"].items() if key not in (*SERVER_SET, *DELETION)}
    # The server sets the finalizer of a foreground deletion.
    if "finalizers" in metadata:
        metadata["finalizers"] = [item for item in metadata["finalizers"] if item != "foregroundDeletion"]
    return {**obj, "metadata": metadata}


def difference(old: Any, new: Any) -> Object:
    """The merge patch from `old` to `new`."""
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
    """The deletion timestamp and grace period; Nones if the object is not being deleted."""
    return tuple(obj["metadata"].get(key) for key in DELETION)
