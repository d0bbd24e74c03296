from __future__ import annotations

import click

from launcher import api
from launcher.cli import output
from launcher.cli.options import confirm, format_option, need_terminal, target_options
from launcher.k8s.objects import title
from launcher.k8s.target import Target


@click.command()
@click.argument("release", metavar="RELEASE")
@target_options
@click.option("--dry-run", is_flag=True, help="Show what would be removed, without removing it.")
@click.option("--force", is_flag=True, help="Remove it even if runs use its queues or its Ray cluster.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@format_option
def command(release: str, target: Target, dry_run: bool, force: bool, yes: bool, form: str) -> int:
    """Remove a release of queues or of a Ray cluster.

    The namespaces of teams are kept, with everything in them. A release that Slipway did not install is rejected, and
    so is a release whose queues or Ray cluster have runs. If Ray does not answer, the command reports that its runs are
    unknown.
    """

    removal = api.plan_removal(release, target=target)
    output.narrate(
        f"{release} ({removal.release.chart_name}): {removal.cluster.description}",
        *(f"- {title(obj)}" for obj in removal.removed),
        *(f"= {title(obj)} is kept, with everything in it" for obj in removal.kept),
        *(f"! {run} needs it" for run in removal.needed_by),
        *(f"? {sentence}" for sentence in removal.unseen),
    )
    if dry_run:
        output.narrate("Nothing was changed.")
        output.emit(removal.as_json(), form, "")
        return 0
    if not yes and not (removal.needed_by and not force):
        need_terminal("remove")
        if not confirm("Remove this release?", "Nothing was changed."):
            return 1
    left = api.uninstall(removal, output.narrate, force=force)
    output.narrate(*left, f"The release {release} is removed.")
    output.emit({**removal.as_json(), "left": left}, form, "")
    return int(bool(left))
