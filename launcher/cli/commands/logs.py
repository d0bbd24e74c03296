from __future__ import annotations

import click

from launcher import api
from launcher.cli import output
from launcher.cli.options import format_option, run_argument, run_target_options
from launcher.k8s.target import Target


@click.command()
@run_argument
@click.option("-f", "--follow", is_flag=True, help="Print new lines until the run ends.")
@click.option(
    "--worker", type=click.IntRange(min=0), metavar="N", help="Print only the output of this worker, counted from 0."
)
@run_target_options
@format_option
def command(name: str, follow: bool, worker: int | None, target: Target, form: str) -> None:
    """Print the output of a run's current attempt.

    With -o json or yaml, each line is printed as a separate item: {"line": text}. On a terminal, control characters
    except colours are replaced; to a file or a pipe, the lines are printed unchanged.
    """

    for line in api.logs(name, follow=follow, worker=worker, target=target):
        if form != "text":
            line = ("- " if form == "yaml" else "") + output.to_json({"line": line})  # JSON is also valid YAML
        output.emit_log_line(line, flush=follow)
