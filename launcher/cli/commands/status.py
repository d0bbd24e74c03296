from __future__ import annotations

import click

from launcher import api, formatting
from launcher.backends.base import RunStatus
from launcher.backends.ray_cluster import clusters as ray_clusters
from launcher.cli import output, sweep_verbs
from launcher.cli.options import format_option, run_argument, run_target_options
from launcher.errors import LauncherError
from launcher.k8s.errors import UnreadableObject
from launcher.k8s.target import Target


@click.command()
@run_argument
@run_target_options
@format_option
def command(name: str, target: Target, form: str) -> None:
    """Show the status of a run, a sweep or a long-lived Ray cluster."""

    try:
        backend, found = api.resolve(name, target)
    except LauncherError:
        # A Ray cluster is also shown while its head does not answer, for example while it starts.
        clusters = []
        try:
            clusters = api.clusters(name, target=target)
        except UnreadableObject:
            raise  # it is the object with that name
        except LauncherError:
            pass
        if not clusters:
            raise

        output.emit(clusters[0].as_json(), form, ray_clusters.details(clusters[0]))
        return
    if not isinstance(found, RunStatus):
        sweep_verbs.status(found, backend, form)
        return
    data = found.as_json()
    rows = [(key, str(value)) for key, value in data.items() if value not in (None, "", {})]
    output.emit(data, form, formatting.table(rows))
