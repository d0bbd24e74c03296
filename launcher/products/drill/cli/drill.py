from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from launcher import api, formatting
from launcher.cli import output
from launcher.cli.options import format_option
from launcher.errors import ExitCode, LauncherError
from launcher.products.drill.local.faults import FAULTS

if TYPE_CHECKING:
    from launcher.products.drill.api import Certificate


@click.command()
@click.option(
    "--fault",
    "faults",
    multiple=True,
    type=click.Choice([fault.name for fault in FAULTS]),
    metavar="NAME",
    help=f"Only this fault; may be repeated: {', '.join(fault.name for fault in FAULTS)}.",
)
@click.option("-f", "--file", "files", multiple=True, metavar="FILE", help="Values of the training; may be repeated.")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set one value; may be repeated.")
@click.option("--to", metavar="FILE", help="Also write the certificate (JSON) into a file.")
@format_option
def command(faults: tuple[str, ...], files: tuple[str, ...], sets: tuple[str, ...], to: str | None, form: str) -> int:
    """Break a small training on this machine in several ways, and show what each fault costs.

    The training runs once without a fault, and again for each fault. A certificate has, for each fault, the steps that
    were lost, the seconds to the next step, whether the losses equal those of the run without a fault bit for bit, and
    who was notified. The exit code is 1 if a promise was not kept. The runs are in a temporary folder, apart from your
    runs; they are removed at the end, also after Ctrl-C.
    """

    if to is not None and (Path(to).is_dir() or not os.access(Path(to).parent, os.W_OK)):  # a drill takes minutes
        raise LauncherError(f"{to} cannot be written; choose a file in a folder that exists and that you may write.")
    for number in (signal.SIGTERM, signal.SIGHUP):  # a CI job that is cancelled cleans up, as after Ctrl-C
        signal.signal(number, signal.default_int_handler)
    certificate = api.drill(faults, files=files, sets=sets, progress=output.narrate)
    tree = certificate.as_json()
    if to is not None:
        try:
            Path(to).write_text(json.dumps(tree, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise LauncherError(f"{to} cannot be written: {error.strerror}.") from error
    output.emit(tree, form, _text(certificate))
    return ExitCode.DONE if certificate.passed else ExitCode.FAILURE


def _text(certificate: Certificate) -> str:
    rows = [("FAULT", "AT STEP", "STEPS LOST", "NEXT STEP AFTER", "LOSSES", "NOTIFIED", "RESULT")]
    for row in certificate.outcomes:
        seconds = "-" if row.seconds_to_next_step is None else f"{row.seconds_to_next_step:.1f} s"
        losses = "identical" if row.identical else "different"
        result = "failed" if row.problems else "passed"
        notified = ", ".join(row.notified or ()) or "-"
        rows.append((row.fault, str(row.at_step), str(row.steps_lost), seconds, losses, notified, result))
    problems = [f"{row.fault}: {problem}" for row in certificate.outcomes for problem in row.problems]
    times = [(row.fault, _phases(row.seconds_by_phase)) for row in certificate.outcomes if row.seconds_by_phase]
    restarts = formatting.table([("FAULT", "SECONDS OF THE RESTART"), *times]) if times else ""
    return "\n".join(filter(None, [formatting.table(rows), *problems, restarts and f"\n{restarts}"]))


def _phases(spent: Mapping[str, float]) -> str:
    return ", ".join(f"{phase} {seconds:g}" for phase, seconds in spent.items())
