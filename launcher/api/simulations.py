"""Simulate queues: recorded scenarios, and traces of runs in the queues of values files. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from launcher.simulation.changes import Changes
    from launcher.simulation.comparison import Comparison
    from launcher.simulation.offline import Kueue


def simulate_scenarios(path: str | PathLike[str]) -> Iterator[dict[str, Any]]:
    """Yield the events of each scenario of a file: id, events, and the runs that never end.

    The file has a JSON object a line, and may be compressed with gzip. Raises LauncherError, with file, line and key,
    for a scenario that is not valid or that has something that is not simulated.
    """
    from launcher.k8s.kueue.scheduler.simulation import simulate
    from launcher.simulation.event_lines import as_line
    from launcher.simulation.scenario_file import read_scenarios

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
    from launcher.simulation import offline

    return offline.simulate_trace(
        files, Path(trace), sets=sets, changed_files=changed_files, changes=changes, kueue=kueue
    )
