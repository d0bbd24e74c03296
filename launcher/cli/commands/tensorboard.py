from __future__ import annotations

import threading

import click

from launcher import api
from launcher.cli import output
from launcher.cli.options import WholeNumber, format_option, run_argument, run_target_options
from launcher.k8s.target import Target


@click.command()
@run_argument
@click.option("--port", type=WholeNumber(1, 65535), help="The local port (default: a free port).")
@run_target_options
@format_option
def command(name: str, port: int | None, target: Target, form: str) -> int:
    """Serve TensorBoard for a run on this machine, until Ctrl-C.

    It shows the metrics of the run, also while it trains, and the profiles of launcher profile. Only this machine can
    reach the address, but all its users can. For a run on a cluster, the command prints what you need instead.
    """

    with api.tensorboard(name, port=port or 0, target=target) as url:
        output.narrate(f"Serving TensorBoard for {name}. Press Ctrl-C to stop.")
        output.emit({"name": name, "url": url}, form, url)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            output.narrate(f"\nTensorBoard for {name} is closed. The run is not changed.")
    return 0
