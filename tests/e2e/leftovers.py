"""Finds what a run of the suite created in a cluster, by the run's id, and removes it.

All names of a run of the suite begin with its unique id (e2e-1a2b3c). The run's first object is a namespace with that
name and the label slipway.dev/e2e. That namespace is removed last, so the label always finds what a killed suite left.
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

Print = Callable[[str], None]

NODES = "/api/v1/nodes"
RUNS = (
    "/apis/ray.io/v1/namespaces/{}/rayjobs",
    "/apis/ray.io/v1/namespaces/{}/rayservices",
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
"""Cluster-scoped kinds of which the suite or the charts create objects."""
NAMESPACES = "/api/v1/namespaces"
# No controller removes a finalizer that is still set after this time.
_STUCK_SECONDS = 60.0
# Kubernetes itself deletes these records of the past.
_RECORDS = ("events",)
_NOT_LISTED = ("metrics.k8s.io", "visibility.kueue.x-k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io")


def claim(api: Api, ident: str) -> None:
    """Create the run's first object. Raises ApiError."""
    owner = f"{socket.gethostname()}:{os.getpid()}"
    metadata = {"name": ident, "labels": {LABEL: ident}, "annotations": {OWNER: owner}}
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


def known(api: Api) -> dict[str, str]:
    """The ids of all runs of the suite with objects in the cluster, each with its owner ("host:process", or "")."""
    found = {}
    for namespace in api.items(f"{NAMESPACES}?labelSelector={LABEL}"):
        metadata = namespace["metadata"]
        found[metadata["labels"][LABEL]] = (metadata.get("annotations") or {}).get(OWNER, "")
    for node in _listed(api, f"{NODES}?labelSelector={LABEL}"):
        found.setdefault(node["metadata"]["labels"][LABEL], "")
    return found


def may_run(owner: str) -> bool:
    """Whether the suite of an owner may still run: it is on another machine, or its process here is alive."""
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


def clean(api: Api, ident: str, report: Print, seconds: float = 300) -> list[str]:
    """Remove all objects with the id. Returns those that still exist after `seconds`, as "kind name".

    Runs are removed first, then queues, then namespaces, because Kueue keeps queues and flavors that are in use. If no
    controller removes the finalizers of an object within a minute, they are removed here, and `report` gets a message.
    """
    begun = time.monotonic()
    reported: set[str] = set()
    while True:
        left = _objects(api, ident)
        if not left:
            return []
        elapsed = time.monotonic() - begun
        if elapsed > seconds:
            return [each.title for each in left]
        first = min(each.order for each in left)
        for each in left:
            if each.order > max(first, 1):  # runs and queues can be removed together
                continue
            if elapsed > _STUCK_SECONDS and each.deleting and each.finalizers:
                if each.title not in reported:
                    reported.add(each.title)
                    report(
                        f"{each.title} has finalizers that no controller removes ({', '.join(each.finalizers)}); "
                        "they are removed now."
                    )
                _ignore_api_errors(
                    lambda path=each.path: api.merge(path, {"metadata": {"finalizers": None}})  # type: ignore[misc]
                )
            elif not each.deleting and not each.garbage_collected:
                _ignore_api_errors(lambda path=each.path: api.delete(path))  # type: ignore[misc]
        time.sleep(1)


class SuiteObject:
    """One object of a run of the suite.

    order: lower numbers are removed first: 0 runs, 1 queues and rights, 2 namespaces, 3 nodes, 4 the first namespace.
    garbage_collected: true for Workloads, which Kubernetes removes with their runs.
    """

    def __init__(self, path: str, obj: Object, order: int) -> None:
        self.path, self.order = path, order
        self.garbage_collected = "/workloads/" in path
        metadata = obj["metadata"]
        self.deleting = "deletionTimestamp" in metadata
        self.finalizers: list[str] = list(metadata.get("finalizers") or [])
        kind = path.split("/")[-2]
        space = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
        self.title = f"{kind} {space}{metadata['name']}"


def _objects(api: Api, ident: str) -> list[SuiteObject]:
    found: list[SuiteObject] = []
    for namespace in api.items(NAMESPACES):
        name = namespace["metadata"]["name"]
        if not belongs(ident, name):
            continue
        found.append(SuiteObject(f"{NAMESPACES}/{name}", namespace, 4 if name == ident else 2))
        for place in RUNS:
            path = place.format(name)
            found += [SuiteObject(f"{path}/{run['metadata']['name']}", run, 0) for run in _listed(api, path)]
        path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{name}/workloads"
        found += [SuiteObject(f"{path}/{one['metadata']['name']}", one, 0) for one in _listed(api, path)]
    for path in CLUSTER_WIDE:
        for obj in _listed(api, path):
            if belongs(ident, obj["metadata"]["name"]):
                found.append(SuiteObject(f"{path}/{obj['metadata']['name']}", obj, 3 if path == NODES else 1))
    return found


def mentions(api: Api, word: str) -> list[str]:
    """All objects of the cluster, of any kind except records such as Events, that contain `word`, as "path name"."""
    found = []
    for path in listable(api):
        for obj in _pages(api, path):
            obj.get("metadata", {}).pop("managedFields", None)
            if word in json.dumps(obj):
                metadata = obj["metadata"]
                found.append(f"{path} {metadata.get('namespace', '')}/{metadata['name']}".replace(" /", " "))
    return sorted(found)


def listable(api: Api) -> list[str]:
    """The paths of all kinds that can be listed, in the API server's preferred versions."""
    paths = []
    groups = api.get("/apis")["groups"]
    bases = [
        "/api/v1",
        *(f"/apis/{g['preferredVersion']['groupVersion']}" for g in groups if g["name"] not in _NOT_LISTED),
    ]
    for base in bases:
        try:
            resources = api.get(base)["resources"]
        except ApiError:  # an aggregated API whose server is down; it has no objects of the suite
            continue
        for resource in resources:
            if "list" in resource["verbs"] and "/" not in resource["name"] and resource["name"] not in _RECORDS:
                paths.append(f"{base}/{resource['name']}")
    return paths


def _pages(api: Api, path: str) -> Iterator[Object]:
    next_page = ""
    while True:
        try:
            page = api.get(f"{path}?limit=500{f'&continue={next_page}' if next_page else ''}")
        except ApiError as error:
            if error.status in (403, 404, 405):
                return
            raise
        yield from page["items"]
        next_page = page["metadata"].get("continue") or ""
        if not next_page:
            return


def _listed(api: Api, path: str) -> list[Object]:
    """The objects at `path`; empty if the kind does not exist or the user may not list it."""
    try:
        return api.items(path)
    except ApiError as error:
        if error.status in (403, 404):
            return []
        raise


def _ignore_api_errors(act: Callable[[], object]) -> None:
    """Call `act`. The object may have been changed or deleted in the meantime; the caller lists the objects again."""
    with contextlib.suppress(ApiError):
        act()
