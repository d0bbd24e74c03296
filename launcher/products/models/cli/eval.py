from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from launcher import api, formatting
from launcher.cli import output
from launcher.cli.options import WholeNumber, format_option, run_target_options
from launcher.cli.run_arguments import run_names_argument
from launcher.errors import UsageError
from launcher.k8s.target import Target
from launcher.products.models import jobs
from launcher.products.models.api import inference
from launcher.products.models.cli.step_option import step_option

if TYPE_CHECKING:
    from launcher.products.models.inference.evaluate import Results


@click.command()
@run_names_argument
@click.option("--tasks", multiple=True, metavar="TASK,...", help="The tasks, or groups of tasks; may be repeated.")
@click.option(
    "--tasks-folder",
    metavar="DIR",
    help="A folder with tasks of your own, as YAML files; for a run on a cluster, a path in its pods.",
)
@click.option("--limit", type=WholeNumber(1), metavar="N", help="Use only the first N samples of each task.")
@click.option("--compare", is_flag=True, help="Evaluate nothing; show the results that the runs already have.")
@step_option
@jobs.sets_option
@run_target_options
@format_option
def command(
    names: tuple[str, ...],
    tasks: tuple[str, ...],
    tasks_folder: str | None,
    limit: int | None,
    compare: bool,
    step: str | None,
    sets: tuple[str, ...],
    target: Target,
    form: str,
) -> None:
    """Evaluate checkpoints of runs on tasks of lm-eval.

    NAME is a run, a sweep (all its runs), a run's folder, or a Hugging Face folder (both with a slash in it: ./NAME). A
    TASK is one of lm-eval, such as arc_easy, or of --tasks-folder. The results of a run are stored in its folder
    (evaluations.jsonl), where launcher report finds them. With several runs, they are shown side by side.

    The model of a run of this machine runs on this machine's CPU, and that of a run on a cluster in a job in the run's
    storage. The data of lm-eval's own tasks comes from the Hugging Face Hub.
    """

    wanted = [task.strip() for text in tasks for task in text.split(",") if task.strip()]
    names = tuple(run for name in names for run in api.run_names(name, target=target))
    if compare:
        if limit is not None or tasks_folder is not None or step is not None or sets:
            raise UsageError(
                "--compare evaluates nothing; it cannot be used with --limit, --tasks-folder, --step or --set."
            )
        results = [inference.evaluations(name, target=target) for name in names]
        shown = [task for each in results for task in (one.task for one in each.results)]
        if missing := [task for task in wanted if task not in shown]:
            known = ", ".join(dict.fromkeys(shown))
            raise UsageError(f'No run has a result of the task "{missing[0]}"; they have results of {known}.')
    else:
        if not wanted:
            raise UsageError("--tasks is missing.", "For example: --tasks arc_easy,hellaswag --limit 100")
        results = []
        for name in names:
            if len(names) > 1:
                output.narrate(f"Evaluating {name}.")
            results.append(
                inference.evaluate(
                    name,
                    wanted,
                    step=step,
                    tasks_folder=tasks_folder,
                    limit=limit,
                    sets=sets,
                    say=output.narrate,
                    target=target,
                )
            )
    output.emit(results, form, _table(results, wanted if compare else ()))


def _table(of_models: Sequence[Results], only: Sequence[str]) -> str:
    """Return a row for each metric. A single model has its standard errors and samples in columns of their own."""
    by_task = [{evaluation.task: evaluation for evaluation in each.results} for each in of_models]
    tasks = dict.fromkeys(task for results in by_task for task in results if not only or task in only)
    rows: list[tuple[str, ...]] = []
    for task in tasks:
        for metric in dict.fromkeys(key for results in by_task if task in results for key in results[task].metrics):
            if len(of_models) == 1:
                evaluation = by_task[0][task]
                value, _, error = evaluation.text(metric).partition(" ± ")
                samples = "" if evaluation.samples is None else f"{evaluation.samples:,}"
                rows.append((task, metric, value, error, samples))
            else:
                rows.append((task, metric, *(each[task].text(metric) if task in each else "-" for each in by_task)))
    titles = ("VALUE", "STDERR", "SAMPLES") if len(of_models) == 1 else tuple(map(_title, of_models))
    return formatting.table([("TASK", "METRIC", *titles), *rows])


def _title(results: Results) -> str:
    steps = {result.step for result in results.results}
    return f"{results.name} ({steps.pop()})" if len(steps) == 1 and None not in steps else results.name
