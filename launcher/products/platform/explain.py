"""Explain the state of any object in a queue that is not a run, by the rules for runs until its pods run.

All is read from its Workload, so that the kind of the object does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from launcher.backends.base import RunStatus, State
from launcher.backends.kubernetes.run_object import RunObject
from launcher.config.kinds import RunKind
from launcher.diagnose.explain import queue_position
from launcher.diagnose.explain.finding import Evidence, Explanation, Finding
from launcher.diagnose.explain.formatting import one_line, sentence
from launcher.diagnose.explain.rule_order import UNTIL_PODS_RUN, hidden_objects
from launcher.diagnose.explain.situation import Situation
from launcher.k8s import client, label_keys
from launcher.k8s.client import RAY_CLUSTER
from launcher.k8s.kueue.workloads import Workload
from launcher.k8s.objects import Object
from launcher.k8s.pods import Job, Pod
from launcher.k8s.target import Target
from launcher.products.platform import foreign
from launcher.products.platform.uncounted import owner_of


@dataclass
class ForeignSituation(Situation):
    """A foreign object, its Workload and its pods. Its number of slices is unknown, so it counts as one."""

    seen_workload: Workload = field(kw_only=True)
    status: RunStatus = field(kw_only=True)

    @property
    def again(self) -> str:
        return "create it again"

    def with_values(self, *sets: str) -> str:
        """Return the instruction without the values, which are keys of charts/run."""
        return "change it, and create it again"

    @property
    def resumes(self) -> str:
        return "It starts again automatically"

    @cached_property
    def workload(self) -> Workload | None:
        """Its Workload with the templates of its pods."""
        obj = self._get(client.WORKLOAD, self.seen_workload.name)
        return self.seen_workload if obj is None else Workload(obj)

    @cached_property
    def templates(self) -> list[Object]:
        sets = self.workload.spec.get("podSets") or [] if self.workload else []
        return [each.get("template") or {} for each in sets]

    @cached_property
    def slices(self) -> int:
        return 1

    @cached_property
    def pods(self) -> list[Pod]:
        listed = map(Pod, self._list(client.POD))
        name = self.seen_workload.name
        return [pod for pod in listed if pod.annotation(label_keys.KUEUE_WORKLOAD) == name or pod.uid == self.run.uid]

    @cached_property
    def jobs(self) -> list[Job]:
        return []

    @cached_property
    def pods_wanted(self) -> int:
        return self.workload.pods_admitted if self.workload else 0

    @cached_property
    def state_and_reason(self) -> tuple[State, str]:
        return self.status.state, self.status.reason


def explain(target: Target, name: str) -> Explanation | None:
    """Return the explanation of the foreign object with that name, or None if none is known."""
    found = foreign.find(name, target)
    if found is None:
        return None
    cluster, status, workload = found
    situation = ForeignSituation(
        _as_run(status, workload), cluster, cli_args=cluster.cli_args, seen_workload=workload, status=status
    )
    finding = None
    if not status.state.ended and status.state is not State.RUNNING:
        finding = next(filter(None, (rule(situation) for rule in UNTIL_PODS_RUN)), None)
    if finding is None:
        finding = Finding(
            f"{name} is {status.state}{f': {sentence(one_line(status.reason))}' if status.reason else '.'}"
        )
    stand = queue_position.queue_position(situation) if status.state in (State.QUEUED, State.PREEMPTED) else None
    shown = [*finding.evidence]
    if status.kind != RAY_CLUSTER.kind:  # those of charts/ray-cluster are in queues, too
        says = "Slipway did not create it, so launcher cancel and launcher delete do not apply."
        shown.insert(0, Evidence(status.kind, name, says))
    if stand is not None and (stand.position is not None or stand.ahead or stand.waiting):
        shown.append(queue_position.evidence(situation, stand))
    return Explanation(
        name,
        str(status.state),
        finding.headline,
        stand.position if stand else None,
        (*shown, *hidden_objects(situation)),
        tuple(dict.fromkeys(finding.suggestions)),
    )


def _as_run(status: RunStatus, workload: Workload) -> RunObject:
    """Return the fields of a run that the rules read, from the Workload of another object."""
    owner = owner_of(workload)
    meta = {"name": owner.name, "namespace": owner.namespace, "uid": owner.uid, "creationTimestamp": workload.created}
    return RunObject(
        raw={"kind": owner.kind, "metadata": meta, "spec": {}, "status": workload.status},
        kind=owner.kind,
        run_kind=RunKind.JOB_SET,  # no rule for RayJobs applies
        name=owner.name,
        namespace=owner.namespace,
        uid=owner.uid,
        created=workload.created,
        deleting=False,
        suspended=not workload.is_true("Admitted"),
        queue=workload.local_queue,
        priority_class=workload.priority_class,
        team="",
        attempt=1,
        sweep="",
        sweep_values={},
        cancelled_at="",
        cancelled_for="",
        release="",
    )
