from __future__ import annotations

import click

from launcher import api
from launcher.cli import colour, output
from launcher.cli.options import format_option, target_options
from launcher.cli.values_options import files_option
from launcher.diagnose import doctor
from launcher.k8s.target import Target


@click.command()
@files_option(
    *("-f", "--file", "--values"),
    "files",
    text="Values of launcher cluster: compare the cluster on Google Cloud with them.",
)
@target_options
@format_option
def command(files: tuple[str, ...], target: Target, form: str) -> int:
    """Check whether this machine and the cluster can start runs.

    With -f, also compare a GKE cluster with the values from which `launcher cluster up` created it.

    Changes nothing. Works without a cluster, and with the rights of a team member: checks that need more rights are
    listed as unknown. The exit code is 1 if there is a problem, and 0 if there are only warnings.
    """

    findings = api.doctor(target, files)
    output.emit(findings, form, doctor.as_text(findings), paint=colour.levels)
    output.narrate(doctor.summary(findings))
    return int(doctor.has_problems(findings))
