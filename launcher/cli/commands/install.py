from __future__ import annotations

import sys

import click

from launcher import api
from launcher.cli import completion, output
from launcher.cli.options import Seconds, confirm, format_option, target_options, values_options
from launcher.cli.values_command import ValuesCommand
from launcher.helm import diff
from launcher.k8s.target import Target
from launcher.paths import CHARTS


@click.command(cls=ValuesCommand)
@click.argument("chart", type=click.Choice(CHARTS), metavar="queues|ray-cluster|serve")
@click.argument("release", required=False, metavar="[RELEASE]", shell_complete=completion.values_files)
@values_options
@target_options
@click.option("--dry-run", is_flag=True, help="Show what would change, without changing it.")
@click.option(
    "--timeout",
    type=Seconds(),
    help="How long to wait until the release is ready, such as 90s or 15m; 0 does not wait (default: 30s for queues, "
    "15m for ray-cluster, 30m for serve).",
)
@click.option("--recover", is_flag=True, help="Unlock a release that a killed helm command left locked.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@format_option
def command(
    chart: str,
    release: str | None,
    files: tuple[str, ...],
    sets: tuple[str, ...],
    target: Target,
    dry_run: bool,
    timeout: float | None,
    recover: bool,
    yes: bool,
    form: str,
) -> int:
    """Install or upgrade a platform's queues, a Ray cluster or a served model.

    The default RELEASE is "queues", or the name of the Ray cluster in run.cluster. The command prints the target and
    the changes first. On a terminal it asks for confirmation; elsewhere (in CI) it continues. If Kubernetes rejects a
    change, all changes are rolled back. A queue that Kueue reports as inactive, or a Ray cluster or a model that waits
    for its chips, is reported and kept; the exit code is then 1.
    """

    plan = api.plan_release(chart, files, sets, name=release, target=target, recover=recover)
    output.narrate(plan.description, *diff.lines(plan.changes), f"Objects: {diff.summary(plan.changes)}.")
    if dry_run:
        output.narrate(*filter(None, [plan.recovery]), "Nothing was changed.")
        output.emit(plan.as_json(), form, "")
        return 0
    asks = plan.changed and not yes and sys.stdin.isatty()
    if asks and not confirm("Apply these changes?", "Nothing was changed."):
        return 1
    missing = api.install(plan, output.narrate, seconds=timeout)
    output.narrate(*missing)
    if missing:
        output.narrate(f"The release {plan.name} is installed, but not ready yet; run the same command again to check.")
    else:
        output.narrate(f"The release {plan.name} is {'installed' if timeout == 0 else 'ready'}.")
    output.emit({**plan.as_json(), "notReady": missing}, form, "")
    return int(bool(missing))
