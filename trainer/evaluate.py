"""python -m trainer.evaluate: evaluate a model in a Hugging Face folder, or a checkpoint of a run, on tasks of lm-eval.

The results go to stdout, and with --config into evaluations.jsonl in the run's folder.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import logging
import math
import os
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from trainer.errors import ConfigError
from trainer.inference.exported import add_source, model_folder, run_folder
from trainer.inference.model import load
from trainer.metrics import now, print_line

FILE = "evaluations.jsonl"
PREFIX, PROGRESS_PREFIX = "SLIPWAY_EVALUATION ", "SLIPWAY_EVALUATION_PROGRESS "
"""The text before each line of FILE on stdout, and before the number of requests that are done, and their total."""
_SECONDS_BETWEEN_PROGRESS = 2.0
_BOOTSTRAPS = 100  # resamples for the standard error of a metric without a formula for it


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code. 2: the arguments, the model or a task cannot work; stderr has the sentence."""
    arguments = _parser().parse_args(argv)
    try:
        _evaluate(arguments)
    except ConfigError as error:
        print(f"Error: {' '.join(str(error).split())}", file=sys.stderr, flush=True)  # noqa: T201 - the message
        return 2
    return 0


def _evaluate(arguments: argparse.Namespace) -> None:
    names = [name for text in arguments.tasks for name in text.split(",") if name]
    if not names:
        raise ConfigError("--tasks names no task.")
    if arguments.limit is not None and arguments.limit < 1:
        raise ConfigError(f"--limit must be at least 1, not {arguments.limit}.")
    folder = arguments.tasks_folder.expanduser().absolute() if arguments.tasks_folder is not None else None
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"There is no folder {folder} (--tasks-folder).")
    if arguments.only_names:
        _tasks(names, folder)
        return
    run = run_folder(arguments) if arguments.config is not None else None
    model = load(model_folder(arguments))
    step = int(model.folder.name) if run is not None else None
    results = evaluate(model, names, folder, arguments.limit)
    for result in results:
        line = json.dumps({"step": step, **result, "time": now()})
        if run is not None:
            _append(run / FILE, line)
        print_line(PREFIX + line)


def evaluate(model: Any, names: Sequence[str], folder: Path | None, limit: int | None) -> list[dict[str, Any]]:
    """Evaluate the model, and return the result of each task and of each group of tasks.

    A path in a task's YAML file is relative to `folder`. Raises ConfigError if a task does not exist or has no data.
    """
    # The standard errors by bootstrap take a moment, and a fork is not safe in a process with MLX's threads.
    os.environ["DISABLE_MULTIPROC"] = "1"
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    from lm_eval import simple_evaluate

    from trainer.inference.harness import Harness

    manager = _tasks(names, folder)
    with _working_in(folder):
        begin = time.monotonic()
        try:
            results = simple_evaluate(
                Harness(model, _Progress()),
                tasks=list(names),
                task_manager=manager,
                limit=limit,
                log_samples=False,
                bootstrap_iters=_BOOTSTRAPS,
            )
        except ConfigError:
            raise
        except Exception as error:
            # Of lm-eval, datasets, Jinja and others, without a common base: no data, no network, a wrong key or a wrong
            # template in a task's file, a package that a task needs.
            traceback.print_exc()
            lines = str(error).strip().splitlines() or ["no message"]
            raise ConfigError(
                f"{', '.join(names)} cannot be evaluated: {type(error).__name__}: {lines[0][:400].rstrip('.')}."
            ) from error
    assert results is not None  # noqa: S101 - for the type checker; only other processes of a distributed run get None
    seconds = time.monotonic() - begin
    return [_result(name, results, limit, seconds) for name in results["results"]]


def _tasks(names: Sequence[str], folder: Path | None) -> Any:
    """Return lm-eval's TaskManager, which has the tasks. Raises ConfigError if a task does not exist."""
    from lm_eval.tasks import TaskManager

    with _working_in(folder):
        manager = None
        if folder is not None:
            manager = TaskManager(include_path=str(folder), include_defaults=False)
        if manager is None or not set(names) <= set(manager.all_tasks):
            # Reading the list of lm-eval's own tasks takes ten seconds.
            manager = TaskManager(include_path=str(folder) if folder is not None else None)
    known = manager.all_tasks
    for name in names:
        if name not in known:
            local = f", neither in {folder} nor among lm-eval's own" if folder is not None else " of lm-eval"
            near = " or ".join(get_close_matches(name, known, n=3))
            raise ConfigError(f'There is no task "{name}"{local}.' + (f" Did you mean {near}?" if near else ""))
    return manager


def _result(name: str, results: Mapping[str, Any], limit: int | None, seconds: float) -> dict[str, Any]:
    """Return a task's result. `metrics` are its numbers by name; a name with a comma has the name of a filter."""
    metrics, errors = {}, {}
    for key, value in results["results"][name].items():
        metric, comma, filtered = key.partition(",")
        if not comma or isinstance(value, bool) or not isinstance(value, int | float):
            continue
        number = float(value) if math.isfinite(value) else None
        if metric.endswith("_stderr"):
            errors[_metric(metric.removesuffix("_stderr"), filtered)] = number
        else:
            metrics[_metric(metric, filtered)] = number
    better = results.get("higher_is_better", {}).get(name) or {}
    samples = results.get("n-samples", {}).get(name) or {}
    return {
        "task": name,
        "metrics": metrics,
        "stderr": {key: value for key, value in errors.items() if value is not None},
        "higher_is_better": {key: bool(better.get(key.partition(",")[0], True)) for key in metrics},
        "samples": samples.get("effective"),
        "samples_total": samples.get("original"),
        "limit": limit,
        "shots": results.get("n-shot", {}).get(name),
        "version": results.get("versions", {}).get(name),
        "harness": f"lm-eval {importlib.metadata.version('lm_eval')}",
        "seconds": round(seconds, 3),
    }


def _metric(metric: str, filtered: str) -> str:
    return metric if filtered == "none" else f"{metric},{filtered}"


class _Progress:
    """Prints how many requests of a task are done, every few seconds."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, done: int, total: int) -> None:
        if done == total or time.monotonic() >= self._next:
            print_line(PROGRESS_PREFIX + json.dumps({"done": done, "total": total}))
            self._next = time.monotonic() + _SECONDS_BETWEEN_PROGRESS


@contextlib.contextmanager
def _working_in(folder: Path | None) -> Iterator[None]:
    if folder is None:
        yield
        return
    with contextlib.chdir(folder):
        yield


def _append(path: Path, line: str) -> None:
    """Append the line in one write, so that readers see it whole or not at all."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = os.fstat(descriptor).st_size
            # A kill or a full disk may have cut the last line.
            cut = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            os.write(descriptor, b"\n" * cut + line.encode() + b"\n")
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ConfigError(f"The results cannot be written to {path}: {error.strerror}.") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainer.evaluate", description=__doc__)
    add_source(parser)
    parser.add_argument("--tasks", action="append", required=True, metavar="TASK,...", help="tasks or groups of tasks")
    parser.add_argument("--tasks-folder", type=Path, metavar="DIR", help="a folder with tasks of your own")
    parser.add_argument("--only-names", action="store_true", help="only check that the tasks exist")
    parser.add_argument("--limit", type=int, metavar="N", help="evaluate only the first N samples of each task")
    return parser


if __name__ == "__main__":
    sys.exit(main())
