"""The position of a run in its queue, and the runs ahead: from Kueue's visibility API if served, else computed."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.backends.kubernetes import positions
from launcher.diagnose.explain.finding import Evidence
from launcher.diagnose.explain.formatting import join_words
from launcher.diagnose.explain.situation import Situation
from launcher.k8s.kueue import workloads as kueue_workloads
from launcher.k8s.kueue.workloads import Workload
from launcher.k8s.objects import Object, name, namespace


@dataclass(frozen=True)
class RunAhead:
    """A run that Kueue considers before this one."""

    name: str
    namespace: str
    priority: int


@dataclass(frozen=True)
class QueuePosition:
    """The position of a run in its queue.

    `position` is 1 for the next run, None if unknown. `ahead` has only the runs that the user may read. `waiting` is
    the length of the queue, None if unknown. `source` names where the position comes from.
    """

    position: int | None
    ahead: tuple[RunAhead, ...]
    waiting: int | None
    source: str

    @property
    def head(self) -> RunAhead | None:
        return self.ahead[0] if self.ahead else None


def queue_position(situation: Situation) -> QueuePosition | None:
    """Return the queue position of a run; None if it is not queued."""
    workload, queue = situation.workload, situation.cluster_queue_name
    if workload is None or not queue or not workload.is_queued:
        return None
    waiting = situation.cluster_queue.pending if situation.cluster_queue else None
    listed = positions.pending(situation.look, queue, situation.namespace, situation.queue)
    if listed is not None:
        places = {(namespace(item), name(item)): index for index, item in enumerate(listed)}
        place = places.get((workload.namespace, workload.name))
        if place is not None:
            position = int(listed[place].get("positionInClusterQueue", place)) + 1
            ahead = tuple(
                RunAhead(_run_of(item), namespace(item), int(item.get("priority") or 0)) for item in listed[:place]
            )
            return QueuePosition(position, ahead, waiting, "from Kueue's visibility API")
    return _computed(situation, workload, queue, waiting)


def evidence(situation: Situation, stand: QueuePosition) -> Evidence:
    """Return the queue position as one sentence."""
    hidden = stand.position is not None and stand.position - 1 > len(stand.ahead)
    names = [_run_name(item, situation.namespace) for item in stand.ahead]
    if hidden:
        names.append("runs of other teams that you may not read")
    of = f" of {stand.waiting}" if stand.waiting is not None and stand.waiting >= (stand.position or 0) else ""
    if stand.position is not None:
        where = f"number {stand.position}{of} in the queue"
        who = f", behind {join_words(names)}" if names else ""
        return Evidence(
            "ClusterQueue", situation.cluster_queue_name, f"{situation.name} is {where}{who} ({stand.source})."
        )
    runs = "run" if len(stand.ahead) == 1 else "runs"
    least = f"at least {len(stand.ahead)} {runs} ahead" + (f" ({join_words(names)})" if names else "")
    wait = "run waits" if stand.waiting == 1 else "runs wait"
    total = f"; {stand.waiting} {wait} in total" if stand.waiting is not None else ""
    return Evidence(
        "ClusterQueue", situation.cluster_queue_name, f"{situation.name} has {least}{total} ({stand.source})."
    )


def _computed(situation: Situation, workload: Workload, queue: str, waiting: int | None) -> QueuePosition:
    if situation.cluster_queue is not None and situation.cluster_queue.ordered_by_usage:
        return QueuePosition(None, (), waiting, "the queue is ordered by usage, and only Kueue has this order")
    order = kueue_workloads.queued_workloads(situation.workloads, situation.all_local_queues).get(queue, [])
    place = next((index for index, item in enumerate(order) if item.uid == workload.uid), None)
    ahead = tuple(RunAhead(item.owner, item.namespace, item.priority) for item in order[: place or 0])
    if situation.others_hidden and (waiting is None or waiting > len(order)):
        return QueuePosition(None, ahead, waiting, "you may not read the runs of other teams")
    return QueuePosition(
        None if place is None else place + 1, ahead, waiting, "computed by Kueue's order: priority, then age"
    )


def _run_of(item: Object) -> str:
    for owner in item["metadata"].get("ownerReferences") or []:
        return str(owner["name"])
    return name(item)


def _run_name(ahead: RunAhead, own: str) -> str:
    return ahead.name if ahead.namespace == own else f"{ahead.name} of {ahead.namespace}"
