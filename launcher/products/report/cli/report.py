from __future__ import annotations

from pathlib import Path

import click

from launcher.cli import output
from launcher.cli.options import format_option, run_target_options
from launcher.cli.run_arguments import run_names_argument
from launcher.errors import UsageError
from launcher.k8s.target import Target
from launcher.products.report import api as report_api
from launcher.products.report import output as report_output


@click.command()
@run_names_argument
@click.option(
    "--out",
    "out",
    type=click.Path(allow_dash=True),
    metavar="FILE",
    help='The file to write; "-" is stdout (default: NAME.report.html in this folder).',
)
@click.option("--open", "show", is_flag=True, help="Open the page in a browser.")
@click.option("--skip", is_flag=True, help="Leave out runs that cannot be read, and list them.")
@click.option("--force", is_flag=True, help="Overwrite a file even if it is not a report.")
@run_target_options
@format_option
def command(
    names: tuple[str, ...], out: str | None, show: bool, skip: bool, force: bool, target: Target, form: str
) -> None:
    """Write a report that compares runs, as one HTML page.

    A NAME is a run, a sweep, a run's folder (with a slash in it: ./NAME), or the URL of such a folder in a bucket
    (gs://BUCKET/NAME).
    """

    if out == "-" and (show or form != "text"):
        raise UsageError("--out - prints the page; it cannot be used with --open or -o.")
    if out not in (None, "-"):
        report_output.check(Path(str(out)), force=force)
    report = report_api.report(names, target=target, skip=skip, say=output.narrate)
    for sentence in report.left_out:
        output.narrate(f"Left out: {sentence}")
    if out == "-":
        output.emit_exactly(report.page)
        return
    path = Path(out or report.file_name)
    report_output.check(path, force=force)
    report_output.write(path, report.page)
    if show:
        _open(path)
    output.emit({"file": str(path), "left_out": list(report.left_out), "runs": list(report.runs)}, form, str(path))


def _open(path: Path) -> None:
    """Open the page in a browser, or print that there is none."""
    import webbrowser

    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        output.narrate(f"No browser was found on this machine. Open {path.absolute()} in a browser of yours.")
        return
    browser.open(path.absolute().as_uri())
