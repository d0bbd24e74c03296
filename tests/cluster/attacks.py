"""Attacks on the policy of charts/queues: one change of an honest object, and a part of the refusal."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

from tests.cluster.api import Object
from tests.cluster.run_policy import Change, set_at


class Attack(NamedTuple):
    name: str
    kind: str
    change: Change
    why: str  # in the message: the path of the field, as far as it is special, or what it must be


JOB = ("spec", "replicatedJobs", 0, "template", "spec")
OF_JOB = (*JOB, "template", "spec")
RAY = ("spec", "rayClusterSpec")
HEAD = (*RAY, "headGroupSpec")
WORKER = (*RAY, "workerGroupSpecs", 0)
OF_HEAD, OF_WORKER = (*HEAD, "template", "spec"), (*WORKER, "template", "spec")
CLUSTER_WORKER = ("spec", "workerGroupSpecs", 0, "template", "spec")
YEAR = 31536000
NFS = {"server": "10.0.0.2", "path": "/vision"}


def path(*keys: str | int) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys).removeprefix(".")


def of(kind: str, *keys: str | int, value: Any, name: str = "", why: str = "") -> Attack:
    """Return an attack that sets a value. The message has the path."""
    return Attack(name or f"{path(*keys)[-60:]} {value}"[:90], kind, set_at(*keys, value=value), why or path(*keys))


def job(*keys: str | int, value: Any, why: str = "") -> Attack:
    return of("JobSet", *OF_JOB, *keys, value=value, why=why)


def container(*keys: str | int, value: Any, why: str = "") -> Attack:
    return job("containers", 0, *keys, value=value, why=why)


def volume(name: str, value: Any, why: str = "") -> Attack:
    at = (*OF_JOB, "volumes")
    return Attack(f"volume {name}", "JobSet", add(*at, item={"name": "x", name: value}), why or f".{name} must be")


def add(*keys: str | int, item: Any) -> Change:
    """Return a function that adds an item to a list."""

    def change(obj: Object) -> None:
        node: Any = obj
        for key in keys:
            node = node.setdefault(key, []) if isinstance(node, dict) else node[key]
        node.append(copy.deepcopy(item))

    return change


def both(*changes: Change) -> Change:
    def change(obj: Object) -> None:
        for one in changes:
            one(obj)

    return change


def replicas(*keys: str | int, counts: tuple[int, int, int]) -> Change:
    names = ("replicas", "minReplicas", "maxReplicas")
    return both(*(set_at(*keys, name, value=count) for name, count in zip(names, counts, strict=True)))


def groups(*keys: str | int) -> Change:
    """Return a function that repeats a worker group, each time with a large environment."""

    def change(obj: Object) -> None:
        node: Any = obj
        for key in keys:
            node = node[key]
        (group,) = node["workerGroupSpecs"]
        group["template"]["spec"]["containers"][0]["env"] = [{"name": "X", "value": 60_000 * "x"}]
        node["workerGroupSpecs"] = [{**group, "groupName": f"group-{n}"} for n in range(8)]

    return change


def on_service(*keys: str | int, value: Any, why: str = "") -> Attack:
    return of("RayService", "spec", *keys, value=value, why=why)
