from __future__ import annotations

import click

from launcher.commands._options import format_option, name_option, values_options


@click.command()
@values_options
@name_option
@format_option
def command(files: tuple[str, ...], sets: tuple[str, ...], name: str | None, form: str) -> int:
    """Check the values by every rule that needs no chips.

    Works offline. Exit code 1 if any rule is broken; warnings alone are 0.
    """
    from launcher import api, output

    problems = api.check(files, sets, name=name)
    output.emit(
        [problem.as_json() for problem in problems],
        form,
        "\n".join(f"{problem.severity}: {problem}" for problem in problems),
    )
    if not problems:
        output.narrate("No problems found.")
    return int(any(problem.severity == "error" for problem in problems))
