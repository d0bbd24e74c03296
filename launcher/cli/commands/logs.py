from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click

from launcher import api, formatting, hooks
from launcher.cli import output
from launcher.cli.options import Seconds, WholeNumber, format_option, run_target_options
from launcher.cli.run_arguments import run_argument
from launcher.errors import LauncherError, UsageError
from launcher.k8s.target import Target
from launcher.trainer_output import is_for_programs

# Up to three of four lines of a training are for programs.
_OF_ALL_LINES = 4


@click.command()
@run_argument
@click.option("-f", "--follow", is_flag=True, help="Print new lines until the run ends.")
@click.option("--tail", type=WholeNumber(min=1), metavar="N", help="Print only the last N lines.")
@click.option(
    "--since", type=Seconds(), metavar="TIME", help="Print only the lines of the last 90, 90s, 10m, 1.5h or 2d."
)
@click.option(
    "--worker", type=WholeNumber(min=0), metavar="N", help="Print only the output of this worker, counted from 0."
)
@click.option("--attempt", type=WholeNumber(min=1), metavar="N", help="Print the output of this attempt.")
@click.option(
    "--download", type=click.Path(path_type=Path), metavar="FOLDER", help="Write all output to files in this folder."
)
@click.option("--raw", is_flag=True, help="Also print the trainer's lines for programs (SLIPWAY_…).")
@run_target_options
@format_option
def command(
    name: str,
    follow: bool,
    tail: int | None,
    since: float | None,
    worker: int | None,
    attempt: int | None,
    download: Path | None,
    raw: bool,
    target: Target,
    form: str,
) -> None:
    """Print the output of a run's current attempt, or of a served model.

    Once the pods of a run are gone, and with --attempt, the output is read from the folder of the run; NAME may be such
    a folder, or its URL.

    With --follow, --tail and --since select among the lines that exist at the start. For a local run, and for a run in
    a long-lived Ray cluster, --since uses the times in the trainer's lines.

    The trainer also prints each step and each event as JSON, for programs. These lines are printed only with --raw, and
    with -o json or yaml; --tail counts them only then.

    For a sweep, the lines of all its runs are printed, each after the name of its run; --tail and --since apply to each
    run.

    For a served model, the log of the head's pod is printed, and with --worker that of a host, with the output of its
    replica. While the model does not answer, the logs of all its pods are printed, and then the messages of Ray Serve's
    controller; with --follow, only the log of the head.

    With -o json or yaml, each line is printed as a separate item: {"line": text}, and of a sweep with "run". On a
    terminal, control characters except colours are replaced; to a file or a pipe, the lines are printed unchanged.
    """

    if download is not None:
        if follow or raw or any(each is not None for each in (tail, since, worker, attempt)):
            raise UsageError("--download writes all output of the run; leave out the options that select lines.")
        api.download_logs(name, download, output.narrate, target=target)
        return
    raw = raw or form != "text"
    kind, hidden, empty = "run", 0, True
    try:
        kind, lines = _lines(
            name, follow=follow, worker=worker, tail=tail, since=since, attempt=attempt, target=target, raw=raw
        )
        for run, line in lines:
            if not raw and is_for_programs(line):
                hidden += 1
                continue
            empty = False
            if form != "text":
                data = {"run": run, "line": line} if run else {"line": line}
                line = ("- " if form == "yaml" else "") + output.to_json(data)  # JSON is also valid YAML
            elif run:
                line = f"{run}: {line}"
            output.emit_log_line(line, flush=follow)
    except LauncherError as error:
        if target.namespace is not None and target.namespace.isdigit():
            # The option -n of tail is the number of lines.
            error.hint = f"-n is the namespace. To print the last {target.namespace} lines: --tail {target.namespace}"
        raise
    if empty and hidden:
        output.narrate(f'The {kind} "{name}" has written only lines for programs; --raw prints them.')
    elif empty and since is not None:
        output.narrate(f'The {kind} "{name}" has written nothing in the last {formatting.duration(since)}.')
    elif empty:
        output.narrate(f'The {kind} "{name}" has written nothing' + ("." if follow else " yet."))


def _lines(
    name: str, *, follow: bool, tail: int | None, attempt: int | None, raw: bool, **selected: Any
) -> tuple[str, Iterator[tuple[str, str]]]:
    """Return "run" and the lines of a run or a model after "", or "sweep" and lines after the name of their run."""

    read_log: Callable[..., Iterator[str]] = partial(api.logs, attempt=attempt, **selected)

    def of(run: str) -> Iterator[str]:
        last = tail
        if not raw and tail is not None:  # --tail counts the lines for people
            more = _OF_ALL_LINES * tail
            read: list[str] = []
            with contextlib.suppress(*(LauncherError,) if follow else ()):  # a run that is followed may not exist yet
                read += read_log(run, follow=False, tail=more)
            shown = [at for at, line in enumerate(reversed(read), 1) if not is_for_programs(line)][:tail]
            last = shown[-1] if shown else len(read)
            if not follow:
                return iter(read[-last:] if last else read)
        return read_log(run, follow=follow, tail=last or tail)

    try:
        lines = of(name) if api.is_folder(name) else api.run_or_model(name, lambda: of(name), target=selected["target"])
    except api.IsServedModel:
        lines = api.model_logs(name, follow=follow, tail=tail, **selected)
    except api.IsSweep as error:
        of_runs: Any = hooks.sweep_verb("logs")
        return "sweep", of_runs([run.name for run in error.sweep.runs], of, follow=follow)
    return "run", (("", line) for line in lines)
