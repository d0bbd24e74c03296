"""Find the runs that hold the quota that a run waits for."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal

from launcher.diagnose.explain.finding import Evidence
from launcher.diagnose.explain.formatting import amount, number
from launcher.diagnose.explain.situation import Situation
from launcher.k8s.kueue.queues import FlavorResource


@dataclass(frozen=True)
class QuotaHolder:
    """A run that holds quota: the amount, its ClusterQueue, and since when (RFC 3339)."""

    name: str
    namespace: str
    queue: str
    amount: Decimal
    since: str
    priority: int


@dataclass(frozen=True)
class QuotaUsage:
    """The runs that hold some of `what`, the largest first, and what hidden runs hold, by ClusterQueue."""

    what: FlavorResource
    holders: tuple[QuotaHolder, ...]
    hidden: dict[str, Decimal]


def quota_usage(situation: Situation, what: FlavorResource) -> QuotaUsage:
    """Return the holders of a resource of a flavor, in all queues that share quota with the run's queue."""
    queue = situation.cluster_queue_name
    sharing = set(situation.quotas.root_cohort_queues(queue))
    holders = []
    sums: defaultdict[str, Decimal] = defaultdict(Decimal)
    for workload in situation.workloads:
        where = workload.cluster_queue
        if where not in sharing:
            continue
        part = workload.holds.get(what)
        if part:
            sums[where] += part
            holders.append(
                QuotaHolder(workload.owner, workload.namespace, where, part, workload.reserved.since, workload.priority)
            )
    hidden = {}
    if situation.others_hidden:
        hidden = {
            member: rest
            for member in sorted(sharing)
            if (rest := situation.quotas.used(member, what) - sums[member]) > 0
        }
    return QuotaUsage(what, tuple(sorted(holders, key=lambda item: (-item.amount, item.since))), hidden)


def phrase(situation: Situation, who: QuotaUsage) -> str:
    """Return the holders as the end of a sentence: "first-2 has held 16 for 14 min"; "" if none is known."""
    resource = who.what[1]
    if len(who.holders) == 1 and not who.hidden:
        only = who.holders[0]
        return f"{_named(situation, only)} has held {number(resource, only.amount)} for {situation.ago(only.since)}"
    if who.holders and not who.hidden:
        first = min(who.holders, key=lambda item: item.since)
        total = sum((item.amount for item in who.holders), Decimal())
        return (
            f"{len(who.holders)} runs hold {number(resource, total)} ({_named(situation, first)} for the longest time, "
            f"{situation.ago(first.since)})"
        )
    if who.hidden:
        parts = [f"{number(resource, rest)} in the queue {queue}" for queue, rest in who.hidden.items()]
        mine = sum((item.amount for item in who.holders), Decimal())
        own = f", and runs of your team hold {number(resource, mine)}" if mine else ""
        return f"runs of other teams hold {' and '.join(parts[:3])}{own}"
    return ""


def shown(situation: Situation, who: QuotaUsage, most: int = 5) -> tuple[Evidence, ...]:
    """Return one line for each holder, and one for each queue with hidden runs."""
    lines = [
        Evidence(
            "Workload",
            item.name,
            f"holds {amount(who.what[1], item.amount)} of {who.what[0]} in the queue {item.queue} for "
            f"{situation.ago(item.since)} (namespace {item.namespace}, priority {item.priority}).",
        )
        for item in who.holders[:most]
    ]
    if len(who.holders) > most:
        rest = sum((item.amount for item in who.holders[most:]), Decimal())
        lines.append(
            Evidence(
                "Workload",
                "",
                f"{len(who.holders) - most} more runs hold {amount(who.what[1], rest)} of {who.what[0]}.",
            )
        )
    lines += [
        Evidence(
            "ClusterQueue",
            queue,
            f"{amount(who.what[1], rest)} of {who.what[0]} are held by runs of other teams, which you may not read.",
        )
        for queue, rest in who.hidden.items()
    ]
    return tuple(lines)


def _named(situation: Situation, holder: QuotaHolder) -> str:
    return holder.name if holder.namespace == situation.namespace else f"{holder.name} of {holder.namespace}"
