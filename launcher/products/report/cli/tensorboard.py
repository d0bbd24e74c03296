from __future__ import annotations

import threading

import click

from launcher.cli import output
from launcher.cli.options import WholeNumber, format_option, run_target_options
from launcher.cli.run_arguments import run_names_argument
from launcher.k8s.target import Target
from launcher.products.report import api as report_api


@click.command()
@run_names_argument
@click.option("--port", type=WholeNumber(1, 65535), help="The local port (default: a free port).")
@run_target_options
@format_option
def command(names: tuple[str, ...], port: int | None, target: Target, form: str) -> int:
    """Serve TensorBoard for runs on this machine, until Ctrl-C.

    A NAME is a run, a sweep, or a pattern of runs, such as "demo-*". It shows the metrics of the runs, also while they
    train, and the profiles of launcher profile. Only this machine can reach the address, but all its users can. For a
    run on a cluster, the command prints what you need instead.
    """

    name = ", ".join(names)
    with report_api.tensorboard(*names, port=port or 0, target=target) as url:
        output.narrate(f"Serving TensorBoard for {name}. Press Ctrl-C to stop.")
        output.emit({"name": name, "url": url}, form, url)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            output.narrate(f"\nTensorBoard for {name} is closed. Nothing is changed.")
    return 0
