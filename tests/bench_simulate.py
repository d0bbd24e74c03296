"""The time that a simulation of Kueue takes: many runs, 20 ClusterQueues in 4 cohorts, 3 flavors, with preemption."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from decimal import Decimal

from launcher.k8s.kueue.queues import ClusterQueue
from launcher.products.planner.scheduler.model import Job, PodSetRequest, Scenario
from launcher.products.planner.scheduler.simulation import simulate

CHIPS = "google.com/tpu"
QUEUES, COHORTS, QUOTA = 20, 4, 64
LIMITS = {1_000: 0.5, 10_000: 5.0}
"""The most seconds for this many runs."""
_LOAD, _MEAN_TIME, _SIZES = 0.7, 3600.0, (8, 16, 32, 64)


def rows() -> Iterator[tuple[str, list[float], list[float], float]]:
    """Yield a row of `make bench` for each number of runs. CPU time, because the machine may be busy."""
    for runs, limit in LIMITS.items():
        taken = []
        for seed in range(3):
            given = scenario(runs, seed)
            start = time.process_time()
            simulate(given)
            taken.append(time.process_time() - start)
        yield f"a simulation of {runs:,} runs (limit: {limit:g} s of CPU)", taken, [limit], 1.0


def scenario(runs: int, seed: int) -> Scenario:
    """Return runs that arrive at random and need 70% of all chips on average. Times are seconds."""
    source = random.Random(seed)  # not for security
    rate = QUEUES * 3 * QUOTA * _LOAD / (sum(_SIZES) / len(_SIZES) * _MEAN_TIME)
    jobs, at = [], 0.0
    for number in range(runs):
        at += source.expovariate(rate)
        jobs.append(
            Job(
                name=f"run-{number:05}",
                queue=f"queue-{source.randrange(QUEUES)}",
                pod_sets=(PodSetRequest({CHIPS: Decimal(source.choice(_SIZES))}),),
                priority=source.choice((100, 500, 1000)),
                created=at,
                takes=source.expovariate(1 / _MEAN_TIME),
                frees=(30.0,),
                checkpoint_every=600.0,
            )
        )
    return Scenario([_queue(number) for number in range(QUEUES)], [], jobs)


def _queue(number: int) -> ClusterQueue:
    flavors = [{"name": name, "resources": [{"name": CHIPS, "nominalQuota": str(QUOTA)}]} for name in "abc"]
    return ClusterQueue(
        {
            "metadata": {"name": f"queue-{number}"},
            "spec": {
                "cohortName": f"cohort-{number % COHORTS}",
                "queueingStrategy": "StrictFIFO" if number % 5 == 0 else "BestEffortFIFO",
                "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
                "resourceGroups": [{"coveredResources": [CHIPS], "flavors": flavors}],
            },
        }
    )
