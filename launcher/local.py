"""Runs on this machine: one folder each, and one supervisor process (runner.py) while it goes on.

The folder <home>/runs/<name> is the run: record.json (what the supervisor knows), run.json (the run
config), log.txt, and what the trainer writes. It is prepared under another name and renamed, so that it
is there whole or not at all and ten submits at once make one run. Whoever changes a run holds its lock;
the supervisor holds it for life.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import fcntl
import importlib.util
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher import paths, runner
from launcher.errors import LauncherError, UsageError
from launcher.runner import CONFIG, ENDED, EVENTS, LOCK, LOG, METRICS, RECORD, Record
from launcher.runs import Preview, RunStatus, State, Submission

if TYPE_CHECKING:
    from launcher.plan import LaunchPlan

_INTERRUPTED = "Interrupted: its supervisor was killed, or the machine restarted; submit it again to resume it."
_STARTING = "starting Ray, then loading and compiling the model"
# Of metrics.jsonl, which may be large, the ends are read: enough for the first losses and the last 20 steps.
_METRICS_END = 128 << 10
_RECENT_STEPS = 20
# How long to wait for another process that is about to finish with the run's lock.
_LOCK_SECONDS = 20.0
_START_SECONDS = 10.0
_DRAFT, _DELETED = ".new-", ".deleted-"


@dataclass(frozen=True)
class _Found:
    """A run's record, and whether its supervisor lives."""

    folder: Path
    record: Record
    alive: bool

    @property
    def active(self) -> bool:
        return self.record.state not in ENDED and self.alive

    @property
    def interrupted(self) -> bool:
        return self.record.state not in ENDED and not self.alive


class LocalBackend:
    """Runs in processes of this machine; see runs.Backend for what each method promises."""

    kind = "local"
    poll_seconds = 0.1

    def __init__(self, home: Path | None = None) -> None:
        self.runs = (home or paths.home()) / "runs"

    # --- submit ---

    def preview(self, plan: LaunchPlan, *, accept_changes: bool) -> Preview:
        with _sentences(f'The run "{plan.name}" cannot be submitted'):
            config = self.config(plan)
            found = self._find(plan.name)
            if found is None:
                self._preflight(config)
                return Preview(
                    config, f'Would start the run "{plan.name}" on this machine, in {self.runs / plan.name}.'
                )
            verdict = self._verdict(found, config, accept_changes)
            if isinstance(verdict, str):
                return Preview(config, f"{verdict} Would start nothing.")
            self._preflight(config)
            return Preview(config, f'Would resume the run "{plan.name}" as attempt {found.record.attempt + 1}.')

    def submit(self, plan: LaunchPlan, *, accept_changes: bool) -> Submission:
        with _sentences(f'The run "{plan.name}" cannot be submitted'):
            config = self.config(plan)
            checked = False
            deadline = time.monotonic() + _LOCK_SECONDS
            while True:
                found = self._find(plan.name)
                if found is not None:
                    verdict = self._verdict(found, config, accept_changes)
                    if isinstance(verdict, str):
                        return Submission(self._status(found), verdict, created=False)
                if not checked:
                    self._preflight(config)
                    checked = True
                said = self._create(plan, config) if found is None else self._resume(found, config, accept_changes)
                if said:
                    return Submission(self._under_way(plan.name), said, created=True)
                if time.monotonic() > deadline:  # lost a race each time: somebody holds the lock and does nothing
                    raise LauncherError(f"{self.runs / plan.name / LOCK} is held by another process; try again later.")
                time.sleep(0.02)

    def _under_way(self, name: str) -> RunStatus:
        """The status once the supervisor has taken over, so that "started" is true when it is said."""
        deadline = time.monotonic() + _START_SECONDS
        while (status := self._known(name)).state is State.QUEUED and time.monotonic() < deadline:
            time.sleep(0.01)
        return status

    def config(self, plan: LaunchPlan) -> dict[str, Any]:
        """The plan's config as this machine runs it: run folders as storage, and absolute paths."""
        config = copy.deepcopy(dict(plan.config))
        config["storage"] = {**(config.get("storage") or {}), "mountPath": str(self.runs)}
        data = config.get("data") or {}
        for part in (data, data.get("heldOut") or {}):
            if isinstance(part.get("files"), list):
                part["files"] = [_absolute(file) for file in part["files"]]
            elif isinstance(part.get("files"), str) and part["files"]:
                part["files"] = _absolute(part["files"])
        tokenizer = data.get("tokenizer") or {}
        path = tokenizer.get("path")
        # A Hugging Face tokenizer may be a name on the hub, which only looks like a path.
        if path and (tokenizer.get("kind") != "huggingface" or Path(path).expanduser().exists()):
            tokenizer["path"] = _absolute(path)
        return config

    def _verdict(self, found: _Found, config: Mapping[str, Any], accept_changes: bool) -> str | None:
        """What a submit of this config finds done already, in a sentence; None where there is work to do."""
        from launcher.plan import config_difference

        name, state = found.record.name, self._status(found).state
        difference = config_difference(_read_config(found.folder), dict(config))
        if found.active:
            if difference:
                raise LauncherError(
                    f'The run "{name}" is {state} with another config:' + _lines(difference),
                    f"Cancel it first (launcher cancel {name}), or submit under another name (--name).",
                )
            return f'The run "{name}" is {state} already, with the same config.'
        if difference and not accept_changes:
            raise LauncherError(
                f'There is a run "{name}" ({state}) with another config:' + _lines(difference),
                "--continue goes on from its last checkpoint with the new values; --name starts another run.",
            )
        if found.record.state == State.SUCCEEDED and not difference:
            return f'The run "{name}" has succeeded already, with the same config; there is nothing left to do.'
        return None

    def _preflight(self, config: Mapping[str, Any]) -> None:
        """Refuse what cannot work, before anything is there that would have to be removed."""
        command = runner.command_of(config)
        if command:
            if shutil.which(command[0]) is None:
                raise LauncherError(f'run.command: there is no program "{command[0]}" on this machine.')
            return
        for module in ("ray", "maxtext"):
            if importlib.util.find_spec(module) is None:
                raise LauncherError(
                    f"This Python ({sys.executable}) lacks {module}, which training on this machine needs.",
                    'Install it beside the launcher: pip install "slipway[train]".',
                )
        with tempfile.TemporaryDirectory(prefix="slipway-") as folder:
            file = Path(folder, CONFIG)
            runner.write_json(file, config)
            done = subprocess.run(
                [*runner.trainer_argv(file), "--check"],
                env={**os.environ, **runner.trainer_env()},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
        if done.returncode == 0:
            return
        said = [line.removeprefix("Error: ") for line in done.stderr.splitlines() if line.startswith("Error: ")]
        if not said:
            raise RuntimeError(f"the trainer's check ended with exit code {done.returncode}:\n{done.stderr}")
        raise LauncherError(said[-1])

    def _create(self, plan: LaunchPlan, config: Mapping[str, Any]) -> str:
        """Make the run; "" where somebody else was faster."""
        self.runs.mkdir(parents=True, exist_ok=True)
        self._sweep()
        draft = self.runs / f"{_DRAFT}{uuid.uuid4().hex[:12]}"
        draft.mkdir()
        try:
            lock = os.open(draft / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            record = Record(plan.name, plan.namespace, uuid.uuid4().hex, 1, State.QUEUED, runner.now())
            folder = self.runs / plan.name
            try:
                runner.write_json(draft / CONFIG, config)
                runner.write_record(draft, record)
                draft.rename(folder)
            except OSError as error:
                shutil.rmtree(draft, ignore_errors=True)
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    return ""
                raise
            self._spawn(folder, record, lock)
        finally:
            os.close(lock)
        return f'The run "{plan.name}" was started on this machine.'

    def _resume(self, found: _Found, config: Mapping[str, Any], accept_changes: bool) -> str:
        """Start the next attempt; "" where the run is not as it was found, so that it must be looked at again."""
        with self._locked(found.folder) as lock:
            if lock is None or (record := runner.read_record(found.folder)) != found.record:
                return ""
            self._end_leftovers(record)
            attempt = record.attempt + 1
            resumed = replace(
                Record(record.name, record.namespace, record.id, attempt, State.QUEUED, runner.now()),
                events_from=_size(found.folder / EVENTS),
            )
            runner.write_json(found.folder / CONFIG, config)
            runner.write_record(found.folder, resumed)
            log = found.folder / LOG
            if log.exists():
                log.rename(found.folder / f"log.{record.attempt}.txt")
            self._spawn(found.folder, resumed, lock)
        ended = "was interrupted" if found.interrupted else f"had {record.state}"
        if record.state == State.CANCELLED:
            ended = "was cancelled"
        resumes = "goes on from its last checkpoint" if _has_checkpoint(found.folder) else "starts again"
        return f'The run "{record.name}" {ended}; it {resumes} as attempt {attempt}.'

    def _spawn(self, folder: Path, record: Record, lock: int) -> None:
        """Start the supervisor; the lock passes to it without being free in between."""
        # Not the marks of a run inside which this command may be running.
        env = {key: value for key, value in os.environ.items() if key not in _MARKS}
        try:
            with (folder / LOG).open("ab") as log:
                # -I: it needs nothing but the standard library, and nothing of the user's may get in its way.
                # It forks at once and the first process ends, so that it is nobody's child and no zombie later.
                subprocess.run(
                    [sys.executable, "-I", runner.__file__, str(folder), str(lock)],
                    check=False,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=[lock],
                )
        except OSError as error:
            reason = f"Its supervisor could not be started: {error.strerror}."
            with contextlib.suppress(OSError):
                runner.write_record(folder, replace(record, state=State.FAILED, ended=runner.now(), reason=reason))
            raise

    # --- reading ---

    def list(self, warn: Callable[[str], None]) -> Sequence[RunStatus]:
        statuses = []
        with _sentences("The runs cannot be listed"):
            try:
                names = [entry.name for entry in os.scandir(self.runs) if entry.is_dir()]
            except FileNotFoundError:
                return []
            for name in names:
                try:
                    status = self.status(name)
                except LauncherError as error:
                    warn(error.message)
                else:
                    statuses += [status] if status else []
        return sorted(statuses, key=lambda status: (status.submitted or "", status.name), reverse=True)

    def status(self, name: str) -> RunStatus | None:
        with _sentences(f'The run "{name}" cannot be read'):
            try:
                found = self._find(name)
            except _ForeignFolderError:
                return None
            return self._status(found) if found else None

    def _known(self, name: str) -> RunStatus:
        status = self.status(name)
        if status is None:
            raise LauncherError(f'There is no run "{name}" on this machine.')
        return status

    def _folder(self, name: str) -> Path | None:
        """The folder that a run of this name has, or None for what can be no run's name."""
        if not name or name.startswith(".") or "/" in name or "\0" in name:
            return None
        return self.runs / name

    def _find(self, name: str) -> _Found | None:
        folder = self._folder(name)
        if folder is None:
            return None
        try:
            record = runner.read_record(folder)
            if record.state in ENDED or (alive := _is_locked(folder / LOCK)):
                return _Found(folder, record, alive=True)
            # It may have ended between the two looks: the record is final before the lock is free.
            record = runner.read_record(folder)
            return _Found(folder, record, alive=alive)
        except FileNotFoundError:
            with contextlib.suppress(FileNotFoundError):
                if any(folder.iterdir()):
                    raise _ForeignFolderError(
                        f"{folder} is there, but Slipway did not make it; move it away, or take another name."
                    ) from None
            return None
        except runner.RecordError as error:
            raise LauncherError(str(error)) from error

    def _status(self, found: _Found) -> RunStatus:
        folder, record = found.folder, found.record
        config = _read_config(folder)
        events = runner.read_events(folder, record.events_from)
        state, reason, ended = State(record.state), record.reason, record.ended
        if found.interrupted:
            state, reason = State.FAILED, _INTERRUPTED
            ended = _last_sign_of_life(folder)
        elif state in (State.STARTING, State.RESTARTING):
            if events.failing:
                state, reason = State.RESTARTING, events.failure
            elif events.loops:
                state, reason = State.RUNNING, ""
            elif state is State.STARTING:
                reason = _STARTING
        restarts = record.restarts if record.state in ENDED else record.restarts + events.restarts
        training = not runner.command_of(config)
        steps = events.steps or ((config.get("train") or {}).get("steps") if training else None)
        status = RunStatus(
            name=record.name,
            namespace=record.namespace,
            kind=self.kind,
            state=state,
            reason=reason,
            steps=steps if isinstance(steps, int) and steps > 0 else None,
            submitted=record.submitted,
            started=record.started,
            ended=ended,
            restarts=restarts,
            attempt=record.attempt,
            folder=str(folder),
        )
        chips = runner.hosts(config) * int((config.get("accelerator") or {}).get("chipsPerHost") or 1)
        return _with_metrics(status, folder / METRICS, events.devices or chips)

    def logs(self, name: str, *, follow: bool, worker: int | None) -> Iterator[str]:
        if worker is not None:
            raise UsageError("A local run has one log for all its workers; leave out --worker.")
        first = self._known(name)
        path = Path(first.folder, LOG)
        rest = b""
        with contextlib.ExitStack() as stack:
            file = None
            while True:
                # Asked before reading: what was written before the end is read after it.
                now = self.status(name)
                over = not follow or now is None or now.state.ended or now.attempt != first.attempt
                with _sentences(f'The log of "{name}" cannot be read'):
                    if file is None:
                        with contextlib.suppress(FileNotFoundError):
                            file = stack.enter_context(path.open("rb"))
                    while file is not None and (chunk := file.read(1 << 16)):
                        *lines, rest = (rest + chunk).split(b"\n")
                        yield from (line.decode("utf-8", "replace") for line in lines)
                if over:
                    break
                time.sleep(self.poll_seconds)
        if rest:
            yield rest.decode("utf-8", "replace")

    # --- ending ---

    def cancel(self, name: str) -> RunStatus:
        with _sentences(f'The run "{name}" cannot be cancelled'):
            grace = float(os.environ.get("SLIPWAY_GRACE_SECONDS") or runner.GRACE_SECONDS)
            deadline = time.monotonic() + grace + _LOCK_SECONDS
            signalled = None
            while True:
                found = self._find(name)
                if found is None:
                    raise LauncherError(f'There is no run "{name}" on this machine.')
                record = found.record
                if record.state in ENDED:
                    return self._status(found)
                if found.interrupted:
                    self._cancel_interrupted(found)
                elif record.pid is not None and record.pid != signalled:
                    if record.host != platform.node():
                        raise LauncherError(f'The run "{name}" goes on on {record.host}; cancel it there.')
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(record.pid, signal.SIGTERM)
                    signalled = record.pid
                if time.monotonic() > deadline:
                    raise LauncherError(f'The run "{name}" was told to end but has not; its log may say why.')
                time.sleep(0.02)

    def _cancel_interrupted(self, found: _Found) -> None:
        with self._locked(found.folder) as lock:
            if lock is not None and runner.read_record(found.folder) == found.record:
                self._end_leftovers(found.record)
                ended = _last_sign_of_life(found.folder)
                record = replace(found.record, state=State.CANCELLED, reason="Cancelled.", ended=ended)
                runner.write_record(found.folder, record)

    def delete(self, name: str) -> None:
        with _sentences(f'The run "{name}" cannot be deleted'):
            found = self._find(name)
            if found is None:
                raise LauncherError(f'There is no run "{name}" on this machine.')
            if found.folder.is_symlink():
                raise LauncherError(f"{found.folder} is a link; remove it and what it points to by hand.")
            if found.active:
                raise LauncherError(f'The run "{name}" has not ended.', f"Cancel it first: launcher cancel {name}")
            grave = self.runs / f"{_DELETED}{uuid.uuid4().hex[:12]}"
            deadline = time.monotonic() + _LOCK_SECONDS
            while True:
                with self._locked(found.folder) as lock:
                    if lock is not None and runner.read_record(found.folder) == found.record:
                        self._end_leftovers(found.record)
                        found.folder.rename(grave)
                        break
                if time.monotonic() > deadline or not found.folder.exists():
                    raise LauncherError(f'The run "{name}" is in use by another command; try again.')
                time.sleep(0.02)
            shutil.rmtree(grave)

    def _end_leftovers(self, record: Record) -> None:
        if not runner.kill_leftovers(record.id):
            raise LauncherError(
                f'Processes of the last attempt of "{record.name}" hang in the kernel and cannot be ended: '
                + ", ".join(map(str, runner.marked(record.id)))
            )

    @contextlib.contextmanager
    def _locked(self, folder: Path) -> Iterator[int | None]:
        """The run's lock as a file descriptor, or None where somebody else has it or the run is gone."""
        path = folder / LOCK
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except FileNotFoundError:
            yield None
            return
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Renamed away (deleted) meanwhile, or another one in its place?
                ours = path.exists() and os.path.samestat(path.stat(), os.fstat(lock))
            except BlockingIOError:
                ours = False
            yield lock if ours else None
        finally:
            os.close(lock)

    def _sweep(self) -> None:
        """Remove what a command that was killed in the middle of its work has left."""
        for entry in os.scandir(self.runs):
            if entry.name.startswith((_DRAFT, _DELETED)):
                with contextlib.suppress(OSError):
                    # A moment's grace: a draft has no lock yet right after it was made.
                    if time.time() - entry.stat().st_mtime > 60 and not _is_locked(Path(entry.path, LOCK)):
                        shutil.rmtree(entry.path, ignore_errors=True)


_MARKS = (
    "SLIPWAY_RUN_ID",
    "SLIPWAY_RUN_FOLDER",
    "SLIPWAY_HOST_INDEX",
    "SLIPWAY_HOSTS",
    "SLIPWAY_RESTARTS_LEFT",
    "SPT_NOENV",
)


class _ForeignFolderError(LauncherError):
    """A folder among the runs that is no run."""


@contextlib.contextmanager
def _sentences(what: str) -> Iterator[None]:
    """Turn what the file system refuses (full, read-only, forbidden) into a sentence."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise LauncherError(f"{what}: {error.strerror or error}{where}.") from error


def _is_locked(path: Path) -> bool:
    """Whether a process holds the lock. A shared lock is tried: those who only ask do not disturb each other."""
    try:
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _absolute(path: str) -> str:
    if "://" in path:
        return path
    return os.path.normpath(Path.cwd() / Path(path).expanduser())


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    try:
        config = dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, FileNotFoundError) as error:
        raise LauncherError(f"{path} is damaged; move the folder away, or remove it by hand.") from error
    return config


def _has_checkpoint(folder: Path) -> bool:
    """Whether a step was saved: a folder named by its number (a draft of one has a longer name)."""
    checkpoints = folder / "checkpoints"
    return checkpoints.is_dir() and any(path.name.isdigit() for path in checkpoints.iterdir())


def _lines(texts: Sequence[str]) -> str:
    return "".join(f"\n  {text}" for text in texts)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _last_sign_of_life(folder: Path) -> str:
    times = [path.stat().st_mtime for name in (LOG, METRICS, EVENTS, RECORD) if (path := folder / name).exists()]
    return runner.timestamp(max(times))


def _with_metrics(status: RunStatus, path: Path, devices: int) -> RunStatus:
    """What metrics.jsonl tells: step, losses, speed."""
    first, last = _ends(path)
    train, held_out = [line for line in last if "loss" in line], [line for line in last if "eval_loss" in line]
    if not train and not held_out:
        return status
    recent = [seconds for line in train[-_RECENT_STEPS:] if (seconds := _number(line.get("step_seconds")))]
    rates = [rate for line in train[-_RECENT_STEPS:] if (rate := _number(line.get("tokens_per_second_per_device")))]
    step = train[-1]["step"] + 1 if train else None
    left = None
    if recent and step is not None and status.steps is not None and not status.state.ended:
        left = max(0, status.steps - step) * sum(recent) / len(recent)
    return replace(
        status,
        step=step,
        loss=_number(train[-1].get("loss")) if train else None,
        loss_first=next((_number(line["loss"]) for line in first if "loss" in line), None),
        eval_loss_first=next((_number(line["eval_loss"]) for line in first if "eval_loss" in line), None),
        eval_loss=_number(held_out[-1]["eval_loss"]) if held_out else None,
        # Steps of equal tokens: their mean rate is the harmonic mean of the steps' rates.
        tokens_per_second=len(rates) / sum(1 / rate for rate in rates) * devices if rates else None,
        seconds_left=left,
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _ends(path: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The first and the last lines of a metrics file; of a small file both are all of it."""
    size = _size(path)
    if size <= 2 * _METRICS_END:
        lines = list(runner.read_lines(path))
        return lines, lines
    with path.open("rb") as file:
        head = file.read(_METRICS_END)
    return list(runner.parse_lines(head)), list(runner.read_lines(path, size - _METRICS_END))
