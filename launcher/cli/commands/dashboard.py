from __future__ import annotations

from typing import TYPE_CHECKING

import click

from launcher.cli.options import format_option, target_options

if TYPE_CHECKING:
    from launcher.k8s.target import Target


@click.command()
@click.argument("name", metavar="NAME")
@click.option("--port", type=click.IntRange(1, 65535), help="A port of this machine (default: a free one).")
@target_options
@format_option
def command(name: str, port: int | None, target: Target, form: str) -> int:
    """Serve Ray's dashboard on a local port, until Ctrl-C.

    NAME is a standing Ray cluster, or a run that has one. Requests go through the API server with Ray's token added,
    so neither a forwarded port nor the token is needed; Ray's own commands work with the address, too.

    A RayJob's own cluster has other names in each attempt, which a member's rights cannot name: its dashboard is for
    those with rights to all Services and Secrets of the namespace.
    """
    from launcher import api
    from launcher.cli import output

    cluster = target.cluster()
    with api.dashboard(name, port=port or 0, target=target) as (url, server):
        output.narrate(f"Ray's dashboard of {name} ({cluster.where}); Ctrl-C ends it.")
        output.emit({"name": name, "url": url}, form, url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            output.narrate(f"\nThe dashboard of {name} is closed; nothing else has ended.")
    return 0
