from __future__ import annotations

import sys

import click

from launcher.cli.options import Seconds, format_option, target_options, values_options
from launcher.k8s.target import Target


@click.command()
@click.argument("chart", type=click.Choice(["queues", "ray-cluster"]), metavar="queues|ray-cluster")
@click.argument("release", required=False, metavar="[RELEASE]")
@values_options
@target_options
@click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")
@click.option(
    "--timeout",
    type=Seconds(),
    help="How long to wait until it works, such as 90s or 15m; 0 does not wait (default: 30s for queues, 15m).",
)
@click.option("--recover", is_flag=True, help="Mend a release that a killed helm has left locked.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
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
    """Install a platform's queues or a team's Ray cluster, or upgrade to new values.

    RELEASE is "queues", or the cluster's name from run.cluster, if it is not given. First says where, and what would
    change; at a terminal it asks, and elsewhere (in CI) it goes ahead. What Kubernetes refuses is rolled back as a
    whole. A queue that Kueue calls inactive, or a cluster that waits for its chips, is reported and stays; the exit
    code is 1 then.
    """
    from launcher import api
    from launcher.cli import output
    from launcher.helm import diff

    plan = api.plan_release(chart, files, sets, name=release, target=target, recover=recover)
    output.narrate(plan.where, *diff.lines(plan.changes), f"Objects: {diff.summary(plan.changes)}.")
    if dry_run:
        output.narrate(*filter(None, [plan.recovery]), "Nothing was changed.")
        output.emit(plan.as_json(), form, "")
        return 0
    if plan.changed and not yes and sys.stdin.isatty() and not click.confirm("Do that?", err=True):
        output.narrate("Nothing was changed.")
        return 1
    missing = api.install(plan, output.narrate, seconds=timeout)
    output.narrate(*missing)
    if missing:
        output.narrate(f"The release {plan.name} is in place, and does not work yet; the same command looks again.")
    else:
        output.narrate(f"The release {plan.name} is {'in place' if timeout == 0 else 'ready'}.")
    output.emit({**plan.as_json(), "notReady": missing}, form, "")
    return int(bool(missing))
