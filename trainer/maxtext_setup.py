"""Starts MaxText in this process: its devices, its log, its cache of programs, and its config."""

from __future__ import annotations

import logging
import os
import re
import traceback
from typing import Any

from trainer import rehearsal
from trainer.errors import ConfigError


def require_gpus(jax: Any) -> None:
    """Raise ConfigError if JAX cannot use this machine's GPUs."""
    try:
        jax.devices("cuda")
    except RuntimeError as error:
        raise ConfigError(
            f"slice.accelerator: JAX finds no GPU on this machine ({_first_line(error)}); check the driver with "
            "nvidia-smi, or set slice.accelerator: cpu."
        ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


_NOISE = (
    "completed step: ",
    "Completed eval step: ",
    "Specifying dataset_type upon checkpointer creation is deprecated",
)


def quieten(*, first: bool) -> None:
    """Drop log lines: Orbax's lines about its threads, lines of other hosts that repeat the first host's, and
    MaxText's line per step, whose speed (the time to hand a step over) contradicts Slipway's."""

    def wanted(record: logging.LogRecord) -> bool:
        if str(record.msg).startswith(_NOISE):
            return False
        return record.levelno >= logging.WARNING or (first and f"{os.sep}orbax{os.sep}" not in record.pathname)

    logging.getLogger("absl").addFilter(wanted)


def write_own_cache_entries() -> None:
    """Write this process's compiled programs to the cache. JAX writes them from process 0 only, for all to read. On CPU
    each process has different keys, so the others would compile everything again at every restart."""
    from jax._src import compilation_cache, compiler

    def write(cache_key: str, seconds: float, module_name: str, backend: Any, executable: Any) -> None:
        compilation_cache.put_executable_and_time(cache_key, module_name, executable, backend, int(seconds))

    compiler._cache_write = write


# Errors of MaxText, Flax and Orbax for an invalid config, mesh or checkpoint. A machine failure raises others
# (JaxRuntimeError, OSError). An error from before the first step would recur after a restart.
REFUSALS = (ValueError, TypeError, AssertionError, ArithmeticError, LookupError, NotImplementedError)

# Orbax's error for a part of a checkpoint of another form: a NoEntryError, with all arrays of both.
_UNLIKE_CHECKPOINT = re.compile(r"Failed to load checkpointable: (\w+)")


def initialize(maxtext_train: Any, argv: list[str]) -> tuple[Any, Any]:
    """Initialize MaxText. Its rejections of a config (exit code 2, and several errors) become a ConfigError."""
    try:
        with rehearsal.replayed(argv):
            return maxtext_train.initialize(argv)  # type: ignore[no-any-return]
    except SystemExit as stop:
        raise ConfigError(sentence(stop.__context__ or stop)) from stop
    except REFUSALS as error:
        raise ConfigError(sentence(error)) from error


def sentence(error: BaseException) -> str:
    """Return MaxText's objections to the config, by key if it names keys."""
    details = getattr(error, "errors", None)
    if callable(details):
        problems = [
            f"train.{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
            if problem.get("loc")
            else str(problem["msg"])
            for problem in details()
        ]
        return "MaxText rejects the config: " + "; ".join(problems)
    if match := _UNLIKE_CHECKPOINT.search(str(error)):  # the rest has thousands of characters
        what = "the position in the text" if match[1] == "iter" else "the arrays"
        return (
            f"The checkpoint does not fit this config, or is damaged: Orbax cannot load {what}. Change back what has "
            "changed since it was written, or start a new run from its weights (from: RUN@STEP)."
        )
    text = " ".join(str(error).split())
    if not text:  # an assertion: its line of MaxText's source names the keys
        frames = traceback.extract_tb(error.__traceback__)
        text = ": ".join([type(error).__name__, *(frame.line or frame.name for frame in frames[-1:])])
    return f"MaxText rejects the config: {text}"
