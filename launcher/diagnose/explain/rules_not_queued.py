"""Rules for runs that Kueue cannot consider: no queue, no Workload, or a request that it rejects."""

from __future__ import annotations

from launcher.backends.base import State
from launcher.diagnose.explain.finding import Evidence, Finding
from launcher.diagnose.explain.formatting import one_line, sentence
from launcher.diagnose.explain.rules_queue import list_of_queues, message_of, nearest_queue, quote, waits
from launcher.diagnose.explain.situation import Situation, warnings
from launcher.k8s.objects import seconds_since

# Seconds that a controller may take to respond before it is reported.
PATIENCE = 30


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
        (f"{situation.with_values(f'queue.name={nearest_queue(situation)}')}{list_of_queues(situation)}.",),
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
