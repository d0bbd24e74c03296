"""The properties of a simulation of any queues and jobs: quota, completeness, independence of the input's order."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from launcher.k8s.kueue.queues import FlavorResource
from launcher.k8s.kueue.quota import Quotas
from launcher.products.planner.scheduler.model import Job, KueueSettings, Outcome, Scenario
from launcher.products.planner.scheduler.simulation import RETRY_AFTER, simulate
from tests.products.planner.queue_scenarios import CHIPS, cohort, job, queue

FLAVORS = ("a", "b")
POLICIES = ("Never", "LowerPriority", "LowerOrNewerEqualPriority")
SEARCH = ("MayStopSearch", "TryNextFlavor")
_quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def scenarios(draw: Any, *, alone: bool = False) -> Scenario:
    """Draw up to four queues in up to three cohorts, and up to fifteen jobs. `alone`: no cohort and no preemption."""
    limit = st.one_of(st.none(), st.integers(0, 8))
    amount = st.tuples(st.integers(0, 16), st.none() if alone else limit, st.none() if alone else limit)
    number = draw(st.integers(1, 4))
    queues = [
        queue(
            f"q{index}",
            {flavor: draw(amount) for flavor in FLAVORS[: draw(st.integers(1, 2))]},
            "" if alone else draw(st.sampled_from(["", "left", "right"])),
            queueingStrategy=draw(st.sampled_from(["BestEffortFIFO", "StrictFIFO"])),
            within="Never" if alone else draw(st.sampled_from(POLICIES)),
            reclaim="Never" if alone else draw(st.sampled_from([*POLICIES, "Any"])),
            borrow={"policy": "Never" if alone else draw(st.sampled_from(["Never", "LowerPriority"]))},
            flavorFungibility={
                "whenCanBorrow": draw(st.sampled_from(SEARCH)),
                "whenCanPreempt": draw(st.sampled_from(SEARCH)),
            },
        )
        for index in range(number)
    ]
    cohorts = [cohort("root"), cohort("left", "root", {"a": draw(st.integers(0, 8))}), cohort("right", "root")]
    jobs = [
        job(
            f"j{index}",
            f"q{draw(st.integers(0, number - 1))}",
            draw(st.integers(1, 16)),
            draw(st.integers(0, 200)) / 2,
            draw(st.integers(0, 80)),
            draw(st.integers(0, 3)),
            frees=(draw(st.integers(1, 10)) / 2,),
            checkpoint_every=draw(st.sampled_from([None, 5.0])),
        )
        for index in range(draw(st.integers(1, 15)))
    ]
    fair: Any = draw(st.sampled_from([None, ("LessThanOrEqualToFinalShare", "LessThanInitialShare")]))
    return Scenario(queues, cohorts, jobs, settings=KueueSettings(draw(st.sampled_from([(0, 16), (0, 19)])), fair))


def _changes(
    outcome: Outcome, jobs: Mapping[str, Job]
) -> Iterator[tuple[float, int, str, Mapping[FlavorResource, Decimal]]]:
    """Yield each time when quota is reserved (1) or released (-1), with the queue and the amounts."""
    for name, attempts in outcome.attempts.items():
        for attempt in attempts:
            usage: defaultdict[FlavorResource, Decimal] = defaultdict(Decimal)
            for given_flavors, pod_set in zip(attempt.flavors, jobs[name].pod_sets, strict=True):
                for resource, flavor in given_flavors.items():
                    usage[flavor, resource] += pod_set.amounts[resource]
            # The decision counts at once in the scheduler, and a little later in the API server.
            yield attempt.start, 1, jobs[name].queue, usage
            if attempt.released is not None:
                yield attempt.released, -1, jobs[name].queue, usage


@_quick
@given(scenarios())
def test_quota_is_never_exceeded(scenario: Scenario) -> None:
    quotas = Quotas(scenario.cluster_queues, scenario.cohorts)
    jobs = {each.name: each for each in scenario.jobs}
    changes = sorted(_changes(simulate(scenario), jobs), key=lambda change: (change[0], change[1]))
    for _, sign, name, usage in changes:
        node = quotas.node(name)
        for what, amount in usage.items():
            (node.add_usage if sign > 0 else node.remove_usage)(what, amount)
        if sign > 0:
            for what in usage:
                assert node.used(what) <= node.potential_available(what)
                assert node.root.used(what) <= node.root.subtree_quota(what)


@_quick
@given(scenarios())
def test_no_job_is_lost(scenario: Scenario) -> None:
    outcome = simulate(scenario)
    for each in scenario.jobs:
        happened = [event.what for event in outcome.events if event.job == each.name]
        assert happened[0] == "created"
        ended = happened[-1] == "finished"
        assert ended is (each.name not in outcome.never)
        assert happened.count("finished") == ended
        # Each attempt but the last was evicted, and released its quota before the next one.
        attempts = outcome.attempts[each.name]
        assert happened.count("admitted") == len(attempts)
        for first, second in pairwise(attempts):
            assert first.eviction is not None
            assert first.released is not None
            assert first.released <= second.start
        # A job runs for its whole time, less what it has kept of earlier attempts.
        if ended:
            kept = attempts[-2].kept if len(attempts) > 1 else 0.0
            last = attempts[-1]
            assert last.end is not None
            assert last.end - last.admitted >= each.takes - kept - 1e-6


@_quick
@given(scenarios(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(scenario: Scenario, source: random.Random) -> None:
    parts = {"cluster_queues": scenario.cluster_queues, "cohorts": scenario.cohorts, "jobs": scenario.jobs}
    shuffled: Any = {key: source.sample(list(value), len(value)) for key, value in parts.items()}
    assert simulate(replace(scenario, **shuffled)) == simulate(scenario)


@_quick
@given(scenarios(alone=True))
def test_a_free_flavor_does_not_idle_while_a_job_that_fits_waits(scenario: Scenario) -> None:
    """In a best-effort queue, no job waits longer than RETRY_AFTER while a flavor has room for it."""
    outcome = simulate(scenario)
    every = {each.name: each for each in scenario.jobs}
    patience = RETRY_AFTER + 1.0  # and the cycles of all shapes that are tried before
    for source in scenario.cluster_queues:
        if source.strict:
            continue
        jobs = {each.name: each for each in scenario.jobs if each.queue == source.name}
        times = sorted({change[0] for change in _changes(outcome, every)} | {each.created for each in jobs.values()})
        for first, second in pairwise([*times, float("inf")]):
            if second - first <= patience:
                continue
            held: defaultdict[str, Decimal] = defaultdict(Decimal)
            for at, sign, name, usage in _changes(outcome, every):
                if at <= first and name == source.name:
                    for (flavor, _), amount in usage.items():
                        held[flavor] += sign * amount
            for each in jobs.values():
                starts = [attempt.start for attempt in outcome.attempts[each.name]]
                if each.created <= first and not any(start <= second for start in starts):
                    amount = each.pod_sets[0].amounts[CHIPS]
                    free = {what[0]: quota.nominal - held[what[0]] for what, quota in source.quotas.items()}
                    assert all(left < amount for left in free.values()), (each.name, first, second, free)
