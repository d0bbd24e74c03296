from __future__ import annotations

import click

from launcher import api
from launcher.cli import output
from launcher.cli.options import format_option, run_argument, run_target_options
from launcher.k8s.target import Target


@click.command()
@run_argument
@run_target_options
@format_option
def command(name: str, target: Target, form: str) -> None:
    """Explain why a run waits or failed, or why a served model does not answer, and how to fix it."""

    try:
        explanation = api.run_or_model(name, lambda: api.explain(name, target=target), target=target)
    except api.IsServedModel:
        explanation = api.explain_model(name, target=target)
    output.emit(explanation.as_json(), form, explanation.as_text())
