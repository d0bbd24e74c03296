from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from launcher.cli import output
from launcher.cli.options import Seconds, format_options, target_options
from launcher.cli.values_options import files_option
from launcher.errors import UsageError
from launcher.k8s.target import Target
from launcher.products.planner.api import simulations
from launcher.products.planner.cli import simulation_text as texts
from launcher.products.planner.simulation.changes import Changes
from launcher.products.planner.simulation.offline import Kueue
from launcher.products.report import output as report_file


@click.command()
@files_option(
    "-f",
    "--file",
    "files",
    text="A values file of launcher install queues, or the name of a preset; may be repeated, later ones override.",
)
@click.option("--trace", metavar="FILE", help="The runs that arrive: a list in YAML, or CSV.")
@click.option(
    "--scenario", metavar="FILE", help="Recorded scenarios, a JSON object a line (also gzip); prints -o jsonl."
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="KEY=VALUE",
    help="Compare with a changed value of the queues; KEY=+4 and KEY=-4 change a number.",
)
@files_option("--compare", "compared", text="Compare with these values over those of -f; may be repeated.")
@click.option(
    "--add", multiple=True, metavar="RUN", help='Compare with one more run: "{team: research, lasts: 2h, …}".'
)
@click.option(
    "--outage",
    "outages",
    multiple=True,
    metavar="FLAVOR[:FROM-TO]",
    help="Compare with a flavor that has no nodes, such as v6e-4x4:2h-6h.",
)
@click.option("--without-team", "without", multiple=True, metavar="TEAM", help="Compare with the absence of a team.")
@click.option("--kueue", metavar="VERSION", default="", help="Kueue's version (default: the newest that is simulated).")
@click.option("--fair-sharing", is_flag=True, help="Fair sharing is on in Kueue's configuration.")
@click.option(
    "--assume",
    type=Seconds(),
    metavar="TIME",
    help="The time of a run of the cluster about which nothing is known (default: 4h).",
)
@click.option(
    "--advise",
    metavar="GOAL",
    help="Print the three changes that improve a goal most: wait:TEAM, utilisation[:FLAVOR] or lost.",
)
@click.option(
    "--within",
    multiple=True,
    metavar="KEY=VALUES",
    help="With --advise: a value that may change, and its values, KEY=2..8 or KEY=A,B; may be repeated.",
)
@click.option("--grow", is_flag=True, help="With --advise: the quota of a flavor may become larger in total.")
@click.option(
    "--record",
    type=Seconds(),
    metavar="TIME",
    help="Print a trace of the cluster's runs of this time, such as 30d, for --trace.",
)
@click.option(
    "--runs",
    "storages",
    multiple=True,
    metavar="FOLDER|URL",
    help="With --record: also read the runs' folders in it, such as gs://BUCKET; may be repeated.",
)
@click.option(
    "--anonymous", is_flag=True, help="With --record: numbers instead of the names of runs, teams and queues."
)
@click.option(
    "-A",
    "--all-namespaces",
    "everywhere",
    is_flag=True,
    help="Print the runs of all namespaces of the cluster. It needs the right to list their Workloads.",
)
@click.option("--html", metavar="FILE", help="Also write a page with the slices and the waiting runs over time.")
@click.option("--force", is_flag=True, help="Overwrite the file of --html even if it is not a page of Slipway.")
@format_options("jsonl", note="; jsonl only with --scenario.")
@target_options
def command(
    files: tuple[str, ...],
    trace: str | None,
    scenario: str | None,
    sets: tuple[str, ...],
    compared: tuple[str, ...],
    add: tuple[str, ...],
    outages: tuple[str, ...],
    without: tuple[str, ...],
    kueue: str,
    fair_sharing: bool,
    assume: float | None,
    advise: str | None,
    within: tuple[str, ...],
    grow: bool,
    record: float | None,
    storages: tuple[str, ...],
    anonymous: bool,
    everywhere: bool,
    html: str | None,
    force: bool,
    form: str,
    target: Target,
) -> None:
    """Simulate when runs start, and what a change of the queues would do.

    Without --trace, print when the runs of the namespace that wait in a queue start, and when those that run end; with
    -f, also the effect of the queues of these values. With -f and --trace, the runs of the trace arrive in the queues
    of the values. With --set, --compare, --add, --outage or --without-team, the result is compared with that of the
    change. With --advise, changes within the bounds of --within are tried. With --record, print a trace of the runs
    that the cluster has had. Nothing is changed in a cluster.
    """
    changes = Changes(add, outages, without)
    changed = bool(sets or compared or changes)
    kueue_config = Kueue(kueue, fair_sharing)
    page = None if html is None else Path(html)
    if page is not None:
        report_file.check(page, force=force)
    if everywhere and (trace or scenario or record is not None or target.namespace is not None):
        raise UsageError("--all-namespaces cannot be used with --trace, --scenario, --record or --namespace.")
    if scenario is not None:
        if files or trace or changed:
            raise UsageError(
                "--scenario cannot be used with -f, --trace or changes: a scenario has its own queues and runs."
            )
        if page is not None:
            raise UsageError("--scenario cannot be used with --html.")
        _scenarios(scenario, form)
        return
    if form == "jsonl":
        raise UsageError("-o jsonl is the output of --scenario; use -o json.")
    if (within or grow) and advise is None:
        raise UsageError("--within and --grow are used with --advise GOAL.")
    if advise is not None and (trace is None or not files):
        raise UsageError("--advise needs queues and runs: -f FILE and --trace FILE.")
    if anonymous and record is None:
        raise UsageError("--anonymous is used with --record.")
    if storages and record is None:
        raise UsageError("--runs is used with --record.")
    if record is not None:
        if files or trace or changed or page is not None:
            raise UsageError("--record cannot be used with -f, --trace, changes or --html: it prints a trace.")
        recorded = simulations.record_trace(
            record, target=target, storages=storages, assume=assume, anonymous=anonymous
        )
        output.narrate(*map(texts.note, recorded.notes))
        output.emit(list(recorded.rows), "yaml" if form == "text" else form, "")
        return
    if trace is None:
        if compared:
            raise UsageError("--compare is used with --trace; for the runs of the cluster, use -f CHANGED-QUEUES.")
        if sets and not files:
            raise UsageError(
                "--set needs the values that it changes: -f FILE.",
                "Use the values that the queues were installed with.",
            )
        answer = simulations.simulate_cluster(
            target=replace(target, all_namespaces=everywhere),
            assume=assume,
            files=files,
            sets=sets,
            changes=changes,
            kueue=kueue_config,
        )
        title = f"The runs of {answer.namespace or 'all namespaces'}"
        _write(page, lambda: simulations.simulation_page(answer.comparison, title, expected=answer.runs))
        output.emit(answer.as_json(), form, texts.live_text(answer))
        return
    if assume is not None:
        raise UsageError("--assume is for the runs of a cluster; the runs of a trace have their times.")
    if not files:
        raise UsageError("No values of queues are given: use -f FILE.", "Presets: launcher presets queues")
    if advise is not None:
        if changed or page is not None:
            raise UsageError("--advise cannot be used with another change or with --html; put the changes into a file.")
        if not within:
            raise UsageError(
                "--advise needs the values that may change: --within KEY=VALUES.",
                "For example: --within clusterQueues.research.quota.v6e-4x4.slices=2..8",
            )
        advice = simulations.advise_queues(
            files, trace, advise, within, grow=grow, kueue=kueue_config, progress=_progress
        )
        output.emit(advice.as_json(), form, texts.advice_text(advice))
        return
    comparison = simulations.simulate_trace(
        files, trace, sets=sets, changed_files=compared, changes=changes, kueue=kueue_config
    )
    _write(page, lambda: simulations.simulation_page(comparison, f"{Path(trace).name} in {', '.join(files)}"))
    output.emit(comparison.as_json(), form, texts.comparison_text(comparison))


def _scenarios(file: str, form: str) -> None:
    if form not in ("jsonl", "text"):
        raise UsageError("--scenario prints a line of JSON for each scenario: use -o jsonl.")
    for line in simulations.simulate_scenarios(file):
        output.emit_exactly(output.to_json(line) + "\n")


def _progress(tried: int) -> None:
    if tried % 50 == 0:
        output.narrate(f"{tried} changes were tried.")


def _write(path: Path | None, page: Callable[[], str]) -> None:
    """Write the page of --html, if it is used."""
    if path is not None:
        report_file.write(path, page())
        output.narrate(f"Wrote {path}.")
