from __future__ import annotations

import json
import sys

import click

from launcher import api
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

    With -o json or yaml, each line is printed as a separate item: {"line": text}.
    """

    for line in api.logs(name, follow=follow, worker=worker, target=target):
        sys.stdout.write(_as_json(line, form) + "\n")
        if follow:
            sys.stdout.flush()


def _as_json(line: str, form: str) -> str:
    if form == "text":
        return line

    # JSON is also valid YAML.
    return ("- " if form == "yaml" else "") + json.dumps({"line": line}, ensure_ascii=False)
