"""Runs on this machine: each has a folder, and a supervisor process (supervisor.py) while it is active.

The folder <home>/runs/<name> is the run: record.json (the supervisor's record), run.json (the run config), log.txt, and
the trainer's output. It is prepared under another name and renamed, so that it is complete or does not exist, and
concurrent submits create one run. A process that changes a run holds its lock; the supervisor holds it until it exits.
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
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher import distribution, paths
from launcher.backends import log_excerpt, resubmit
from launcher.backends.base import Preview, RunStatus, State, Submission
from launcher.backends.local import folder, supervisor, weights_and_biases
from launcher.backends.local.environment import own_environment, trainer_env
from launcher.backends.local.folder import RunFolder
from launcher.backends.local.log_file import LogFile
from launcher.backends.local.origins import origins
from launcher.backends.local.processes import kill_all, marked
from launcher.backends.local.record import (
    CONFIG,
    ENDED,
    LOCK,
    LOG,
    ORIGINS,
    Record,
    is_locked,
    now,
    private,
    read_lines,
    read_record,
    write_json,
    write_record,
)
from launcher.backends.log_excerpt import WHOLE, Excerpt
from launcher.config.checks import this_machine
from launcher.config.checks.problems import ERROR, WARNING, Problem
from launcher.config.kinds import RunKind
from launcher.config.weights import with_weights
from launcher.errors import LauncherError, UsageError
from launcher.json_object import json_object
from launcher.trainer_output import EARLIER_CONFIGS_FILE, EVENTS_FILE, METRICS_FILE

if TYPE_CHECKING:
    from launcher.config.plan import LaunchPlan
    from launcher.k8s.pods import Pod

# How long to wait for another process to release the run's lock.
_LOCK_SECONDS = 20.0
_START_SECONDS = 10.0
# Each worker of a local run is a process of about a gigabyte; more than this many per processor is a mistake.
_WORKERS_PER_PROCESSOR = 8
# Each waiting run of a sweep is a process of about ten megabytes.
_MOST_OF_A_SWEEP = 100
_DRAFT, _DELETED = ".new-", ".deleted-"


class TrainerMissing(LauncherError):
    """The packages for training are not installed in this Python."""


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
        self._checked: set[str] = set()
        self.report_progress: Callable[[str], None] = lambda _: None

    # --- submit ---

    def prepare(self, plans: Sequence[LaunchPlan]) -> None:
        if len(plans) > _MOST_OF_A_SWEEP:
            raise LauncherError(
                f"A sweep of {len(plans)} runs is too large for this machine, where they run one after another; the "
                f"maximum is {_MOST_OF_A_SWEEP}."
            )

    def problems(self, plan: LaunchPlan) -> Sequence[Problem]:
        try:
            left_out = self._preflight(plan, self.config(plan))
        except TrainerMissing as error:
            # The values may be right: `check` also runs on machines that do not train.
            unchecked = f"{error.message} Therefore the text and the tokenizer were not checked. {error.hint}"
            return [Problem("machine", WARNING, unchecked, None, None, "")]
        except _Rejected as error:
            return [error.problem]
        return [replace(_Rejected(plan, f"data.files: {left_out}").problem, severity=WARNING)] if left_out else []

    def preview(self, plan: LaunchPlan, *, accept_changes: bool) -> Preview:
        with _sentences(f'The run "{plan.name}" cannot be submitted'):
            config = self.config(plan)
            found = folder.find(self.runs, plan.name)
            if found is None:
                unchecked = self._preview_preflight(plan, config)
                return Preview(
                    config, f'Would start the run "{plan.name}" on this machine, in {self.runs / plan.name}.{unchecked}'
                )
            resubmit.check_sweep(plan, found.record.sweep)
            verdict = self._decide(found, config, accept_changes)
            if isinstance(verdict, str):
                return Preview(config, f"{verdict} Nothing would be started.")
            unchecked = self._preview_preflight(plan, config)
            return Preview(config, resubmit.would_resume(plan.name, found.record.attempt + 1) + unchecked)

    def submit(self, plan: LaunchPlan, *, accept_changes: bool) -> Submission:
        with _sentences(f'The run "{plan.name}" cannot be submitted'):
            config = self.config(plan)
            checked = False
            deadline = time.monotonic() + _LOCK_SECONDS
            while True:
                found = folder.find(self.runs, plan.name)
                if found is not None:
                    resubmit.check_sweep(plan, found.record.sweep)
                    verdict = self._decide(found, config, accept_changes)
                    if isinstance(verdict, str):
                        return Submission(found.status(), verdict, created=False)
                if not checked:
                    if left_out := self._preflight(plan, config):
                        self.report_progress(left_out)
                    checked = True
                    if changed := folder.make_private(self.runs):
                        self.report_progress(changed)
                printed = self._create(plan, config) if found is None else self._resume(found, plan, config)
                if printed:
                    return Submission(self._under_way(plan.name), printed, created=True)
                if time.monotonic() > deadline:  # lost every race: another process holds the lock
                    raise LauncherError(f"{self.runs / plan.name / LOCK} is held by another process; try again later.")
                time.sleep(0.02)

    def _under_way(self, name: str) -> RunStatus:
        """Return the status once the supervisor has started, so that the message "started" is correct."""
        deadline = time.monotonic() + _START_SECONDS
        while (status := self._known(name)).state is State.QUEUED and not status.reason and time.monotonic() < deadline:
            time.sleep(0.01)
        return status

    def config(self, plan: LaunchPlan) -> dict[str, Any]:
        """Return the plan's config for this machine: run folders as storage, and absolute paths."""
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
        # A name on the Hugging Face hub only looks like a path; a name in MaxText's package is not a path.
        is_path = "/" in (path or "") and tokenizer.get("kind") != "huggingface"
        if path and (is_path or Path(path).expanduser().exists()):
            tokenizer["path"] = _absolute(path)
        source = config.get("from")
        if isinstance(source, str) and "/" in source:
            config["from"] = _absolute(source)
        train = config["train"] = with_weights(config, str(self.runs))
        for key in ("load_parameters_path", "load_full_state_path"):
            if isinstance(train.get(key), str) and train[key]:
                train[key] = _absolute(train[key])
        return config

    def _decide(self, found: RunFolder, config: Mapping[str, Any], accept_changes: bool) -> str | None:
        """Return a sentence if nothing is left to do for this config, or None if the submit starts an attempt."""
        return resubmit.decide(
            found.record.name,
            found.status().state,
            found.config(),
            config,
            accept_changes=accept_changes,
            done=found.steps_in_checkpoint,
        )

    def _preview_preflight(self, plan: LaunchPlan, config: Mapping[str, Any]) -> str:
        """Check what `_preflight` checks, except that the trainer may be missing. Returns a sentence about that, or
        about text that is left out."""
        try:
            if left_out := self._preflight(plan, config):
                return f" {left_out}"
        except TrainerMissing as error:
            return f" {error.message} The text, the tokenizer and the disk space were not checked. {error.hint}"
        return ""

    def _preflight(self, plan: LaunchPlan, config: Mapping[str, Any]) -> str:
        """Raise LauncherError if the run cannot work, before anything is created that would have to be removed.

        Returns a sentence about files of the text that are left out, or "".
        """
        command = supervisor.command_of(config)
        if command:
            if shutil.which(command[0]) is None:
                raise _Rejected(plan, f'run.command: the program "{command[0]}" was not found on this machine.')
            return ""
        if sentence := weights_and_biases.problem(config):
            raise _Rejected(plan, sentence)
        most = _WORKERS_PER_PROCESSOR * (os.cpu_count() or 1)
        if supervisor.hosts(config) > most:
            raise _Rejected(
                plan,
                f"slice.hosts: {supervisor.hosts(config)} workers are too many for this machine's"
                f" {os.cpu_count()} processors; the maximum of a local run is {most}.",
            )
        for module in ("ray", "maxtext"):
            if importlib.util.find_spec(module) is None:
                raise TrainerMissing(
                    f"The Python package {module} is not installed ({sys.executable}), but training on this machine "
                    "requires it.",
                    f"Install it next to the launcher: {distribution.install('train')}",
                )
        if config["accelerator"]["kind"] == "gpu":
            _require_gpus(plan, config["accelerator"])
        text = json.dumps(config, sort_keys=True)
        if text in self._checked:  # a sweep is previewed as a whole before its first run is made
            return ""
        with tempfile.TemporaryDirectory(prefix="slipway-") as temporary:
            file = Path(temporary, CONFIG)
            write_json(file, config)
            done = subprocess.run(
                [*supervisor.trainer_argv(file), "--check"],
                env=own_environment(os.environ) | trainer_env(os.environ),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
            )
        if done.returncode == 0:
            self._checked.add(text)
            return str((json.loads(done.stdout.splitlines()[-1]) or {}).get("left_out", ""))
        printed = [line.removeprefix("Error: ") for line in done.stderr.splitlines() if line.startswith("Error: ")]
        if not printed:
            raise RuntimeError(f"the trainer's check ended with exit code {done.returncode}:\n{done.stderr}")
        raise _Rejected(plan, printed[-1])

    def _create(self, plan: LaunchPlan, config: Mapping[str, Any]) -> str:
        """Create the run. Return "" if another process created it first."""
        self._tidy()
        draft = self.runs / f"{_DRAFT}{uuid.uuid4().hex[:12]}"
        draft.mkdir(mode=0o700)
        try:
            lock = os.open(draft / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            record = Record(plan.name, plan.namespace, uuid.uuid4().hex, 1, State.QUEUED, now(), **_sweep_of(plan))
            path = self.runs / plan.name
            try:
                write_json(draft / CONFIG, config)
                write_json(draft / ORIGINS, origins(plan, config))
                write_record(draft, record)
                draft.rename(path)
            except OSError as error:
                shutil.rmtree(draft, ignore_errors=True)
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    return ""
                raise
            self._spawn(path, record, lock)
        finally:
            os.close(lock)
        return f'The run "{plan.name}" was started on this machine.'

    def _resume(self, found: RunFolder, plan: LaunchPlan, config: Mapping[str, Any]) -> str:
        """Start the next attempt. Return "" if the run has changed since `found`, so the caller must read it again."""
        with folder.locked(found.path) as lock:
            if lock is None or (record := read_record(found.path)) != found.record:
                return ""
            self._end_leftovers(record)
            attempt = record.attempt + 1
            resumed = replace(
                Record(record.name, record.namespace, record.id, attempt, State.QUEUED, now()),
                events_from=folder.size(found.path / EVENTS_FILE),
                sweep=record.sweep,
                sweep_number=record.sweep_number,
                sweep_values=record.sweep_values,
                history=[*record.history, _attempt(found)],
            )
            _keep_earlier(found, config)
            write_json(found.path / CONFIG, config)
            write_json(found.path / ORIGINS, origins(plan, config))
            write_record(found.path, resumed)
            log = found.path / LOG
            if log.exists():
                log.rename(found.path / f"log.{record.attempt}.txt")
            self._spawn(found.path, resumed, lock)
        return resubmit.resumed(
            record.name,
            State(record.state),
            attempt,
            checkpoint=found.steps_in_checkpoint > 0,
            interrupted=found.interrupted,
        )

    def _spawn(self, path: Path, record: Record, lock: int) -> None:
        """Start the supervisor, and pass the lock to it without releasing it."""
        # Remove the marks of a surrounding run, if this command runs inside one.
        env = {key: value for key, value in os.environ.items() if key not in _MARKS}
        try:
            with open(path / LOG, "ab", opener=private) as log:
                # -I: it needs only the standard library, and the user's packages must not interfere.
                # It forks immediately and the first process exits, so that it has no parent and leaves no zombie.
                subprocess.run(
                    [sys.executable, "-I", supervisor.__file__, str(path), str(lock)],
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
                write_record(path, replace(record, state=State.FAILED, ended=now(), reason=reason))
            raise

    # --- reading ---

    def list(self, warn: Callable[[str], None], *, sweep: str = "", everything: bool = False) -> Sequence[RunStatus]:
        statuses = []
        with _sentences("The runs cannot be listed"):
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
        with _sentences(f'The run "{name}" cannot be read'):
            try:
                found = folder.find(self.runs, name)
            except folder.ForeignFolderError:
                return None
            return found.status() if found and sweep in ("", found.record.sweep) else None

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
                with _sentences(f'The log of "{name}" cannot be read'):
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
        with _sentences(f'The run "{name}" cannot be cancelled'):
            grace = float(os.environ.get("SLIPWAY_GRACE_SECONDS") or supervisor.GRACE_SECONDS)
            deadline = time.monotonic() + grace + _LOCK_SECONDS
            signalled = None
            while True:
                found = folder.find(self.runs, name)
                if found is None:
                    raise LauncherError(f'The run "{name}" was not found on this machine.')
                record = found.record
                if record.state in ENDED:
                    return found.status()
                if found.interrupted:
                    self._cancel_interrupted(found)
                elif record.pid is not None and record.pid != signalled:
                    if record.host != platform.node():
                        raise LauncherError(f'The run "{name}" is running on {record.host}; cancel it there.')
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(record.pid, signal.SIGTERM)
                    signalled = record.pid
                if time.monotonic() > deadline:
                    raise LauncherError(f'The run "{name}" was asked to stop, but has not ended; its log may show why.')
                time.sleep(0.02)

    def _cancel_interrupted(self, found: RunFolder) -> None:
        with folder.locked(found.path) as lock:
            if lock is not None and read_record(found.path) == found.record:
                self._end_leftovers(found.record)
                ended = found.last_sign_of_life
                record = replace(found.record, state=State.CANCELLED, reason="Cancelled.", ended=ended)
                write_record(found.path, record)

    def delete(self, name: str) -> None:
        with _sentences(f'The run "{name}" cannot be deleted'):
            found = folder.find(self.runs, name)
            if found is None:
                raise LauncherError(f'The run "{name}" was not found on this machine.')
            if found.path.is_symlink():
                raise LauncherError(f"{found.path} is a symbolic link; remove it and its target by hand.")
            if found.active:
                raise LauncherError(f'The run "{name}" has not ended.', f"Cancel it first: launcher cancel {name}")
            grave = self.runs / f"{_DELETED}{uuid.uuid4().hex[:12]}"
            deadline = time.monotonic() + _LOCK_SECONDS
            while True:
                with folder.locked(found.path) as lock:
                    if lock is not None and read_record(found.path) == found.record:
                        self._end_leftovers(found.record)
                        found.path.rename(grave)
                        break
                if time.monotonic() > deadline or not found.path.exists():
                    raise LauncherError(f'The run "{name}" is in use by another command; try again.')
                time.sleep(0.02)
            shutil.rmtree(grave)

    def _end_leftovers(self, record: Record) -> None:
        if not kill_all(lambda: marked(record.id)):
            raise LauncherError(
                f'Processes of the last attempt of "{record.name}" hang in the kernel and cannot be ended: '
                + ", ".join(map(str, marked(record.id)))
            )

    def _tidy(self) -> None:
        """Remove the leftovers of killed commands."""
        for entry in os.scandir(self.runs):
            if entry.name.startswith((_DRAFT, _DELETED)):
                with contextlib.suppress(OSError):
                    # Skip recent folders: a new draft has no lock yet.
                    if time.time() - entry.stat().st_mtime > 60 and not is_locked(Path(entry.path, LOCK)):
                        shutil.rmtree(entry.path, ignore_errors=True)


_MARKS = (
    "SLIPWAY_RUN_ID",
    "SLIPWAY_RUN_FOLDER",
    "SLIPWAY_HOST_INDEX",
    "SLIPWAY_HOSTS",
    "SLIPWAY_RESTARTS_LEFT",
    "SPT_NOENV",
)


def _sweep_of(plan: LaunchPlan) -> dict[str, Any]:
    """Return the fields of a run's record that describe its sweep."""
    if plan.member is None:
        return {}
    return {
        "sweep": plan.member.sweep,
        "sweep_number": plan.member.number,
        "sweep_values": dict(plan.member.values),
    }


def _require_gpus(plan: LaunchPlan, accelerator: Mapping[str, Any]) -> None:
    """Raise LauncherError if this machine does not have the GPUs of the run, or JAX cannot use them."""
    have, need = this_machine.gpus(), int(accelerator["chipsPerHost"])
    cpu = "set slice.accelerator: cpu to train on the CPU, or run.kind: ray-job or job-set to train in a cluster"
    if not have:
        raise _Rejected(plan, f"slice.accelerator: this machine has no NVIDIA GPU (no /dev/nvidia0); {cpu}.")
    if have < need:
        raise _Rejected(
            plan,
            f"slice.accelerator: a {accelerator['machineType']} has {need} GPUs, but this machine has {have}; set "
            "slice.machineType to a machine type of the accelerator table with as many GPUs.",
        )
    if not this_machine.jax_supports_gpus():
        raise TrainerMissing(
            f"JAX's support for NVIDIA GPUs is not installed ({sys.executable}).",
            f"Install it: {distribution.install('train,gpu')}; or {cpu}.",
        )


def _keep_earlier(found: RunFolder, config: Mapping[str, Any]) -> None:
    """Keep the config that `config` replaces, so that a report shows what changed midway."""
    if (earlier := found.config()) != config:
        with open(found.path / EARLIER_CONFIGS_FILE, "a", encoding="utf-8", opener=private) as file:
            file.write(json.dumps({"until": now(), "config": earlier}) + "\n")


def _attempt(found: RunFolder) -> dict[str, Any]:
    """Return the history entry of an attempt that has ended."""
    record = found.record
    return {
        "attempt": record.attempt,
        "submitted": record.submitted,
        "started": record.started,
        "ended": found.last_sign_of_life if found.interrupted else record.ended,
        "state": "interrupted" if found.interrupted else str(record.state),
    }


class _Rejected(LauncherError):
    """The run cannot work on this machine. `problem` has the file and line of the sentence's first key that is set."""

    def __init__(self, plan: LaunchPlan, sentence: str) -> None:
        self.problem = Problem("machine", ERROR, sentence, None, None, "")
        for match in re.finditer(r"\b[a-z]+(?:\.\w+)+", sentence):
            origin = plan.values.origins.get(tuple(match[0].split(".")))
            if origin is not None and not Path(origin.file).is_relative_to(paths.charts_dir()):
                self.problem = replace(self.problem, file=origin.file, line=origin.line, key=match[0])
                break
        super().__init__(str(self.problem))


@contextlib.contextmanager
def _sentences(what: str) -> Iterator[None]:
    """Convert an error of the file system (full, read-only, forbidden) into a LauncherError."""
    try:
        yield
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        hint = f"Runs are stored in {paths.home()}; set SLIPWAY_HOME to use another folder."
        raise LauncherError(f"{what}: {error.strerror or error}{where}.", hint) from error


def _absolute(path: str) -> str:
    if "://" in path:
        return path
    return os.path.normpath(Path.cwd() / Path(path).expanduser())
