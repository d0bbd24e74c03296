"""The parent of the process that trains without Ray: one for each host.

The parent imports JAX and MaxText, reads the config (trainer/rehearsal.py), and forks the process that trains. If a
signal ends that process, the parent forks again at once: the restart has neither the start of Python nor the imports,
and in a JobSet its pod stays. With several hosts, the processes of the others lose the connection to it and end with an
error, or JAX aborts them. Their parents fork again, too, and all meet at the coordinator, so no pod is created again.
With run.restartAction: RestartJob, the same happens if JobSet creates the pods of another slice again, after a failure
of that slice or a stop signal to it.

The parent does not start JAX's backend, and has no threads of Python. On this machine it uses restarts of the same
budget as the supervisor of the run (run.maxRestarts); in a JobSet each pod has that budget. The event `worker_failed`
counts them, as under Ray. With RestartJob, a pod that outlives many slices has the budget again after each new
checkpoint, and stops do not count. Other ends of the process are those of the run: the parent ends in the same way.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from types import FrameType

from trainer import deferred_imports, distributed, loop, rehearsal, run_log, stop_signal, worker_exits
from trainer.config import RunConfig
from trainer.errors import ConfigError
from trainer.failures import crashes_again, give_up, what_follows
from trainer.maxtext_keys import maxtext_argv
from trainer.metrics import write_event
from trainer.starting_weights import saved_steps
from trainer.training import kept_step

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
# Kubernetes ends the other pods of a failed slice in this time, or they would join the run and leave it again.
_SECONDS_TO_END_A_SLICE = 3.0


def fork(config: RunConfig) -> tuple[int | None, str]:
    """Fork the process that trains, and again while a signal ends it, or an error of a run of several hosts, and
    restarts are left.

    Returns None in that process, with a clause about the failure before it ("" in the first). Returns its exit code in
    the parent. Raises ConfigError in the parent if the process crashes twice at the same step. Without Linux, this
    process trains.
    """
    if sys.platform != "linux":
        return None, ""
    loop.set_environment(config)
    run_log.announce(config, "imports")
    with contextlib.suppress(Exception):  # the process that trains meets it again, and reports it
        deferred_imports.import_training()
        rehearsal.rehearse(maxtext_argv(config))
    kept_step.prepare()
    parent, failures, failure = _Parent(), 0, ""
    restarts, rank, saved = config.max_restarts, 0, _saved(config)
    with contextlib.suppress(ConfigError):  # on TPU, JAX can find it in other ways
        rank = distributed.host_index(config)
    while True:
        kills = worker_exits.count_oom_kills()
        code = parent.one_life()
        if code is None:
            return None, failure
        # With several hosts, the error is the lost connection to another one, or the others will lose this one.
        lost = config.hosts > 1 and code in (1, -signal.SIGABRT)
        if config.restarts_slices and not parent.stopped and (lost or code == stop_signal.STOPPED):
            time.sleep(_SECONDS_TO_END_A_SLICE)
            if parent.stopped:  # this slice must end, too
                return stop_signal.STOPPED, failure
            if not lost:
                failure = ""
                continue
        if config.restarts_slices and _saved(config) > saved:
            failures, saved = 0, _saved(config)
        # The values must change, and the supervisor names the keys.
        short = code == -signal.SIGKILL and worker_exits.count_oom_kills() > kills
        if (code >= 0 and not lost) or parent.stopped or failures >= restarts or short:
            break
        if not lost and rank == 0 and crashes_again(config, -code):
            raise ConfigError(give_up(config, f"The trainer {worker_exits.in_words(-code)}."))
        failures += 1
        failure = ""
        if not lost:  # the host that failed reports it
            failure = f"worker {rank} {worker_exits.in_words(-code)}; {what_follows(config, restarts, failures)}"
            with contextlib.suppress(OSError):  # a full disk must not end the training
                write_event(config.folder, "worker_failed", message=failure)
        os.environ["SLIPWAY_RESTARTS_LEFT"] = str(restarts - failures)
        if failures > 1:
            time.sleep(min(_PAUSE * 2 ** (failures - 2), _LONGEST_PAUSE))
    if code < 0:  # the supervisor reports the signal
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code, failure


def _saved(config: RunConfig) -> int:
    with contextlib.suppress(OSError):  # the storage may be the failure
        return saved_steps(config)
    return 0


class _Parent:
    def __init__(self) -> None:
        self.stopped = False
        self._child = 0
        self._before = {number: signal.signal(number, self._signalled) for number in (signal.SIGTERM, signal.SIGINT)}

    def one_life(self) -> int | None:
        """Fork. Returns None in the child, else its exit code, or minus the number of the signal that ended it."""
        sys.stdout.flush()
        sys.stderr.flush()
        myself = os.getpid()
        # A signal in between would find neither a child to forward to nor the child's own handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, self._before)
        try:
            if self.stopped:  # in the pause before a restart
                return -signal.SIGTERM
            self._child = os.fork()
            if not self._child:
                for number, handler in self._before.items():
                    signal.signal(number, handler)
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != myself:
                    os._exit(1)
                return None
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._before)
        status = os.waitpid(self._child, 0)[1]
        self._child = 0
        return os.waitstatus_to_exitcode(status)

    def _signalled(self, number: int, _: FrameType | None) -> None:
        self.stopped = True
        # A terminal signals both processes.
        if number != signal.SIGINT and self._child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, number)
