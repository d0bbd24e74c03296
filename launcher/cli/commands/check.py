from __future__ import annotations

from typing import TYPE_CHECKING

import click

from launcher.cli.options import format_option, name_option, target_options, values_options

if TYPE_CHECKING:
    from launcher.k8s.target import Target


@click.command()
@values_options
@name_option
@click.option("--live", is_flag=True, help="Ask the cluster too: would the run ever start there?")
@target_options
@format_option
def command(
    files: tuple[str, ...], sets: tuple[str, ...], name: str | None, live: bool, target: Target, form: str
) -> int:
    """Check the values by every rule that needs no chips.

    Works offline, but for --live. Exit code 1 if any rule is broken; warnings alone are 0.
    """
    from launcher import api
    from launcher.cli import output

    problems = api.check(files, sets, name=name, live=live, target=target)
    output.emit(
        [problem.as_json() for problem in problems],
        form,
        "\n".join(f"{problem.severity}: {problem}" for problem in problems),
    )
    if not problems:
        output.narrate("No problems found.")
    return int(any(problem.severity == "error" for problem in problems))
