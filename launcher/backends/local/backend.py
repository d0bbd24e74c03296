"""Runs on this machine: each has a folder, and a supervisor process (supervisor.py) while it is active.

The folder <home>/runs/<name> is the run: record.json (the supervisor's record), run.json (the run config), log.txt, and
the trainer's output. It is prepared under another name and renamed, so that it is complete or does not exist, and
concurrent submits create one run. A process that changes a run holds its lock; the supervisor holds it until it exits.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher import paths
from launcher.backends import log_excerpt
from launcher.backends.base import RunStatus, State
from launcher.backends.local import folder
from launcher.backends.local.folder import RunFolder
from launcher.backends.local.log_file import LogFile
from launcher.backends.local.processes import kill_all, marked
from launcher.backends.local.record import (
    CONFIG,
    ENDED,
    GRACE_SECONDS,
    LOG,
    Record,
    read_lines,
    read_record,
    write_record,
)
from launcher.backends.log_excerpt import WHOLE, Excerpt
from launcher.config.kinds import RunKind
from launcher.errors import LauncherError, UsageError
from launcher.json_object import json_object
from launcher.trainer_output import METRICS_FILE

if TYPE_CHECKING:
    from launcher.k8s.pods import Pod

# How long to wait for another process to release the run's lock.
LOCK_SECONDS = 20.0
DELETED = ".deleted-"


class LocalBackend:
    """Runs in processes of this machine; see base.Backend for the contract of each method."""

    kind = RunKind.LOCAL
    description = ""
    cli_args = ""
    poll_seconds = 0.1
    cluster = None
    stuck_seconds = None
    max_parallel = 1  # a sweep's runs are created in order, because each waits for the earlier ones

    def __init__(self, home: Path | None = None) -> None:
        self.runs = (home or paths.home()) / "runs"
        self.report_progress: Callable[[str], None] = lambda _: None

    # --- reading ---

    def list(self, warn: Callable[[str], None], *, sweep: str = "") -> Sequence[RunStatus]:
        statuses = []
        with sentences("The runs cannot be listed"):
            if self.runs.is_dir() and (changed := folder.make_private(self.runs)):
                warn(changed)
            try:
                names = [entry.name for entry in os.scandir(self.runs) if entry.is_dir()]
            except FileNotFoundError:
                return []
            for name in names:
                try:
                    status = self._status(name, sweep)
                except LauncherError as error:
                    warn(error.message)
                else:
                    statuses += [status] if status else []
        return sorted(statuses, key=lambda status: (status.submitted or "", status.name), reverse=True)

    def status(self, name: str) -> RunStatus | None:
        return self._status(name)

    def summary(self, name: str) -> RunStatus | None:
        return self._status(name)

    def config_of(self, name: str) -> Mapping[str, Any]:
        return json_object((self.runs / name / CONFIG).read_bytes()) or {}

    def hosts(self, name: str) -> Sequence[Pod]:
        return []

    def metrics(self, name: str) -> Sequence[dict[str, Any]]:
        return list(read_lines(self.runs / name / METRICS_FILE))

    def _status(self, name: str, sweep: str = "") -> RunStatus | None:
        """Return the run's status, or None if the run does not exist (in that sweep)."""
        with sentences(f'The run "{name}" cannot be read'):
            try:
                run = folder.find(self.runs, name)
            except folder.ForeignFolderError:
                return None
            return run.status() if run and sweep in ("", run.record.sweep) else None

    def _known(self, name: str) -> RunStatus:
        status = self.status(name)
        if status is None:
            raise LauncherError(f'The run "{name}" was not found on this machine.')
        return status

    def logs(self, name: str, *, follow: bool, worker: int | None, excerpt: Excerpt = WHOLE) -> Iterator[str]:
        if worker is not None:
            raise UsageError("A local run has one log for all its workers; leave out --worker.")
        first = self._known(name)
        log_excerpt.check_times(excerpt, self.config_of(name))
        with LogFile(Path(first.folder, LOG)) as log:
            while True:
                # Get the status before reading, so that all output before the end is read.
                status = self.status(name)
                over = not follow or status is None or status.state.ended or status.attempt != first.attempt
                with sentences(f'The log of "{name}" cannot be read'):
                    if excerpt.is_whole:
                        yield from log.new_lines(last=over)
                    else:
                        yield from () if log.older_than(excerpt.since) else excerpt.of(log.new_lines(last=over))
                        excerpt = WHOLE
                if over:
                    return
                time.sleep(self.poll_seconds)

    # --- ending ---

    def cancel(self, name: str, *, reason: str = "") -> RunStatus:
        with sentences(f'The run "{name}" cannot be cancelled'):
            grace = float(os.environ.get("SLIPWAY_GRACE_SECONDS") or GRACE_SECONDS)
            deadline = time.monotonic() + grace + LOCK_SECONDS
            signalled = None
            while True:
                run = folder.find(self.runs, name)
                if run is None:
                    raise LauncherError(f'The run "{name}" was not found on this machine.')
                record = run.record
                if record.state in ENDED:
                    return run.status()
                if run.interrupted:
                    self._cancel_interrupted(run)
                elif record.pid is not None and record.pid != signalled:
                    if record.host != platform.node():
                        raise LauncherError(f'The run "{name}" is running on {record.host}; cancel it there.')
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(record.pid, signal.SIGTERM)
                    signalled = record.pid
                if time.monotonic() > deadline:
                    raise LauncherError(f'The run "{name}" was asked to stop, but has not ended; its log may show why.')
                time.sleep(0.02)

    def _cancel_interrupted(self, run: RunFolder) -> None:
        with folder.locked(run.path) as lock:
            if lock is not None and read_record(run.path) == run.record:
                self._end_leftovers(run.record)
                ended = run.last_sign_of_life
                record = replace(run.record, state=State.CANCELLED, reason="Cancelled.", ended=ended)
                write_record(run.path, record)

    def delete(self, name: str) -> None:
        with sentences(f'The run "{name}" cannot be deleted'):
            run = folder.find(self.runs, name)
            if run is None:
                raise LauncherError(f'The run "{name}" was not found on this machine.')
            if run.path.is_symlink():
                raise LauncherError(f"{run.path} is a symbolic link; remove it and its target by hand.")
            if run.active:
                raise LauncherError(f'The run "{name}" has not ended.', f"Cancel it first: launcher cancel {name}")
            grave = self.runs / f"{DELETED}{uuid.uuid4().hex[:12]}"
            deadline = time.monotonic() + LOCK_SECONDS
            while True:
                with folder.locked(run.path) as lock:
                    if lock is not None and read_record(run.path) == run.record:
                        self._end_leftovers(run.record)
                        run.path.rename(grave)
                        break
                if time.monotonic() > deadline or not run.path.exists():
                    raise LauncherError(f'The run "{name}" is in use by another command; try again.')
                time.sleep(0.02)
            shutil.rmtree(grave)

    def _end_leftovers(self, record: Record) -> None:
        if not kill_all(lambda: marked(record.id)):
            raise LauncherError(
                f'Processes of the last attempt of "{record.name}" hang in the kernel and cannot be ended: '
                + ", ".join(map(str, marked(record.id)))
            )


@contextlib.contextmanager
def sentences(what: str) -> Iterator[None]:
    """Convert an error of the file system (full, read-only, forbidden) into a LauncherError."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        hint = f"Runs are stored in {paths.home()}; set SLIPWAY_HOME to use another folder."
        raise LauncherError(f"{what}: {error.strerror or error}{where}.", hint) from error
