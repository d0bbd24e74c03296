from __future__ import annotations

import click

from launcher.commands._options import Seconds, format_option, run_argument


@click.command()
@run_argument
@click.option("--timeout", type=Seconds(), metavar="TIME", help="Give up after 90, 90s, 5m or 1.5h: exit code 124.")
@format_option
def command(name: str, timeout: float | None, form: str) -> int:
    """Wait until a run ends; the exit code is the run's."""
    from launcher import api, follow, output

    status = api.wait(name, timeout=timeout)
    output.emit(status.as_json(), form, follow.summary(status))
    return follow.exit_code(status)
