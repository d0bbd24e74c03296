from __future__ import annotations

import click

from launcher import api
from launcher.cli import output
from launcher.cli.options import WholeNumber, format_option, target_options
from launcher.k8s.target import Target


@click.command()
@click.argument("name", metavar="NAME")
@click.option(
    "--port",
    type=WholeNumber(1, 65535),
    help="The local port (default: a free port). For a browser, all dashboards on one port are one site: pages of "
    "another Ray cluster that are still open, or data that they stored, can reach this dashboard.",
)
@target_options
@format_option
def command(name: str, port: int | None, target: Target, form: str) -> int:
    """Serve Ray's dashboard on a local port, until Ctrl-C.

    NAME is a long-lived Ray cluster, or a run with a Ray cluster. Requests go through the API server with Ray's token
    added, so you need neither a forwarded port nor Ray's token.

    The printed address contains a token of this dashboard. With the token, a process of yours has your rights in the
    Ray cluster, so do not share the address. Ray's own commands work, too, with RAY_AUTH_TOKEN set to the token.

    The Ray cluster of a RayJob has a new name in each attempt, so the rights of a team member cannot include it. Its
    dashboard requires rights to all Services and Secrets of the namespace.
    """

    with api.dashboard(name, port=port or 0, target=target) as (url, server):
        cluster = target.cluster()
        output.narrate(
            f"Serving Ray's dashboard of {name} ({cluster.description}). Press Ctrl-C to stop.",
            "Do not share the address: it contains a token. For Ray's own commands:",
            f"  RAY_AUTH_MODE=token RAY_AUTH_TOKEN={server.token} ray job list --address {server.address}",
        )
        data = {"name": name, "url": url, "address": server.address, "token": server.token}
        output.emit(data, form, url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            output.narrate(f"\nThe dashboard of {name} is closed. Nothing else was stopped.")
    return 0
