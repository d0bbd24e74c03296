"""Chips that pods use although no quota counts them: the pods that have nodes, compared with Kueue's Workloads. Pure.

Kueue counts what a Workload has reserved, and releases it when the job has ended or was stopped. Pods can outlive that:
a Ray cluster that is kept after its job, or a pod with a long grace period. Pods can also exceed it, or have no
Workload.

The pods of an object are compared with all quota of that object, as a sum. A label or annotation that names another
object therefore hides nothing: the other object then uses more than its quota.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from launcher.config.accelerators import CHIPS
from launcher.formatting import duration
from launcher.k8s import label_keys
from launcher.k8s.kueue.workloads import Workload, pod_asks
from launcher.k8s.objects import ApiObject, Object, quantity, seconds_since
from launcher.k8s.pods import Pod

_PARTITION = "nvidia.com/mig-"
SETTLES = 60
"""Seconds that a controller may take to delete the pods of an ended object, or Kueue to create a Workload."""
ENDS = 600
"""Seconds that a pod may take to end: the longest grace period that charts/queues allows by default."""
_MOST_NODES = 4

# The fields of pods that are not needed here, and are most of their text.
_OF_CONTAINERS = ("image", "command", "args", "env", "envFrom", "volumeMounts")
UNUSED = (
    *(f"spec.{each}.*.{field}" for each in ("containers", "initContainers") for field in _OF_CONTAINERS),
    *(f"spec.{field}" for field in ("nodeSelector", "volumes", "affinity", "tolerations")),
    *(f"status.{field}" for field in ("conditions", "containerStatuses", "initContainerStatuses")),
)
# Pods that have a node and have not ended.
FIELDS = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


class Owner(NamedTuple):
    """The object that a user created: a RayJob, a JobSet, a Job, a pod. `uid` is "" if only its name is known."""

    namespace: str
    kind: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class Why(StrEnum):
    """Why no quota counts the chips."""

    ENDED = "ended"
    TERMINATING = "terminating"
    NO_WORKLOAD = "no-workload"
    NO_QUOTA = "no-quota"
    EXCESS = "excess"


@dataclass(frozen=True)
class Uncounted:
    """The chips of one object that no quota counts.

    `chips` is their number, `counted` that of the object's chips that a quota counts, and `pods` are the object's pods
    with chips. `since` is an RFC 3339 time: when the object ended, when it lost its quota, when the deletion of its
    pods was requested, or when its last pod was created.
    """

    owner: Owner
    why: Why
    chips: int
    counted: int
    pods: Sequence[Pod]
    since: str

    @property
    def nodes(self) -> list[str]:
        return sorted({pod.node for pod in self.pods})

    def clause(self, now: datetime) -> str:
        """Return why no quota counts them, as a clause with "it" for the object."""
        lasts = duration(seconds_since(self.since, now))
        match self.why:
            case Why.ENDED:
                return f"it ended {lasts} ago, and its pods were not deleted"
            case Why.TERMINATING:
                return f"its pods have been terminating for {lasts}"
            case Why.NO_WORKLOAD:
                return "Kueue has no Workload for it"
            case Why.NO_QUOTA:
                return "its Workload has no quota"
            case Why.EXCESS:
                return f"it uses {self.chips + self.counted}, and its quota is for {self.counted}"

    def sentence(self, now: datetime) -> str:
        """Return a sentence with the object, its chips, its nodes and the reason."""
        nodes = self.nodes
        more = f" and {len(nodes) - _MOST_NODES} more nodes" if len(nodes) > _MOST_NODES else ""
        chips = f"{self.chips} chip{'' if self.chips == 1 else 's'}"
        pods = f"{len(self.pods)} pod{'' if len(self.pods) == 1 else 's'}"
        where = f"{pods} on {', '.join(nodes[:_MOST_NODES])}{more}"
        return f"The {self.owner} uses {chips} that no quota counts ({where}): {self.clause(now)}."

    @property
    def advice(self) -> str:
        """The command that releases the chips."""
        name, space = self.owner.name, self.owner.namespace
        if self.why is Why.TERMINATING:
            pods = " ".join(pod.name for pod in self.pods[:_MOST_NODES])
            return f"To end the pods sooner: kubectl delete pod {pods} -n {space} --grace-period=30"
        if all(pod.label(label_keys.RUN) == name for pod in self.pods):
            return f"To release them: launcher {'delete' if self.why is Why.ENDED else 'cancel'} {name} -n {space}"
        return f"To release them: kubectl delete {self.owner.kind.lower()} {name} -n {space}"


class Usage(NamedTuple):
    """The chips of one namespace: those that its pods use, and those that its Workloads have reserved."""

    used: int
    reserved: int


def is_chip(resource: str, also: Collection[str] = ()) -> bool:
    """Return whether a resource is accelerators; `also` has more names of such resources."""
    return resource in CHIPS or resource in also or resource.startswith(_PARTITION)


def usage(pods: Iterable[Pod], workloads: Iterable[Workload], also: Collection[str] = ()) -> dict[str, Usage]:
    """Return the chips of each namespace that uses or has reserved some."""
    used: defaultdict[str, int] = defaultdict(int)
    reserved: defaultdict[str, int] = defaultdict(int)
    for pod in pods:
        used[pod.namespace] += _chips(pod, also)
    for workload in workloads:
        reserved[workload.namespace] += _reserved(workload, also)
    by_namespace = {space: Usage(used[space], reserved[space]) for space in sorted({*used, *reserved})}
    return {space: chips for space, chips in by_namespace.items() if any(chips)}


def owner_of(workload: Workload) -> Owner:
    """Return the object that a Workload is for. A group of pods is named by its Workload."""
    owners = workload.raw["metadata"].get("ownerReferences") or []
    for owner in owners:
        if owner.get("controller"):
            return Owner(workload.namespace, owner.get("kind") or "", owner["name"], owner.get("uid") or "")
    if len(owners) == 1:
        return Owner(workload.namespace, owners[0].get("kind") or "", owners[0]["name"], owners[0].get("uid") or "")
    return Owner(workload.namespace, owners[0].get("kind") or "Pod" if owners else "Workload", workload.name, "")


def uncounted(
    pods: Iterable[Pod],
    workloads: Sequence[Workload],
    now: datetime,
    *,
    ray_clusters: Iterable[ApiObject] = (),
    also: Collection[str] = (),
) -> list[Uncounted]:
    """Return the objects whose pods use chips that no quota counts, most chips first.

    `pods` are those with FIELDS. `ray_clusters` name the objects that the pods of Ray clusters belong to.
    Pods that are about to be deleted, or about to get a Workload, are left out: see SETTLES and ENDS.
    """
    pods = list(pods)
    chips = {pod.uid: number for pod in pods if (number := _chips(pod, also))}
    if not chips:
        return []
    owners = _Owners(workloads, ray_clusters)
    pods_of: defaultdict[Owner, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.uid in chips:
            pods_of[owners.of(pod)].append(pod)
    of_owner: defaultdict[Owner, list[Workload]] = defaultdict(list)
    for workload in workloads:
        of_owner[owner_of(workload)].append(workload)
    objects = []
    for owner, some in pods_of.items():
        reserved = sum(_reserved(workload, also) for workload in of_owner[owner])
        obj = _uncounted(owner, some, chips, of_owner[owner], reserved, now)
        objects += [] if obj is None else [obj]
    return sorted(objects, key=lambda obj: (-obj.chips, obj.owner))


def needs_ray_clusters(pods: Iterable[Pod], workloads: Sequence[Workload]) -> bool:
    """Return whether the RayCluster of a pod must be read, to find the object that it belongs to."""
    owners = _Owners(workloads, ())
    return any(owners.of(pod).kind == "RayCluster" for pod in pods if _chips(pod, ()))


def _uncounted(
    owner: Owner,
    pods: Sequence[Pod],
    chips_of: Mapping[str, int],
    workloads: Sequence[Workload],
    left: int,
    now: datetime,
) -> Uncounted | None:
    """Return the chips of an object beyond the `left` that its Workloads have reserved. `chips_of` is by pod uid."""
    living, terminating = [pod for pod in pods if not pod.deleting], [pod for pod in pods if pod.deleting]
    needed = sum(chips_of[pod.uid] for pod in living)
    if needed > left:
        why, since = _why(living, workloads)
        if seconds_since(since, now) < SETTLES:
            return None
        return Uncounted(owner, why, needed - left, left, living, since)
    left -= needed
    stuck = [pod for pod in terminating if seconds_since(pod.deletion_requested, now) > ENDS]
    chips = sum(chips_of[pod.uid] for pod in stuck) - left
    if chips <= 0:
        return None
    return Uncounted(owner, Why.TERMINATING, chips, left, stuck, min(pod.deletion_requested for pod in stuck))


def _why(pods: Sequence[Pod], workloads: Sequence[Workload]) -> tuple[Why, str]:
    created = max(pod.created for pod in pods)
    if not workloads:
        return Why.NO_WORKLOAD, created
    if any(workload.has_quota and not workload.is_true("Finished") for workload in workloads):
        return Why.EXCESS, created
    if all(workload.is_true("Finished") for workload in workloads):
        return Why.ENDED, max(workload.condition("Finished").since or workload.created for workload in workloads)
    return Why.NO_QUOTA, max(created, *(workload.reserved.since for workload in workloads))


class _Owners:
    """Finds the object that a pod belongs to."""

    def __init__(self, workloads: Iterable[Workload], ray_clusters: Iterable[ApiObject]) -> None:
        self._by_workload: dict[tuple[str, str], Owner] = {}
        self._by_uid: dict[str, Owner] = {}
        for workload in workloads:
            owner = owner_of(workload)
            self._by_workload[workload.namespace, workload.name] = owner
            for reference in workload.raw["metadata"].get("ownerReferences") or []:
                self._by_uid[reference.get("uid") or ""] = owner
        self._of_ray_cluster = {
            cluster.uid: Owner(cluster.namespace, above["kind"], above["name"], above.get("uid") or "")
            for cluster in ray_clusters
            if (above := _controller(cluster.raw)) is not None
        }

    def of(self, pod: Pod) -> Owner:
        # Kueue 0.19 writes the annotation. Older versions do so only with topologies.
        named = self._by_workload.get((pod.namespace, pod.annotation(label_keys.KUEUE_WORKLOAD)))
        if named is not None:
            return named
        if pod.uid in self._by_uid:
            return self._by_uid[pod.uid]
        job_set = pod.label(label_keys.JOB_SET_UID)
        if job_set:
            own = Owner(pod.namespace, "JobSet", pod.label(label_keys.JOB_SET_NAME), job_set)
            return self._by_uid.get(job_set, own)
        above = _controller(pod.raw)
        if above is None:
            return Owner(pod.namespace, "Pod", pod.name, pod.uid)
        uid = above.get("uid") or ""
        own = self._of_ray_cluster.get(uid, Owner(pod.namespace, above["kind"], above["name"], uid))
        return self._by_uid.get(own.uid, own)


def _controller(obj: Object) -> Mapping[str, str] | None:
    owners = obj["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller") and owner.get("kind")), None)


def _chips(pod: Pod, also: Collection[str]) -> int:
    """Return the chips that a pod uses.

    The limit of such a resource is its request. Init containers with chips are rare: `pod_asks` counts them as
    Kubernetes does, but takes ten times as long.
    """
    if _limits(pod.spec.get("initContainers") or (), also):
        return sum(int(amount) for resource, amount in pod_asks(pod.spec).items() if is_chip(resource, also))
    return _limits(pod.spec["containers"], also)


def _limits(containers: Iterable[Object], also: Collection[str]) -> int:
    return sum(
        int(quantity(amount))
        for container in containers
        for resource, amount in ((container.get("resources") or {}).get("limits") or {}).items()
        if is_chip(resource, also)
    )


def _reserved(workload: Workload, also: Collection[str]) -> int:
    return sum(int(amount) for (_, resource), amount in workload.holds.items() if is_chip(resource, also))
