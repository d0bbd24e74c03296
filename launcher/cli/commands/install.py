from __future__ import annotations

import click

from launcher import api
from launcher.cli import completion, release_verbs
from launcher.cli.options import Seconds, format_option, target_options
from launcher.cli.values_command import ValuesCommand
from launcher.cli.values_options import values_options
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
@click.option("--force", is_flag=True, help="Also remove queues and flavors that runs use.")
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
    force: bool,
    yes: bool,
    form: str,
) -> int:
    """Install or upgrade a platform's queues, a Ray cluster or a served model.

    The default RELEASE is "queues", or the name of the Ray cluster in run.cluster. The command prints the target and
    the changes first. On a terminal it asks for confirmation; elsewhere (in CI) it continues. If Kubernetes rejects a
    change, all changes are rolled back. A queue that Kueue reports as inactive, or a Ray cluster or a model that waits
    for its chips, is reported and kept; the exit code is then 1. A change that removes a team, a queue or a flavor that
    runs use is refused, with the names of the runs, unless --force is given.
    """

    plan = api.plan_release(chart, files, sets, name=release, target=target, recover=recover)
    return release_verbs.apply(plan, form, dry_run=dry_run, yes=yes, timeout=timeout, force=force)
