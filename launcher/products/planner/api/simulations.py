"""Simulate queues: recorded scenarios, traces of runs in the queues of values files, and a cluster's runs.

Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from launcher.products.planner.simulation.advice import AdviceList
    from launcher.products.planner.simulation.changes import Changes
    from launcher.products.planner.simulation.comparison import Comparison
    from launcher.products.planner.simulation.live import Expectation, LiveAnswer
    from launcher.products.planner.simulation.offline import Kueue
    from launcher.products.planner.simulation.record import RecordedTrace


def simulate_scenarios(path: str | PathLike[str]) -> Iterator[dict[str, Any]]:
    """Yield the events of each scenario of a file: id, events, and the runs that never end.

    The file has a JSON object a line, and may be compressed with gzip. Raises LauncherError, with file, line and key,
    for a scenario that is not valid or that has something that is not simulated.
    """
    from launcher.products.planner.scheduler.simulation import simulate
    from launcher.products.planner.simulation.event_lines import as_line
    from launcher.products.planner.simulation.scenario_file import read_scenarios

    for line in read_scenarios(Path(path)):
        yield as_line(line.id, line.scenario, simulate(line.scenario))


def simulate_trace(
    files: Sequence[str],
    trace: str | PathLike[str],
    *,
    sets: Sequence[str] = (),
    changed_files: Sequence[str] = (),
    changes: Changes | None = None,
    kueue: Kueue | None = None,
) -> Comparison:
    """Simulate the runs of a trace in the queues of values files, and again after a change. Requires Helm.

    `files` are the values of `launcher install queues`. The change consists of `changed_files` over them, `sets`, in
    which KEY=+4 adds to a number, and `changes` (runs to add, outages, teams to leave out). Without a change, `after`
    of the result is None.
    """
    from launcher.products.planner.simulation import offline

    return offline.simulate_trace(
        files, Path(trace), sets=sets, changed_files=changed_files, changes=changes, kueue=kueue
    )


def simulate_cluster(
    *,
    target: Target = DEFAULT_TARGET,
    assume: float | None = None,
    files: Sequence[str] = (),
    sets: Sequence[str] = (),
    changes: Changes | None = None,
    kueue: Kueue | None = None,
) -> LiveAnswer:
    """Return when the runs of the namespace that wait in a queue start, and when those that run end.

    `assume` is the time of a run in seconds if nothing is known about it (4 hours). With `files`, `sets` or `changes`,
    the result also has a simulation in the queues of these values, or with these changes. `kueue` replaces the
    cluster's own configuration of Kueue.
    """
    from launcher.products.planner.simulation import live
    from launcher.products.planner.simulation.changes import Changes
    from launcher.products.planner.simulation.cluster_state import read_cluster
    from launcher.products.planner.simulation.durations import DEFAULT_ASSUMPTION
    from launcher.products.planner.simulation.offline import Kueue

    assumed = DEFAULT_ASSUMPTION if assume is None else assume
    state = read_cluster(target, kueue or Kueue())
    answer = live.expectations(state, assumed=assumed)
    if not (files or sets or changes):
        return answer
    return live.with_change(state, answer, changes or Changes(), files=files, sets=sets, assumed=assumed)


def record_trace(
    seconds: float,
    *,
    target: Target = DEFAULT_TARGET,
    storages: Sequence[str] = (),
    assume: float | None = None,
    anonymous: bool = False,
) -> RecordedTrace:
    """Return a trace of the runs that a cluster has had in the last `seconds`, from its Workloads and folders.

    `rows` are the runs, as `simulate_trace` reads them from a file, and `notes` has what is left out. The folders are
    those in the buckets of the cluster's runs, and in `storages`: folders and URLs of buckets. `assume` is the
    time in seconds of a run that has not ended, if nothing is known about it (4 hours). With `anonymous`, runs, teams
    and queues have numbers instead of names.
    """
    from launcher.products.planner.simulation.cluster_state import read_cluster
    from launcher.products.planner.simulation.durations import DEFAULT_ASSUMPTION
    from launcher.products.planner.simulation.offline import Kueue
    from launcher.products.planner.simulation.record import record
    from launcher.products.planner.simulation.run_folders import read_storages, storages_of

    assumed = DEFAULT_ASSUMPTION if assume is None else assume
    state = read_cluster(target, Kueue())
    buckets, claims = storages_of(state.runs.values())
    folders = read_storages([*buckets, *storages])
    notes = [
        *folders.notes,
        *(f"Only pods can mount the claim {claim}: add its runs with --runs and a copy of it." for claim in claims),
    ]
    recorded = record(state, seconds, folders.runs, assumed=assumed, anonymous=anonymous)
    return replace(recorded, notes=[*notes, *recorded.notes])


def simulation_page(comparison: Comparison, title: str, *, expected: Sequence[Expectation] = ()) -> str:
    """Return a simulation as an HTML page: its figures, slices by flavor, and the runs that wait over time.

    `expected` are the `runs` of `simulate_cluster`. Raises LauncherError if the extra `report` is not installed.
    """
    from launcher.products.planner.simulation.page import page

    return page(comparison, title, expected)


def advise_queues(
    files: Sequence[str],
    trace: str | PathLike[str],
    goal: str,
    within: Sequence[str],
    *,
    grow: bool = False,
    kueue: Kueue | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> AdviceList:
    """Return the three changes of the queues' values that improve a goal most for the runs of a trace. Requires Helm.

    `goal` is wait:TEAM (the 95th wait), utilisation, utilisation:FLAVOR or lost (chip-hours lost to restarts). `within`
    has the keys that may change and their values: KEY=2..8 or KEY=A,B. Without `grow`, the quota of each flavor may not
    become larger in total. `progress` is called with the number of simulations so far.
    """
    from launcher.products.planner.simulation.advice import advise
    from launcher.products.planner.simulation.goals import Goal

    return advise(files, Path(trace), Goal.parse(goal), within, grow=grow, kueue=kueue, progress=progress)


def expected_start(name: str, *, target: Target = DEFAULT_TARGET) -> Expectation | None:
    """Return when a run that waits in its queue starts; None if it does not wait, or if the cluster hides too much."""
    from launcher.products.planner.simulation import expected_start as expected

    return expected.of_waiting_run(name, target)


def expected_starts(*, target: Target = DEFAULT_TARGET, within: float | None = None) -> dict[str, Expectation]:
    """Return when each run of the namespace that waits in its queue starts, by its name.

    Empty if the cluster may not be read for it. With `within`, raises LauncherError if this takes longer than about
    `within` seconds, or if the cluster has more than 2,000 Workloads.
    """
    from launcher.products.planner.simulation import expected_start as expected

    return expected.of_waiting_runs(target, within)


def expected_start_of(obj: Mapping[str, Any], *, target: Target = DEFAULT_TARGET) -> Expectation | None:
    """Return when the run of an object (`preview(plan).waiting`) would start if it was submitted now.

    None if the cluster may not be read for it.
    """
    from launcher.products.planner.simulation import expected_start as expected

    return expected.of_new_run(obj, target)
