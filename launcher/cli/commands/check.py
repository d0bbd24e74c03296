from __future__ import annotations

import click

from launcher import api
from launcher.cli import output
from launcher.cli.options import format_option, target_options
from launcher.cli.values_command import ValuesCommand
from launcher.cli.values_options import chart_arguments, name_option, refuse_name, values_options
from launcher.errors import UsageError
from launcher.k8s.target import Target


@click.command(cls=ValuesCommand)
@chart_arguments
@values_options
@name_option
@click.option(
    "--live",
    is_flag=True,
    help="Also check whether this user can create the run in the cluster, and whether it can start.",
)
@target_options
@format_option
def command(
    chart: str | None,
    release: str | None,
    files: tuple[str, ...],
    sets: tuple[str, ...],
    name: str | None,
    live: bool,
    target: Target,
    form: str,
) -> int:
    """Check the values against all rules that need no chips.

    For a run on this machine, also check its text and its tokenizer, and let MaxText trace the train step, which takes
    5 seconds or more. With a chart, check the values of a release; this requires Helm. Works offline, except for
    --live. The exit code is 1 if a rule is violated, and 0 if there are only warnings.
    """

    if chart is not None:
        refuse_name("check", chart, name)
        if live:
            raise UsageError(f"--live checks a run; for a release, use: launcher diff {chart}")
        problems = api.check_release(chart, files, sets, name=release)
    else:
        problems = api.check(files, sets, name=name, live=live, target=target)
    output.emit(problems, form, "\n".join(f"{problem.severity}: {problem}" for problem in problems))
    if not problems:
        output.narrate("No problems found.")
    return int(any(problem.severity == "error" for problem in problems))
