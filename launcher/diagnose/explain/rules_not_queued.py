"""Rules for runs that Kueue cannot consider: no queue, no Workload, a stopped queue."""

from __future__ import annotations

import re
from difflib import get_close_matches

from launcher.backends.base import State
from launcher.diagnose.explain.finding import Evidence, Finding
from launcher.diagnose.explain.formatting import join_words, one_line, sentence
from launcher.diagnose.explain.situation import Situation, holds_quota, warnings
from launcher.k8s.objects import seconds_since

# Seconds that a controller may take to respond before it is reported.
PATIENCE = 30
_STOPPED = {
    "Hold": "admits no runs, and admitted runs continue",
    "HoldAndDrain": "admits no runs, and stops admitted runs",
}


def no_queue(situation: Situation) -> Finding | None:
    """The run is suspended and has no queue."""
    if situation.queue or not situation.run.suspended:
        return None
    return Finding(
        f"{situation.name} is suspended and has no queue, so nothing starts it.",
        (
            Evidence(
                situation.run.kind,
                situation.name,
                "spec.suspend is true, and the label kueue.x-k8s.io/queue-name is not set.",
            ),
        ),
        (f"{situation.with_values(f'queue.name={_guess(situation)}')}{_there_are(situation)}.",),
    )


def no_kueue(situation: Situation) -> Finding | None:
    """Kueue is not installed."""
    if not _no_workload(situation) or "Workload" not in situation.absent:
        return None
    return Finding(
        f"{situation.name} waits for the queue {situation.queue}, but Kueue is not installed in this cluster.",
        (Evidence("Workload", "", "the API server does not serve this kind of kueue.x-k8s.io/v1beta2."),),
        ("Ask the platform team to install Kueue; launcher doctor shows what else is missing.",),
    )


def unmanaged(situation: Situation) -> Finding | None:
    """Kueue does not manage the run: it suspends each object that it manages on creation."""
    if situation.run.suspended or not _no_workload(situation) or "the Workloads" in situation.unseen:
        return None
    return Finding(
        f"{situation.name} requests the queue {situation.queue}, but Kueue has neither suspended it nor created a "
        f"Workload for it: Kueue does not manage {situation.run.kind}s in this cluster, or its webhook did not receive "
        "this one.",
        (
            Evidence(
                situation.run.kind, situation.name, "spec.suspend is not true, and its controller has not started it."
            ),
        ),
        (
            f"Ask the platform team whether Kueue manages {situation.run.kind}s (integrations.frameworks in its "
            "configuration), and whether its webhook is installed: launcher doctor.",
        ),
    )


def _no_workload(situation: Situation) -> bool:
    """Return whether `status` reports the run as queued, but it has no Workload."""
    if situation.workload is not None:
        return False
    return situation.run.suspended or bool(situation.seen.queued and situation.state is State.QUEUED)


def no_workload(situation: Situation) -> Finding | None:
    """Kueue has not created a Workload for the run yet."""
    if situation.workload is not None or not situation.run.suspended or "the Workloads" in situation.unseen:
        return None
    if situation.age < PATIENCE:
        return Finding(
            f"{situation.name} was created just now; Kueue is about to put it into the queue {situation.queue}."
        )
    shown = tuple(
        Evidence("Event", event.reason, sentence(one_line(event.message)))
        for event in warnings(situation.run_events)[:3]
    )
    return Finding(
        f"{situation.name} is not in a queue yet: Kueue has not created a Workload for it in "
        f"{situation.ago(situation.run.created)}.",
        (
            Evidence(situation.run.kind, situation.name, f"requests the queue {situation.queue} and is suspended."),
            *shown,
        ),
        (
            "Ask the platform team whether Kueue's controller is running: kubectl -n kueue-system get pods.",
            f"Ask whether Kueue manages {situation.run.kind}s: integrations.frameworks in its configuration.",
        ),
    )


def no_local_queue(situation: Situation) -> Finding | None:
    """The LocalQueue does not exist."""
    if not waits(situation) or not situation.queue:
        return None
    if situation.local_queue is not None or (
        "the LocalQueues" in situation.unseen and "doesn't exist" not in message_of(situation)
    ):
        return None
    names = sorted(situation.local_queues)
    other = _guess(situation)
    if names:
        suggestions = [f"{situation.with_values(f'queue.name={other}')}{_there_are(situation)}."]
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


def local_queue_stopped(situation: Situation) -> Finding | None:
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


def no_cluster_queue(situation: Situation) -> Finding | None:
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


def cluster_queue_closed(situation: Situation) -> Finding | None:
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


def inadmissible(situation: Situation) -> Finding | None:
    """The Workload fails a check that Kueue makes before it considers quota."""
    text = message_of(situation)
    if not waits(situation):
        return None
    if "doesn't match ClusterQueue selector" in text:
        return Finding(
            f"{situation.name} waits because the queue {situation.cluster_queue_name} does not accept runs of the "
            f"namespace {situation.namespace}.",
            (
                *quote(situation),
                Evidence("ClusterQueue", situation.cluster_queue_name, "has a namespaceSelector that does not match."),
            ),
            (
                "Ask the platform team to give the namespace the labels that "
                f"clusterQueues.{situation.cluster_queue_name}.namespaceSelector requires, or to change the selector.",
            ),
        )
    if "resources validation failed" in text or "LimitRange" in text:
        return Finding(
            f"{situation.name} can never start with these requests: {sentence(one_line(text))}",
            quote(situation),
            (
                "Correct worker.cpu, worker.memory, head.cpu or head.memory; kubectl describe limitrange shows the "
                "limits.",
            ),
        )
    return None


def _check_unserved(situation: Situation, queue: str, message: str, shown: tuple[Evidence, ...]) -> Finding:
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


def _closed(situation: Situation, key: str) -> tuple[str, ...]:
    return (
        f"Ask the platform team when it admits runs again; {key} in the values of charts/queues controls this.",
        *other_queues(situation),
    )


def other_queues(situation: Situation) -> tuple[str, ...]:
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


def waits(situation: Situation) -> bool:
    return situation.workload is not None and not holds_quota(situation.workload)


def message_of(situation: Situation) -> str:
    """Return Kueue's last message on the Workload."""
    return "" if situation.workload is None else situation.workload.reserved.message


def quote(situation: Situation) -> tuple[Evidence, ...]:
    text = message_of(situation)
    if situation.workload is None or not text:
        return ()
    return (Evidence("Workload", situation.workload.name, sentence(one_line(text))),)


def _guess(situation: Situation) -> str:
    names = sorted(situation.local_queues)
    near = get_close_matches(situation.queue, names, n=1)
    return near[0] if near else names[0] if names else "NAME"


def _there_are(situation: Situation) -> str:
    names = sorted(situation.local_queues)
    return f" (the queues of {situation.namespace} are: {join_words(names)})" if names else ""


def silent_kueue(situation: Situation) -> Finding | None:
    """Kueue admitted the run but has not resumed it."""
    workload = situation.workload
    if workload is None or not situation.run.suspended:
        return None
    admitted = workload.condition("Admitted")
    if admitted.is_true and admitted.since:
        waited = seconds_since(admitted.since, situation.now)
        if waited < PATIENCE or workload.evicted.is_true:
            return None
        shown = [Evidence("Workload", workload.name, f"has been admitted for {situation.ago(admitted.since)}.")]
        shown += [
            Evidence("Event", event.reason, sentence(one_line(event.message)))
            for event in warnings(situation.run_events)[:3]
        ]
        return Finding(
            f"{situation.name} is admitted, but Kueue has not resumed it: it is still suspended after "
            f"{situation.ago(admitted.since)}.",
            tuple(shown),
            (
                "Ask the platform team whether Kueue's controller is running: kubectl -n kueue-system get pods, "
                "kubectl -n kueue-system logs deployment/kueue-controller-manager.",
            ),
        )
    return None
