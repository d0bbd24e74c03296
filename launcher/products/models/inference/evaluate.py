"""Evaluate the model of a run or of a Hugging Face folder on tasks of lm-eval, and read earlier results."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from launcher.backends.local.record import parse_lines
from launcher.backends.lookup import find
from launcher.errors import LauncherError, UsageError
from launcher.json_object import json_object
from launcher.k8s.target import DEFAULT_TARGET, Target
from launcher.products.common.storage import BUCKET_FOLDER, is_path, is_url, read_bucket, read_folder
from launcher.products.models.inference import child, job
from launcher.products.models.inference.source import ClusterSource, Source, prepare
from launcher.products.report import evaluations
from launcher.products.report.evaluations import Evaluation
from launcher.trainer_output import EVALUATION_PREFIX, EVALUATION_PROGRESS_PREFIX, EVALUATIONS_FILE

_MODULE = "trainer.evaluate"
_SECONDS_BETWEEN_PROGRESS = 10.0
_TASK = re.compile(rb"""^\s*["']?(?:task|group)["']?\s*:\s*["']?([^\s"'#\[]+)""", re.MULTILINE)


@dataclass(frozen=True)
class Results:
    """The results of a model, in the order of the tasks. `name` is that of the run or of the folder."""

    name: str
    results: Sequence[Evaluation]


def evaluate(
    source: Source | ClusterSource,
    tasks: Sequence[str],
    *,
    tasks_folder: str | None = None,
    limit: int | None = None,
    submit: job.Submit,
    say: Callable[[str], None] = lambda _: None,
) -> Results:
    """Evaluate the model on the tasks. The results of a run are also stored in its folder.

    `submit` submits the job for a run on a cluster, in whose pods `tasks_folder` is then a path.

    Raises LauncherError if the model does not fit this machine, or if a task does not exist or has no data.
    """
    if not tasks:
        raise UsageError("--tasks names no task.")
    arguments = ["--tasks", ",".join(tasks)]
    if limit is not None:
        arguments += ["--limit", str(limit)]
    if isinstance(source, ClusterSource):
        arguments += [] if tasks_folder is None else ["--tasks-folder", tasks_folder]
        lines = job.lines(job.plan(source, "eval", _MODULE, arguments, None), submit, say)
    else:
        if tasks_folder is not None:
            folder = Path(tasks_folder).expanduser().absolute()
            if not folder.is_dir():
                raise LauncherError(f"There is no folder {folder} (--tasks-folder).")
            arguments += ["--tasks-folder", str(folder)]
        child.require(child.EVAL)
        if not set(tasks) <= _written(tasks_folder):  # else the trainer checks them, after the export
            say("Reading the list of lm-eval's tasks.")
            child.run(_MODULE, [*source.arguments, *arguments, "--only-names"])
        prepare(source, None, extra=child.EVAL, say=say)
        say("Loading the tasks and their data.")
        lines = child.lines(_MODULE, [*source.arguments, *arguments])
    with contextlib.closing(lines):  # Ctrl-C here ends the process or the job at once
        # A job that was preempted evaluates again.
        by_task = {one.task: one for one in read(lines, say)}
    return Results(source.name, list(by_task.values()))


def _written(folder: str | None) -> set[str]:
    """Return the names of tasks and groups in the files of lm-eval and of the folder: most of them, in half a second.

    lm-eval's own list, which has all of them, takes ten seconds.
    """
    names: set[str] = set()
    package = find_spec("lm_eval")
    roots = [*(package.submodule_search_locations or () if package else ()), *([folder] if folder is not None else [])]
    for path in (path for root in roots for path in Path(root).expanduser().rglob("*.y*ml")):
        with contextlib.suppress(OSError):
            names |= {name.decode(errors="replace") for name in _TASK.findall(path.read_bytes())}
    return names


def read(lines: Iterable[str], say: Callable[[str], None]) -> Iterator[Evaluation]:
    """Yield the results in the lines of trainer.evaluate. `say` is called with its progress every ten seconds."""
    next_time = time.monotonic() + _SECONDS_BETWEEN_PROGRESS
    for line in lines:
        _, prefix, text = line.partition(EVALUATION_PREFIX)
        if prefix and (evaluation := evaluations.parse(json_object(text) or {})) is not None:
            yield evaluation
        _, prefix, text = line.partition(EVALUATION_PROGRESS_PREFIX)
        if prefix and time.monotonic() >= next_time:
            progress = json_object(text) or {}
            say(f"{progress.get('done')} of {progress.get('total')} requests to the model are done.")
            next_time = time.monotonic() + _SECONDS_BETWEEN_PROGRESS


def stored(name: str, target: Target = DEFAULT_TARGET) -> Results:
    """Return the results that a run already has: of its last checkpoint that was evaluated on a task, for each task.

    `name` is that of the run, its folder (./NAME), or the URL of its folder in a bucket. Raises LauncherError if the
    run has none, or if they cannot be read.
    """
    if is_url(name):
        where, files = name, read_bucket(name, (EVALUATIONS_FILE,))
    elif is_path(name):
        where = str(Path(name).expanduser().absolute())
        if not Path(where).is_dir():
            raise LauncherError(f"There is no folder {where}.")
        files = read_folder(Path(where), (EVALUATIONS_FILE,))
    else:
        _, status = find(name, target)
        where = status.folder
        if not status.in_cluster:
            files = read_folder(Path(where), (EVALUATIONS_FILE,))
        elif BUCKET_FOLDER.fullmatch(where):
            files = read_bucket(where, (EVALUATIONS_FILE,))
        else:
            raise LauncherError(f"The results of {name} are in {where}, which only pods can read.")
    results, _ = evaluations.parse_all(parse_lines(files.get(EVALUATIONS_FILE, b"")))
    if not results:
        raise LauncherError(
            f"{name} has no results: {where} has no {EVALUATIONS_FILE}.",
            f"To evaluate it: launcher eval {name} --tasks TASK",
        )
    return Results(name, list(evaluations.latest(results).values()))
