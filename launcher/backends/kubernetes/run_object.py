"""The object of a run on a cluster, a RayJob or a JobSet, parsed once from what the API server returns.

Pure. launcher.backends.kubernetes.states derives the run's state from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, zip_longest
from typing import Any

from launcher.backends import run_config
from launcher.backends.base import BEING_SWITCHED
from launcher.config.kinds import RunKind
from launcher.json_object import is_shallow, json_object
from launcher.k8s import label_keys, objects
from launcher.k8s.client import JOB_SET, RAY_JOB, Kind
from launcher.k8s.objects import Condition, Object

KINDS: Mapping[RunKind, Kind] = {RunKind.RAY_JOB: RAY_JOB, RunKind.JOB_SET: JOB_SET}
_RUN_KINDS = {kind.kind: run_kind for run_kind, kind in KINDS.items()}
POD_SPECS: Mapping[RunKind, tuple[str, ...]] = {
    RunKind.RAY_JOB: tuple(
        f"spec.rayClusterSpec.{group}.template.spec" for group in ("headGroupSpec", "workerGroupSpecs.*")
    ),
    RunKind.JOB_SET: ("spec.replicatedJobs.*.template.spec.template.spec",),
}
"""The specs of pods, which a list of all runs does not need."""
_HELM_RELEASE = "meta.helm.sh/release-name"


@dataclass(frozen=True, slots=True)
class RayJobStatus:
    """The status of a RayJob, as KubeRay reports it; a field that it has not reported is "" or 0. Times are RFC 3339.

    `deployment` is KubeRay's state and `job` that of Ray. `failed` counts the Ray clusters on which the job failed.
    `cluster` is the name of its RayCluster, and `conditions` those of that RayCluster, by type.
    """

    deployment: str
    job: str
    message: str
    reason: str
    failed: int
    started: str
    ended: str
    cluster: str
    conditions: Mapping[str, Condition]

    def condition(self, kind: str) -> Condition:
        """Return the condition of its RayCluster of that type."""
        return self.conditions.get(kind, Condition())


@dataclass(frozen=True, eq=False)
class RunObject:
    """A RayJob or JobSet. `kind` is its Kubernetes kind and `run_kind` the same as `run.kind` names it.

    `created` is an RFC 3339 time. `queue` is its LocalQueue, "" if Kueue does not manage it. `attempt` counts from 1.
    `cancelled_at` is the time of `launcher cancel`, "" before, and `cancelled_for` why a client cancelled it.
    `release` is the Helm release that contains it, "" if `launcher submit` created it.
    """

    raw: Object
    kind: str
    run_kind: RunKind
    name: str
    namespace: str
    uid: str
    created: str
    deleting: bool
    suspended: bool
    queue: str
    priority_class: str
    team: str
    attempt: int
    sweep: str
    sweep_values: Mapping[str, Any]
    cancelled_at: str
    cancelled_for: str
    release: str

    @classmethod
    def parse(cls, obj: Object) -> RunObject:
        attempt = objects.annotation(obj, label_keys.ATTEMPT)
        return cls(
            raw=obj,
            kind=str(obj["kind"]),
            run_kind=_RUN_KINDS[obj["kind"]],
            name=objects.name(obj),
            namespace=objects.namespace(obj),
            uid=objects.uid(obj),
            created=str(obj["metadata"].get("creationTimestamp") or ""),
            deleting=bool(obj["metadata"].get("deletionTimestamp")),
            suspended=bool(obj["spec"].get("suspend")),
            queue=objects.label(obj, label_keys.KUEUE_QUEUE),
            priority_class=objects.label(obj, label_keys.KUEUE_PRIORITY_CLASS),
            team=objects.label(obj, label_keys.TEAM),
            attempt=objects.counted(attempt) or 1,
            sweep=objects.label(obj, label_keys.SWEEP),
            sweep_values=read_values(objects.annotation(obj, label_keys.SWEEP_VALUES)),
            cancelled_at=objects.annotation(obj, label_keys.CANCELLED),
            cancelled_for=objects.annotation(obj, label_keys.CANCELLED_FOR),
            release=objects.annotation(obj, _HELM_RELEASE),
        )

    @property
    def is_run(self) -> bool:
        """Whether Slipway created the object; False for an unrelated RayJob or JobSet."""
        return objects.label(self.raw, label_keys.RUN) == self.name

    @property
    def version(self) -> str:
        """Its resourceVersion, which every change of the object changes."""
        return str(self.raw["metadata"].get("resourceVersion") or "")

    @property
    def being_switched(self) -> bool:
        """Whether launcher submit cancelled the run, to replace it with another alternative."""
        return bool(self.cancelled_at) and self.cancelled_for == BEING_SWITCHED

    @property
    def ray(self) -> bool:
        return self.run_kind is RunKind.RAY_JOB

    @property
    def api_kind(self) -> Kind:
        return KINDS[self.run_kind]

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """The run config stored in the object, which its team can change; {} if it is missing or cannot be read."""
        return run_config.parse(pod_annotations(self.raw).get(label_keys.RUN_CONFIG) or "")

    @property
    def folder(self) -> str:
        return folder_of(self.config)

    # --- its status ---

    @property
    def has_status(self) -> bool:
        """Whether its controller has processed it."""
        return bool(self.ray_job.deployment if self.ray else self.raw.get("status"))

    @cached_property
    def conditions(self) -> Mapping[str, Condition]:
        """The conditions of a JobSet, by type. A RayJob has none."""
        return objects.conditions(objects.status(self.raw))

    def condition(self, kind: str) -> Condition:
        """Return the condition of a JobSet of that type."""
        return self.conditions.get(kind, Condition())

    @cached_property
    def ray_job(self) -> RayJobStatus:
        now = objects.status(self.raw)
        return RayJobStatus(
            deployment=now.get("jobDeploymentStatus") or "",
            job=now.get("jobStatus") or "",
            message=now.get("message") or "",
            reason=now.get("reason") or "",
            failed=now.get("failed") or 0,
            started=(now.get("rayJobInfo") or {}).get("startTime") or "",
            ended=now.get("endTime") or "",
            cluster=now.get("rayClusterName") or "",
            conditions=objects.conditions(now.get("rayClusterStatus") or {}),
        )

    @property
    def job_set_failures(self) -> int:
        """The restarts of a JobSet, or of one of its jobs, after a failure."""
        return sum(self._restarts("CountTowardsMax"))

    @property
    def job_set_preemptions(self) -> int:
        """The restarts of a JobSet by the rule `preempted` of charts/run, which do not count towards its maximum.

        It also applies if Kueue preempts a trainer: its pods write a checkpoint and end with exit code 3. Then each job
        restarts (run.restartAction: RestartJob), so that the job with the most such restarts counts.
        """
        both = zip_longest(self._restarts(""), self._restarts("CountTowardsMax"), fillvalue=0)
        whole, *jobs = (restarts - failures for restarts, failures in both)
        return whole + max(jobs, default=0)

    def _restarts(self, counted: str) -> list[int]:
        """Return the restarts of a JobSet, then those of each of its jobs; "CountTowardsMax": only after failures."""
        now = objects.status(self.raw)
        jobs = [job.get(f"jobRestarts{counted}") or [] for job in now.get("replicatedJobsStatus") or []]
        return [int(restarts) for restarts in (now.get(f"restarts{counted}") or 0, *chain(*jobs))]


def pod_annotations(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return the annotations of the pods with the run config: a RayJob's head, or a JobSet's hosts; {} if none."""
    spec: Mapping[str, Any] = obj["spec"]
    hosts = ((spec.get("replicatedJobs") or [{}])[0].get("template") or {}).get("spec")
    part: dict[str, Any] = hosts or (spec.get("rayClusterSpec") or {}).get("headGroupSpec") or {}
    for key in ("template", "metadata", "annotations"):
        part = part.get(key) or {}
    return part


def read_values(text: str) -> dict[str, Any]:
    """Return the values that a sweep set for a run, from the text stored in the run; {} if the text is invalid."""
    values = json_object(text) or {}
    return values if is_shallow(values) else {}


def folder_of(config: Mapping[str, Any]) -> str:
    """Return the folder of a run config: the URL of a bucket or of a claim, else a path in the pods."""
    storage, name = config.get("storage") or {}, (config.get("run") or {}).get("name") or ""
    if not storage or not name:
        return ""
    if storage.get("kind") == "gcsfuse":
        return f"gs://{storage.get('bucket')}/{name}"
    if storage.get("kind") == "pvc":
        return f"pvc://{storage.get('claim')}/{name}"
    return f"{str(storage.get('mountPath') or '').rstrip('/')}/{name}"
