"""Start runs on this machine, and their next attempts. backend.py describes a run's folder."""

from __future__ import annotations

import contextlib
import copy
import errno
import fcntl
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher import distribution, paths
from launcher.backends import resubmit
from launcher.backends.base import Preview, RunStatus, State, Submission, WithoutAlternatives
from launcher.backends.local import folder, weights_and_biases
from launcher.backends.local.backend import DELETED, LOCK_SECONDS, LocalBackend, sentences
from launcher.backends.local.environment import own_environment, trainer_argv, trainer_env
from launcher.backends.local.folder import RunFolder
from launcher.backends.local.origins import origins
from launcher.backends.local.record import (
    CONFIG,
    LOCK,
    LOG,
    ORIGINS,
    Record,
    command_of,
    hosts,
    is_locked,
    now,
    private,
    read_record,
    uses_ray,
    write_json,
    write_record,
)
from launcher.config.checks import this_machine
from launcher.config.checks.problems import ERROR, WARNING, Problem
from launcher.config.weights import with_weights
from launcher.errors import LauncherError
from launcher.trainer_output import EARLIER_CONFIGS_FILE, EVENTS_FILE

if TYPE_CHECKING:
    from launcher.config.plan import LaunchPlan


_START_SECONDS = 10.0


# Each worker of a local run is a process of about a gigabyte; more than this many per processor is a mistake.
_WORKERS_PER_PROCESSOR = 8


# Each waiting run of a sweep is a process of about ten megabytes.
_MOST_OF_A_SWEEP = 100


class TrainerMissing(LauncherError):
    """The packages for training are not installed in this Python."""


_SUPERVISOR = Path(__file__).with_name("supervisor.py")
_DRAFT = ".new-"


class LocalSubmitter(LocalBackend, WithoutAlternatives):
    """Starts processes of this machine; see base.Submitter for the contract of each method."""

    def __init__(self, home: Path | None = None) -> None:
        super().__init__(home)
        self._checked: set[str] = set()

    def prepare(self, plans: Sequence[LaunchPlan]) -> None:
        if len(plans) > _MOST_OF_A_SWEEP:
            raise LauncherError(
                f"A sweep of {len(plans)} runs is too large for this machine, where they run one after another; the "
                f"maximum is {_MOST_OF_A_SWEEP}."
            )

    def problems(self, plan: LaunchPlan) -> Sequence[Problem]:
        try:
            left_out = self._preflight(plan, self.config(plan), step=True)
        except TrainerMissing as error:
            # The values may be right: `check` also runs on machines that do not train.
            unchecked = f"{error.message} Therefore the text and the tokenizer were not checked. {error.hint}"
            return [Problem("machine", WARNING, unchecked, None, None, "")]
        except _Rejected as error:
            return error.problems
        return [replace(_problem(plan, f"data.files: {left_out}"), severity=WARNING)] if left_out else []

    def preview(self, plan: LaunchPlan, *, accept_changes: bool) -> Preview:
        with sentences(f'The run "{plan.name}" cannot be submitted'):
            config = self.config(plan)
            run = folder.find(self.runs, plan.name)
            if run is None:
                unchecked = self._preview_preflight(plan, config, step=uses_ray(config))
                return Preview(
                    config, f'Would start the run "{plan.name}" on this machine, in {self.runs / plan.name}.{unchecked}'
                )
            resubmit.check_sweep(plan, run.record.sweep)
            verdict = self._decide(run, config, accept_changes)
            if isinstance(verdict, str):
                return Preview(config, f"{verdict} Nothing would be started.")
            unchecked = self._preview_preflight(plan, config, step=True)
            return Preview(config, resubmit.would_resume(plan.name, run.record.attempt + 1) + unchecked)

    def submit(self, plan: LaunchPlan, *, accept_changes: bool) -> Submission:
        with sentences(f'The run "{plan.name}" cannot be submitted'):
            config = self.config(plan)
            checked = False
            deadline = time.monotonic() + LOCK_SECONDS
            while True:
                run = folder.find(self.runs, plan.name)
                if run is not None:
                    resubmit.check_sweep(plan, run.record.sweep)
                    verdict = self._decide(run, config, accept_changes)
                    if isinstance(verdict, str):
                        return Submission(run.status(), verdict, created=False)
                if not checked:
                    # A run of one host that starts refuses an invalid step as soon as this check does.
                    step = run is not None or uses_ray(config)
                    if left_out := self._preflight(plan, config, step=step):
                        self.report_progress(left_out)
                    checked = True
                    if changed := folder.make_private(self.runs):
                        self.report_progress(changed)
                printed = self._create(plan, config) if run is None else self._resume(run, plan, config)
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
        for part in (data, data.get("heldOut") or {}, *filter(None, (data.get("mixture") or {}).values())):
            if isinstance(part.get("files"), list):
                part["files"] = [_absolute(file) for file in part["files"]]
        tokenizer = data.get("tokenizer") or {}
        path = tokenizer.get("path")
        # A name on the Hugging Face hub only looks like a path; a name in MaxText's package is not a path.
        is_path = "/" in (path or "") and tokenizer.get("kind") != "huggingface"
        if path and (is_path or Path(path).expanduser().exists()):
            tokenizer["path"] = _absolute(path)
        tuning = config.get("tuning") or {}
        template = tuning.get("template")
        if template and template != "plain" and "{" not in template:  # else it is a text
            tuning["template"] = _absolute(template)
        source = config.get("from")
        if isinstance(source, str) and "/" in source:
            config["from"] = _absolute(source)
        train = config["train"] = with_weights(config, str(self.runs))
        for key in ("load_parameters_path", "load_full_state_path"):
            if isinstance(train.get(key), str) and train[key]:
                train[key] = _absolute(train[key])
        return config

    def _decide(self, run: RunFolder, config: Mapping[str, Any], accept_changes: bool) -> str | None:
        """Return a sentence if nothing is left to do for this config, or None if the submit starts an attempt."""
        return resubmit.decide(
            run.record.name,
            run.status().state,
            run.config(),
            config,
            accept_changes=accept_changes,
            done=run.steps_in_checkpoint,
        )

    def _preview_preflight(self, plan: LaunchPlan, config: Mapping[str, Any], *, step: bool) -> str:
        """Check what `_preflight` checks, except that the trainer may be missing. Returns a sentence about that, or
        about text that is left out."""
        try:
            if left_out := self._preflight(plan, config, step=step):
                return f" {left_out}"
        except TrainerMissing as error:
            return f" {error.message} The text, the tokenizer and the disk space were not checked. {error.hint}"
        return ""

    def _preflight(self, plan: LaunchPlan, config: Mapping[str, Any], *, step: bool) -> str:
        """Raise LauncherError if the run cannot work, before anything is created that would have to be removed.

        With `step`, which takes seconds, also trace the train step with MaxText. Returns a sentence about files of the
        text that are left out, or "".
        """
        command = command_of(config)
        if command:
            if shutil.which(command[0]) is None:
                raise _Rejected(plan, f'run.command: the program "{command[0]}" was not found on this machine.')
            return ""
        if sentence := weights_and_biases.problem(config):
            raise _Rejected(plan, sentence)
        most = _WORKERS_PER_PROCESSOR * (os.cpu_count() or 1)
        if hosts(config) > most:
            raise _Rejected(
                plan,
                f"slice.hosts: {hosts(config)} workers are too many for this machine's"
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
                [*trainer_argv(file, ray=True), "--check", *(["--check-step"] if step else [])],
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
        raise _Rejected(plan, *printed)

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

    def _resume(self, run: RunFolder, plan: LaunchPlan, config: Mapping[str, Any]) -> str:
        """Start the next attempt. Return "" if the run has changed since `run`, so the caller must read it again."""
        with folder.locked(run.path) as lock:
            if lock is None or (record := read_record(run.path)) != run.record:
                return ""
            self._end_leftovers(record)
            attempt = record.attempt + 1
            resumed = replace(
                Record(record.name, record.namespace, record.id, attempt, State.QUEUED, now()),
                events_from=folder.size(run.path / EVENTS_FILE),
                sweep=record.sweep,
                sweep_number=record.sweep_number,
                sweep_values=record.sweep_values,
                history=[*record.history, _attempt(run)],
            )
            _keep_earlier(run, config)
            write_json(run.path / CONFIG, config)
            write_json(run.path / ORIGINS, origins(plan, config))
            write_record(run.path, resumed)
            log = run.path / LOG
            if log.exists():
                log.rename(run.path / f"log.{record.attempt}.txt")
            self._spawn(run.path, resumed, lock)
        return resubmit.resumed(
            record.name,
            State(record.state),
            attempt,
            checkpoint=run.steps_in_checkpoint > 0,
            interrupted=run.interrupted,
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
                    [sys.executable, "-I", str(_SUPERVISOR), str(path), str(lock)],
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

    def _tidy(self) -> None:
        """Remove the leftovers of killed commands."""
        for entry in os.scandir(self.runs):
            if entry.name.startswith((_DRAFT, DELETED)):
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


def _keep_earlier(run: RunFolder, config: Mapping[str, Any]) -> None:
    """Keep the config that `config` replaces, so that a report shows what changed midway."""
    if (earlier := run.config()) != config:
        with open(run.path / EARLIER_CONFIGS_FILE, "a", encoding="utf-8", opener=private) as file:
            file.write(json.dumps({"until": now(), "config": earlier}) + "\n")


def _attempt(run: RunFolder) -> dict[str, Any]:
    """Return the history entry of an attempt that has ended."""
    record = run.record
    return {
        "attempt": record.attempt,
        "submitted": record.submitted,
        "started": record.started,
        "ended": run.last_sign_of_life if run.interrupted else record.ended,
        "state": "interrupted" if run.interrupted else str(record.state),
    }


class _Rejected(LauncherError):
    """The run cannot work on this machine. Each of `problems` has the file and line of the first key of its sentence
    that is set."""

    def __init__(self, plan: LaunchPlan, *sentences: str) -> None:
        self.problems = [_problem(plan, sentence) for sentence in sentences]
        super().__init__("\n".join(map(str, self.problems)))


def _problem(plan: LaunchPlan, sentence: str) -> Problem:
    for match in re.finditer(r"\b[a-z]+(?:\.\w+)+|^from(?=:)", sentence):
        origin = plan.values.origins.get(tuple(match[0].split(".")))
        if origin is not None and not Path(origin.file).is_relative_to(paths.charts_dir()):
            return Problem("machine", ERROR, sentence, origin.file, origin.line, match[0])
    return Problem("machine", ERROR, sentence, None, None, "")


def _absolute(path: str) -> str:
    if "://" in path or path.startswith("hf:"):
        return path
    return os.path.normpath(Path.cwd() / Path(path).expanduser())
