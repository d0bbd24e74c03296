"""Read the folders of runs for a trace: also those of runs that were deleted with their object and their Workload."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from launcher.backends import run_config
from launcher.backends.kubernetes.run_object import RunObject
from launcher.backends.local.record import CONFIG, RECORD
from launcher.config.kinds import RunKind
from launcher.errors import LauncherError
from launcher.products.common.storage import BUCKET_FOLDER, is_url, list_folders, read_bucket, read_folder
from launcher.products.report.metrics import lines, time_of
from launcher.products.report.model import STEP_SECONDS
from launcher.trainer_output import EVENTS_FILE, METRICS_FILE, Event, EventKind, events_of

# The small file is last: read_bucket requests it first.
_FILES = (METRICS_FILE, EVENTS_FILE, RECORD, CONFIG)
_PARALLEL = 8
# Seconds; a step that takes longer is not valid data.
_MOST = 1e9
_ENDS = (EventKind.PREEMPTED, EventKind.STOPPED, EventKind.ERROR)


@dataclass(frozen=True)
class RunFolder:
    """The folder of a run of a cluster. `held` are the times of its trainer's processes, first and last entry of each.

    `step_seconds` is the median time of a step, None if it has done none.
    """

    config: Mapping[str, Any]
    held: Sequence[tuple[datetime, datetime]]
    step_seconds: float | None

    @property
    def name(self) -> str:
        return str((self.config.get("run") or {}).get("name") or "")

    @property
    def team(self) -> str:
        return str((self.config.get("team") or {}).get("name") or "")

    @property
    def namespace(self) -> str:
        return str((self.config.get("team") or {}).get("namespace") or self.team or "default")

    @property
    def local_queue(self) -> str:
        return self._of_queue("name") or self.team

    @property
    def priority_class(self) -> str:
        return self._of_queue("priority")

    def _of_queue(self, key: str) -> str:
        queue = self.config.get("queue")
        value = queue.get(key) if isinstance(queue, Mapping) else ""
        return value if isinstance(value, str) else ""


@dataclass(frozen=True)
class FoundFolders:
    """The folders of runs in some storages. `notes` has a sentence for each storage or folder that is left out."""

    runs: Sequence[RunFolder]
    notes: Sequence[str]


def storages_of(runs: Iterable[RunObject]) -> tuple[list[str], list[str]]:
    """Return the buckets that contain the folders of runs, and the claims that do: NAMESPACE/CLAIM."""
    buckets, claims = set(), set()
    for run in runs:
        if BUCKET_FOLDER.fullmatch(run.folder):
            buckets.add(run.folder.rpartition("/")[0])
        elif run.folder.startswith("pvc://"):
            claims.add(f"{run.namespace}/{run.folder.removeprefix('pvc://').rpartition('/')[0]}")
    return sorted(buckets), sorted(claims)


def read_storages(storages: Iterable[str]) -> FoundFolders:
    """Read all folders of runs directly below these folders of this machine, or of buckets (gs://BUCKET)."""
    with ThreadPoolExecutor(_PARALLEL) as pool:  # each bucket that does not answer takes its timeout
        parts = list(pool.map(_read_storage, dict.fromkeys(path.rstrip("/") or path for path in storages)))
    return FoundFolders([run for part in parts for run in part.runs], [note for part in parts for note in part.notes])


def _read_storage(storage: str) -> FoundFolders:
    try:
        folders = _folders(storage)
    except LauncherError as error:
        return FoundFolders([], [f"The runs in {storage} are left out. {error.message} {error.hint}".strip()])
    with ThreadPoolExecutor(_PARALLEL) as pool:
        answers = list(pool.map(_read, folders))
    notes = []
    failed = [answer for answer in answers if isinstance(answer, LauncherError)]
    if failed:
        notes.append(f"{len(failed)} folders in {storage} are left out. {failed[0].message}")
    runs = [answer for answer in answers if isinstance(answer, RunFolder)]
    if not runs and not failed:
        notes.append(f"{storage} contains no folder of a cluster's run.")
    if unknown := sum(not run.config for run in runs):
        notes.append(f"{unknown} folders in {storage} have no {CONFIG} that can be read, and are left out.")
    return FoundFolders([run for run in runs if run.config], notes)


def _folders(storage: str) -> list[str]:
    if is_url(storage):
        return [f"{storage}/{name}" for name in list_folders(storage)]
    root = Path(storage).expanduser()
    try:
        return sorted(str(path) for path in root.iterdir() if path.is_dir())
    except OSError as error:
        raise LauncherError(f"{root} cannot be read: {error.strerror}.") from error


def _read(where: str) -> RunFolder | LauncherError | None:
    """Return the run in a folder; None if it has none, or one that has no Workload of its own."""
    try:
        files = read_bucket(where, _FILES) if is_url(where) else read_folder(Path(where), _FILES)
    except LauncherError as error:
        return error
    if not files or RECORD in files:
        return None
    config = run_config.parse(files.get(CONFIG, b""))
    if config and not _has_workload(config):
        return None
    entries = lines(files.get(METRICS_FILE, b""))[0]
    times = [at for entry in entries if (at := time_of(entry.get("time"))) is not None]
    seconds = [
        float(took)
        for entry in entries
        if isinstance(took := entry.get(STEP_SECONDS), int | float) and not isinstance(took, bool) and 0 < took < _MOST
    ]
    events = events_of(lines(files.get(EVENTS_FILE, b""))[0])
    held = [
        (datetime.fromtimestamp(start, UTC), datetime.fromtimestamp(end, UTC)) for start, end in _held(events, times)
    ]
    return RunFolder(config, held, median(seconds) if seconds else None)


def _has_workload(config: Mapping[str, Any]) -> bool:
    """Return whether Kueue admits the run: not one of this machine, or of a long-lived Ray cluster."""
    kind = (config.get("run") or {}).get("kind")
    return kind in list(RunKind) and RunKind(kind).has_object


def _held(events: Sequence[Event], times: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Yield the times of the trainer's processes: from the first to the last entry of each.

    The time between two processes is not known: the run had lost its quota, or was submitted again, or only its pods
    were replaced, which takes minutes. A failed worker does not end the driver, so its run keeps its quota.
    """
    dated = sorted(((at, event) for event in events if (at := time_of(event.time)) is not None), key=lambda at: at[0])
    known = sorted([*times, *(at for at, _ in dated)])
    if not known:
        return
    # Only a run with Ray has the phase "ray", once for each driver.
    first = "ray" if any(event.phase == "ray" for _, event in dated) else "imports"
    begins = [
        at
        for (_, before), (at, event) in pairwise(dated)
        if event.phase == first or (first != "ray" and before.kind in _ENDS and event.kind not in _ENDS)
    ]
    bounds = [known[0], *(at for at in begins if at > known[0]), float("inf")]
    for start, until in pairwise(bounds):
        yield start, known[bisect_left(known, until) - 1]
