"""Sentences about failed workers: which failed and how, and what follows."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sys
from collections.abc import Mapping

from trainer import worker_exits
from trainer.config import RunConfig, replace_file
from trainer.errors import DownloadError, StorageError
from trainer.metrics import event_line, listeners, print_event, read, write_event
from trainer.starting_weights import saved_steps

_LESS_MEMORY = "lower train.per_device_batch_size or train.max_target_length, or use more chips"
# XLA's error for the memory of a chip, or of this machine. Buckets use the same code for a limit of requests.
_NO_MEMORY = re.compile(r"RESOURCE_EXHAUSTED: .*(?:memory|allocat).*", re.IGNORECASE)
_LISTED = 8
_LONGEST = 1000
LAST_FAILURE = "last-failure.json"
"""The file in the run's folder that describes the last failure of the program itself: see `is_repeated`."""
_CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
# Numbers that differ between equal failures: addresses, process ids, sizes.
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|[0-9]+")
EXIT_MESSAGE = "SLIPWAY_EXIT_MESSAGE_FD"
"""The variable with the file descriptor on which the supervisor of a local run reads the sentence of this process's
end."""


def what_failed(failures: Mapping[int, BaseException]) -> str:
    """Return a clause about failed workers: "worker 0 was killed by signal 9 (SIGKILL)"."""
    # Ray wraps a worker's error.
    causes = {rank: getattr(failure, "cause", None) or failure for rank, failure in sorted(failures.items())}
    if storage := next((cause for cause in causes.values() if isinstance(cause, StorageError)), None):
        return str(storage).removesuffix(".")  # the cause of the other workers' failures too
    if killed := {rank: status for rank, status in worker_exits.ended().items() if not _is_consequence(status)}:
        # The other workers failed because they lost the connection to these.
        clauses = [f"worker {rank} {worker_exits.in_words(status)}" for rank, status in sorted(killed.items())]
    else:
        clauses = [f"worker {rank} {_how_it_failed(rank, cause)}" for rank, cause in causes.items()]
    more = len(clauses) - _LISTED
    return "; ".join(clauses[:_LISTED]) + (f"; and {more} more" if more > 0 else "")


def _is_consequence(status: int) -> bool:
    """Return whether a process may have ended itself because another worker was gone: JAX aborts it then."""
    return not os.WIFSIGNALED(status) or os.WTERMSIG(status) == signal.SIGABRT


def _how_it_failed(rank: int, cause: BaseException) -> str:
    if type(cause).__name__ == "WorkerHealthCheckFailedError":  # Ray's, for a worker that does not answer
        return worker_exits.in_words(worker_exits.ended().get(rank))
    return f"failed: {_sentence(cause)}"


def what_follows(config: RunConfig, restarts: int, failures: int) -> str:
    """Return a clause about what follows a failure: "resuming from step 8, 4 steps repeated, restart 1 of 4".

    `restarts` were left before the last `failures`.
    """
    if failures > restarts:
        return "no restart is left"
    most = int(config.tree["run"].get("maxRestarts") or 0)
    turn = f"restart {most - restarts + failures} of {most}"
    try:
        saved = saved_steps(config)
        done = _steps_done(config)
    except OSError:  # the storage may be the failure
        return turn
    lost = max(0, done - saved)
    again = f"{lost} step{'s' if lost != 1 else ''} repeated"
    return f"{f'resuming from step {saved}' if saved else 'starting again from step 0'}, {again}, {turn}"


def is_repeated(config: RunConfig, failures: Mapping[int, BaseException]) -> bool:
    """Return whether the run failed in the same way, after the same step and with the same config, the time before.

    Then no restart helps. Only failures of the program itself count and are recorded, not those of a machine, of the
    network or of the storage. `failures` are those of the workers, by rank. One process of the run may call this: the
    first host's, or Ray's controller.
    """
    with contextlib.suppress(OSError):  # the storage may be the failure
        return _is_repeated(config, _program_failure(failures))
    return False


def crashes_again(config: RunConfig, number: int) -> bool:
    """Return `is_repeated` for the only process of a run, which the signal `number` ended."""
    with contextlib.suppress(OSError):
        return _is_repeated(config, worker_exits.in_words(number) if number in _CRASHES else None)
    return False


def _is_repeated(config: RunConfig, what: str | None) -> bool:
    if what is None:
        return False
    path = config.folder / LAST_FAILURE
    before = None
    with contextlib.suppress(FileNotFoundError, ValueError):
        before = json.loads(path.read_text(encoding="utf-8"))
    this = {"failure": _NUMBER.sub("0", what), "step": _steps_done(config), "config": config.digest}
    if this != before:
        replace_file(path, this)
    return this == before


def give_up(config: RunConfig, sentence: str) -> str:
    """Return the sentence of a run that ends because `is_repeated`."""
    step = _steps_done(config)
    where = f"after step {step}" if step else "before its first step"
    return f"{sentence.removesuffix('.')}. It is the second failure of this kind {where}, so the run does not restart."


def _steps_done(config: RunConfig) -> int:
    # The line of an evaluation has the number of steps before it.
    return max((line["step"] + ("loss" in line) for line in read(config.folder / "metrics.jsonl")), default=0)


def _program_failure(failures: Mapping[int, BaseException]) -> str | None:
    """Return a text for the first failure that is likely to recur; None if there is none."""
    ended = {rank: status for rank, status in worker_exits.ended().items() if os.WIFSIGNALED(status)}
    for rank, failure in sorted(failures.items()):
        cause = getattr(failure, "cause", None) or failure  # Ray wraps a worker's error
        status = ended.get(rank)
        if status is not None:
            if os.WTERMSIG(status) in _CRASHES or worker_exits.ran_out_of_memory(status):
                return worker_exits.in_words(status)
        elif not ended and _is_of_program(cause):  # else the worker has lost the connection to that one
            return _sentence(cause)
    return None


def _is_of_program(error: BaseException) -> bool:
    if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):  # a path of a key, such as a file
        return True
    if isinstance(error, OSError | StorageError | DownloadError):  # OSError includes time-outs and lost connections
        return False
    if type(error).__name__ == "TrainingStoppedError":
        return False
    if type(error).__module__.split(".")[0] in ("ray", "jax", "jaxlib"):
        return bool(_NO_MEMORY.search(str(error)))  # others may be of another process, or of a sick chip
    if error.__cause__ is not None:  # MaxText wraps the errors of a checkpoint
        return _is_of_program(error.__cause__)
    return isinstance(error, Exception)


def describe(error: BaseException, failed: str = "") -> str:
    """Return one sentence for the error that ended the training. `failed` is a clause on which workers failed."""
    if isinstance(error, StorageError | DownloadError):
        return str(error)
    failures: dict[int, BaseException] = getattr(error, "worker_failures", None) or {}
    if not failures:
        sentence = _sentence(error)
        return f"{sentence[0].upper()}{sentence[1:]}." if _NO_MEMORY.search(sentence) else sentence
    causes = [getattr(failure, "cause", None) or failure for failure in failures.values()]
    if storage := next((cause for cause in causes if isinstance(cause, StorageError)), None):
        return str(storage)  # the cause of the other workers' failures too
    return f"Workers failed and no restart was left ({failed or what_failed(failures)})."


def _sentence(error: BaseException) -> str:
    text = _first_line(error)
    if match := _NO_MEMORY.search(text):
        return f"the run is out of memory ({match[0].removesuffix('.')}); {_LESS_MEMORY}"
    return f"{type(error).__name__}: {text}"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0]


def report(config: RunConfig | None, sentence: str, event: str = "error", **fields: object) -> None:
    """Report the sentence that this process ends with: as an event, to a local run's supervisor, and in the log."""
    sentence = " ".join(sentence.split())  # one line, which readers find by its prefix
    if len(sentence) > _LONGEST:  # Orbax prints whole trees of arrays; the log has them
        sentence = f"{sentence[:_LONGEST]}… (the log has the rest)"
    if config is not None and config.folder.is_dir():
        # If the disk is full, the sentence goes to stderr only.
        with contextlib.suppress(OSError):
            write_event(config.folder, event, message=sentence, **fields)
    elif config is not None:
        print_event(event_line(event, message=sentence, **fields))
        for listener in listeners:
            listener(event, {"message": sentence, **fields})
    if given := os.environ.get(EXIT_MESSAGE):
        # In case the disk is full.
        with contextlib.suppress(OSError, ValueError):
            os.write(int(given), sentence.encode())
    with contextlib.suppress(OSError):
        print(f"Error: {sentence}", file=sys.stderr, flush=True)  # noqa: T201 - the message
