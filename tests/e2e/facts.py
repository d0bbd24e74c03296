"""Reads what the cluster has, once, before the tests. Changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from launcher.config import versions
from launcher.k8s.objects import annotation, label, name, namespace, quantity
from tests.cluster.api import Api, ApiError, Object, collection
from tests.e2e.needs import RIGHTS, Controller, Facts
from tests.e2e.settings import Settings

_IMAGES = {"kueue": ("kueue",), "jobset": ("jobset",), "kuberay": ("kuberay/operator", "kuberay-operator")}
_GROUPS = ("kueue.x-k8s.io", "jobset.x-k8s.io", "ray.io")
_KWOK = "kwok.x-k8s.io/node"
_GIB = 2**30
WITHOUT_RAY = "slipway.dev/e2e-without-ray"
"""The annotation of an operator that starts no Ray: its value is the reason."""


def read(api: Api, settings: Settings, earlier: str) -> Facts:
    """The installed parts of the cluster. Something that the user has no right to read counts as missing.

    earlier: why the charts of an earlier release are not available, or "".
    """
    nodes = _items(api, "/api/v1/nodes")
    usable = [node for node in nodes or [] if _usable(node)]
    deployments = _items(api, "/apis/apps/v1/deployments")
    why_simulated = _why_not_simulated(api, settings, deployments or [])
    storage, storage_class, mode = _storage(api, settings, len(usable))
    return Facts(
        controllers=_controllers(deployments or []),
        crds=_served(api),
        nodes=len(usable),
        cpu=float(sum(quantity(_allocatable(node, "cpu")) for node in usable)),
        memory_gib=float(sum(quantity(_allocatable(node, "memory")) for node in usable)) / _GIB,
        node_addresses=tuple(sorted(address for node in nodes or [] for address in _addresses(node))),
        simulated=why_simulated,
        storage=storage,
        storage_class=storage_class,
        access_mode=mode,
        refused=frozenset(right for right, what in RIGHTS.items() if not _may(api, *what)),
        image=settings.image,
        earlier=earlier,
        ray=next((why for one in deployments or [] if (why := annotation(one, WITHOUT_RAY))), ""),
        restart_job=_why_no_restart_job(api),
        kubernetes=str(api.get("/version").get("gitVersion", "")),
    )


def is_simulated(node: Object) -> bool:
    """Whether KWOK simulates this node."""
    return _KWOK in (node["metadata"].get("annotations") or {})


def _items(api: Api, path: str) -> list[Object] | None:
    """The objects at `path`; None if the user may not list them or the kind does not exist."""
    try:
        return api.items(path)
    except ApiError as error:
        if error.status in (403, 404):
            return None
        raise


def _usable(node: Object) -> bool:
    conditions = {entry["type"]: entry["status"] for entry in node.get("status", {}).get("conditions", ())}
    closed = [taint for taint in node["spec"].get("taints") or [] if taint["effect"] in ("NoSchedule", "NoExecute")]
    return (
        conditions.get("Ready") == "True"
        and not closed
        and not node["spec"].get("unschedulable")
        and not is_simulated(node)
    )


def _allocatable(node: Object, resource: str) -> str:
    return str((node["status"].get("allocatable") or {}).get(resource, "0"))


def _addresses(node: Object) -> list[str]:
    if is_simulated(node):
        return []
    return [entry["address"] for entry in node["status"].get("addresses") or [] if entry["type"] == "InternalIP"]


def _controllers(deployments: list[Object]) -> dict[str, Controller]:
    found: dict[str, Controller] = {}
    for deployment in deployments:
        for key, ends in _IMAGES.items():
            image = _image(deployment, ends)
            ready = bool((deployment.get("status") or {}).get("availableReplicas"))
            if not image or (key in found and (found[key].ready or not ready)):
                continue
            tag = versions.image_parts(image)[1]
            version = tag if versions.parse(tag) else label(deployment, "app.kubernetes.io/version")
            found[key] = Controller(name(deployment), version.removeprefix("v"), ready, namespace(deployment))
    return found


def _image(deployment: Object, ends: tuple[str, ...]) -> str:
    for container in deployment["spec"]["template"]["spec"]["containers"]:
        repository = "/" + versions.image_parts(container["image"])[0]
        if any(repository.endswith(f"/{end}") for end in ends):
            return str(container["image"])
    return ""


def _served(api: Api) -> frozenset[str]:
    found = set()
    groups = api.get("/apis")["groups"]
    for group in groups:
        if group["name"] not in _GROUPS:
            continue
        for version in group["versions"]:
            for resource in api.get(f"/apis/{version['groupVersion']}")["resources"]:
                found.add(f"{resource['name']}.{group['name']}/{version['version']}")
    return frozenset(found)


def _may(api: Api, verb: str, group: str, resource: str) -> bool:
    plain, _, sub = resource.partition("/")
    attributes: dict[str, Any] = {"verb": verb, "group": group, "resource": plain, "subresource": sub}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    made = api.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool(made["status"].get("allowed"))


def _why_no_restart_job(api: Api) -> str:
    """Why JobSet refuses its action RestartJob, which no object of the cluster shows; "" if it does not."""
    pods = {"restartPolicy": "Never", "containers": [{"name": "x", "image": "example.invalid/x:1"}]}
    job = {"name": "x", "template": {"spec": {"template": {"spec": pods}}}}
    policy = {"rules": [{"name": "x", "action": "RestartJob"}]}
    job_set = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "slipway-e2e", "namespace": "default"},
        "spec": {"failurePolicy": policy, "replicatedJobs": [job]},
    }
    try:
        api.request("POST", f"{collection(job_set)}?dryRun=All", job_set)
    except ApiError as error:
        return str(error.body.get("message") or error.status)
    return ""


def _why_not_simulated(api: Api, settings: Settings, deployments: list[Object]) -> str:
    """Why the suite cannot create nodes whose pods KWOK simulates and the suite ends; "" if it can."""
    if settings.kwok == "no":
        return "SLIPWAY_E2E_KWOK is no"
    controllers = [one for one in deployments if _image(one, ("kwok",))]
    if settings.kwok == "auto" and not controllers:
        return "no KWOK controller was found; set SLIPWAY_E2E_KWOK=yes if it runs outside the cluster"
    stages = _items(api, "/apis/kwok.x-k8s.io/v1alpha1/stages") or []
    for stage in stages:
        if ends_jobs_at_once(stage):
            return f"KWOK's Stage {name(stage)} ends the pods of every Job at once; tests/e2e/kind has different stages"
    return ""


def ends_jobs_at_once(stage: Object) -> bool:
    """Whether a KWOK Stage ends pods of Jobs that have no label or annotation for it, as stage-fast.yaml does."""
    spec = stage["spec"]
    selector = spec.get("selector") or {}
    keys = [str(entry.get("key", "")) for entry in selector.get("matchExpressions") or []]
    asked = any(".annotations" in key or ".labels" in key for key in keys)
    asked = asked or bool(selector.get("matchAnnotations") or selector.get("matchLabels"))
    ends = "phase: Succeeded" in str((spec.get("next") or {}).get("statusTemplate") or "")
    return spec.get("resourceRef", {}).get("kind") == "Pod" and ends and not asked


def _storage(api: Api, settings: Settings, nodes: int) -> tuple[str, str, str]:
    """Why no storage is available (or ""), the StorageClass, and the access mode."""
    classes = {name(one): one for one in _items(api, "/apis/storage.k8s.io/v1/storageclasses") or []}
    if settings.storage_class:
        if settings.storage_class not in classes:
            available = ", ".join(sorted(classes)) or "none"
            return f"StorageClass {settings.storage_class} not found; available: {available}", "", "ReadWriteMany"
        return "", settings.storage_class, "ReadWriteOnce" if nodes == 1 else "ReadWriteMany"
    mark = "storageclass.kubernetes.io/is-default-class"
    default = [n for n, one in classes.items() if (one["metadata"].get("annotations") or {}).get(mark) == "true"]
    if nodes == 1 and default:
        return "", default[0], "ReadWriteOnce"  # all pods on one node can mount it
    if nodes == 1:
        return "the cluster has no default StorageClass; name one in SLIPWAY_E2E_STORAGE_CLASS", "", "ReadWriteOnce"
    return "name a StorageClass with ReadWriteMany in SLIPWAY_E2E_STORAGE_CLASS", "", "ReadWriteMany"


def with_storage(facts: Facts) -> Facts:
    """The facts if the user's own values define the storage of runs."""
    return replace(facts, storage="", storage_class="")
