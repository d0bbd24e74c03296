from __future__ import annotations

import click

from launcher import api
from launcher.cli import output
from launcher.cli.options import format_option, name_option, target_options, values_options
from launcher.errors import UsageError
from launcher.helm import diff
from launcher.k8s.target import Target


@click.command()
@click.argument("chart", type=click.Choice(["queues", "ray-cluster"]), metavar="[queues|ray-cluster]", required=False)
@click.argument("release", required=False, metavar="[RELEASE]")
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

    With queues or ray-cluster, show the changes of install, otherwise those of submit. They come from a dry run of the
    API server: + is created, ~ is changed, - is removed. The exit code is 0 with and without changes.
    """

    if chart is not None:
        if name is not None:
            raise UsageError(f"--name is the name of a run; for a release, use: launcher diff {chart} RELEASE")
        plan = api.plan_release(chart, files, sets, name=release, target=target, recover=True)
        changes, data = plan.changes, plan.as_json()
        output.narrate(plan.description, *filter(None, [plan.recovery]))
    else:
        run = api.plan(files, sets, name=name)
        changes = api.diff_run(run, target=target)
        data = {"run": run.name, "changes": [change.as_json() for change in changes if change.action != diff.SAME]}
        output.narrate(*(f"Warning: {warning}" for warning in run.warnings), diff.sentence(run, changes))
    output.emit(data, form, "\n".join(diff.lines(changes)))
    if changes:
        output.narrate(f"Objects: {diff.summary(changes)}.")
    return 0
