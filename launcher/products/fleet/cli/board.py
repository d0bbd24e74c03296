from __future__ import annotations

from dataclasses import replace

import click

from launcher import api
from launcher.cli import output
from launcher.cli.options import WholeNumber, format_option, run_target_options
from launcher.errors import UsageError
from launcher.k8s.target import Target


@click.command()
@click.option("--port", type=WholeNumber(1, 65535), help="The local port (default: a free port).")
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Show the runs of all namespaces.")
@run_target_options
@format_option
def command(port: int | None, everywhere: bool, target: Target, form: str) -> int:
    """Serve a live page of queues and runs on a local port, until Ctrl-C.

    The page updates itself. It shows quota and its use, and for each run the state, why it waits, when it will start,
    the loss, and the speed compared with its forecast. It reads what you may read, and changes nothing.

    The printed address contains a token of this board. With the token, a process of yours reads with your rights, so do
    not share the address.
    """

    if everywhere and (target.local or target.namespace is not None):
        raise UsageError("--all-namespaces cannot be used with --local or --namespace.")
    with api.board(target=replace(target, all_namespaces=everywhere), port=port or 0) as server:
        output.narrate("Serving the board. Press Ctrl-C to stop. Do not share the address: it contains a token.")
        output.emit({"url": server.url, "address": server.address, "token": server.token}, form, server.url)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            output.narrate("\nThe board is closed.")
    return 0
