from __future__ import annotations

import click

from launcher import api
from launcher.cli import output
from launcher.cli.options import format_option, run_target_options
from launcher.cli.run_arguments import run_argument
from launcher.k8s.target import Target


@click.command()
@run_argument
@run_target_options
@format_option
def command(name: str, target: Target, form: str) -> None:
    """Explain why a run waits or failed, or why a served model does not answer, and how to fix it.

    For a sweep, each of its runs is explained; with -o json or yaml, the result is a list.
    """

    try:
        explanation = api.run_or_model(name, lambda: api.explain(name, target=target), target=target)
    except api.IsServedModel:
        explanation = api.explain_model(name, target=target)
    except api.IsSweep as error:
        explanations = [api.explain(run.name, target=target) for run in error.sweep.runs]
        output.emit(explanations, form, "\n\n".join(each.as_text() for each in explanations))
        return
    output.emit(explanation, form, explanation.as_text())
