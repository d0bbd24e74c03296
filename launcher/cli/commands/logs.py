from __future__ import annotations

from collections.abc import Iterator

import click

from launcher import api, formatting
from launcher.cli import output
from launcher.cli.options import Seconds, WholeNumber, format_option, run_argument, run_target_options
from launcher.errors import LauncherError
from launcher.k8s.target import Target


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
@run_target_options
@format_option
def command(
    name: str,
    follow: bool,
    tail: int | None,
    since: float | None,
    worker: int | None,
    target: Target,
    form: str,
) -> None:
    """Print the output of a run's current attempt, or of a served model.

    With --follow, --tail and --since select among the lines that exist at the start. For a local run, and for a run in
    a long-lived Ray cluster, --since uses the times in the trainer's lines.

    For a served model, the log of the head's pod is printed, and with --worker that of a host, with the output of its
    replica. While the model does not answer, the logs of all its pods are printed, and then the messages of Ray Serve's
    controller; with --follow, only the log of the head.

    With -o json or yaml, each line is printed as a separate item: {"line": text}. On a terminal, control characters
    except colours are replaced; to a file or a pipe, the lines are printed unchanged.
    """

    empty = True
    try:
        for line in _lines(name, follow=follow, worker=worker, tail=tail, since=since, target=target):
            empty = False
            if form != "text":
                line = ("- " if form == "yaml" else "") + output.to_json({"line": line})  # JSON is also valid YAML
            output.emit_log_line(line, flush=follow)
    except LauncherError as error:
        if target.namespace is not None and target.namespace.isdigit():
            # The option -n of tail is the number of lines.
            error.hint = f"-n is the namespace. To print the last {target.namespace} lines: --tail {target.namespace}"
        raise
    if empty and since is not None:
        output.narrate(f'The run "{name}" has written nothing in the last {formatting.duration(since)}.')
    elif empty:
        output.narrate(f'The run "{name}" has written nothing' + ("." if follow else " yet."))


def _lines(
    name: str, *, follow: bool, worker: int | None, tail: int | None, since: float | None, target: Target
) -> Iterator[str]:
    try:
        return api.run_or_model(
            name,
            lambda: api.logs(name, follow=follow, worker=worker, tail=tail, since=since, target=target),
            target=target,
        )
    except api.IsServedModel:
        return api.model_logs(name, follow=follow, worker=worker, tail=tail, since=since, target=target)
