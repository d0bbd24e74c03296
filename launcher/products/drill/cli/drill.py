from __future__ import annotations

import json
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from launcher import api, formatting
from launcher.cli import output
from launcher.cli.options import confirm, format_option, need_terminal, target_options
from launcher.cli.values_options import files_option
from launcher.config.values.defaults import default_files
from launcher.errors import ExitCode, LauncherError
from launcher.k8s.target import Target

if TYPE_CHECKING:
    from launcher.products.drill.api import Certificate


@click.command()
@click.option("--fault", "faults", multiple=True, metavar="NAME", help="Only this fault; may be repeated.")
@files_option("-f", "--file", "files", text="Values of the training, such as image and storage; may be repeated.")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set one value; may be repeated.")
@click.option("--to", metavar="FILE", help="Also write the certificate (JSON) into a file.")
@click.option("-y", "--yes", is_flag=True, help="In a cluster: do not ask for confirmation.")
@target_options
@format_option
def command(
    faults: tuple[str, ...],
    files: tuple[str, ...],
    sets: tuple[str, ...],
    to: str | None,
    yes: bool,
    target: Target,
    form: str,
) -> int:
    """Break a small training in several ways, here or in a cluster, and show what each fault costs.

    The training runs once without a fault, and again for each fault. A certificate has, for each fault, the steps that
    were lost, the seconds to the next step, whether the losses equal those of the run without a fault bit for bit, and
    who was notified. The exit code is 1 if a promise was not kept. The runs are removed at the end, also after Ctrl-C.

    With --context or --namespace, the drill trains in that namespace. It checks your rights and asks first, and touches
    only runs of its own. -f names at least the image and the storage. Otherwise, it trains on this machine, in a
    temporary folder, apart from your runs.
    """

    if to is not None and (Path(to).is_dir() or not os.access(Path(to).parent, os.W_OK)):  # a drill takes minutes
        raise LauncherError(f"{to} cannot be written; choose a file in a folder that exists and that you may write.")
    for number in (signal.SIGTERM, signal.SIGHUP):  # a CI job that is cancelled cleans up, as after Ctrl-C
        signal.signal(number, signal.default_int_handler)
    here = target.context is None and target.namespace is None

    def approve(sentences: Sequence[str]) -> None:
        output.narrate(*sentences)
        if not yes:
            need_terminal("drill")
            if not confirm("Start the drill?", "Nothing was started."):
                click.get_current_context().exit(ExitCode.FAILURE)

    certificate = api.drill(
        faults,
        files=files if here else (*default_files(output.narrate), *files),
        sets=sets,
        target=Target(local=True) if here else target,
        progress=output.narrate,
        approve=approve,
    )
    tree = certificate.as_json()
    if to is not None:
        try:
            Path(to).write_text(json.dumps(tree, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            raise LauncherError(f"{to} cannot be written: {error.strerror}.") from error
    output.emit(tree, form, text_of(certificate))
    return ExitCode.DONE if certificate.passed else ExitCode.FAILURE


def text_of(certificate: Certificate) -> str:
    """Return the tables of a certificate, the problems, and the faults that were left out."""
    rows = [("FAULT", "STEP", "LOST", "NEXT STEP", "LOSSES", "NOTIFIED", "RESULT")]
    for row in certificate.outcomes:
        seconds = "-" if row.seconds_to_next_step is None else f"{row.seconds_to_next_step:.1f} s"
        losses = "identical" if row.identical else "different"
        result = "failed" if row.problems else "passed"
        notified = "not checked" if row.notified is None else ", ".join(row.notified) or "-"
        rows.append((row.fault, str(row.at_step), str(row.steps_lost), seconds, losses, notified, result))
    problems = [f"{row.fault}: {problem}" for row in certificate.outcomes for problem in row.problems]
    left_out = [f"{fault} was left out: {reason}" for fault, reason in certificate.left_out.items()]
    times = [(row.fault, _phases(row.seconds_by_phase)) for row in certificate.outcomes if row.seconds_by_phase]
    restarts = formatting.table([("FAULT", "SECONDS OF THE RESTART"), *times]) if times else ""
    sentences = map(formatting.paragraph, [*problems, *left_out])
    return "\n".join(filter(None, [formatting.table(rows), *sentences, restarts and f"\n{restarts}"]))


def _phases(spent: Mapping[str, float]) -> str:
    return ", ".join(f"{phase} {seconds:g}" for phase, seconds in spent.items())
