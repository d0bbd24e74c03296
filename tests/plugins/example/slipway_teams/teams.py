from collections import Counter

import click

from launcher import api, formatting
from launcher.cli import output
from launcher.cli.options import format_option, run_target_options
from launcher.k8s.target import Target


@click.command()
@run_target_options
@format_option
def command(target: Target, form: str) -> None:
    """Count the runs of each team."""
    teams = Counter(run.team or "(no team)" for run in api.list_runs(output.narrate, target=target))
    rows = [("TEAM", "RUNS"), *((team, str(count)) for team, count in sorted(teams.items()))]
    output.emit(dict(teams), form, formatting.table(rows))
