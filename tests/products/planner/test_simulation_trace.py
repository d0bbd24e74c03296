"""Traces of runs, and the jobs, changes and figures that follow from them. The queues are objects, without Helm."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import LauncherError, UsageError
from launcher.products.planner.cli.simulation_text import comparison_text
from launcher.products.planner.scheduler.model import Attempt, Eviction, Outage
from launcher.products.planner.simulation.changes import Changes, outages, without_teams
from launcher.products.planner.simulation.comparison import Comparison, rows
from launcher.products.planner.simulation.jobs import chips_of, jobs_of, team_of
from launcher.products.planner.simulation.platform import Platform, from_objects
from launcher.products.planner.simulation.simulated import Simulated, figures, lost_seconds, quantile, run_simulation
from launcher.products.planner.simulation.trace import InvalidTrace, read_run, read_trace

TABLE = {
    "v6e": {"kind": "tpu", "label": "tpu-v6e-slice"},
    "h100": {"kind": "gpu", "label": "nvidia-h100-80gb", "machineTypes": {"a3-8g": 8}, "defaultMachineType": "a3-8g"},
}
PRICES = {"v6e": {"perChipHour": {"on-demand": 2.0, "spot": 1.0}}}
TPU = "cloud.google.com/gke-tpu-"


def flavor(name: str, topology: str = "4x4", *, spot: bool = False) -> dict[str, Any]:
    labels = {f"{TPU}accelerator": "tpu-v6e-slice", f"{TPU}topology": topology}
    spec: dict[str, Any] = {"nodeLabels": labels}
    if spot:
        labels["cloud.google.com/gke-spot"] = "true"
        spec["nodeTaints"] = [{"key": "cloud.google.com/gke-spot", "value": "true", "effect": "NoSchedule"}]
    return {"kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


def queue(name: str, chips: int = 64, *flavors: str, **spec: Any) -> dict[str, Any]:
    group = {
        "coveredResources": ["google.com/tpu"],
        "flavors": [
            {"name": each, "resources": [{"name": "google.com/tpu", "nominalQuota": chips}]}
            for each in flavors or ("v6e",)
        ],
    }
    return {
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"namespaceSelector": {}, "resourceGroups": [group], **spec},
    }


def local(team: str, cluster_queue: str) -> dict[str, Any]:
    return {
        "kind": "LocalQueue",
        "metadata": {"name": team, "namespace": team},
        "spec": {"clusterQueue": cluster_queue},
    }


def platform(*objects: dict[str, Any]) -> Platform:
    given = objects or (
        queue("research", 64, cohortName="all", preemption={"reclaimWithinCohort": "Any"}),
        queue("product", 64, cohortName="all", preemption={"reclaimWithinCohort": "Any"}),
    )
    return from_objects(
        [
            *given,
            flavor("v6e"),
            flavor("spot", spot=True),
            local("research", "research"),
            local("product", "product"),
            {"kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 1000},
        ],
        TABLE,
        PRICES,
    )


def trace(folder: Path, text: str, name: str = "runs.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def simulated(folder: Path, text: str, on: Platform | None = None, *texts: str) -> Simulated:
    on = on or platform()
    runs = read_trace(trace(folder, text)).runs
    teams = {run.name: team_of(run, on) for run in runs}
    return run_simulation(on, jobs_of(runs, on), teams, outages=outages(texts, on))


# --- reading ----------------------------------------------------------------------------------------------------------

YAML = """\
- {name: a, team: research, accelerator: v6e, topology: 4x4, slices: 2, priority: high, arrives: 90, lasts: 2h}
- name: b
  queue: product
  flavors: [v6e]
  chips: 32
  arrives: 1h30m
  lasts: 600
  checkpointEvery: 5m
"""
CSV = """\
name,team,queue,accelerator,topology,slices,flavors,chips,priority,arrives,lasts,checkpointEvery
a,research,,v6e,4x4,2,,,high,90,2h,

b,,product,,,,v6e,32,,1h30m,600,5m
"""


@pytest.mark.parametrize(("text", "name"), [(YAML, "r.yaml"), (CSV, "r.csv")])
def test_yaml_and_csv_are_the_same_trace(tmp_path: Path, text: str, name: str) -> None:
    on = platform()
    runs = read_trace(trace(tmp_path, text, name)).runs
    jobs = jobs_of(runs, on)
    a, b = jobs["a"], jobs["b"]
    assert (a.queue, a.priority, a.created, a.takes, chips_of(a)) == ("research", 1000, 90, 7200, 32)
    assert (b.queue, b.priority, b.created, b.takes, chips_of(b)) == ("product", 0, 5400, 600, 32)
    assert (a.checkpoint_every, b.checkpoint_every) == (None, 300)
    assert [pod_set.flavors for pod_set in (*a.pod_sets, *b.pod_sets)] == [frozenset({"v6e"})] * 2
    assert [run.place.rpartition(":")[2] for run in runs] == (["1", "2"] if name == "r.yaml" else ["2", "4"])


def test_times_count_from_the_first_arrival(tmp_path: Path) -> None:
    text = (
        "- {queue: q, chips: 1, arrives: 2026-11-01T12:00:00Z, lasts: 1h}\n"
        "- {queue: q, chips: 1, arrives: '2026-11-01T13:30:00+02:00', lasts: 1h}\n"
    )
    found = read_trace(trace(tmp_path, text))
    assert [(run.name, run.arrives) for run in found.runs] == [("run-1", 1800), ("run-2", 0)]
    assert found.began is not None
    assert found.began.isoformat() == "2026-11-01T13:30:00+02:00"


RUN = "{queue: q, chips: 1, arrives: 0, lasts: 1h}"


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ("", 0, "the trace has no run."),
        ("[]", 0, "the trace has no run."),
        ("runs: []", 1, "a trace must be a list of runs."),
        (f"- {RUN}\n- 4", 2, "a run must be a map of keys to values."),
        (f"- {RUN}\n- a: b: c", 2, "this is not valid YAML"),
        ("- {queue: q, chips: 1, arrives: 0, last: 1h}", 1, 'unknown key "last"; did you mean lasts?'),
        ("- queue: q\n  chips: 1\n  chips: 2", 3, "duplicate key chips."),
        ("- queue: q\n  chips: 1\n  arrives: 0\n  lasts: -1", 4, "lasts is -1, but must not be negative."),
        ("- queue: q\n  chips: 1\n  arrives: -2h\n  lasts: 1", 3, "arrives is -2h, but must not be negative."),
        ("- {queue: q, chips: 1, arrives: 0, lasts: soon}", 1, 'lasts is "soon", which is not a duration'),
        ("- {queue: q, chips: 1, arrives: 2026-13-01T00:00, lasts: 1}", 1, "which is not a valid date and time."),
        ("- {queue: q, chips: 1, lasts: 1}", 1, "arrives is missing."),
        ("- {queue: q, chips: 1, arrives: 0}", 1, "lasts is missing."),
        ("- {queue: q, arrives: 0, lasts: 1}", 1, "slices or chips is missing"),
        ("- {queue: q, team: t, chips: 1, arrives: 0, lasts: 1}", 1, "a run has exactly one of them."),
        ("- {queue: q, chips: 0, arrives: 0, lasts: 1}", 1, "chips is 0, but must be a whole number above 0."),
        ("- {queue: q, chips: 1, slices: 1, arrives: 0, lasts: 1}", 1, "chips cannot be used with topology or slices."),
        ("- {queue: q, chips: 1, provisioning: cheap, arrives: 0, lasts: 1}", 1, 'provisioning is "cheap"'),
        ("- {queue: q, cpu: much, arrives: 0, lasts: 1}", 1, 'cpu is "much", which is not a quantity.'),
        (f"- {RUN}\n- {{queue: q, chips: 1, arrives: 2026-11-01T12:00:00Z, lasts: 1}}", 1, "use one of the two."),
        (f"- {RUN[:-1]}, name: a}}\n- {RUN[:-1]}, name: a}}", 2, 'name is "a", and another run has this name.'),
    ],
)
def test_a_trace_that_is_not_valid(tmp_path: Path, text: str, line: int, sentence: str) -> None:
    path = trace(tmp_path, text)
    with pytest.raises(InvalidTrace) as caught:
        read_trace(path)
    assert caught.value.message.startswith(f"{path}:{line}: " if line else f"{path}: ")
    assert sentence in caught.value.message


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name,queue,last\n", ':1: unknown key "last"; did you mean lasts?'),
        ("name,queue\na,q,1\n", ":2: the row has 3 cells, but the header has 2."),
        ('name,queue\n"a,q\n', "this is not valid CSV"),
    ],
)
def test_a_csv_file_that_is_not_valid(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InvalidTrace) as caught:
        read_trace(trace(tmp_path, text, "r.csv"))
    assert sentence in caught.value.message


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        ("{queue: reserch, chips: 1}", 'there is no ClusterQueue "reserch"; did you mean research?'),
        ("{team: produkt, chips: 1}", 'there is no team "produkt"; did you mean product?'),
        ("{team: product, chips: 1, priority: hgih}", 'there is no priority "hgih"; did you mean high?'),
        ("{team: product, chips: 1, flavors: v6}", 'there is no flavor "v6"; did you mean v6e?'),
        ("{team: product, topology: 8x8}", "no flavor has 8x8 (on-demand); the flavors with chips are spot, v6e."),
        ("{team: product, topology: 4x4, provisioning: reservation}", "no flavor has 4x4 (reservation)"),
    ],
)
def test_a_run_that_the_queues_do_not_know(tmp_path: Path, run: str, sentence: str) -> None:
    path = trace(tmp_path, f"- {run[:-1]}, arrives: 0, lasts: 1}}")
    with pytest.raises(InvalidTrace) as caught:
        jobs_of(read_trace(path).runs, platform())
    assert caught.value.message.startswith(f"{path}:1: ")
    assert sentence in caught.value.message


def test_a_run_gets_spot_machines_only_if_it_requests_them() -> None:
    on = platform(queue("research", 64, "v6e", "spot"))
    cases = {"[spot]": {"spot"}, "[on-demand, spot]": {"spot", "v6e"}, "": {"v6e"}}
    for provisioning, accepted in cases.items():
        given = f", provisioning: {provisioning}" if provisioning else ""
        run = read_run(f"{{team: research, accelerator: v6e, topology: 4x4, lasts: 1{given}}}", "--add 1")
        assert jobs_of([run], on)["run-1"].pod_sets[0].flavors == frozenset(accepted)


# --- the platform -----------------------------------------------------------------------------------------------------


def test_what_is_not_simulated_is_listed_or_refused() -> None:
    topology = flavor("v6e")
    topology["spec"]["topologyName"] = "racks"
    checks = {"admissionChecks": [{"name": "dws"}]}
    on = from_objects([queue("q", 16, admissionChecksStrategy=checks), topology], TABLE, PRICES)
    assert on.ignored == (
        "ClusterQueue q: spec.admissionChecksStrategy is admission checks, which is not simulated.",
        "ResourceFlavor v6e: topology-aware scheduling (racks) is not simulated; quota decides.",
    )
    newer = from_objects([queue("q", 16, newField=1)], TABLE, PRICES)
    assert newer.ignored == ("ClusterQueue q: spec.newField is not known, and is ignored.",)
    with pytest.raises(LauncherError, match=r'ClusterQueue q: spec.queueingStrategy is "FIFO"; the values are'):
        from_objects([queue("q", 16, queueingStrategy="FIFO")], TABLE, PRICES)
    up = [{"kind": "Cohort", "metadata": {"name": a}, "spec": {"parentName": b}} for a, b in ("xy", "yx")]
    with pytest.raises(LauncherError, match="The cohorts are a cycle: x -> y -> x"):
        from_objects(up, TABLE, PRICES)


def test_a_flavor_is_a_kind_of_slices() -> None:
    gpu = {
        "kind": "ResourceFlavor",
        "metadata": {"name": "h100"},
        "spec": {"nodeLabels": {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}},
    }
    on = from_objects([flavor("v6e", "2x4"), flavor("spot", spot=True), gpu], TABLE, PRICES)
    seen = {
        each.name: (each.accelerator, each.chips, each.resource, each.provisioning, each.accepts_any_run, each.usd)
        for each in on.flavors.values()
    }
    assert seen == {
        "v6e": ("v6e", 8, "google.com/tpu", "on-demand", True, 2.0),
        "spot": ("v6e", 16, "google.com/tpu", "spot", False, 1.0),
        "h100": ("h100", 8, "nvidia.com/gpu", "on-demand", True, None),
    }


# --- figures ----------------------------------------------------------------------------------------------------------

BUSY = """\
- {name: a, team: research, accelerator: v6e, topology: 4x4, slices: 8, arrives: 0, lasts: 2h, checkpointEvery: 25m}
- {name: b, team: product, accelerator: v6e, topology: 4x4, slices: 4, arrives: 1h, lasts: 1h}
- {name: c, team: product, accelerator: v6e, topology: 4x4, slices: 16, arrives: 1h, lasts: 1h}
"""


def test_the_figures_of_a_preemption(tmp_path: Path) -> None:
    result = simulated(tmp_path, BUSY)
    a, b, c = (next(run for run in result.runs if run.name == name) for name in "abc")
    assert (a.preemptions, b.preemptions, c.starts, c.flavors) == (1, 0, None, ())
    assert c.never.startswith("it requests 256 of google.com/tpu")
    assert b.wait == pytest.approx(0, abs=5)
    # a has 50 minutes in checkpoints when it loses its quota after an hour. It starts again when b ends.
    assert a.lost_chip_hours == pytest.approx(10 / 60 * 128, abs=0.5)
    assert a.ends == pytest.approx(3600 + 3600 + 70 * 60, abs=10)
    found = figures(result)
    assert found.ends == pytest.approx(a.ends)
    used = 128 + 64 + 128 * 70 / 60
    assert found.chip_hours == pytest.approx(used, rel=0.01)
    assert found.usd == pytest.approx(2 * used, rel=0.01)
    assert found.flavors["v6e"].chips == 128
    assert found.flavors["v6e"].utilisation == pytest.approx(used / (128 * found.ends / 3600), rel=0.01)
    assert found.flavors["spot"].utilisation is None
    assert (found.never, found.teams["product"].never, found.teams["product"].runs) == (1, 1, 2)
    assert found.teams["research"].median_wait == pytest.approx(0, abs=5)


def test_a_run_behind_one_that_never_starts_in_a_strict_queue_names_it(tmp_path: Path) -> None:
    text = (
        "- {name: large, queue: research, chips: 128, arrives: 0, lasts: 1h}\n"
        "- {name: small, queue: research, chips: 64, arrives: 60, lasts: 1h}\n"
    )
    large, small = simulated(tmp_path, text, platform(queue("research", queueingStrategy="StrictFIFO"))).runs
    assert (large.starts, large.blocked_by) == (None, "")
    assert large.never == "it requests 128 of google.com/tpu, and the queue research can have at most 64"
    assert (small.starts, small.blocked_by) == (None, "large")
    assert small.never == "large, which never starts, is first in the queue research, which admits runs in order"
    _, small = simulated(tmp_path, text, platform(queue("research"))).runs
    assert small.never == ""
    assert small.wait == pytest.approx(0, abs=1)


def test_lost_work_counts_only_what_no_checkpoint_has() -> None:
    def attempt(start: float, end: float, kept: float, *, evicted: bool = True) -> Attempt:
        why = Eviction("Preempted", "other") if evicted else None
        return Attempt("a", (), start, start, end, end, why, kept)

    assert lost_seconds([attempt(0, 100, 0)]) == 100
    assert lost_seconds([attempt(0, 100, 90), attempt(200, 230, 120), attempt(300, 400, 220, evicted=False)]) == 10
    assert lost_seconds([]) == 0


def test_an_admission_check_delays_the_start(tmp_path: Path) -> None:
    text = "- {name: a, team: research, topology: 4x4, arrives: 60, lasts: 1h, admissionDelay: 10m}"
    (a,) = simulated(tmp_path, text).runs
    assert a.wait == pytest.approx(600, abs=2)
    assert a.ends == pytest.approx(60 + 600 + 3600, abs=2)


def test_quantiles_are_values_that_occur() -> None:
    assert quantile([], 0.5) is None
    assert quantile([7], 0.95) == 7
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile(list(range(1, 101)), 0.95) == 95


# --- changes ----------------------------------------------------------------------------------------------------------


def test_an_outage_evicts_and_its_time_is_not_capacity(tmp_path: Path) -> None:
    text = "- {name: a, team: research, topology: 4x4, slices: 4, arrives: 0, lasts: 2h}"
    result = simulated(tmp_path, text, None, "v6e:1h-3h")
    (a,) = result.runs
    assert a.preemptions == 1
    assert a.ends == pytest.approx(5 * 3600, abs=10)
    assert figures(result).flavors["v6e"].utilisation == pytest.approx(3 * 64 / (3 * 128), rel=0.01)


def test_an_outage_without_an_end_stops_its_runs_indefinitely(tmp_path: Path) -> None:
    on = platform(queue("research", 64, "v6e", "spot"))
    text = (
        "- {name: a, team: research, topology: 4x4, arrives: 0, lasts: 2h}\n"
        "- {name: b, team: research, topology: 4x4, provisioning: [on-demand, spot], arrives: 0, lasts: 2h}\n"
    )
    a, b = simulated(tmp_path, text, on, "v6e").runs
    assert (a.starts, b.flavors) == (None, ("spot",))
    assert a.never


def test_outages_and_teams_are_checked() -> None:
    on = platform()
    assert outages(["v6e:90-2h"], on) == [Outage("v6e", 90, 7200)]
    assert outages(["v6e"], on) == [Outage("v6e", 0, math.inf)]
    for text, sentence in (
        ("v6", 'there is no flavor "v6"; did you mean v6e?'),
        ("v6e:1h", '"1h" is not a time'),
        ("v6e:2h-1h", "it ends before it starts"),
    ):
        with pytest.raises(UsageError) as caught:
            outages([text], on)
        assert sentence in caught.value.message
    with pytest.raises(UsageError, match=r'no run is of a team "produkt"; did you mean product\?'):
        without_teams({}, {"a": "product"}, ["produkt"])


def test_a_run_of_add_needs_no_arrival() -> None:
    added = Changes(add=("run: {team: research, chips: 4, lasts: 1h}", "{queue: q, chips: 1, lasts: 2, arrives: 5m}"))
    first, second = added.added()
    assert (first.name, first.arrives, first.lasts, second.name, second.arrives) == (
        "added-1",
        0,
        3600,
        "added-2",
        300,
    )
    with pytest.raises(InvalidTrace, match=r"^--add 1: unknown key \"chip\"; did you mean chips\?"):
        Changes(add=("{team: research, chip: 4, lasts: 1h}",)).added()


def test_each_number_has_its_difference(tmp_path: Path) -> None:
    before, after = simulated(tmp_path, BUSY), simulated(tmp_path, BUSY.splitlines()[0])
    found = {(row.about, row.name): row for row in rows(figures(before), figures(after))}
    assert found["", "preemptions"].difference == -1
    assert found["research", "lost to restarts"].difference == pytest.approx(-10 / 60 * 128, abs=0.5)
    assert found["product", "median wait"].after is None
    assert found["product", "median wait"].difference is None
    # One ends later than the other, and both are compared until then: a flavor without a run is equal in both.
    both = Comparison(before, after, [])
    costs = [each.quota_usd for each in both.figures if each is not None]
    assert costs[0] == costs[1] == pytest.approx(2 * 128 * before.ends / 3600)
    assert {(row.about, row.name): row for row in both.rows}["", "last event after"].after == after.ends < before.ends
    text = comparison_text(Comparison(before, after, ["Topology is not simulated."]))
    lines = [line.split() for line in text.splitlines()]
    assert ["all", "preemptions", "1", "0", "-1"] in lines
    assert "Note: Topology is not simulated." in text
