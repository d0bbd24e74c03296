"""Rules for queues that do not accept the run: one that does not exist, is stopped, or is not configured correctly."""

from __future__ import annotations

import re
from difflib import get_close_matches

from launcher.diagnose.explain.finding import Evidence, Finding
from launcher.diagnose.explain.formatting import join_words, one_line, sentence
from launcher.diagnose.explain.queue_situation import QueueSituation, holds_quota

_STOPPED = {
    "Hold": "admits no runs, and admitted runs continue",
    "HoldAndDrain": "admits no runs, and stops admitted runs",
}


def no_local_queue(situation: QueueSituation) -> Finding | None:
    """The LocalQueue does not exist."""
    if not waits(situation) or not situation.queue:
        return None
    if situation.local_queue is not None or (
        "the LocalQueues" in situation.unseen and "doesn't exist" not in message_of(situation)
    ):
        return None
    names = sorted(situation.local_queues)
    other = nearest_queue(situation)
    if names:
        suggestions = [f"{situation.with_values(f'queue.name={other}')}{list_of_queues(situation)}."]
    else:
        suggestions = [
            f"Ask the platform team for a LocalQueue in {situation.namespace}: teams.NAME.clusterQueue in the values "
            "of charts/queues."
        ]
    return Finding(
        f"{situation.name} waits in a queue that does not exist: the namespace {situation.namespace} has no LocalQueue "
        f'"{situation.queue}".',
        quote(situation),
        tuple(suggestions),
    )


def local_queue_stopped(situation: QueueSituation) -> Finding | None:
    """The LocalQueue is stopped."""
    queue = situation.local_queue if waits(situation) else None
    if queue is None or not queue.stopped:
        return None
    policy = queue.stop_policy
    return Finding(
        f"{situation.name} waits because the queue {situation.queue} is stopped: it {_STOPPED.get(policy, policy)}.",
        (Evidence("LocalQueue", situation.queue, f"spec.stopPolicy is {policy}."), *quote(situation)),
        _closed(situation, f"teams.NAME.stopPolicy of {situation.namespace}"),
    )


def no_cluster_queue(situation: QueueSituation) -> Finding | None:
    """The ClusterQueue does not exist."""
    if not waits(situation) or situation.local_queue is None or situation.cluster_queue is not None:
        return None
    if "the ClusterQueues" in situation.unseen:  # known only after they have been read
        return None
    return Finding(
        f"{situation.name} waits because its queue {situation.queue} belongs to the ClusterQueue "
        f'"{situation.cluster_queue_name}", which does not exist.',
        (
            Evidence("LocalQueue", situation.queue, f"spec.clusterQueue is {situation.cluster_queue_name}."),
            *quote(situation),
        ),
        ("Ask the platform team to install it: clusterQueues in the values of charts/queues.",),
    )


def cluster_queue_closed(situation: QueueSituation) -> Finding | None:
    """The ClusterQueue is stopped by its administrator, or inactive because an object that it names is missing."""
    queue = situation.cluster_queue if waits(situation) else None
    active = queue.condition("Active") if queue else None
    if queue is None or not active or active.is_true:
        return None
    called = queue.name
    reason, message = active.reason, sentence(one_line(active.message))
    since = situation.ago(active.since)
    shown = (Evidence("ClusterQueue", called, f"{message} (for {since})"), *quote(situation))
    if reason == "Stopped" or queue.stopped:
        policy = queue.stop_policy
        return Finding(
            f"{situation.name} waits because the platform team stopped the queue {called} {since} ago: it "
            f"{_STOPPED.get(policy, policy)}.",
            shown,
            _closed(situation, f"clusterQueues.{called}.stopPolicy"),
        )
    if reason.startswith("AdmissionCheck"):
        return _check_unserved(situation, called, message, shown)
    if reason == "FlavorNotFound":
        missing = join_words(re.findall(r"ResourceFlavor\(s\): ([^.,]+(?:,[^.,]+)*)", message)) or "a flavor"
        return Finding(
            f"{situation.name} waits because its queue {called} names the flavor {missing}, which does not exist.",
            shown,
            ("Ask the platform team to install it: flavors in the values of charts/queues.",),
        )
    if reason == "TopologyNotFound":
        return Finding(
            f"{situation.name} waits because a flavor of its queue {called} names a Topology that does not exist.",
            shown,
            ("Ask the platform team to install it: topologies in the values of charts/queues.",),
        )
    return Finding(
        f"{situation.name} waits because its queue {called} admits no runs: {message}",
        shown,
        ("Ask the platform team to fix the queue; launcher doctor shows the problems of queues.",),
    )


def _check_unserved(situation: QueueSituation, queue: str, message: str, shown: tuple[Evidence, ...]) -> Finding:
    match = re.search(r"AdmissionCheck\(s\): ([\w.,-]+?)[.,]*(?:$|\s)", message)
    names = match[1].split(",") if match else []
    missing = [item for item in names if situation.admission_checks and item not in situation.admission_checks]
    says = []
    for called in names:
        check = situation.admission_checks.get(called)
        if check is not None:
            why = check.condition("Active").message or "no controller has reported it active"
            says.append(Evidence("AdmissionCheck", called, f"{check.controller}: {one_line(why)}."))
    which = f"{'checks' if len(names) > 1 else 'check'} {join_words(names)}" if names else "checks"
    why = "which does not exist" if missing else "which no controller serves"
    return Finding(
        f"{situation.name} waits because its queue {queue} requires the admission {which}, {why}.",
        (*shown, *says),
        (
            "Ask the platform team to start its controller, or to remove it from "
            f"clusterQueues.{queue}.admissionChecks in the values of charts/queues.",
            *other_queues(situation),
        ),
    )


def _closed(situation: QueueSituation, key: str) -> tuple[str, ...]:
    return (
        f"Ask the platform team when it admits runs again; {key} in the values of charts/queues controls this.",
        *other_queues(situation),
    )


def other_queues(situation: QueueSituation) -> tuple[str, ...]:
    """Suggest another queue of the namespace that would admit the run."""
    fit = []
    for called, queue in sorted(situation.local_queues.items()):
        target = situation.cluster_queues.get(queue.cluster_queue)
        if called == situation.queue or target is None or not target.is_true("Active"):
            continue
        verdicts = situation.fits_in(target.name)
        if verdicts and verdicts[0].fit <= 1:
            fit.append(called)
    if not fit:
        return ()
    return (f"The queue {fit[0]} is active and has quota for it: {situation.with_values(f'queue.name={fit[0]}')}.",)


def waits(situation: QueueSituation) -> bool:
    return situation.workload is not None and not holds_quota(situation.workload)


def message_of(situation: QueueSituation) -> str:
    """Return Kueue's last message on the Workload."""
    return "" if situation.workload is None else situation.workload.reserved.message


def quote(situation: QueueSituation) -> tuple[Evidence, ...]:
    text = message_of(situation)
    if situation.workload is None or not text:
        return ()
    return (Evidence("Workload", situation.workload.name, sentence(one_line(text))),)


def nearest_queue(situation: QueueSituation) -> str:
    names = sorted(situation.local_queues)
    near = get_close_matches(situation.queue, names, n=1)
    return near[0] if near else names[0] if names else "NAME"


def list_of_queues(situation: QueueSituation) -> str:
    names = sorted(situation.local_queues)
    return f" (the queues of {situation.namespace} are: {join_words(names)})" if names else ""
