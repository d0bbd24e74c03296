"""Run a module of the trainer in the storage of a run on a cluster: one CPU host, in the queue of the run's team."""

from __future__ import annotations

import contextlib
import math
import re
import secrets
from collections.abc import Callable, Generator, Sequence

from launcher.backends.base import Backend, RunStatus, State
from launcher.config.plan import LaunchPlan
from launcher.errors import LauncherError
from launcher.products.models.inference import memory
from launcher.products.models.inference.source import ClusterSource
from launcher.products.models.weights import job as conversion_job

type Submit = Callable[[LaunchPlan], tuple[Backend, RunStatus]]
"""Submits a plan, and returns the backend and the status of the run."""

LONGEST_ARGUMENT = 32 << 10
"""Bytes of an argument. The run config, which contains it, is an annotation; all annotations have at most 256 KiB."""
_GIB = 1 << 30
_UNKNOWN_MODEL_GIB = 32
_ERROR = re.compile(r"(?:^|\s)Error: (.*)")


def plan(source: ClusterSource, verb: str, module: str, arguments: Sequence[str], tokens: int | None) -> LaunchPlan:
    """Return the plan of the job. `tokens` is the length of the text that the model must remember, as in `memory`.

    Its name is that of the run with the verb and random letters: a job is a run of its own each time. Raises
    LauncherError if an argument is too long, or if the config of the run cannot be read.
    """
    config = source.backend.config_of(source.name)
    if not config.get("storage") or not config.get("run"):
        raise LauncherError(f'The config of the run "{source.name}" cannot be read from its object in the cluster.')
    for argument in arguments:
        if len(argument.encode(errors="replace")) > LONGEST_ARGUMENT:
            raise LauncherError(
                f"The text has {len(argument.encode(errors='replace')):,} bytes; a job on a cluster takes at most "
                f"{LONGEST_ARGUMENT:,}.",
                f"To use a longer one, copy the model to this machine: launcher export {source.name}",
            )
    train = config.get("train") or {}
    need = memory.of_run(train, tokens)
    size = _UNKNOWN_MODEL_GIB if need is None else math.ceil(need.total * 1.1 / _GIB)
    mount = str(config["storage"]["mountPath"]).rstrip("/")
    words = [module, "--config", f"{mount}/{source.name}/run.json", "--step", str(source.step), *arguments]
    return conversion_job.plan(
        config,
        f"the run {source.name}",
        source.name,
        f"{verb}-{secrets.token_hex(3)}",
        words,
        max(size, conversion_job.memory_gib(train)),
        source.extra,
    )


def lines(planned: LaunchPlan, submit: Submit, say: Callable[[str], None]) -> Generator[str]:
    """Submit the job, and yield the lines of its log until it ends. A job that succeeded, or was left, is deleted.

    Raises LauncherError with the sentence that the job printed if it fails. Its record stays then.
    """
    backend, status = submit(planned)
    name = status.name
    say(
        f"The model runs in the job {name}, which waits in its queue first. To see why it waits: "
        f"launcher explain {name}{backend.cli_args}"
    )
    error = ""
    try:
        for line in backend.logs(name, follow=True, worker=None):
            if printed := _ERROR.search(line):
                error = printed[1]
            yield line
        ended = backend.status(name)
    except BaseException as interrupted:  # the caller reads no more, or Ctrl-C
        say(f"Cancelling the job {name}.")
        try:
            backend.cancel(name)
            backend.delete(name)
        except LauncherError as error:
            # The first error is the one to report.
            interrupted.add_note(f"The job {name} was not deleted: {error.message}")
            say(f"The job {name} was not deleted: {error.message}")
        raise
    if ended is None:
        raise LauncherError(f"The job {name} was deleted meanwhile.")
    if ended.state is not State.SUCCEEDED:
        reason = error or ended.reason or f"it is {ended.state}"
        raise LauncherError(
            f"The job {name} failed: {reason}", f"To show its output: launcher logs {name}{backend.cli_args}"
        )
    with contextlib.suppress(LauncherError):
        backend.delete(name)
