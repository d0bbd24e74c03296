from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence

import click

from launcher import api, formatting
from launcher.cli import output
from launcher.cli.options import Seconds, WholeNumber, format_option, run_target_options
from launcher.cli.run_arguments import run_argument
from launcher.errors import LauncherError
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
@click.option("--raw", is_flag=True, help="Also print the trainer's lines for programs (SLIPWAY_…).")
@run_target_options
@format_option
def command(
    name: str,
    follow: bool,
    tail: int | None,
    since: float | None,
    worker: int | None,
    raw: bool,
    target: Target,
    form: str,
) -> None:
    """Print the output of a run's current attempt, or of a served model.

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

    raw = raw or form != "text"
    kind, hidden, empty = "run", 0, True
    try:
        kind, lines = _lines(name, follow=follow, worker=worker, tail=tail, since=since, target=target, raw=raw)
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
    name: str, *, follow: bool, worker: int | None, tail: int | None, since: float | None, target: Target, raw: bool
) -> tuple[str, Iterator[tuple[str, str]]]:
    """Return "run" and the lines of a run or a model after "", or "sweep" and lines after the name of their run."""

    def of(run: str) -> Iterator[str]:
        last = tail
        if not raw and tail is not None:  # --tail counts the lines for people
            more = _OF_ALL_LINES * tail
            read: list[str] = []
            with contextlib.suppress(*(LauncherError,) if follow else ()):  # a run that is followed may not exist yet
                read += api.logs(run, follow=False, worker=worker, tail=more, since=since, target=target)
            shown = [at for at, line in enumerate(reversed(read), 1) if not is_for_programs(line)][:tail]
            last = shown[-1] if shown else len(read)
            if not follow:
                return iter(read[-last:] if last else read)
        return api.logs(run, follow=follow, worker=worker, tail=last or tail, since=since, target=target)

    try:
        lines = api.run_or_model(name, lambda: of(name), target=target)
    except api.IsServedModel:
        lines = api.model_logs(name, follow=follow, worker=worker, tail=tail, since=since, target=target)
    except api.IsSweep as error:
        return "sweep", _of_runs([run.name for run in error.sweep.runs], of, follow=follow)
    return "run", (("", line) for line in lines)


def _of_runs(runs: Sequence[str], lines: Callable[[str], Iterator[str]], *, follow: bool) -> Iterator[tuple[str, str]]:
    """Yield the lines of the runs: with `follow` as they are written, otherwise one run after the other.

    A run whose log cannot be read is named on stderr. Raises LauncherError if this is true of all.
    """
    arrived: queue.SimpleQueue[tuple[str, str | LauncherError | None]] = queue.SimpleQueue()

    def read(run: str) -> None:
        try:
            for line in lines(run):
                arrived.put((run, line))
        except LauncherError as error:
            arrived.put((run, error))
        finally:
            arrived.put((run, None))

    errors = []
    for batch in [runs] if follow else [[run] for run in runs]:
        for run in batch:
            threading.Thread(target=read, args=(run,), daemon=True).start()  # a daemon: Ctrl-C ends the command
        active = len(batch)
        while active:
            run, line = arrived.get()
            if isinstance(line, str):
                yield run, line
                continue
            active -= line is None
            if line is not None:
                errors.append(line)
                output.narrate(line.message if run in line.message else f"{run}: {line.message}")
    if len(errors) == len(runs):
        raise errors[0]
