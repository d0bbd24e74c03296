"""Rules for runs that wait for quota: it is in use by others, lent, or about to be freed for them."""

from __future__ import annotations

import re

from launcher.diagnose.explain import quota_usage
from launcher.diagnose.explain.finding import Evidence, Finding
from launcher.diagnose.explain.formatting import amount, join_words, number, one_line, ordinal, sentence
from launcher.diagnose.explain.queue_position import queue_position
from launcher.diagnose.explain.queue_situation import holds_quota
from launcher.diagnose.explain.quota_usage import QuotaUsage
from launcher.diagnose.explain.rules_impossible import worst
from launcher.diagnose.explain.rules_not_queued import PATIENCE
from launcher.diagnose.explain.rules_queue import message_of, other_queues, quote, waits
from launcher.diagnose.explain.situation import Situation
from launcher.formatting import duration
from launcher.k8s import label_keys
from launcher.k8s.kueue.flavor_fit import FlavorFit
from launcher.k8s.kueue.quota import Fit
from launcher.k8s.kueue.workloads import Workload
from launcher.k8s.objects import seconds_since

_PREEMPTED = {
    "InClusterQueue": "a run of its own queue with a higher priority",
    "InCohortReclamation": "the owner of quota that it had borrowed",
    "InCohortFairSharing": "a queue that had less than its fair share",
    "InCohortReclaimWhileBorrowing": "a run of another queue with a higher priority",
}


def makes_room(situation: Situation) -> Finding | None:
    """Kueue is preempting other runs for this run."""
    match = re.search(r"Pending the preemption of (\d+) workload", message_of(situation))
    if not waits(situation) or not match or situation.workload is None:
        return None
    uid = situation.workload.uid
    preempted = [(item, item.condition("Preempted")) for item in situation.workloads]
    victims = [item for item, condition in preempted if condition.is_true and uid in condition.message]
    names = join_words([_run(situation, item) for item in victims])
    many = match[1] != "1"
    which = f" ({names})" if names else ""
    return Finding(
        f"{situation.name} is about to start: Kueue is preempting {match[1]} other run{'s' if many else ''}{which} for "
        f"it, and waits until the pods of {'those runs' if many else 'that run'} have ended.",
        quote(situation),
        ("No action is needed; the pods have run.graceSeconds to write their last checkpoint.",),
    )


def preempted(situation: Situation) -> Finding | None:
    """The run was preempted."""
    evicted = situation.seen.workload_condition("Evicted")
    if situation.workload is None or not evicted.is_true or evicted.reason != "Preempted":
        return None
    how = situation.workload.condition("Preempted")
    by, own = _preemptor(situation, evicted.message), situation.workload.priority
    who = _PREEMPTED.get(how.reason, "another run")
    higher: tuple[str, ...] = ()
    if by is not None:
        who = f"{_run(situation, by)}, {who}"
        if how.reason == "InClusterQueue":
            who = f"{_run(situation, by)}, whose priority is higher ({by.priority}, its own is {own})"
            higher = _higher(situation, by.priority)
    ago = situation.ago(evicted.since)
    shown = [Evidence("Workload", situation.workload.name, sentence(one_line(evicted.message)))]
    if holds_quota(situation.workload):
        return Finding(
            f"{situation.name} is being stopped to make room for {who}.",
            tuple(shown),
            (f"{situation.resumes} when quota is available again.",),
        )
    verdict = worst(situation, Fit.WAITS)
    missing = ""
    if verdict is not None:
        who_has = quota_usage.quota_usage(situation, verdict.what)
        missing = (
            f" for {amount(verdict.resource, verdict.need)} of {verdict.flavor}, of which "
            f"{number(verdict.resource, verdict.free) if verdict.free else 'none'} are free"
        )
        shown += quota_usage.shown(situation, who_has)
    return Finding(
        f"{situation.name} was preempted {ago} ago by {who}, and waits{missing or ' for its turn'}.",
        tuple(shown),
        (
            f"No action is needed. {situation.resumes} when quota is available again.",
            *higher,
            *other_queues(situation),
        ),
    )


def pods_ready_timeout(situation: Situation) -> Finding | None:
    """Kueue evicted the run because its pods were not ready in time."""
    evicted = situation.seen.workload_condition("Evicted")
    if not waits(situation) or situation.workload is None or not evicted.is_true:
        return None
    if evicted.reason != "PodsReadyTimeout":
        return None
    requeue = situation.workload.requeue
    times = requeue.count or 1
    nth = {1: "", 2: " for the second time"}.get(times, f" for the {ordinal(times)} time")
    then = "is in its queue again"
    if requeue.at:
        left = -seconds_since(requeue.at, situation.now)
        then = f"returns to the queue in {duration(left)}" if left > 0 else "returns to the queue now"
    shown = [Evidence("Workload", situation.workload.name, sentence(one_line(evicted.message)))]
    shown += [item for item in quote(situation) if item.says != shown[0].says]
    ago = situation.ago(evicted.since)
    return Finding(
        f"{situation.name} was stopped{nth} {ago} ago because not all its pods were ready within Kueue's time limit "
        f"(30 min unless the platform team set another), and {then}.",
        tuple(shown),
        (
            f"When it is admitted again, launcher explain {situation.command_args} shows what its pods wait "
            "for: usually nodes that are slow to provision, or an image that cannot be pulled.",
            "With slice.provisioning: flex-start or reservation, the machines exist before the pods are created.",
            "Ask the platform team for a longer waitForPodsReady.timeout in Kueue's configuration.",
        ),
    )


def evicted(situation: Situation) -> Finding | None:
    """Kueue evicted the run for another reason: an admission check, a failed node, a drained queue."""
    eviction = situation.seen.workload_condition("Evicted")
    if situation.workload is None or not eviction.is_true:
        return None
    says = sentence(one_line(eviction.message))
    return Finding(
        f"{situation.name} was evicted by Kueue {situation.ago(eviction.since)} ago: {says}",
        (Evidence("Workload", situation.workload.name, f"Evicted, {eviction.reason}: {says}"), *quote(situation)),
        (f"{situation.resumes} when Kueue admits it again.",),
    )


def quota_in_use(situation: Situation) -> Finding | None:
    """The quota is in use."""
    verdict = worst(situation, Fit.WAITS)
    if verdict is None or situation.workload is None:
        return None
    queue, quotas = situation.cluster_queue_name, situation.quotas
    who = quota_usage.quota_usage(situation, verdict.what)
    need = f"{amount(verdict.resource, verdict.need)} of {verdict.flavor}"
    own = situation.workload.priority
    shown = (*quote(situation), *_quota(situation, verdict), *quota_usage.shown(situation, who))
    limit = quotas.quota(queue, verdict.what).borrowing_limit
    if limit is not None and quotas.available(queue, verdict.what, limited=False) >= verdict.need:
        return Finding(
            f"{situation.name} waits for {need}: its queue {queue} has reached its borrowing limit "
            f"({number(verdict.resource, limit)}), although the cohort {quotas.cohort(queue)} has enough free.",
            shown,
            (
                f"Ask the platform team for a higher limit: clusterQueues.{queue}.quota.{verdict.flavor}.borrowing in "
                "the values of charts/queues (in slices).",
                *_fewer(situation, verdict),
                *other_queues(situation),
            ),
        )
    holding = quota_usage.phrase(situation, who)
    low = _no_lower(situation, who, own)
    return Finding(
        f"{situation.name} waits for {need}: {_free(situation, verdict)}{f', and {holding}' if holding else ''}{low}.",
        shown,
        (
            *_fewer(situation, verdict),
            *(_higher(situation, min((item.priority for item in who.holders), default=own)) if low else ()),
            *other_queues(situation),
        )
        or ("No action is needed: it starts automatically when enough quota is released.",),
    )


def strict_line(situation: Situation) -> Finding | None:
    """The queue is strict: no run overtakes another, so all wait for what the first one waits for."""
    queue = situation.cluster_queue if waits(situation) else None
    if queue is None or not queue.strict:
        return None
    stand = queue_position(situation)
    if stand is None or stand.head is None or stand.position is None:
        return None
    return Finding(
        f"{situation.name} is number {stand.position} in the queue {queue.name}, which admits runs strictly in order, "
        f"and {stand.head.name}{'' if stand.head.namespace == situation.namespace else f' of {stand.head.namespace}'} "
        "is first and has not started yet.",
        (Evidence("ClusterQueue", queue.name, "spec.queueingStrategy is StrictFIFO."), *quote(situation)),
        (
            f"launcher explain {stand.head.name} -n {stand.head.namespace} shows what the first run waits for.",
            *_higher(situation, stand.head.priority),
            *other_queues(situation),
        ),
    )


def not_looked_at(situation: Situation) -> Finding | None:
    """The run is queued and its quota appears to be free, or Kueue has never considered the run."""
    workload = situation.workload
    if workload is None or not waits(situation) or workload.evicted:
        return None
    fits = bool(situation.verdicts) and situation.verdicts[0].fit is Fit.NOW
    if not workload.reserved or workload.reserved.reason == "PendingEvaluation":
        waited = seconds_since(workload.created, situation.now)
        if waited < PATIENCE:
            return Finding(f"{situation.name} is in the queue {situation.queue}; Kueue is about to consider it.")
        return Finding(
            f"{situation.name} is in the queue {situation.queue}, but Kueue has not considered it in "
            f"{situation.ago(workload.created)}.",
            quote(situation) or (Evidence("Workload", workload.name, "has no condition QuotaReserved."),),
            ("Ask the platform team whether Kueue's controller is running: kubectl -n kueue-system get pods.",),
        )
    if not fits or not re.search(
        r"insufficient|no longer fits|resource .* unavailable|doesn't match", message_of(situation)
    ):
        return None
    return Finding(
        f"{situation.name} fits its queue {situation.queue} now, and Kueue is about to consider it again.",
        quote(situation),
        ("If it still waits in a minute, ask the platform team whether Kueue's controller is running.",),
    )


def _quota(situation: Situation, verdict: FlavorFit) -> tuple[Evidence, ...]:
    """Return the quota and usage that explain the wait."""
    queue, quotas, what = situation.cluster_queue_name, situation.quotas, verdict.what
    quota, cohort = quotas.quota(queue, what), quotas.cohort(queue)
    res = verdict.resource
    lines = [
        Evidence(
            "ClusterQueue",
            queue,
            f"has {number(res, quota.nominal)} of {verdict.flavor}, and its runs hold "
            f"{number(res, quotas.used(queue, what))}; {number(res, verdict.free)} are available now, "
            f"{number(res, verdict.need - verdict.free)} more are needed.",
        )
    ]
    for member in quotas.root_cohort_queues(queue) if cohort else []:
        if member == queue:
            continue
        used, nominal = quotas.used(member, what), quotas.quota(member, what).nominal
        keeps = quotas.local_available(member, what)
        kept = f", and keeps {number(res, keeps)} that it does not lend" if keeps else ""
        if used or nominal:
            lines.append(
                Evidence(
                    "ClusterQueue",
                    member,
                    f"shares the cohort: has {number(res, nominal)}, and its runs hold {number(res, used)}{kept}.",
                )
            )
    return tuple(lines[:8])


def _free(situation: Situation, verdict: FlavorFit) -> str:
    queue, cohort = situation.cluster_queue_name, situation.quotas.cohort(situation.cluster_queue_name)
    place = f"the queue {queue}" + (f" and its cohort {cohort} have" if cohort else " has")
    if not verdict.free:
        return f"{place} none of {number(verdict.resource, verdict.capacity)} free"
    return f"{place} {number(verdict.resource, verdict.free)} of {number(verdict.resource, verdict.capacity)} free"


def _no_lower(situation: Situation, who: QuotaUsage, own: int) -> str:
    """Return the end of the sentence if the queue preempts by priority but this run's is too low; else ""."""
    queue = situation.cluster_queue
    inside = [item for item in who.holders if item.queue == situation.cluster_queue_name]
    if queue is None or not queue.preempts or not inside or any(item.priority < own for item in inside):
        return ""
    lowest = min(item.priority for item in inside)
    if len(inside) == 1:
        return f"; it cannot preempt that run, because its priority ({own}) is not higher than that run's ({lowest})"
    return f"; it cannot preempt any of them, because its priority ({own}) is not higher than theirs ({lowest} and up)"


def _higher(situation: Situation, than: int) -> tuple[str, ...]:
    """Suggest the lowest priority class above a priority."""
    above = sorted((value, called) for called, value in situation.priorities.items() if value > than)
    if not above or situation.workload is None or situation.workload.priority >= above[0][0]:
        return ()
    value, called = above[0]
    return (
        f"If it is urgent, use a higher priority ({called} is {value}): "
        f"{situation.with_values(f'queue.priority={called}')}.",
    )


def _fewer(situation: Situation, verdict: FlavorFit) -> tuple[str, ...]:
    """Suggest the number of slices that would fit now, if it is lower."""
    per_slice = verdict.need / situation.slices
    fits = int(verdict.free // per_slice) if per_slice else 0
    if not 1 <= fits < situation.slices or verdict.resource in ("cpu", "memory"):
        return ()
    again = situation.with_values(f"{situation.slices_key}={fits}")
    return (f"{fits} slice{'s' if fits > 1 else ''} would fit now: {again}.",)


def _preemptor(situation: Situation, message: str) -> Workload | None:
    match = re.search(r"JobUID: ([0-9a-f-]+)", message)
    if not match:
        return None
    return next((item for item in situation.workloads if item.label(label_keys.KUEUE_JOB_UID) == match[1]), None)


def _run(situation: Situation, workload: Workload) -> str:
    own = workload.namespace == situation.namespace
    return workload.owner if own else f"{workload.owner} of {workload.namespace}"
