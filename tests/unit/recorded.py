"""A cluster at one moment of a recording (tests/upstream/recordings), for code that only reads.

The recordings contain what the real Kueue, JobSet, KubeRay and Kubernetes wrote. They lack the flavors, the nodes and
the priority classes, which did not change during a recording; this module creates them.
"""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

from launcher.k8s.client import Kind
from launcher.k8s.errors import Forbidden, KindNotServed
from launcher.k8s.objects import drop
from tests.cluster import recordings

Object = dict[str, Any]

FLAVORS = {
    "v5e-2x4": {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "2x4",
    },
    "v5e-4x4": {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
        "cloud.google.com/gke-tpu-topology": "4x4",
    },
    "cpu": {},
}
TPU_TAINT = {"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}


class Recorded:
    """Answers as launcher.k8s.client.Cluster would, from the objects of a recording, without an API server.

    `hidden`: (plural, namespace or "" for all) of the lists that RBAC forbids. `missing`: kinds that are not served.
    `visible`: the answers of Kueue's visibility API by path. `schemas`: fields of specs, such as
    {"Workload": {"podSets": {"maxItems": 8}}}. `requests`: what was requested.
    """

    def __init__(self, objects: Iterable[Object], now: datetime) -> None:
        self.objects = list(objects)
        self.now = now
        self.hidden: set[tuple[str, str]] = set()
        self.missing: set[str] = set()
        self.visible: dict[str, Any] = {}
        self.requests: list[str] = []
        self.unreadable: dict[str, None] = {}
        self.name = "lab"
        self.schemas: dict[str, dict[str, Any]] = {}

    def add(self, *objects: Object) -> Recorded:
        self.objects += objects
        return self

    def find(self, kind: str, name: str) -> Object:
        """Return the object itself, so that a test can change it in place."""
        return next(obj for obj in self.objects if (obj["kind"], obj["metadata"]["name"]) == (kind, name))

    def drop(self, kind: str) -> Recorded:
        self.objects = [obj for obj in self.objects if obj["kind"] != kind]
        return self

    # --- the methods of launcher.k8s.client.Cluster ---

    def get(self, kind: Kind, name: str, namespace: str | None = None) -> Object | None:
        found = [obj for obj in self.list(kind, namespace) if obj["metadata"]["name"] == name]
        return found[0] if found else None

    def names(self, kind: Kind, namespace: str | None = None) -> set[str]:
        return {obj["metadata"]["name"] for obj in self.list(kind, namespace)}

    def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        all_namespaces: bool = False,
        without: Sequence[str] = (),
    ) -> list[Object]:
        where = "" if all_namespaces or not kind.namespaced else str(namespace)
        self.requests.append(f"{kind.plural} {where}".strip())
        if kind.kind in self.missing:
            raise KindNotServed(f"There are no {kind.plural}.")
        if (kind.plural, where) in self.hidden:
            raise Forbidden("No.", "", verb="list", resource=kind.plural, group=kind.group, namespace=where)
        found = [
            obj
            for obj in self.objects
            if obj["kind"] == kind.kind
            and (not where or obj["metadata"].get("namespace") == where)
            and all(_label(obj, part) for part in labels.split(",") if part)
            and all(_field(obj, part) for part in fields.split(",") if part)
        ]
        if without:
            found = copy.deepcopy(found)
            for obj, path in itertools.product(found, without):
                drop(obj, path.split("."))
        return found

    def fields(self, kind: Kind, *parents: str) -> dict[str, Any]:
        self.requests.append(f"schema of {kind.kind}")
        return self.schemas.get(".".join((kind.kind, *parents)), {})

    def request(self, method: str, path: str, *, query: Mapping[str, str] | None = None, raw: bool = False) -> Any:
        self.requests.append(f"{method} {path}")
        if path == "/version":
            return _Json({}, {"date": format_datetime(self.now, usegmt=True)})
        if path not in self.visible:
            raise KindNotServed(f"There is no {path}.")
        if isinstance(self.visible[path], Exception):
            raise self.visible[path]
        return _Json(self.visible[path])


class _Json:
    def __init__(self, data: Any, headers: Mapping[str, str] | None = None) -> None:
        self._data, self.headers = data, headers or {}

    def json(self) -> Any:
        return self._data


def at(recording: str, seconds: float) -> Recorded:
    """Return the cluster of a recording, `seconds` after its start."""
    objects: dict[tuple[str, str, str], Object] = {}
    began: datetime | None = None
    for change in _changes(recording):
        obj = change.obj
        meta = obj["metadata"]
        if obj["kind"] == "Pod":
            _add_run_label(meta.setdefault("labels", {}))
        if began is None:
            began = datetime.fromisoformat(meta["creationTimestamp"]) - timedelta(seconds=change.t)
        if change.t > seconds:
            break
        key = (obj["kind"], meta.get("namespace", ""), meta["name"])
        if change.type == "DELETED":
            objects.pop(key, None)
        else:
            objects[key] = obj
    assert began is not None, recording
    now = began + timedelta(seconds=seconds + 1)  # Kubernetes' times are rounded down to whole seconds
    return Recorded([*copy.deepcopy(list(objects.values())), *flavors(), *nodes(), *priorities()], now)


def _add_run_label(labels: dict[str, str]) -> None:
    """Add the run's name to the labels of a pod: the charts set it, but the recorded pods do not have it."""
    run = labels.get("jobset.sigs.k8s.io/jobset-name") or labels.get("ray.io/cluster", "").rpartition("-")[0]
    if run:
        labels.setdefault("slipway.dev/run", run)


@functools.cache
def _changes(recording: str) -> list[recordings.Change]:
    return recordings.read(recording)


def flavors() -> list[Object]:
    return [
        {"kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {"nodeLabels": labels}}
        for name, labels in FLAVORS.items()
    ]


def nodes() -> list[Object]:
    """Return the nodes of three v5e slices of 2x4, and two cpu nodes."""
    tpu_nodes = [
        node(f"nodepool{pool}-{index}", FLAVORS["v5e-2x4"], [TPU_TAINT], {"google.com/tpu": "4"})
        for pool in (1, 2, 3)
        for index in (0, 1)
    ]
    return [*tpu_nodes, node("cpu-0"), node("cpu-1")]


def node(
    name: str,
    labels: Mapping[str, str] | None = None,
    taints: list[Object] | None = None,
    allocatable: Mapping[str, str] | None = None,
) -> Object:
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {"taints": list(taints or [])},
        "status": {"allocatable": {"cpu": "180", "memory": "700Gi", **(allocatable or {})}},
    }


def priorities() -> list[Object]:
    return [
        {"kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
        for name, value in (("low", 100), ("normal", 500), ("high", 10000))
    ]


def event(recorded: Recorded, of: Object, reason: str, message: str, *, warning: bool = True, ago: float = 1) -> Object:
    """Return an Event with the fields that Kubernetes' event recorders write."""
    meta = of["metadata"]
    return {
        "kind": "Event",
        "metadata": {"name": f"{meta['name']}.{reason.lower()}.{ago}", "namespace": meta["namespace"]},
        "involvedObject": {"kind": of["kind"], "name": meta["name"], "uid": meta["uid"]},
        "type": "Warning" if warning else "Normal",
        "reason": reason,
        "message": message,
        "count": 1,
        "lastTimestamp": stamp(recorded.now - timedelta(seconds=ago)),
    }


def stamp(moment: datetime) -> str:
    """Return a time in the format of Kubernetes."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _label(obj: Object, selector: str) -> bool:
    labels = obj["metadata"].get("labels") or {}
    if selector.startswith("!"):
        return selector[1:] not in labels
    key, equals, value = selector.partition("=")
    return bool(labels.get(key) == value) if equals else key in labels


def _field(obj: Object, selector: str) -> bool:
    path, _, value = selector.partition("=")
    found: Any = obj
    for part in path.removesuffix("!").split("."):
        found = (found or {}).get(part)
    return ((found or "") == value) != path.endswith("!")
