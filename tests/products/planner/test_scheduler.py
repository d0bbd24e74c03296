"""The rules of Kueue's scheduler, one situation each. simulate_proof compares whole scenarios with recordings."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from launcher.errors import LauncherError
from launcher.k8s.kueue.queues import ClusterQueue
from launcher.products.planner.scheduler import simulation
from launcher.products.planner.scheduler.model import Holding, KueueSettings, Outage, PodSetRequest, Scenario
from launcher.products.planner.scheduler.simulation import simulate
from tests.products.planner.queue_scenarios import CHIPS, cohort, evictions, flavors, groups, job, play, queue, starts

FAIR: Any = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")


# --- the order of a queue ---


def test_jobs_start_by_priority_and_then_by_age() -> None:
    outcome = play(
        [queue("q", 8)],
        [job("first", "q", 8, 0, 10), job("old", "q", 8, 1), job("new", "q", 8, 2), job("high", "q", 8, 3, priority=5)],
    )
    assert starts(outcome) == {"first": 0, "high": 11, "old": 112, "new": 213}


def test_a_best_effort_queue_starts_a_small_job_before_a_large_one_that_waits() -> None:
    jobs = [job("running", "q", 6, 0, 50), job("large", "q", 8, 1), job("small", "q", 2, 2, 5)]
    assert starts(play([queue("q", 8)], jobs)) == {"running": 0, "small": 2, "large": 51}


def test_a_strict_queue_starts_nothing_before_its_head() -> None:
    jobs = [job("running", "q", 6, 0, 50), job("large", "q", 8, 1), job("small", "q", 2, 2, 5)]
    outcome = play([queue("q", 8, queueingStrategy="StrictFIFO")], jobs)
    # The head of a strict queue is tried again at once, and not only after RETRY_AFTER.
    assert starts(outcome) == {"running": 0, "large": 50, "small": 150}


def test_a_stopped_queue_admits_nothing() -> None:
    outcome = play([queue("q", 8, stopPolicy="Hold")], [job("waits", "q", 1, 0)])
    assert outcome.never == {"waits": "the queue q is stopped"}


# --- quota ---


def test_a_queue_borrows_up_to_its_limit() -> None:
    queues = [queue("q", {"a": (8, 4, None)}, "team"), queue("other", 8, "team")]
    outcome = play(queues, [job("fits", "q", 12, 0), job("exceeds", "q", 13, 1)])
    assert starts(outcome) == {"fits": 0}
    assert outcome.never == {"exceeds": "it requests 13 of google.com/tpu, and the queue q can have at most 12"}


def test_a_queue_lends_up_to_its_limit() -> None:
    queues = [queue("q", 8, "team"), queue("other", {"a": (8, None, 2)}, "team")]
    outcome = play(queues, [job("fits", "q", 10, 0, 10), job("exceeds", "q", 11, 1), job("own", "other", 6, 2)])
    assert starts(outcome) == {"fits": 0, "own": 2}
    assert list(outcome.never) == ["exceeds"]


def test_nested_cohorts_lend_what_their_queues_do_not_use() -> None:
    queues = [queue("q", 0, "left"), queue("other", 8, "right")]
    cohorts = [cohort("root"), cohort("left", "root", {"a": 4}), cohort("right", "root")]
    outcome = play(queues, [job("fits", "q", 12, 0), job("exceeds", "q", 13, 1)], cohorts)
    assert starts(outcome) == {"fits": 0}
    assert list(outcome.never) == ["exceeds"]


def test_a_job_within_the_quota_comes_before_one_that_borrows() -> None:
    queues = [queue("borrower", 0, "team"), queue("owner", 8, "team"), queue("holder", 0, "team")]
    jobs = [job("running", "holder", 8, 0, 10), job("b", "borrower", 8, 1, priority=9), job("o", "owner", 8, 2)]
    assert starts(play(queues, jobs)) == {"running": 0, "o": 11, "b": 112}


def test_all_resources_of_a_job_must_fit() -> None:
    both = ClusterQueue(
        {
            "metadata": {"name": "q"},
            "spec": {"resourceGroups": [*groups({"a": 8}), *groups({"cpus": 10}, "cpu")]},
        }
    )
    sets = (PodSetRequest({CHIPS: Decimal(4), "cpu": Decimal(6)}),)
    outcome = play([both], [job(name, "q", 0, at, 10, pod_sets=sets) for at, name in enumerate(("one", "two"))])
    assert starts(outcome) == {"one": 0, "two": 11}  # the chips fit both, the cores fit one
    assert [dict(each) for each in outcome.attempts["one"][0].flavors] == [{CHIPS: "a", "cpu": "cpus"}]


def test_a_resource_without_quota_is_never_admitted() -> None:
    sets = (PodSetRequest({"nvidia.com/gpu": Decimal(1)}),)
    outcome = play([queue("q", 8)], [job("gpu", "q", 0, 0, pod_sets=sets)])
    assert outcome.never == {"gpu": "the queue q has no quota for nvidia.com/gpu"}


# --- flavors ---


def test_the_next_flavor_is_tried_if_the_first_is_full() -> None:
    outcome = play([queue("q", {"a": 8, "b": 8})], [job("one", "q", 8, 0), job("two", "q", 8, 1)])
    assert (flavors(outcome, "one"), flavors(outcome, "two")) == ([["a"]], [["b"]])


def test_only_flavors_that_match_the_pods_are_assigned() -> None:
    outcome = play(
        [queue("q", {"a": 8, "b": 8})], [job("b", "q", 8, 0, flavors=["b"]), job("c", "q", 8, 0, flavors="c")]
    )
    assert flavors(outcome, "b") == [["b"]]
    assert outcome.never == {"c": "no flavor of the queue q matches its pods"}


@pytest.mark.parametrize(("policy", "flavor"), [("MayStopSearch", "a"), ("TryNextFlavor", "b")])
def test_fungibility_selects_between_borrowing_and_the_next_flavor(policy: str, flavor: str) -> None:
    queues = [
        queue("q", {"a": 4, "b": 8}, "team", flavorFungibility={"whenCanBorrow": policy}),
        queue("other", {"a": 8}, "team"),
    ]
    assert flavors(play(queues, [job("one", "q", 8, 0)]), "one") == [[flavor]]


@pytest.mark.parametrize(("policy", "flavor"), [("MayStopSearch", "a"), ("TryNextFlavor", "b")])
def test_fungibility_selects_between_preemption_and_the_next_flavor(policy: str, flavor: str) -> None:
    queues = [queue("q", {"a": 8, "b": 8}, within="LowerPriority", flavorFungibility={"whenCanPreempt": policy})]
    outcome = play(queues, [job("low", "q", 8, 0), job("high", "q", 8, 5, priority=1)])
    assert flavors(outcome, "high") == [[flavor]]
    assert bool(evictions(outcome)) is (flavor == "a")


# --- preemption ---


def test_a_job_preempts_the_newest_of_the_lowest_priority() -> None:
    queues = [queue("q", 12, within="LowerPriority")]
    jobs = [
        job("old", "q", 4, 0),
        job("new", "q", 4, 2),
        job("mid", "q", 4, 4, priority=1),
        job("high", "q", 4, 6, priority=2, takes=20),
    ]
    outcome = play(queues, [*jobs, job("equal", "q", 4, 7, priority=1)])
    assert evictions(outcome)[0] == (6, "new", "InClusterQueue", "high")
    assert evictions(outcome)[1] == (7, "old", "InClusterQueue", "equal")  # an equal priority does not preempt


def test_newer_jobs_of_equal_priority_are_preempted_if_the_queue_allows_it() -> None:
    queues = [queue("q", 8, within="LowerOrNewerEqualPriority")]
    # "old" is created first, and cannot start until "blocker" has ended; "new" gets the rest of the quota before it.
    jobs = [job("blocker", "q", 2, 0, 20), job("old", "q", 8, 1), job("new", "q", 6, 2)]
    assert evictions(play(queues, jobs)) == [(21, "new", "InClusterQueue", "old")]


def test_an_owner_reclaims_its_quota_from_a_borrower_of_any_priority() -> None:
    queues = [queue("owner", 8, "team", reclaim="Any"), queue("borrower", 8, "team")]
    jobs = [
        job("kept", "borrower", 8, 0, priority=9),
        job("lent", "borrower", 8, 2, priority=9),
        job("own", "owner", 8, 5, 10),
    ]
    outcome = play(queues, jobs)
    assert evictions(outcome) == [(5, "lent", "InCohortReclamation", "own")]
    assert starts(outcome)["own"] == 5


def test_quota_that_is_not_lent_is_not_taken_back() -> None:
    queues = [queue("owner", 8, "team", reclaim="LowerPriority"), queue("borrower", 8, "team")]
    jobs = [job("lent", "borrower", 16, 0, 50, priority=9), job("own", "owner", 8, 5, 10)]
    assert starts(play(queues, jobs)) == {"lent": 0, "own": 51}  # only lower priorities are reclaimed


@pytest.mark.parametrize(("threshold", "evicted"), [(5, True), (0, False)])
def test_a_borrower_preempts_in_the_cohort_only_below_the_threshold(threshold: int, evicted: bool) -> None:
    borrow = {"policy": "LowerPriority", "maxPriorityThreshold": threshold}
    queues = [
        queue("q", 4, "team", reclaim="LowerPriority", borrow=borrow),
        queue("idle", 8, "team"),
        queue("other", 4, "team"),
    ]
    jobs = [job("lent", "other", 12, 0, priority=3), job("wants", "q", 8, 5, 10, priority=9)]
    assert [each[1:3] for each in evictions(play(queues, jobs))] == (
        [("lent", "InCohortReclaimWhileBorrowing")] if evicted else []
    )


def test_a_preemptor_waits_until_the_quota_is_free() -> None:
    queues = [queue("q", 8, within="LowerPriority")]
    jobs = [job("low", "q", 8, 0, 100, frees=(30.0,)), job("high", "q", 8, 10, 10, priority=1), job("late", "q", 8, 20)]
    outcome = play(queues, jobs)
    assert starts(outcome)["high"] == 40
    low = outcome.attempts["low"]
    assert [(int(each.start), each.eviction is not None) for each in low] == [(0, True), (51, False)]


def test_a_job_that_ends_while_it_is_evicted_is_not_started_again() -> None:
    queues = [queue("q", 8, within="LowerPriority")]
    jobs = [job("low", "q", 8, 0, 12, frees=(30.0,)), job("high", "q", 8, 10, 10, priority=1)]
    outcome = play(queues, jobs)
    assert len(outcome.attempts["low"]) == 1
    assert starts(outcome)["high"] == 12


def test_a_job_resumes_from_its_last_checkpoint() -> None:
    queues = [queue("q", 8, within="LowerPriority")]
    high = job("high", "q", 8, 50, 10, priority=1)
    low = job("low", "q", 8, 0, 100, checkpoint_every=20.0)
    outcome = play(queues, [low, high])
    first, second = outcome.attempts["low"]
    assert (first.kept, second.end is not None) == (40.0, True)
    assert second.end is not None
    assert round(second.end - second.start) == 60
    without = play(queues, [job("low", "q", 8, 0, 100), high]).attempts["low"]
    assert without[0].kept == 0.0


def test_a_workload_that_lost_its_flavor_to_another_tries_the_next() -> None:
    """Recorded with Kueue 0.19.2: after "no longer fits", the search continues after the nominated flavor."""
    queues = [
        queue("first", 0, "team"),
        queue(
            "second",
            {"a": 0, "b": 8},
            "team",
            flavorFungibility={"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"},
        ),
        queue("owner", 8, "team"),
    ]
    jobs = [
        job("running", "owner", 8, 0, 20),
        job("fills", "second", 8, 0, 22, flavors=["b"]),
        job("one", "first", 8, 1, priority=1),
        job("two", "second", 8, 2),
    ]
    outcome = play(queues, jobs)
    assert flavors(outcome, "one") == [["a"]]
    assert flavors(outcome, "two") == [["b"]]


# --- fair sharing ---


def test_fair_sharing_starts_the_queue_with_the_lowest_share_first() -> None:
    queues = [queue("a", 0, "team"), queue("b", 0, "team"), queue("pool", 8, "team")]
    jobs = [
        job("a1", "a", 4, 0, 90),
        job("hold", "pool", 4, 0, 10),
        job("a2", "a", 4, 1, 90, priority=5),
        job("b1", "b", 4, 2, 90),
    ]
    settings = KueueSettings(fair_sharing=FAIR)
    assert starts(play(queues, jobs, settings=settings))["b1"] == 11
    assert starts(play(queues, jobs))["b1"] > 11  # without fair sharing, the priority decides


@pytest.mark.parametrize(("weight", "evicted"), [("1", True), ("100m", False)])
def test_fair_sharing_preempts_the_queue_with_the_higher_share(weight: str, evicted: bool) -> None:
    queues = [
        queue("a", 0, "team", reclaim="Any", fairSharing={"weight": weight}),
        queue("b", 0, "team", reclaim="Any"),
        queue("pool", 16, "team"),
    ]
    jobs = [job("b1", "b", 8, 0, 500), job("b2", "b", 8, 1, 500), job("a1", "a", 8, 10, 20)]
    outcome = play(queues, jobs, settings=KueueSettings(fair_sharing=FAIR))
    assert [each[1:] for each in evictions(outcome)[:1]] == ([("b2", "InCohortFairSharing", "a1")] if evicted else [])


def test_a_queue_within_its_quota_preempts_whatever_the_shares_since_0_17() -> None:
    queues = [
        queue("owner", {"a": 8}, "team", reclaim="Any", fairSharing={"weight": "0"}),
        queue("b", 0, "team"),
    ]
    jobs = [job("b1", "b", 8, 0, 500), job("own", "owner", 8, 10, 20)]
    outcome = play(queues, jobs, settings=KueueSettings(fair_sharing=FAIR))
    assert evictions(outcome)[0][1:] == ("b1", "InCohortReclamation", "own")
    older = play(queues, jobs, settings=KueueSettings(version=(0, 16), fair_sharing=FAIR))
    assert evictions(older)[0][2] == "InCohortFairSharing"


# --- time ---


def test_what_was_set_aside_is_tried_again_a_second_after_a_release() -> None:
    jobs = [job("running", "q", 8, 0, 10), job("waits", "q", 8, 1)]
    (at,) = [
        event.at for event in play([queue("q", 8)], jobs).events if event.what == "admitted" and event.job == "waits"
    ]
    assert 11.0 < at < 11.3
    older = play([queue("q", 8)], jobs, settings=KueueSettings(version=(0, 16)))
    assert starts(older)["waits"] == 10


def test_a_job_of_a_shape_that_was_set_aside_waits_too_since_0_18() -> None:
    jobs = [job("running", "q", 8, 0, 10), job("waits", "q", 8, 1), job("same", "q", 8, 10.5, priority=0)]
    assert starts(play([queue("q", 16)], [*jobs, job("half", "q", 8, 0, 200)])) == {
        "running": 0, "half": 0, "waits": 11, "same": 112
    }  # fmt: skip
    older = play([queue("q", 16)], [*jobs, job("half", "q", 8, 0, 200)], settings=KueueSettings(version=(0, 17)))
    assert starts(older) == {"running": 0, "half": 0, "waits": 10, "same": 111}


OLDER: Any = KueueSettings(version=(0, 19, 0))


def test_a_job_whose_preemption_did_not_help_stays_first_until_0_19_3() -> None:
    """`low` preempts `first` for quota that `owner` reclaims before `low` gets it."""
    queues = [queue("q", 8, "team", within="LowerPriority"), queue("owner", 8, "team", reclaim="Any")]
    jobs = [
        job("held", "q", 8, 0, 60, priority=1000),
        job("first", "q", 8, 1, priority=0, frees=(10.0,)),
        job("low", "q", 8, 10, 30, priority=50),
        job("owner", "owner", 8, 11, 200),
        job("high", "q", 8, 30, 30, priority=500),
    ]
    found = starts(play(queues, jobs))
    assert (found["owner"], found["high"], found["low"]) == (20, 61, 92)
    for version in ((0, 16), (0, 18, 6), (0, 19, 2)):
        stays = starts(play(queues, jobs, settings=KueueSettings(version=version)))
        assert (stays["owner"], stays["low"]) == (20, 60 if version < (0, 17) else 61)
    for version in ((0, 18), (0, 18, 7), (0, 19, 3)):
        assert starts(play(queues, jobs, settings=KueueSettings(version=version))) == found


def test_a_job_that_lost_its_flavor_starts_again_with_the_first_until_0_19_1() -> None:
    """`late` loses the rest of the flavor a to `own`. It fits b, and could preempt `running` on a."""
    queues = [
        queue("q", {"a": 8, "b": 8}, "team"),
        queue(
            "other",
            {"a": 8, "b": 8},
            "team",
            within="LowerPriority",
            flavorFungibility={"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"},
        ),
    ]
    jobs = [job("running", "other", 8, 0, priority=0), job("own", "q", 8, 5), job("late", "other", 8, 5, priority=5)]
    outcome = play(queues, jobs)
    assert (flavors(outcome, "late"), evictions(outcome)) == ([["b"]], [])
    assert [each[1:] for each in evictions(play(queues, jobs, settings=OLDER))] == [
        ("running", "InClusterQueue", "late")
    ]


def test_a_flavor_without_candidates_is_the_last_choice_since_0_19_1() -> None:
    prefer = {
        "preference": "PreemptionOverBorrowing",
        "whenCanBorrow": "TryNextFlavor",
        "whenCanPreempt": "TryNextFlavor",
    }
    queues = [
        queue("q", {"a": 8, "b": 0}, "team", within="LowerPriority", flavorFungibility=prefer),
        queue("other", {"a": 0, "b": 8}, "team"),
    ]
    jobs = [job("running", "other", 8, 0), job("next", "q", 8, 5)]
    assert starts(play(queues, jobs)) == {"running": 0, "next": 5}
    assert starts(play(queues, jobs, settings=OLDER)) == {"running": 0, "next": 101}


def test_admission_checks_delay_the_run_and_hold_its_quota() -> None:
    jobs = [job("checked", "q", 8, 0, 10, admission_delay=30.0), job("next", "q", 8, 1)]
    outcome = play([queue("q", 8)], jobs)
    (attempt,) = outcome.attempts["checked"]
    assert (int(attempt.start), int(attempt.admitted), int(attempt.end or 0)) == (0, 30, 40)
    assert starts(outcome)["next"] == 41


def test_a_job_that_holds_quota_at_the_start_ends_by_its_own_time() -> None:
    held = job("held", "q", 8, -100, 120, holding=Holding(({CHIPS: "a"},), reserved=-90.0))
    outcome = play([queue("q", 8)], [held, job("next", "q", 8, -50)])
    assert starts(outcome) == {"next": 31}
    assert outcome.attempts["held"][0].end == 30.0


def test_an_outage_stops_the_jobs_of_a_flavor_until_it_ends() -> None:
    jobs = [job("one", "q", 8, 0, 100, flavors=["a"]), job("two", "q", 8, 0, 100, flavors=["b"])]
    outcome = play([queue("q", {"a": 8, "b": 8})], jobs, outages=[Outage("a", 50, 80)])
    assert evictions(outcome) == [(50, "one", "NodeFailures", "")]
    assert [int(each.start) for each in outcome.attempts["one"]] == [0, 81]
    assert len(outcome.attempts["two"]) == 1


def test_the_simulation_can_end_before_the_jobs() -> None:
    scenario = Scenario([queue("q", 8)], [], [job("one", "q", 8, 0, 100), job("two", "q", 8, 0, 100)])
    outcome = simulate(scenario, until=50)
    assert [event.what for event in outcome.events] == ["created", "created", "admitted"]
    assert outcome.never == {}


# --- errors ---


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([job("a", "nope", 1, 0)], "The job a is in the queue nope, which does not exist."),
        ([job("a", "q", 1, 0), job("a", "q", 1, 1)], "There are two jobs with the name a."),
        ([job("a", "q", 1, 0, -1)], "The job a has a negative duration."),
        ([job("a", "q", 1, 0, frees=(-1.0,))], "The job a has a negative duration."),
    ],
)
def test_an_invalid_scenario_is_an_error(jobs: list[Any], message: str) -> None:
    with pytest.raises(LauncherError, match=message):
        play([queue("q", 8)], jobs)


def test_jobs_that_preempt_each_other_without_end_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "MOST_EVICTIONS", 2)
    queues = [queue("q", 8, within="LowerPriority")]
    jobs = [job(f"high-{at}", "q", 8, at, 5, priority=1) for at in (10, 30, 50)]
    assert len(evictions(play(queues, [job("low", "q", 8, 0), *jobs[:2]]))) == 2
    message = "The job low in the queue q is evicted again and again: 2 times until 50 s."
    with pytest.raises(LauncherError, match=message):
        play(queues, [job("low", "q", 8, 0), *jobs])


def test_an_outage_that_ends_before_it_starts_is_an_error() -> None:
    with pytest.raises(LauncherError, match="The outage of the flavor a ends before it starts"):
        play([queue("q", 8)], [], outages=[Outage("a", 5, 1)])
