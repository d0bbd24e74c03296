"""The worker groups and the pods of a Ray cluster: one that is long-lived, or that of a served model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from launcher.config.accelerators import AMD_RESOURCE, GPU_LABEL, NVIDIA_RESOURCE, TPU_LABEL, TPU_RESOURCE
from launcher.k8s import label_keys, objects
from launcher.k8s.client import POD, Cluster
from launcher.k8s.objects import Object
from launcher.k8s.pods import Pod

_TOPOLOGY = "cloud.google.com/gke-tpu-topology"
KINDS = {TPU_RESOURCE: "tpu", NVIDIA_RESOURCE: "gpu", AMD_RESOURCE: "gpu"}


@dataclass(frozen=True)
class Group:
    """A worker group of `slices` slices with `hosts` hosts each. With Ray's autoscaler, `slices` is the maximum.

    `kind` is tpu, gpu or cpu. `chips` is the number of chips of one host. `label` and `topology` are those of the
    nodes, "" if the pods do not request one.
    """

    name: str
    kind: str
    label: str
    topology: str
    chips: int
    hosts: int
    slices: int

    def as_text(self) -> str:
        if self.kind == "cpu":
            return f"{counted(self.slices * self.hosts, 'host')} without chips"
        shape = " ".join(filter(None, (self.label or self.kind, self.topology)))
        per_slice = f"{counted(self.hosts, 'host')} with {self.chips} chips"
        return f"{counted(self.slices, 'slice')} of {shape} ({per_slice})"


@dataclass(frozen=True)
class Host:
    """A pod of a cluster: the head, or a member of a worker group."""

    pod: str
    group: str
    node: str
    ready: bool
    chips: int
    reason: str = ""

    def as_row(self) -> tuple[str, str, str, str, str]:
        """Return its row in the table of a status."""
        ready = "yes" if self.ready else self.reason or "no"
        return self.pod, self.group, self.node or "(none)", ready, str(self.chips or "")


def groups_of(ray_cluster: Object) -> list[Group]:
    return groups_in(ray_cluster, KINDS, GPU_LABEL)


def groups_in(ray_cluster: Object, kinds: Mapping[str, str], gpu_label: str) -> list[Group]:
    return [_group(spec, kinds, gpu_label) for spec in ray_cluster["spec"].get("workerGroupSpecs") or []]


def _group(spec: Object, kinds: Mapping[str, str], gpu_label: str) -> Group:
    pod = spec["template"]["spec"]
    selector = pod.get("nodeSelector") or {}
    chips: dict[str, int] = {}
    for name, of in kinds.items():
        chips[of] = chips.get(of, 0) + sum(_limit(each, name) for each in pod["containers"])
    kind = next((kind for kind, number in chips.items() if number), "cpu")
    label = selector.get(TPU_LABEL if kind == "tpu" else gpu_label, "") if kind != "cpu" else ""
    replicas = max(int(spec.get("replicas") or 0), _elastic(spec))
    return Group(
        name=str(spec.get("groupName") or ""),
        kind=kind,
        label=str(label),
        topology=str(selector.get(_TOPOLOGY, "")),
        chips=chips.get(kind, 0),
        hosts=int(spec.get("numOfHosts") or 1),
        slices=replicas,
    )


def _elastic(spec: Object) -> int:
    """Return the maximum number of replicas of a group; 0 for KubeRay's default, which is unlimited."""
    most = int(spec.get("maxReplicas") or 0)
    return most if most < 2**31 - 1 else 0


def host(pod: Pod) -> Host:
    """Return a pod of a Ray cluster as a host."""
    ready = pod.ready and not pod.deleting
    waiting = next((each.waiting.reason for each in pod.containers if each.waiting and each.waiting.reason), "")
    head = pod.label(label_keys.RAY_NODE_TYPE) == "head"
    return Host(
        pod=pod.name,
        group="head" if head else pod.label(label_keys.RAY_GROUP),
        node=pod.node,
        ready=ready,
        chips=sum(_limit(each, name) for each in pod.spec["containers"] for name in KINDS),
        reason="" if ready else waiting or pod.scheduled.reason or pod.phase,
    )


def not_ready(cluster: Cluster, live: Object) -> str:
    """Return why a RayCluster is not ready; "" if it is."""
    name = objects.name(live)
    called = f"RayCluster {name}"
    if objects.is_true(live, "HeadPodReady") and objects.is_true(live, "RayClusterProvisioned"):
        return ""
    if live["spec"].get("suspend"):
        queue = objects.label(live, label_keys.KUEUE_QUEUE)
        return f"{called} waits in the queue {queue} for its chips." if queue else f"{called} is suspended."
    if not objects.status(live):
        return f"{called}: KubeRay has not processed it yet."
    failure = objects.condition(live, "ReplicaFailure")
    if failure.is_true:
        return f"{called}: its pods cannot be created: {failure.message.rstrip('.')}."
    pods = list(map(Pod, cluster.list(POD, objects.namespace(live), labels=f"{label_keys.RAY_CLUSTER}={name}")))
    waiting = [pod for pod in pods if not pod.ready]
    if waiting:
        why = _why(waiting[0])
        return f"{called}: {len(pods) - len(waiting)} of {len(pods)} pods are ready; {waiting[0].name}: {why}."
    return f"{called}: it has {len(pods)} pods, but KubeRay does not report it as provisioned yet."


def _why(pod: Pod) -> str:
    """Return why a pod is not ready, as Kubernetes reports it."""
    for container in pod.all_containers:
        waiting = container.waiting
        if waiting is not None and waiting.reason not in ("", "PodInitializing"):
            return ": ".join(part.rstrip(".") for part in (waiting.reason, waiting.message) if part)
    if pod.scheduled.is_false and pod.scheduled.message:
        return pod.scheduled.message.rstrip(".")
    return (pod.phase or "Pending").lower()


def _limit(container: Object, name: str) -> int:
    """Return a container's limit of an extended resource, a whole number; 0 if there is none."""
    resources = container.get("resources") or {}
    amount = (resources.get("limits") or {}).get(name) or (resources.get("requests") or {}).get(name) or 0
    return int(Decimal(objects.quantity(amount)))


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
