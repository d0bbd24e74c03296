"""The data that explains the state of a run. Each part is read once, when a rule first needs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from launcher.backends.base import State
from launcher.backends.kubernetes import reader, states
from launcher.diagnose.explain.queue_situation import QueueSituation
from launcher.k8s import client, label_keys
from launcher.k8s.errors import Forbidden, KindNotServed
from launcher.k8s.kueue import workloads as kueue_workloads
from launcher.k8s.kueue.queues import LocalQueue
from launcher.k8s.kueue.workloads import TEMPLATES, Workload
from launcher.k8s.nodes import Node
from launcher.k8s.objects import ApiObject, Object, name, owner_uids, seconds_since
from launcher.k8s.pods import Job, Pod


@dataclass(frozen=True)
class Event:
    """An event of an object. `at` is an RFC 3339 time, `count` how often it occurred."""

    kind: str
    name: str
    warning: bool
    reason: str
    message: str
    at: str
    count: int = 1


@dataclass
class Situation(QueueSituation):
    """A run and the related objects: its queue, and its pods, nodes and events."""

    # --- words of the suggestions, which differ for a served model ---

    @property
    def again(self) -> str:
        """The instruction to repeat what the user did, after a change."""
        return "submit it again"

    @property
    def resumes(self) -> str:
        """The start of the sentence that describes what follows a preemption."""
        return "It resumes automatically from its last checkpoint"

    # --- the run itself ---

    def worker_option(self, pod: str) -> str:
        """Return the option with which logs prints the output of that pod; "" if logs needs none."""
        return ""

    @cached_property
    def seen(self) -> states.ObservedRun:
        """The run as `status` observes it."""
        workload = self.workload if self.run.queue else None
        seen = states.ObservedRun(self.run, workload, None, "Workload" not in self.absent)
        if self.run.suspended and seen.active and not self.run.cancelled_at:
            return seen  # its remaining pods do not affect its state
        return replace(seen, pods=self.pods)

    @cached_property
    def state_and_reason(self) -> tuple[State, str]:
        """The run's state and reason, as `status` reports them."""
        return states.classify(self.seen)

    @property
    def state(self) -> State:
        return self.state_and_reason[0]

    @cached_property
    def templates(self) -> list[Object]:
        """The run's pod templates, the head's last."""
        if self.run.ray:
            spec = self.run.raw["spec"].get("rayClusterSpec") or {}
            groups = [*(spec.get("workerGroupSpecs") or []), spec.get("headGroupSpec") or {}]
            return [group.get("template") or {} for group in groups]
        jobs = self.run.raw["spec"].get("replicatedJobs") or []
        return [((job.get("template") or {}).get("spec") or {}).get("template") or {} for job in jobs]

    @cached_property
    def age(self) -> float:
        """Seconds since the run's object was created."""
        return seconds_since(self.run.created, self.now)

    def lasts(self, since: str, seconds: float) -> bool:
        """Return whether something has lasted at least so long since an RFC 3339 time; True without a time."""
        return not since or seconds_since(since, self.now) >= seconds

    @cached_property
    def topology(self) -> str:
        """The topology of the run's TPU slices; "" for a run without TPUs."""
        for template in self.templates:
            topology = ((template.get("spec") or {}).get("nodeSelector") or {}).get("cloud.google.com/gke-tpu-topology")
            if topology:
                return str(topology)
        return ""

    # --- its Workload and its queue ---

    @cached_property
    def workloads(self) -> list[Workload]:
        """The Workloads of all teams; only those of the run's own namespace if the others are hidden."""
        try:
            objects: list[Object] = self.look.list(client.WORKLOAD, all_namespaces=True, without=[TEMPLATES])
        except Forbidden:
            self.unseen.append("the runs of other teams")
            objects = self._list(client.WORKLOAD, without=[TEMPLATES])
        except KindNotServed:
            return []
        return kueue_workloads.workloads(objects)

    @cached_property
    def all_local_queues(self) -> list[LocalQueue]:
        """The LocalQueues of all teams; only those of the run's own namespace if the others are hidden."""
        try:
            objects: list[Object] = self.look.list(client.LOCAL_QUEUE, all_namespaces=True)
        except (Forbidden, KindNotServed):
            return list(self.local_queues.values())
        return list(map(LocalQueue, objects))

    @property
    def others_hidden(self) -> bool:
        """Whether the Workloads of other namespaces are hidden. Reads the Workloads."""
        return bool(self.workloads is not None and "the runs of other teams" in self.unseen)

    # --- its pods, and what creates them ---

    @cached_property
    def ray_cluster(self) -> ApiObject | None:
        """The current RayCluster of a RayJob, or None."""
        called = self.run.ray_job.cluster
        obj = self._get(client.RAY_CLUSTER, called) if self.run.ray and called else None
        return ApiObject(obj) if obj else None

    @cached_property
    def pods(self) -> list[Pod]:
        """The pods of this attempt, as `status` selects them."""
        listed = self._list(client.POD, labels=f"{label_keys.RUN}={self.name}")
        return list(reader.own_pods(self.run, map(Pod, listed)))

    @cached_property
    def jobs(self) -> list[Job]:
        """The Jobs of a JobSet."""
        if self.run.ray:
            return []
        return list(map(Job, self._list(client.JOB, labels=f"{label_keys.JOB_SET_NAME}={self.name}")))

    @cached_property
    def pods_wanted(self) -> int:
        """The number of pods of the complete run: as admitted by Kueue, else as specified by its object."""
        if self.workload is not None and self.workload.cluster_queue:
            return states.ObservedRun(self.run, self.workload, self.pods).pods_wanted
        if self.run.ray:
            groups = (self.run.raw["spec"].get("rayClusterSpec") or {}).get("workerGroupSpecs") or []
            return 1 + sum(int(group.get("replicas") or 0) * int(group.get("numOfHosts") or 1) for group in groups)
        jobs = self.run.raw["spec"].get("replicatedJobs") or []
        return sum(int(job.get("replicas", 1)) * int(job["template"]["spec"].get("parallelism", 1)) for job in jobs)

    @cached_property
    def nodes(self) -> list[Node]:
        return list(map(Node, self._list(client.NODE, everywhere=True)))

    @cached_property
    def nodes_with_maintenance(self) -> list[Node]:
        """The nodes with the label with which GKE announces maintenance; reading all nodes would take long."""
        return list(map(Node, self._list(client.NODE, labels=label_keys.MAINTENANCE_TIME, everywhere=True)))

    @cached_property
    def claims(self) -> dict[str, Object]:
        """The PersistentVolumeClaims of the namespace."""
        return {name(item): item for item in self._list(client.PVC)}

    @cached_property
    def resource_quotas(self) -> list[Object]:
        return self._list(client.RESOURCE_QUOTA)

    def events(self, kind: str, called: str, of: str = "") -> list[Event]:
        """Return the events of an object of the namespace, the newest first; with `of`, only those of that uid."""
        key = (kind, called)
        if key not in self._events:
            raw = self._list(client.EVENT, fields=f"involvedObject.kind={kind},involvedObject.name={called}")
            ours = [item for item in raw if not of or str((item.get("involvedObject") or {}).get("uid")) == of]
            self._events[key] = sorted(map(_event, ours), key=lambda event: event.at, reverse=True)
        return self._events[key]

    @cached_property
    def run_events(self) -> list[Event]:
        return self.events(self.run.kind, self.name, self.run.uid)

    def pod_events(self, pod: Pod) -> list[Event]:
        return self.events("Pod", pod.name, pod.uid)

    @cached_property
    def maker_events(self) -> list[Event]:
        """The events of what creates the pods: the RayCluster, or Jobs that lack pods (at most two of them)."""
        if self.run.ray:
            cluster = self.ray_cluster
            return self.events("RayCluster", cluster.name, cluster.uid) if cluster else []
        have = [owner for pod in self.pods for owner in owner_uids(pod.raw)]
        lacking = [job for job in self.jobs if have.count(job.uid) < job.parallelism]
        events = [event for job in lacking[:2] for event in self.events("Job", job.name, job.uid)]
        return sorted(events, key=lambda event: event.at, reverse=True)

    # --- internal ---

    @cached_property
    def _events(self) -> dict[tuple[str, str], list[Event]]:
        return {}

    def _get(self, kind: client.Kind, called: str) -> Object | None:
        try:
            obj: Object | None = self.look.get(kind, called, self.namespace)
        except Forbidden:
            self._hide(kind)
            return None
        except KindNotServed:
            self.absent.add(kind.kind)
            return None
        return obj


def _event(item: Object) -> Event:
    about = item.get("involvedObject") or {}
    series = item.get("series") or {}
    at = next(
        filter(
            None,
            (
                series.get("lastObservedTime"),
                item.get("lastTimestamp"),
                item.get("eventTime"),
                item.get("firstTimestamp"),
                item["metadata"].get("creationTimestamp"),
            ),
        ),
        "",
    )
    return Event(
        kind=str(about.get("kind")),
        name=str(about.get("name")),
        warning=item.get("type") == "Warning",
        reason=str(item.get("reason") or ""),
        message=str(item.get("message") or ""),
        at=str(at),
        count=int(series.get("count") or item.get("count") or 1),
    )


def warnings(events: Sequence[Event], *reasons: str) -> list[Event]:
    """Return the warnings among events; only those with one of `reasons`, if any are given."""
    return [event for event in events if event.warning and (not reasons or event.reason in reasons)]
