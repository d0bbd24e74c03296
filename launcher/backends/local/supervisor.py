"""The supervisor of one local run, a separate process: `python launcher/backends/local/supervisor.py FOLDER [LOCK]`.

It starts the run's processes, restarts them if they fail, and leaves none of them alive when it ends. It holds the lock
of the run's folder until it exits. Other processes check this lock, and not a process id, to see whether the run is
active, so a reused id or a restarted machine does not mislead them. The runs of a sweep take turns, in their order.

This module imports only the standard library, and modules of Slipway that import nothing else: it runs next to training
for days, and must start immediately.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import platform
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # started as a file; the package may not be installed
    sys.path.append(str(Path(__file__).resolve().parents[3]))

from launcher.backends.local.environment import own_environment, trainer_argv, trainer_env
from launcher.backends.local.processes import MARK, descendants, kill_all, marked, oom_kills
from launcher.backends.local.record import (
    CONFIG,
    GRACE_SECONDS,
    LOCK,
    LOG,
    command_of,
    count_lines,
    hosts,
    is_locked,
    now,
    read_events,
    read_record,
    uses_ray,
    write_record,
)
from launcher.trainer_output import EVENTS_FILE, METRICS_FILE, TRY_AGAIN

# How often the trainer may start again because Ray did not start in time, before that counts as a failure.
_LATE_STARTS = 3
_BACKOFF_SECONDS, _LONGEST_BACKOFF = 0.5, 10.0
# The interval at which a waiting run of a sweep checks whether it may start.
_TURN_SECONDS = 0.5
# A reserve file that is deleted to make room for the final record if the run has filled the disk.
_RESERVE, _RESERVE_BYTES = ".reserve", 16 << 10
_MAX_EXIT_MESSAGE = 1 << 16
TURN = ".turn"
"""The file in the folder of runs that the active run of a sweep locks."""
# These signals, and a lack of memory, end a process again at the same step.
_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


# --- The processes of a run -------------------------------------------------------------------------------------


class Supervisor:
    """Runs one attempt of a run, from its first process to its end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config: dict[str, Any] = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        self.record = read_record(folder)
        self.command = command_of(self.config)
        self.max_restarts = int((self.config.get("run") or {}).get("maxRestarts") or 0)
        self.grace = float(os.environ.get("SLIPWAY_GRACE_SECONDS") or GRACE_SECONDS)
        self.alive: dict[int, int] = {}  # process id to host index
        self.exits: dict[int, int] = {}  # host index to exit code
        self.cancels = 0
        self.exit_message = (
            ""  # the sentence that the trainer ended with, which a full disk may have kept from events.jsonl
        )
        self._prctl = _prctl()
        self._wake, wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_cancel)
        # Continue if the terminal or ssh session is closed.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if self._prctl:
            # Orphans of the run (including Ray's processes) become children of this process instead of init.
            self._prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def run(self) -> None:
        try:
            (self.folder / _RESERVE).write_bytes(bytes(_RESERVE_BYTES))
        except OSError:  # the disk is already full; the next write reports it
            with contextlib.suppress(OSError):
                (self.folder / _RESERVE).unlink(missing_ok=True)
        self._note(pid=os.getpid(), host=platform.node())
        with contextlib.ExitStack() as turn:
            if self.record.sweep and not self._take_turn(turn):
                return self._end("cancelled", None, "Cancelled.")
            self._note(started=now(), reason="")
            return self._run()

    def _take_turn(self, turn: contextlib.ExitStack) -> bool:
        """Wait until this run may start. Return False if it is cancelled first. Closing `turn` lets the next run start.

        Runs of sweeps run one at a time on this machine, those of one sweep in order. A run waits first for the locks
        of the earlier runs of its sweep, then for the lock of `TURN`.
        """
        runs, sweep = self.folder.parent, self.record.sweep
        earlier = [f"{sweep}-{number}" for number in range(self.record.sweep_number - 1, 0, -1)]
        for name in earlier:
            while not self.cancels and is_locked(runs / name / LOCK):
                self._wait_for(f"It waits for {name}, an earlier run of the sweep.")
        # The file is never removed, because all waiting runs must lock the same file.
        file = os.open(runs / TURN, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        turn.callback(os.close, file)
        while not self.cancels:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._wait_for("It waits for another run of a sweep on this machine.")
            else:
                return True
        return False

    def _wait_for(self, reason: str) -> None:
        if self.record.reason != reason:
            self._note(reason=reason)
        self._wait(time.monotonic() + _TURN_SECONDS)

    def _run(self) -> None:
        failures = late = 0
        crash: tuple[str, int] | None = None
        while True:
            kills = oom_kills()
            code, what = self._once()
            if code == -signal.SIGKILL and not self.command and oom_kills() > kills:
                what = (
                    f"{what.removesuffix('.')} because the machine, or the container, is out of memory; "
                    "lower train.per_device_batch_size or train.max_target_length."
                )
            if code == TRY_AGAIN and not self.command and not self.cancels and late < _LATE_STARTS:
                late += 1
                self._log(f"{self.exit_message} The trainer starts again; this does not count as a restart.")
                continue
            events = read_events(self.folder, self.record.events_from)
            restarts = self.record.restarts + events.restarts
            self.record = replace(self.record, restarts=restarts)
            if self.cancels:
                return self._end("cancelled", code, "Cancelled.")
            if code == 0:
                return self._end("succeeded", 0, "")
            reason = self.exit_message or events.error or what
            # A restart does not fix an invalid config (exit code 2 of the trainer) or a missing program.
            final = code in (126, 127) or (code == 2 and not self.command)
            this = (what, count_lines(self.folder / METRICS_FILE))
            if not self.command and this == crash:
                final, reason = True, f"{reason} It is the second failure of this kind after the same step."
            crash = this if -code in _CRASHES or oom_kills() > kills else None
            if final or restarts >= self.max_restarts:
                return self._end("failed", code, reason)
            turn = f"Restart {restarts + 1} of {self.max_restarts}."
            self._log(f"{what} {turn}")
            reason = f"{reason} {turn}"
            self._note(state="restarting", restarts=restarts + 1, events_from=self._events_size(), reason=reason)
            again = time.monotonic() + min(_BACKOFF_SECONDS * 2**failures, _LONGEST_BACKOFF)
            while not self.cancels and time.monotonic() < again:
                self._wait(again)
            failures += 1
            if self.cancels:
                return self._end("cancelled", code, "Cancelled.")

    def _once(self) -> tuple[int, str]:
        """Run all the processes to their end. Return the decisive exit code, and a sentence about it."""
        self.exits, self.exit_message = {}, ""
        word, self._word = os.pipe()
        try:
            return self._all_to_their_end()
        finally:
            os.close(self._word)
            os.set_blocking(word, False)
            with contextlib.suppress(BlockingIOError):  # a process that hangs in the kernel may hold the other end
                self.exit_message = os.read(word, _MAX_EXIT_MESSAGE).decode(errors="replace")
            os.close(word)

    def _all_to_their_end(self) -> tuple[int, str]:
        total = hosts(self.config) if self.command else 1
        failed: int | None = None
        try:
            for index in range(total):
                self._start(index, total)
            # Set only after the start. For a training run, the trainer's events report when it runs.
            if self.command:
                self._note(state="running", reason="")
            elif self.record.state != "restarting":
                self._note(state="starting")
            while self.alive and failed is None and not self.cancels:
                self._wait(None)
                failed = next((index for index, code in self.exits.items() if code != 0), None)
        except OSError as error:
            self._stop()
            program = self.command[0] if self.command else sys.executable
            return 127, f'The program "{program}" cannot be started: {error.strerror}.'
        self._stop()
        if failed is None:
            return next((code for code in self.exits.values() if code != 0), 0), ""
        code = self.exits[failed]
        who = "The trainer" if not self.command else "The command" + (f" on host {failed}" if total > 1 else "")
        return code, f"{who} {_how_it_ended(code)}."

    def _start(self, index: int, total: int) -> None:
        own = (self.config.get("worker") or {}).get("env") or {}
        env = own_environment(os.environ, {key: str(value) for key, value in own.items()}) | {
            MARK: self.record.id,
            # Without this, a process that sets its own title (Ray's workers) removes the mark from /proc.
            "SPT_NOENV": "1",
            "SLIPWAY_RUN_FOLDER": str(self.folder),
            "PYTHONUNBUFFERED": "1",
        }
        if self.command:
            argv = self.command
            env |= {"SLIPWAY_HOST_INDEX": str(index), "SLIPWAY_HOSTS": str(total)}
        else:
            argv = trainer_argv(self.folder / CONFIG, ray=uses_ray(self.config))
            env |= trainer_env(env)
            env["SLIPWAY_RESTARTS_LEFT"] = str(max(0, self.max_restarts - self.record.restarts))
            env["SLIPWAY_GRACE_SECONDS"] = str(self.grace)
            env["SLIPWAY_EXIT_MESSAGE_FD"] = str(self._word)
        prctl, parent = self._prctl, os.getpid()

        def die_with_us() -> None:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            if prctl:
                prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != parent:  # the supervisor exited before the line above
                    os._exit(1)

        with (self.folder / LOG).open("ab") as log:
            process = subprocess.Popen(
                argv,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
                pass_fds=() if self.command else (self._word,),
                preexec_fn=die_with_us,  # safe: this process has one thread
            )
        self.alive[process.pid] = index
        process.returncode = 0  # _reap reaps it with the orphans; Popen must not wait for it

    def _stop(self) -> None:
        """End all remaining processes of the run: with SIGTERM, and after the grace period with SIGKILL."""
        cancels = self.cancels
        for pid in self.alive:
            with contextlib.suppress(ProcessLookupError):
                # The trainer makes its workers write one more checkpoint, which needs Ray, a part of its process group.
                (os.killpg if self.command else os.kill)(pid, signal.SIGTERM)
        deadline = time.monotonic() + self.grace
        while self.alive and time.monotonic() < deadline and self.cancels <= max(cancels, 1):
            self._wait(deadline)
        for pid in self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        if not kill_all(lambda: {*descendants(os.getpid()), *marked(self.record.id)}, self._reap):
            self._log("Some processes of the run do not end; they hang in the kernel.")
        self._reap()
        self.alive.clear()

    def _on_cancel(self, *_: object) -> None:
        self.cancels += 1

    def _wait(self, deadline: float | None) -> None:
        """Wait until a child process ends, a signal arrives, or the deadline passes. May return early."""
        if self._reap():
            return
        # A signal since the caller's check has written a byte to the pipe, so it cannot be missed.
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        select.select([self._wake], [], [], left)
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        self._reap()

    def _reap(self) -> bool:
        """Reap the processes that have ended. Return True if one of `alive` was among them."""
        ours = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return ours
            if pid == 0:
                return ours
            if pid in self.alive:
                self.exits[self.alive.pop(pid)] = os.waitstatus_to_exitcode(status)
                ours = True

    def _events_size(self) -> int:
        try:
            return (self.folder / EVENTS_FILE).stat().st_size
        except OSError:
            return 0

    def _note(self, **changes: Any) -> None:
        """Update the record. A full disk must not end the training; only `_end` retries the write."""
        self.record = replace(self.record, **changes)
        try:
            self._write()
        except OSError as error:
            self._log(f"The record cannot be written: {error.strerror}.")

    def _end(self, state: str, code: int | None, reason: str) -> None:
        if reason and state == "failed":
            self._log(reason)
        self.record = replace(self.record, state=state, exit_code=code, reason=reason, ended=now())
        with contextlib.suppress(OSError):
            (self.folder / _RESERVE).unlink(missing_ok=True)
        for pause in (0.5, 5.0, 30.0, 0.0):
            try:
                self._write()
                break
            except OSError:
                time.sleep(pause)

    def _write(self) -> None:
        try:
            write_record(self.folder, self.record)
        except OSError as error:
            reserve = self.folder / _RESERVE
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not reserve.exists():
                raise
            reserve.unlink()
            write_record(self.folder, self.record)

    def _log(self, text: str) -> None:
        with contextlib.suppress(OSError), (self.folder / LOG).open("a", encoding="utf-8") as log:
            log.write(f"[launcher] {text}\n")


def _prctl() -> Callable[[int, int], int] | None:
    if sys.platform != "linux":
        return None
    function = ctypes.CDLL(None, use_errno=True).prctl
    return lambda option, value: int(function(option, value, 0, 0, 0))


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was killed by signal {-code} ({signal.Signals(-code).name})"
    return f"was killed by signal {-code}"


def main(arguments: Sequence[str]) -> int:
    """Supervise the run in `FOLDER`; in the background if `LOCK`, a descriptor that holds its lock, is given."""
    folder = Path(arguments[0])
    if len(arguments) > 1:
        if os.fork():
            os._exit(0)  # the starting process waits for this exit, and has no child afterwards
        lock = int(arguments[1])
        os.set_inheritable(lock, False)
    else:
        lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.stderr.write(f"{folder} already has a supervisor.\n")
            return 1
    supervisor = None
    try:
        supervisor = Supervisor(folder)
        supervisor.run()
    except BaseException as error:
        # A bug in the supervisor: log its traceback, and do not leave the run active or interrupted.
        with (folder / LOG).open("a", encoding="utf-8") as log:
            traceback.print_exc(file=log)
        record = supervisor.record if supervisor else read_record(folder)
        if supervisor:
            kill_all(lambda: descendants(os.getpid()), supervisor._reap)
        reason = f"A bug in Slipway's supervisor ({type(error).__name__}: {error}); the log contains its traceback."
        write_record(folder, replace(record, state="failed", ended=now(), reason=reason))
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
