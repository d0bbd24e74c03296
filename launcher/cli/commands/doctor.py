from __future__ import annotations

import click

from launcher.cli.options import format_option, target_options
from launcher.k8s.target import Target


@click.command()
@target_options
@format_option
def command(target: Target, form: str) -> int:
    """Say whether this machine and the cluster are fit to run.

    Looks, and changes nothing. Works without a cluster, and with a team member's rights: what may not be looked at is
    named. Exit code 1 if there is a problem; warnings alone are 0.
    """
    from launcher import api
    from launcher.cli import output
    from launcher.diagnose import doctor

    found = api.doctor(target)
    output.emit([finding.as_json() for finding in found], form, doctor.as_text(found))
    output.narrate(doctor.summary(found))
    return int(doctor.has_problems(found))
