"""Read runs from folders: a run of this machine, a copy of one, or one in a bucket.

A folder of this machine's runner has record.json, with the start and end times of its attempts. A folder that only a
trainer wrote to (storage of a cluster) has metrics.jsonl and events.jsonl.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.backends import run_config
from launcher.backends.base import RunStatus
from launcher.backends.local import folder as local_folder
from launcher.backends.local.record import CONFIG, ORIGINS, RECORD
from launcher.config.provisioning import provisioning
from launcher.errors import LauncherError
from launcher.json_object import load_json
from launcher.products.common.storage import read_bucket, read_folder
from launcher.products.report import metrics as report_metrics
from launcher.products.report import timeline
from launcher.products.report.evaluations import Evaluation, parse_all
from launcher.products.report.metrics import time_of
from launcher.products.report.model import EVAL_LOSS, EarlierConfig, Metrics, Phase, RunData
from launcher.products.report.timeline import ChipsHeld
from launcher.trainer_output import (
    EARLIER_CONFIGS_FILE,
    EVALUATIONS_FILE,
    EVENTS_FILE,
    METRICS_FILE,
    Event,
    EventKind,
    events_of,
    state_after,
)

FILES = (RECORD, CONFIG, METRICS_FILE, EVENTS_FILE, EARLIER_CONFIGS_FILE, EVALUATIONS_FILE, ORIGINS)
_NO_EVENTS = "There is no events.jsonl: its start and its restarts are derived from its steps."
_NO_ORIGINS = "The origins of its values were not recorded: it was submitted with an older version of Slipway."
_NO_METRICS = "It has no metrics.jsonl: no step is done yet."


def of_folder(path: Path) -> RunData:
    """Read the run in a folder of this machine. Raises LauncherError if it has no run."""
    path = path.expanduser().absolute()
    if not path.is_dir():
        if path.is_file():
            raise LauncherError(f"{path} is a file.", f"Give the folder of the run, such as {path.parent}.")
        raise LauncherError(f"There is no folder {path}.")
    if (path / RECORD).exists():
        run = local_folder.find(path.parent, path.name)
        if run is not None:
            return of_local(run.status())
    return of_files(path.name, str(path), read_folder(path, FILES), f"The folder {path}.")


def of_url(url: str) -> RunData:
    """Read the run in a folder of a bucket. Raises LauncherError if it has no run or cannot be read."""
    name = url.rstrip("/").rpartition("/")[2]
    files = read_bucket(url, FILES)
    if not files:
        raise LauncherError(
            f"{url} contains no run: the bucket does not exist, or the folder has no {METRICS_FILE}, {EVENTS_FILE} or "
            f"{CONFIG}.",
            "The folder of a cluster's run is gs://BUCKET/NAME; `launcher status NAME -o json` prints it.",
        )
    return of_files(name, url, files, f"The bucket's folder {url.rstrip('/')}/.")


def of_local(status: RunStatus) -> RunData:
    """Read a run of this machine, from its status."""
    run = local_folder.find(Path(status.folder).parent, Path(status.folder).name)
    if run is None:
        raise LauncherError(f'The run "{status.name}" was deleted meanwhile.')
    now = time.time()
    files = read_folder(run.path, FILES)
    entries, damaged = report_metrics.lines(files.get(METRICS_FILE, b""))
    events = events_of(report_metrics.lines(files.get(EVENTS_FILE, b""))[0])
    metrics = report_metrics.metrics(entries, damaged=damaged)
    config = run.config()
    missing = [] if ORIGINS in files else [_NO_ORIGINS]
    submitted, held, resubmitted = _attempts(run.record.history, status, now)
    known = len(run.record.history) + 1
    if known < status.attempt:
        missing.append(
            f"The times of its first {status.attempt - known} attempts were not recorded, so its timeline begins with "
            f"attempt {status.attempt - known + 1}."
        )
    end = _time(status.ended) or now
    changes = timeline.changes_of(events, metrics.times)
    return RunData(
        name=status.name,
        kind=status.kind,
        state=str(status.state),
        reason=status.reason if str(status.state) not in ("succeeded", "running") else "",
        source=f"This machine, {run.path}.",
        now=now,
        submitted=submitted,
        ended=_time(status.ended),
        steps_wanted=status.steps,
        restarts=status.restarts,
        preemptions=max(status.preemptions, state_after(events).preemptions),
        attempt=status.attempt,
        chips=timeline.devices_of(events) or _chips(config),
        accelerator=_accelerator(config),
        metrics=metrics,
        begins=timeline.begins_of(events),
        samples=timeline.samples_of(events),
        spans=timeline.spans(submitted, held, changes, end, resubmitted=resubmitted),
        marks=timeline.marks_of(events),
        config=config,
        earlier=earlier_of(files, events),
        evaluations=evaluations_of(files),
        origins=_origins(files.get(ORIGINS), str(run.path)),
        missing=missing,
    )


def _attempts(
    history: Sequence[Mapping[str, Any]], status: RunStatus, now: float
) -> tuple[float | None, list[ChipsHeld], list[float]]:
    """Return the first submission, the times when the run's attempts held the machine, and the later submissions."""
    attempts = [
        *((_time(one.get("submitted")), _time(one.get("started")), _time(one.get("ended"))) for one in history),
        (_time(status.submitted), _time(status.started), _time(status.ended) or now),
    ]
    held = [ChipsHeld(start, end) for _, start, end in attempts if start is not None and end is not None]
    submissions = [at for at, _, _ in attempts if at is not None]
    if not held or _time(status.started) is None:  # it waits for its turn in a sweep
        held = [*held[:-1], *(ChipsHeld(one.start, one.end, Phase.STOPPED) for one in held[-1:])]
    return (submissions[0] if submissions else None), held, submissions[1:]


def of_files(name: str, where: str, files: Mapping[str, bytes], source: str) -> RunData:
    """Read a folder without a record: the trainer's files, and the run config if there is one."""
    if not {CONFIG, METRICS_FILE, EVENTS_FILE, RECORD} & set(files):
        raise LauncherError(
            f"{where} is not the folder of a run: it has no {METRICS_FILE}, {EVENTS_FILE} or {CONFIG}.",
            "The folder of a run is in ~/.slipway/runs, or is BUCKET/NAME for a run of a cluster.",
        )
    now = time.time()
    entries, damaged = report_metrics.lines(files.get(METRICS_FILE, b""))
    events = events_of(report_metrics.lines(files.get(EVENTS_FILE, b""))[0])
    metrics = report_metrics.metrics(entries, damaged=damaged)
    config = _json(files.get(CONFIG), f"{where.rstrip('/')}/{CONFIG}")
    if problem := run_config.wrong(config):
        raise LauncherError(f"{where.rstrip('/')}/{CONFIG} is damaged: {problem}.")
    missing = [
        "Its folder does not show when it waited for chips: all time since its first start counts as time with chips."
    ]
    missing += [] if METRICS_FILE in files else [_NO_METRICS]
    missing += [] if EVENTS_FILE in files else [_NO_EVENTS]
    if not config:
        missing.append("Its config is not in the folder; only the cluster and the user who submitted it have it.")
    elif ORIGINS not in files:
        missing.append(_NO_ORIGINS)
    wanted = timeline.steps_of(events) or _steps(config)
    begin, end = _signs(metrics, events)
    held = [ChipsHeld(begin, end)] if begin is not None and end is not None else []
    state, reason = _state(metrics, events, wanted)
    return RunData(
        name=name,
        kind=str((config.get("run") or {}).get("kind") or ""),
        state=state,
        reason=reason,
        source=source,
        now=now,
        ended=end,
        steps_wanted=wanted,
        restarts=state_after(events).restarts,
        preemptions=state_after(events).preemptions,
        chips=timeline.devices_of(events) or _chips(config),
        accelerator=_accelerator(config),
        metrics=metrics,
        begins=timeline.begins_of(events),
        samples=timeline.samples_of(events),
        spans=timeline.spans(None, held, training(events, metrics, begin), end or now),
        marks=timeline.marks_of(events),
        config=config,
        earlier=earlier_of(files, events),
        evaluations=evaluations_of(files),
        origins=_origins(files.get(ORIGINS), where),
        missing=missing,
    )


def earlier_of(files: Mapping[str, bytes], events: Sequence[Event]) -> list[EarlierConfig]:
    """Return the configs that the run had before, from its folder."""
    return timeline.earlier_configs(report_metrics.lines(files.get(EARLIER_CONFIGS_FILE, b""))[0], events)


def evaluations_of(files: Mapping[str, bytes]) -> list[Evaluation]:
    """Return the results of the run's checkpoints on tasks, from its folder. Invalid lines are left out."""
    return parse_all(report_metrics.lines(files.get(EVALUATIONS_FILE, b""))[0])[0]


def training(events: Sequence[Event], metrics: Metrics, begin: float | None) -> list[timeline.PhaseChange]:
    """Return the training phases of the run, from its steps alone if it has no events."""
    changes = timeline.changes_of(events, metrics.times)
    if not changes and metrics.times and begin is not None:
        changes = [timeline.PhaseChange(begin, Phase.TRAINING)]
    return changes


def _signs(metrics: Metrics, events: Sequence[Event]) -> tuple[float | None, float | None]:
    """Return the times of the first and the last entry."""
    times = [*metrics.times, *(at for event in events if (at := _time(event.time)) is not None)]
    if not times:
        return None, None
    first = min(times)
    seconds = metrics.of("step_seconds").finite[:1]
    if not events and len(seconds) and not len(metrics.of(EVAL_LOSS).steps):
        first -= float(seconds[0])  # a step is logged at its end
    return first, max(times)


def _state(metrics: Metrics, events: Sequence[Event], wanted: int | None) -> tuple[str, str]:
    """Return succeeded or failed if the files show it, or "unknown" if the run may continue or was stopped."""
    if wanted and (metrics.steps_done or 0) >= wanted:
        return "succeeded", ""
    if events and events[-1].kind is EventKind.ERROR:
        return "failed", events[-1].message
    return "unknown", "Its folder does not show whether it is still running."


def _steps(config: Mapping[str, Any]) -> int | None:
    steps = (config.get("train") or {}).get("steps")
    return steps if isinstance(steps, int) and steps > 0 else None


def _chips(config: Mapping[str, Any]) -> int | None:
    row, slice_ = config.get("accelerator") or {}, config.get("slice") or {}
    if not row:
        return None
    hosts = slice_.get("hosts") if row.get("kind") == "cpu" else None
    return int(hosts or row.get("chips") or 1) * int(slice_.get("count") or 1)


def _accelerator(config: Mapping[str, Any], how: str | None = None) -> str:
    """Return the machines of the run: "2 x v6e 4x4, spot". `how` is how they are provisioned, if that is known."""
    row, slice_ = config.get("accelerator") or {}, config.get("slice") or {}
    count = int(slice_.get("count") or 1)
    shape = " ".join(filter(None, (str(row.get("name") or ""), str(row.get("topology") or ""))))
    how = provisioning(slice_) if how is None else how
    return ", ".join(filter(None, [f"{count} x {shape}" if shape and count > 1 else shape, how]))


chips_of, accelerator_of = _chips, _accelerator


def _json(data: bytes | None, where: str) -> dict[str, Any]:
    if data is None:
        return {}
    try:
        tree = load_json(data)
    except (ValueError, RecursionError) as error:
        raise LauncherError(f"{where} is damaged: it is not valid JSON.") from error
    if not isinstance(tree, dict):
        raise LauncherError(f"{where} is damaged: it is not a JSON object.")
    return tree


def _origins(data: bytes | None, where: str) -> dict[str, str]:
    """Return the origin of each key as readable text, by key (launcher.backends.local.origins writes it)."""
    return {str(key): str(origin) for key, origin in _json(data, f"{where.rstrip('/')}/{ORIGINS}").items()}


def _time(text: Any) -> float | None:
    return time_of(text)
