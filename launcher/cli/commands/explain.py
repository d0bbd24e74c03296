from __future__ import annotations

from typing import TYPE_CHECKING

import click

from launcher.cli.options import format_option, run_argument, run_target_options

if TYPE_CHECKING:
    from launcher.k8s.target import Target


@click.command()
@run_argument
@run_target_options
@format_option
def command(name: str, target: Target, form: str) -> None:
    """Explain why a run waits or failed, and how to fix it."""
    from launcher import api
    from launcher.cli import output

    explanation = api.explain(name, target=target)
    output.emit(explanation.as_json(), form, explanation.as_text())
