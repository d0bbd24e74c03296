"""What one run of the suite has made in a cluster: found by its id, and removed.

Every name that a run of the suite gives begins with its id (e2e-1a2b3c), which no other run has, and its first object
is a namespace of that name with the label slipway.dev/e2e. That namespace goes last, so what was left by a suite that
was killed is found by the label, whenever.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator

from tests.cluster.api import Api, ApiError, Object
from tests.e2e.settings import LABEL

OWNER = f"{LABEL}-owner"
"""The annotation with the host and the process of the suite."""

Say = Callable[[str], None]

NODES = "/api/v1/nodes"
RUNS = (
    "/apis/ray.io/v1/namespaces/{}/rayjobs",
    "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets",
    "/apis/ray.io/v1/namespaces/{}/rayclusters",
)
CLUSTER_WIDE = (
    "/apis/kueue.x-k8s.io/v1beta2/clusterqueues",
    "/apis/kueue.x-k8s.io/v1beta2/cohorts",
    "/apis/kueue.x-k8s.io/v1beta2/resourceflavors",
    "/apis/kueue.x-k8s.io/v1beta2/topologies",
    "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    NODES,
)
"""Where the suite and the charts make objects outside namespaces."""
NAMESPACES = "/api/v1/namespaces"
# What a finalizer holds that long has nobody left to take it off.
_STUCK_SECONDS = 60.0
# They are records of what was, and Kubernetes drops them itself.
_RECORDS = ("events",)
_NOT_LISTED = ("metrics.k8s.io", "visibility.kueue.x-k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io")


def claim(api: Api, ident: str) -> None:
    """Make the run's first object. Raises ApiError."""
    owner = f"{socket.gethostname()}:{os.getpid()}"
    metadata = {"name": ident, "labels": {LABEL: ident}, "annotations": {OWNER: owner}}
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


def known(api: Api) -> dict[str, str]:
    """The ids of all runs of the suite that have left something, each with its owner ("host:process", or "")."""
    found = {}
    for namespace in api.items(f"{NAMESPACES}?labelSelector={LABEL}"):
        metadata = namespace["metadata"]
        found[metadata["labels"][LABEL]] = (metadata.get("annotations") or {}).get(OWNER, "")
    for node in _listed(api, f"{NODES}?labelSelector={LABEL}"):
        found.setdefault(node["metadata"]["labels"][LABEL], "")
    return found


def may_run(owner: str) -> bool:
    """Whether the suite that an owner names may still be at work: it is of another machine, or is alive here."""
    host, _, process = owner.rpartition(":")
    if not process.isdecimal():
        return False
    if host != socket.gethostname():
        return True
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def belongs(ident: str, name: str) -> bool:
    """Whether `name` is `ident` or begins with it and a hyphen."""
    return name == ident or name.startswith(f"{ident}-")


def clean(api: Api, ident: str, say: Say, seconds: float = 300) -> list[str]:
    """Remove all that has the id; what is still there after `seconds`, by "kind name".

    Runs go first, then queues, then namespaces: Kueue holds on to queues and flavors that are in use. Finalizers of
    the run's own objects that nobody takes off are taken off after a minute, with a word.
    """
    begun = time.monotonic()
    said: set[str] = set()
    while True:
        left = _of(api, ident)
        if not left:
            return []
        elapsed = time.monotonic() - begun
        if elapsed > seconds:
            return [thing.called for thing in left]
        first = min(thing.order for thing in left)
        for thing in left:
            if thing.order > max(first, 1):  # runs and queues may go together
                continue
            if elapsed > _STUCK_SECONDS and thing.deleting and thing.finalizers:
                if thing.called not in said:
                    said.add(thing.called)
                    say(
                        f"{thing.called} is held by {', '.join(thing.finalizers)}, which nobody takes off; it is taken."
                    )
                _quietly(lambda path=thing.path: api.merge(path, {"metadata": {"finalizers": None}}))  # type: ignore[misc]
            elif not thing.deleting and not thing.by_itself:
                _quietly(lambda path=thing.path: api.delete(path))  # type: ignore[misc]
        time.sleep(1)


class Thing:
    """One object of a run of the suite.

    order: what goes first: 0 runs, 1 queues and rights, 2 namespaces, 3 nodes, 4 the first namespace. Workloads go with
    their runs, by themselves.
    """

    def __init__(self, path: str, obj: Object, order: int) -> None:
        self.path, self.order = path, order
        self.by_itself = "/workloads/" in path
        metadata = obj["metadata"]
        self.deleting = "deletionTimestamp" in metadata
        self.finalizers: list[str] = list(metadata.get("finalizers") or [])
        kind = path.split("/")[-2]
        space = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
        self.called = f"{kind} {space}{metadata['name']}"


def _of(api: Api, ident: str) -> list[Thing]:
    found: list[Thing] = []
    for namespace in api.items(NAMESPACES):
        name = namespace["metadata"]["name"]
        if not belongs(ident, name):
            continue
        found.append(Thing(f"{NAMESPACES}/{name}", namespace, 4 if name == ident else 2))
        for place in RUNS:
            path = place.format(name)
            found += [Thing(f"{path}/{run['metadata']['name']}", run, 0) for run in _listed(api, path)]
        path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{name}/workloads"
        found += [Thing(f"{path}/{one['metadata']['name']}", one, 0) for one in _listed(api, path)]
    for path in CLUSTER_WIDE:
        for obj in _listed(api, path):
            if belongs(ident, obj["metadata"]["name"]):
                found.append(Thing(f"{path}/{obj['metadata']['name']}", obj, 3 if path == NODES else 1))
    return found


def mentions(api: Api, word: str) -> list[str]:
    """Every object of every kind of the cluster that has `word` in it, by "path name", but records such as Events."""
    found = []
    for path in listable(api):
        for obj in _pages(api, path):
            obj.get("metadata", {}).pop("managedFields", None)
            if word in json.dumps(obj):
                metadata = obj["metadata"]
                found.append(f"{path} {metadata.get('namespace', '')}/{metadata['name']}".replace(" /", " "))
    return sorted(found)


def listable(api: Api) -> list[str]:
    """The paths of all kinds that can be listed, each in the version that the API server prefers."""
    paths = []
    groups = api.get("/apis")["groups"]
    bases = [
        "/api/v1",
        *(f"/apis/{g['preferredVersion']['groupVersion']}" for g in groups if g["name"] not in _NOT_LISTED),
    ]
    for base in bases:
        try:
            resources = api.get(base)["resources"]
        except ApiError:  # an aggregated API whose server is away: nothing of ours is there
            continue
        for resource in resources:
            if "list" in resource["verbs"] and "/" not in resource["name"] and resource["name"] not in _RECORDS:
                paths.append(f"{base}/{resource['name']}")
    return paths


def _pages(api: Api, path: str) -> Iterator[Object]:
    going_on = ""
    while True:
        try:
            page = api.get(f"{path}?limit=500{f'&continue={going_on}' if going_on else ''}")
        except ApiError as error:
            if error.status in (403, 404, 405):
                return
            raise
        yield from page["items"]
        going_on = page["metadata"].get("continue") or ""
        if not going_on:
            return


def _listed(api: Api, path: str) -> list[Object]:
    """The objects there; none where there is no such kind, or where they may not be seen."""
    try:
        return api.items(path)
    except ApiError as error:
        if error.status in (403, 404):
            return []
        raise


def _quietly(act: Callable[[], object]) -> None:
    """Gone, changed or being deleted in this moment: the next look tells."""
    with contextlib.suppress(ApiError):
        act()
