from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from launcher.cli.options import format_option, run_names_argument, run_place_options

if TYPE_CHECKING:
    from launcher.k8s.target import Place


@click.command()
@run_names_argument
@click.option(
    "--out", "target", metavar="FILE", help='The file to write, "-" for stdout (default: NAME.report.html, here).'
)
@click.option("--open", "show", is_flag=True, help="Show the page in a browser.")
@click.option("--skip", is_flag=True, help="Leave out what cannot be read, and say so.")
@click.option("--force", is_flag=True, help="Overwrite a file that is no report.")
@run_place_options
@format_option
def command(
    names: tuple[str, ...], target: str | None, show: bool, skip: bool, force: bool, place: Place, form: str
) -> None:
    """Write what is known of runs as one HTML page, side by side.

    A NAME is a run, a sweep, a run's folder (with a slash in it: ./NAME), or the URL of one in a bucket
    (gs://BUCKET/NAME).
    """
    from launcher import api
    from launcher.cli import output
    from launcher.errors import UsageError
    from launcher.report import output as files

    if target == "-" and (show or form != "text"):
        raise UsageError("--out - prints the page; leave out --open and -o.")
    if target not in (None, "-"):
        files.check(Path(str(target)), force=force)
    report = api.report(names, place=place, skip=skip, say=output.narrate)
    for sentence in report.left_out:
        output.narrate(f"Left out: {sentence}")
    if target == "-":
        sys.stdout.write(report.page)
        return
    path = Path(target or report.file_name)
    files.check(path, force=force)
    files.write(path, report.page)
    if show:
        click.launch(str(path.absolute()))
    output.emit({"file": str(path), "left_out": list(report.left_out), "runs": list(report.runs)}, form, str(path))
