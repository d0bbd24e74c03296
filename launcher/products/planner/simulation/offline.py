"""Simulate a trace in the queues of values files, before and after a change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launcher.errors import UsageError
from launcher.products.planner.scheduler.model import KueueSettings
from launcher.products.planner.scheduler.rules import MINOR_VERSIONS, parse_version
from launcher.products.planner.simulation import from_values
from launcher.products.planner.simulation.changes import NO_CHANGES, Changes, simulate_changed
from launcher.products.planner.simulation.comparison import Comparison
from launcher.products.planner.simulation.jobs import jobs_of, team_of
from launcher.products.planner.simulation.platform import Platform
from launcher.products.planner.simulation.scenario_file import FAIR_SHARING, VERSIONS
from launcher.products.planner.simulation.simulated import Simulated
from launcher.products.planner.simulation.trace import TraceRun, read_trace


@dataclass(frozen=True, slots=True)
class Kueue:
    """The part of Kueue's configuration that no object has: its version ("0.19.2"), and whether fair sharing is on.

    A version without a patch is the newest patch.
    """

    version: str = ""
    fair_sharing: bool = False

    def settings(self) -> KueueSettings:
        """Return the settings. Raises UsageError for a version that is not simulated."""
        version = parse_version(self.version) if self.version else MINOR_VERSIONS[-1]
        if version is None:
            raise UsageError(f"Kueue {self.version} is not simulated; the versions are {VERSIONS}.")
        return KueueSettings(version, FAIR_SHARING if self.fair_sharing else None)


def simulate_trace(
    files: Sequence[str],
    trace: Path,
    *,
    sets: Sequence[str] = (),
    changed_files: Sequence[str] = (),
    changes: Changes | None = None,
    kueue: Kueue | None = None,
) -> Comparison:
    """Simulate a trace in the queues of `files`; and in those of `changed_files` over them, with `sets` and `changes`.

    Without any change, the comparison has only one simulation. Raises LauncherError for values, a trace or a change
    that are not valid.
    """
    kueue, changes = kueue or Kueue(), changes or NO_CHANGES
    runs = read_trace(trace).runs
    platform = from_values.platform(files)
    before = simulate_runs(platform, runs, kueue)
    changed = platform
    if changed_files or sets:
        changed = from_values.platform([*files, *changed_files], sets)
    after = simulate_runs(changed, runs, kueue, changes) if changed is not platform or changes else None
    return Comparison(before, after, notes(platform, changed, kueue), changes.as_options(changed_files, sets))


def simulate_runs(
    platform: Platform, runs: Sequence[TraceRun], kueue: Kueue, changes: Changes = NO_CHANGES
) -> Simulated:
    """Simulate the runs of a trace. Raises InvalidTrace for a run that does not match the platform."""
    teams = {run.name: team_of(run, platform) for run in runs}
    return simulate_changed(platform, jobs_of(runs, platform), teams, changes, kueue.settings())


def notes(before: Platform, after: Platform, kueue: Kueue) -> list[str]:
    """Return what is not simulated, and what is assumed about Kueue's configuration."""
    sentences = list(dict.fromkeys([*before.ignored, *after.ignored]))
    owners = [owner for platform in (before, after) for owner in (*platform.cluster_queues, *platform.cohorts)]
    if any(owner.weighted for owner in owners) and not kueue.fair_sharing:
        sentences.append(
            "The queues have weights for fair sharing, but it is assumed to be off in Kueue; use --fair-sharing."
        )
    return sentences
