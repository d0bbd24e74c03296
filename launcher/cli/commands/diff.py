from __future__ import annotations

import click

from launcher import api
from launcher.cli import output
from launcher.cli.options import format_option, target_options
from launcher.cli.values_command import ValuesCommand
from launcher.cli.values_options import chart_arguments, name_option, refuse_name, values_options
from launcher.helm import diff
from launcher.k8s.target import Target


@click.command(cls=ValuesCommand)
@chart_arguments
@values_options
@name_option
@target_options
@format_option
def command(
    chart: str | None,
    release: str | None,
    files: tuple[str, ...],
    sets: tuple[str, ...],
    name: str | None,
    target: Target,
    form: str,
) -> int:
    """Show what submit or install would change in the cluster.

    With a chart, show the changes of install, otherwise those of submit. They come from a dry run of the
    API server: + is created, ~ is changed, - is removed. The exit code is 0 with and without changes.
    """

    if chart is not None:
        refuse_name("diff", chart, name)
        plan = api.plan_release(chart, files, sets, name=release, target=target, recover=True)
        changes, data = plan.changes, plan.as_json()
        output.narrate(plan.description, *filter(None, [plan.recovery]), *plan.notes)
    else:
        run = api.plan(files, sets, name=name)
        if run.others:
            run, notes = api.choose_alternative(run, api.backend_for(run, target))
            output.narrate(*notes)
        changes = api.diff_run(run, target=target)
        data = {"run": run.name, "changes": [change for change in changes if change.action != diff.SAME]}
        output.narrate(*(f"Warning: {warning}" for warning in run.warnings), diff.sentence(run, changes))
    output.emit(data, form, "\n".join(diff.lines(changes)))
    if changes:
        output.narrate(f"Objects: {diff.summary(changes)}.")
    return 0
