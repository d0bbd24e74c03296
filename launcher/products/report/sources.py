"""Read the data of runs from the user's arguments: runs, sweeps, folders, URLs of buckets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from launcher.backends import lookup
from launcher.backends.base import Backend, RunStatus, State
from launcher.backends.kubernetes import reader
from launcher.errors import LauncherError
from launcher.k8s.client import EVENT, Cluster
from launcher.k8s.target import Target
from launcher.products.common.storage import BUCKET_FOLDER, is_path, is_url, read_bucket
from launcher.products.report import folders, kube, timeline
from launcher.products.report import metrics as report_metrics
from launcher.products.report.metrics import time_of
from launcher.products.report.model import Phase, RunData
from launcher.products.report.timeline import ChipsHeld, PhaseChange
from launcher.trainer_output import (
    EARLIER_CONFIGS_FILE,
    EVALUATIONS_FILE,
    EVENTS_FILE,
    METRICS_FILE,
    Event,
    events_in_log,
    events_of,
    metrics_in_log,
    state_after,
)

_TOGETHER = 8
_NO_ORIGINS = "The origins of its values are known only to the user who submitted it, not to the cluster."
_EVENTS_GONE = "Its Events could not be read, so only its last admission and eviction are known"


@dataclass(frozen=True)
class Unreadable:
    """A requested run that cannot be read, and the reason."""

    name: str
    error: LauncherError


def read(names: Sequence[str], target: Target, say: Callable[[str], None]) -> tuple[list[RunData], list[Unreadable]]:
    """Return the runs for `names`, in their order and without duplicates, and what could not be read."""

    def looked_for(name: str) -> list[tuple[str, Callable[[], RunData]]] | Unreadable:
        try:
            return _behind(name, target, say)
        except LauncherError as error:
            return Unreadable(name, error)

    def readable(named: tuple[str, Callable[[], RunData]]) -> RunData | Unreadable:
        try:
            return named[1]()
        except LauncherError as error:
            return Unreadable(named[0], error)

    with ThreadPoolExecutor(_TOGETHER) as pool:  # all requests to a cluster or a bucket run in parallel
        behind = list(pool.map(looked_for, dict.fromkeys(names)))
        answers = list(pool.map(readable, [one for each in behind if not isinstance(each, Unreadable) for one in each]))
    runs = {(run.name, run.source): run for run in answers if isinstance(run, RunData)}
    return _labelled(list(runs.values())), [one for one in [*behind, *answers] if isinstance(one, Unreadable)]


def _behind(name: str, target: Target, say: Callable[[str], None]) -> list[tuple[str, Callable[[], RunData]]]:
    """Return the functions that read the runs of one argument."""

    if is_url(name):
        return [(name, lambda: folders.of_url(name))]
    if is_path(name):
        return [(name, lambda: folders.of_folder(Path(name)))]
    try:
        backend, run = lookup.resolve(name, target)
    except lookup.NoSuchRun as error:
        if name and Path(name).is_dir():
            error.hint = f"If you mean the folder, write ./{name}. {error.hint}".strip()
        raise
    runs = [run] if isinstance(run, RunStatus) else run.ranked  # the best of a sweep first
    return [(each.name, _reader(backend, each, say, whole=isinstance(run, RunStatus))) for each in runs]


def _reader(backend: Backend, status: RunStatus, say: Callable[[str], None], *, whole: bool) -> Callable[[], RunData]:
    """Return a function that reads the run. `whole`: the status was requested on its own, with all details."""
    if not status.in_cluster:
        return lambda: folders.of_local(status)
    return lambda: _of_cluster(backend, status if whole else backend.status(status.name) or status, say)


def _labelled(runs: Sequence[RunData]) -> list[RunData]:
    """Return the runs with unique labels: their names, numbered if several runs have the same one."""
    counts: dict[str, int] = {}
    labelled = []
    for run in runs:
        counts[run.name] = counts.get(run.name, 0) + 1
        several = sum(other.name == run.name for other in runs) > 1
        labelled.append(replace(run, label=f"{run.name} ({counts[run.name]})" if several else run.name))
    return labelled


# --- runs on a cluster ------------------------------------------------------------------------------------------


def _of_cluster(backend: Backend, status: RunStatus, say: Callable[[str], None]) -> RunData:
    """Read a run of a cluster: from its folder in a bucket if that is readable, else from its log; and its objects."""
    now = time.time()
    source, missing, entries, events, damaged, files = _trainers(backend, status, say)
    metrics = report_metrics.metrics(entries, damaged=damaged)
    end = time_of(status.ended) or now
    config, held, changes, marks, more = _objects(backend, status, end)
    history = timeline.changes_of(events, metrics.times)
    preemptions = max(status.preemptions, state_after(events).preemptions)
    submitted = time_of(status.submitted)
    return RunData(
        name=status.name,
        kind=status.kind,
        state=str(status.state),
        reason=status.reason if status.state not in (State.SUCCEEDED, State.RUNNING) else "",
        source=f"{source} Its object in {backend.description}.",
        now=now,
        submitted=submitted,
        ended=time_of(status.ended),
        steps_wanted=status.steps,
        restarts=status.restarts,
        preemptions=preemptions,
        attempt=status.attempt,
        chips=timeline.devices_of(events) or folders.chips_of(config),
        accelerator=folders.accelerator_of(config, status.provisioning),
        metrics=metrics,
        begins=timeline.begins_of(events),
        samples=timeline.samples_of(events),
        # The trainer's events are the most precise. Pods and Ray's job only show that it may be training.
        spans=timeline.spans(submitted, held, history or changes, end),
        marks=sorted([*marks, *timeline.marks_of(events)], key=lambda mark: mark.at),
        config=config,
        earlier=folders.earlier_of(files, events),
        evaluations=folders.evaluations_of(files),
        missing=[
            *missing,
            *more,
            *([_NO_ORIGINS] if config else []),
        ],
    )


def _trainers(
    backend: Backend, status: RunStatus, say: Callable[[str], None]
) -> tuple[str, list[str], list[dict[str, Any]], list[Event], int, Mapping[str, bytes]]:
    """Return the trainer's data: its source, what is missing, lines of metrics and events, number of invalid lines, and
    the files of its folder, which a log does not replace."""

    missing: list[str] = []
    if BUCKET_FOLDER.fullmatch(status.folder):
        try:
            files = read_bucket(status.folder, (METRICS_FILE, EVENTS_FILE, EVALUATIONS_FILE, EARLIER_CONFIGS_FILE))
        except LauncherError as error:
            missing.append(f"{error.message} Read from its log instead. {error.hint}".strip())
            say(f"{status.name}: {missing[-1]}")
        else:
            entries, damaged = report_metrics.lines(files.get(METRICS_FILE, b""))
            events = events_of(report_metrics.lines(files.get(EVENTS_FILE, b""))[0])
            if not files:
                missing.append(f"{status.folder} has no {METRICS_FILE} yet.")
            return f"Its folder {status.folder}.", missing, entries, events, damaged, files
    elif status.folder.startswith("pvc://"):
        missing.append(f"Its folder {status.folder} is a claim that only pods can mount, so the data is from its log.")
    entries, events = [], []
    if status.state not in (State.QUEUED, State.ADMITTED):
        try:
            for line in backend.logs(status.name, follow=False, worker=None):
                entries += metrics_in_log([line])
                events += events_in_log([line])
        except LauncherError as error:
            missing.append(f"Its log cannot be read, so its steps are not known: {error.message}")
    if min((entry["step"] for entry in entries if isinstance(entry.get("step"), int)), default=0) > 0:
        missing.append(
            "Its log does not begin at its first step: the logs of the pods of an earlier start no longer exist."
        )
    return "Its log.", missing, entries, events, 0, {}


def _objects(
    backend: Backend, status: RunStatus, end: float
) -> tuple[Mapping[str, Any], Sequence[ChipsHeld], Sequence[PhaseChange], Sequence[Any], Sequence[str]]:
    """Return the data of the run's objects: config, times with chips, phase changes, marks, and what is missing."""
    if backend.cluster is not None and status.has_object:
        seen, events, missing = _seen(backend.cluster, status)
        if seen is None:
            return {}, [], [], [], ["Its object no longer exists: it was deleted meanwhile."]

        history = kube.history(seen, events, end)
        return seen.run.config, history.held, history.changes, history.marks, [*missing, *history.missing]
    config = backend.config_of(status.name)
    begin = time_of(status.started)
    held = [ChipsHeld(begin, end)] if begin is not None else []
    # Ray reports only that the job runs, nothing about its training.
    return config, held, [PhaseChange(begin, Phase.TRAINING)] if begin is not None else [], [], []


def _seen(cluster: Cluster, status: RunStatus) -> tuple[Any, list[Mapping[str, Any]], list[str]]:

    run = reader.find(cluster, status.name)
    if run is None:
        return None, [], []
    seen = reader.observe(cluster, run)
    events: list[Mapping[str, Any]] = []
    missing: list[str] = []
    for uid in (seen.run.uid, seen.workload.uid if seen.workload is not None else ""):
        if not uid:
            continue
        try:
            events += cluster.list(EVENT, fields=f"involvedObject.uid={uid}")
        except LauncherError as error:
            missing.append(f"{_EVENTS_GONE}: {error.message}")
            break
    return seen, events, missing
