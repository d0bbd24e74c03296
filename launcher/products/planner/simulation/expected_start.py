"""The expected start of runs, for commands about these runs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from launcher.backends.kubernetes.run_object import RunObject
from launcher.diagnose import preflight
from launcher.errors import LauncherError
from launcher.hooks import ExpectedStart
from launcher.k8s import label_keys, objects
from launcher.k8s.errors import DeadlineExceeded
from launcher.k8s.target import Target
from launcher.products.planner.simulation import live
from launcher.products.planner.simulation.cluster_state import ClusterState, TooManyWorkloads, read_cluster
from launcher.products.planner.simulation.live import Expectation, Moment
from launcher.products.planner.simulation.offline import Kueue

MOST_WORKLOADS = 2000
"""The most Workloads of a cluster that are simulated for a list: one page of the API server's answer."""

_NEW = "new"  # the uid of a run that does not exist yet; after those of all others, which are hexadecimal


class NotSimulated(LauncherError):
    """The simulation would take too long."""


def for_list(target: Target, *, name: str | None, within: float | None) -> dict[str, ExpectedStart]:
    """Return when the runs of the namespace that wait start, by their names; with `name`, only that run."""
    expected = of_waiting_runs(target, within)
    wanted = expected if name is None else {name: expected[name]} if name in expected else {}
    return {each: _start(one, one.starts) for each, one in wanted.items() if one.starts is not None}


def for_new_run(obj: Mapping[str, Any], target: Target) -> ExpectedStart | None:
    """Return when the run of an object would start if it was submitted now."""
    expected = of_new_run(obj, target)
    return None if expected is None or expected.starts is None else _start(expected, expected.starts)


def of_waiting_run(name: str, target: Target) -> Expectation | None:
    """Return the expectation of a run that waits in its queue; None if the cluster may not be read for it."""
    return of_waiting_runs(target).get(name)


def of_waiting_runs(target: Target, within: float | None = None) -> dict[str, Expectation]:
    """Return the expectation of each run of the namespace that waits, by its name.

    Empty if the cluster may not be read for it. Raises NotSimulated after about `within` seconds, or if they are set
    and the cluster has more than MOST_WORKLOADS.
    """
    if within is None:
        state = _read(target)
        answers = [] if state is None else live.expectations(state).runs
    else:
        answers = _bounded(target, within)
    return {each.run.name: each for each in answers if not each.run.running}


def _bounded(target: Target, within: float) -> Sequence[Expectation]:
    deadline = time.monotonic() + within

    def check() -> None:
        if time.monotonic() > deadline:
            raise DeadlineExceeded

    try:
        state = read_cluster(target, Kueue(), deadline=deadline, most_workloads=MOST_WORKLOADS)
        return live.expectations(state, check=check).runs
    except DeadlineExceeded:
        why = f"reading the queues and simulating them takes longer than {within:g} s"
    except TooManyWorkloads:
        why = f"the cluster has more than {MOST_WORKLOADS:,} Workloads"
    except LauncherError:
        return []
    raise NotSimulated(
        f"The list does not show when the waiting runs start, because {why}.",
        f"To simulate it: launcher simulate{target.cluster().cli_args}",
    )


def of_new_run(obj: Mapping[str, Any], target: Target) -> Expectation | None:
    """Return the expectation of a run that would be created now; None if the cluster may not be read for it."""
    state = _read(replace(target, namespace=objects.namespace(obj)))
    if state is None:
        return None
    priority = state.platform.priorities.get(objects.label(obj, label_keys.KUEUE_PRIORITY_CLASS), 0)
    created = state.now.isoformat(timespec="seconds").replace("+00:00", "Z")
    run = {**obj, "metadata": {**obj["metadata"], "uid": _NEW, "creationTimestamp": created}}
    workload = preflight.expected_workload(run, created=created, priority=priority, uid=_NEW)
    return _expectation(
        replace(
            state,
            workloads=[*state.workloads, workload],
            runs={**state.runs, _NEW: RunObject.parse(run)},
        ),
        objects.name(obj),
    )


def _read(target: Target) -> ClusterState | None:
    try:
        return read_cluster(target, Kueue())
    except LauncherError:  # the command about the run reports what is wrong with the cluster
        return None


def _expectation(state: ClusterState, name: str) -> Expectation | None:
    answers = live.expectations(state).runs
    return next((each for each in answers if each.run.name == name and not each.run.running), None)


def _start(expected: Expectation, starts: Moment) -> ExpectedStart:
    if starts.at is None:
        sentence = f"Warning: By a simulation of the queue, it would never start: {expected.never}."
    else:
        after = f", with the quota of {' and '.join(expected.waits_for)}" if expected.waits_for else ""
        sentence = f"By a simulation of the queue, it would start {starts.text}{after}."
    return ExpectedStart(starts.as_json(datetime.now(UTC)), starts.likely, starts.text, sentence)
