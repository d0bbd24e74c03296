"""Compare the chips that pods use with those that Kueue counts, by team and node. Pure functions.

Kueue releases quota when a run ends or is stopped. Chips that pods use after that, or without a Workload, are in no
quota: the next run is admitted, and waits for nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from launcher.diagnose.doctor.finding import CAPACITY, Finding, Level, many
from launcher.diagnose.doctor.inventory import hidden
from launcher.k8s import label_keys
from launcher.products.platform.uncounted import Uncounted, uncounted, usage

if TYPE_CHECKING:
    from launcher.diagnose.doctor.inventory import ClusterInventory

_SUBJECT = "chips in use"
_MOST = 5


def examine(sight: ClusterInventory, table: Mapping[str, Any], now: datetime) -> Iterator[Finding]:
    """Return findings on chips that no quota counts; none without Kueue. `table` is the accelerator table."""
    used = sight.used
    looks = (used.pods, used.workloads, used.ray_clusters)
    if any(look.forbidden for look in looks) or not used.everywhere:
        missing = hidden(looks) or "you may not list pods and workloads in the whole cluster"
        yield _finding(Level.UNKNOWN, _SUBJECT, f"{missing}; the chips of other namespaces are left out.")
    if used.pods.seen is None or used.workloads.seen is None:
        return
    also = {str(row["resource"]) for row in table.values() if row.get("resource")}
    objects = uncounted(used.pods.seen, used.workloads.seen, now, ray_clusters=used.ray_clusters.seen or [], also=also)
    chips = usage(used.pods.seen, used.workloads.seen, also)
    teams = {queue.namespace: queue.label(label_keys.TEAM) for queue in sight.teams.queues.seen or []}
    by_space: defaultdict[str, list[Uncounted]] = defaultdict(list)
    for item in objects:
        by_space[item.owner.namespace].append(item)
    for space, some in sorted(by_space.items()):
        team = teams.get(space)
        whose = f"team {team}" if team and team != space else space
        yield _finding(
            Level.WARNING,
            _SUBJECT,
            f"{whose} uses {many(chips[space].used, 'chip')}, and Kueue counts {chips[space].reserved}; "
            f"{sum(item.chips for item in some)} are in no quota, so runs are admitted and then wait for nodes. "
            f"{' '.join(item.sentence(now) for item in some[:_MOST])}"
            f"{f' There are {len(some) - _MOST} more.' if len(some) > _MOST else ''}",
            "\n".join(item.advice for item in some[:_MOST]),
        )
    total = sum(item.used for item in chips.values())
    if not objects and total:
        where = "" if used.everywhere else f" in {sight.namespace}"
        yield _finding(Level.OK, _SUBJECT, f"pods use {many(total, 'chip')}{where}, and all are in a quota.")


def _finding(level: Level, subject: str, says: str, hint: str = "") -> Finding:
    return Finding(CAPACITY, level, subject, says, hint)
