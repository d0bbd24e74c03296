"""launcher simulate, without a cluster: scenarios, and traces in the queues of values files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Launcher, Result
from tests.products.planner.test_simulation_scenarios import SCENARIO
from tests.tools import tool

QUEUES = """\
flavors:
  v6e-4x4: {accelerator: v6e, topology: 4x4}
cohorts: {all: {}}
clusterQueues:
  research: {chipsAlone: true, cohort: all, quota: {v6e-4x4: {slices: 2}}}
  product:
    chipsAlone: true
    cohort: all
    quota: {v6e-4x4: {slices: 2}}
    preemption: {reclaimWithinCohort: Any}
teams:
  research: {clusterQueue: research}
  product: {clusterQueue: product}
"""
TRACE = """\
name,team,accelerator,topology,slices,priority,arrives,lasts
a,research,v6e,4x4,4,normal,0,4h
b,product,v6e,4x4,2,high,1h,1h
c,research,v6e,4x4,2,normal,2h,1h
"""


@pytest.fixture
def simulate(launcher: Launcher) -> Callable[..., Result]:
    """Run `launcher simulate -f queues.yaml --trace runs.csv …`, with these files."""
    env = {"SLIPWAY_HELM": str(tool("helm")), "KUBECONFIG": "/dev/null"}
    launcher.write("queues.yaml", QUEUES)
    launcher.write("runs.csv", TRACE)
    return lambda *arguments: launcher("simulate", "-f", "queues.yaml", "--trace", "runs.csv", *arguments, env=env)


def figure(result: Result, about: str, name: str) -> dict[str, Any]:
    (found,) = [row for row in result.json["comparison"] if (row["about"], row["figure"]) == (about, name)]
    return dict(found)


def test_a_scenario_becomes_a_line_of_events(launcher: Launcher) -> None:
    file = launcher.write("s.jsonl", json.dumps(SCENARIO) + "\n" + json.dumps({**SCENARIO, "id": "two"}) + "\n")
    result = launcher("simulate", "--scenario", file, "-o", "jsonl")
    assert (result.code, result.err) == (0, "")
    one, two = map(json.loads, result.out.splitlines())
    assert (one["id"], two["id"], one["never"]) == ("one", "two", ["large"])
    assert one["events"] == two["events"]
    assert [(run, what) for _, run, what, _ in one["events"]][:2] == [("first", "admitted"), ("first", "evicted")]
    broken = launcher.write("broken.jsonl", json.dumps({**SCENARIO, "runz": []}) + "\n")
    result = launcher("simulate", "--scenario", broken, "-o", "jsonl")
    assert (result.code, result.err) == (
        1,
        'Error: broken.jsonl:1: runz: is not a known key; did you mean "runs"?\n',
    )


def test_a_trace_in_the_queues_of_a_values_file(simulate: Callable[..., Result]) -> None:
    result = simulate()
    assert (result.code, result.err) == (0, "")
    table = [line.split() for line in result.out.splitlines()]
    assert table[0] == ["RUN", "TEAM", "CHIPS", "ARRIVES", "STARTS", "WAIT", "ENDS", "FLAVOR", "PREEMPTED"]
    assert table[1][:9] == ["a", "research", "64", "0", "s", "0", "s", "0", "s"]
    assert ["v6e-4x4", "quota", "64", "chips"] in table
    data = simulate("-o", "json").json
    runs = {run["name"]: run for run in data["before"]["runs"]}
    assert (data["after"], data["comparison"]) == (None, [])
    assert (runs["a"]["preemptions"], runs["b"]["flavors"]) == (1, ["v6e-4x4"])
    assert runs["a"]["lost_chip_hours"] == pytest.approx(64, abs=0.2)


def test_a_change_of_quota_is_compared(simulate: Callable[..., Result]) -> None:
    result = simulate("--set", "clusterQueues.research.quota.v6e-4x4.slices=+2", "-o", "json")
    assert (result.code, result.err) == (0, "")
    assert figure(result, "v6e-4x4", "quota") == {
        "about": "v6e-4x4",
        "figure": "quota",
        "unit": "chips",
        "before": 64,
        "after": 96,
        "difference": 32,
    }
    assert figure(result, "", "preemptions")["difference"] == -1
    # $2.70 for each chip-hour of v6e on demand: a no longer repeats its first hour.
    assert figure(result, "", "cost of the runs")["difference"] == pytest.approx(-64 * 2.70, rel=0.01)
    text = simulate("--set", "clusterQueues.research.quota.v6e-4x4.slices=6").out
    assert ["v6e-4x4", "quota", "64", "chips", "128", "chips", "+64", "chips"] in [
        line.split() for line in text.splitlines()
    ]


def test_other_values_a_run_more_an_outage_and_a_team_less(launcher: Launcher, simulate: Callable[..., Result]) -> None:
    launcher.write("other.yaml", "clusterQueues: {product: {preemption: {reclaimWithinCohort: Never}}}\n")
    assert figure(simulate("--compare", "other.yaml", "-o", "json"), "", "preemptions")["after"] == 0
    added = simulate("--add", "run: {team: product, topology: 4x4, lasts: 30m}", "-o", "json")
    assert figure(added, "product", "runs")["difference"] == 1
    out = simulate("--outage", "v6e-4x4:30m-90m", "-o", "json")
    assert figure(out, "product", "95th wait")["after"] == pytest.approx(1800, abs=10)
    alone = simulate("--without-team", "product", "-o", "json")
    assert figure(alone, "", "preemptions")["difference"] == -1
    assert figure(alone, "product", "runs")["after"] is None


def test_advice_is_an_overlay_and_what_it_costs_the_others(simulate: Callable[..., Result]) -> None:
    within = "clusterQueues.product.preemption.reclaimWithinCohort=Never,Any"
    result = simulate("--advise", "lost", "--within", within)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("The work lost to restarts is 64.0 chip-hours. The best changes (tried: 2):\n")
    assert "      reclaimWithinCohort: Never\n" in result.out
    (advice,) = simulate("--advise", "lost", "--within", within, "-o", "json").json["advice"]
    assert advice["goal"] == 0
    (wait,) = [row for row in advice["comparison"] if (row["about"], row["figure"]) == ("product", "95th wait")]
    assert wait["difference"] == pytest.approx(3 * 3600, abs=60)


def test_a_page_is_written_and_no_other_file_is_overwritten(
    launcher: Launcher, simulate: Callable[..., Result]
) -> None:
    result = simulate("--html", "page.html")
    assert (result.code, result.err) == (0, "Wrote page.html.\n")
    assert "<title>runs.csv in queues.yaml · Slipway simulation</title>" in (launcher.folder / "page.html").read_text()
    assert simulate("--html", "page.html").code == 0
    launcher.write("mine.html", "mine")
    result = simulate("--html", "mine.html")
    assert result.code == 1
    assert "mine.html already exists and is not a Slipway report." in result.err


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--set", "clusterQueues.research.quota.v6e-4x4.slices=-3"], 2, "so the result would be -1, below 0."),
        (
            ["--set", "clusterQueues.reserch.quota.v6e-4x4.slices=+3"],
            2,
            'Did you mean "research" instead of "reserch"?',
        ),
        (["--set", "clusterQueues.research.cohort=+3"], 2, 'the value is "all", which is not a number.'),
        (["--set", "clusterQueues.research.cohrt=x"], 1, "did you mean clusterQueues.research.cohort?"),
        (["--outage", "v6e-4x5"], 2, 'there is no flavor "v6e-4x5"; did you mean v6e-4x4?'),
        (["--without-team", "reserch"], 2, "did you mean research?"),
        (["--add", "{name: a, team: product, topology: 4x4, lasts: 1}"], 2, '--add 1: another run has the name "a".'),
        (["--kueue", "0.9"], 2, "Kueue 0.9 is not simulated; the versions are 0.16, 0.17, 0.18, 0.19."),
        (["--advise", "lost"], 2, "--advise needs the values that may change: --within KEY=VALUES."),
        (["--within", "a.b=1"], 2, "--within and --grow are used with --advise GOAL."),
        (["--anonymous"], 2, "--anonymous is used with --record."),
        (["--runs", "gs://runs"], 2, "--runs is used with --record."),
        (["--record", "30d"], 2, "--record cannot be used with -f"),
        (["--assume", "2h"], 2, "--assume is for the runs of a cluster"),
        (["-o", "jsonl"], 2, "-o jsonl is the output of --scenario"),
        (["--scenario", "x"], 2, "--scenario cannot be used with -f"),
    ],
)
def test_changes_that_are_not_valid(
    simulate: Callable[..., Result], arguments: list[str], code: int, sentence: str
) -> None:
    result = simulate(*arguments)
    assert (result.code, result.out) == (code, "")
    assert sentence in result.err


def test_a_trace_that_is_not_valid_names_the_line(launcher: Launcher, simulate: Callable[..., Result]) -> None:
    Path(launcher.folder, "runs.csv").write_text(TRACE.replace("b,product", "b,produkt"))
    result = simulate()
    assert result.code == 1
    assert result.err.startswith('Error: runs.csv:3: there is no team "produkt"; did you mean product?')
