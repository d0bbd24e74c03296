from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from launcher.cli.options import format_option, run_argument, run_target_options

if TYPE_CHECKING:
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
    from launcher import api

    for line in api.logs(name, follow=follow, worker=worker, target=target):
        sys.stdout.write(_as_json(line, form) + "\n")
        if follow:
            sys.stdout.flush()


def _as_json(line: str, form: str) -> str:
    if form == "text":
        return line
    import json

    # JSON is also valid YAML.
    return ("- " if form == "yaml" else "") + json.dumps({"line": line}, ensure_ascii=False)
