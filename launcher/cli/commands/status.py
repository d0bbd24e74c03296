from __future__ import annotations

import contextlib
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
    """Show what is known of a run now, of the runs of a sweep, or of a standing Ray cluster."""
    from launcher import api, formatting
    from launcher.backends.base import RunStatus
    from launcher.cli import output
    from launcher.errors import LauncherError

    try:
        backend, found = api.resolve(name, target)
    except LauncherError:
        # Its head need not answer to be shown, while it starts for one.
        standing = []
        with contextlib.suppress(LauncherError):
            standing = api.clusters(name, target=target)
        if not standing:
            raise
        from launcher.backends.ray_cluster import clusters as ray_clusters

        output.emit(standing[0].as_json(), form, ray_clusters.details(standing[0]))
        return
    if not isinstance(found, RunStatus):
        from launcher.cli import sweep_verbs

        sweep_verbs.status(found, backend, form)
        return
    data = found.as_json()
    rows = [(key, str(value)) for key, value in data.items() if value not in (None, "", {})]
    output.emit(data, form, formatting.table(rows))
