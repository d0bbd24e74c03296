"""launcher simulate with a real API server: when runs of a namespace start and end, for an admin and for a member.

Kueue is not available where the tests run, so the tests write the Workloads and the status of the queues.
"""

from __future__ import annotations

import datetime
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gcsfs  # type: ignore[import-untyped]  # it ships no types
import pytest
import yaml

from launcher.cli.commands import list as list_command
from launcher.products.planner.simulation import expected_start
from tests.bucket import bucket
from tests.charts.queues_chart import render, tree
from tests.cli.conftest import Launcher
from tests.cli.test_terminal import on_terminal
from tests.cluster import doctor_objects
from tests.cluster.api import Api, Object, path_of
from tests.cluster.control_plane import ControlPlane, remove_namespace
from tests.cluster.fake_controllers import queued_workload
from tests.cluster.launching import JOB_SETS, RAY_JOBS, LauncherCli, until
from tests.cluster.proxy import Proxy
from tests.cluster.recorded_cluster import base_cluster
from tests.cluster.replay import follow_as
from tests.cluster.test_states import begun, log_of, step
from tests.products.report import report_runs as runs
from tests.tools import tool

SUFFIX = secrets.token_hex(3)
OURS, THEIRS = f"simulate-ours-{SUFFIX}", f"simulate-theirs-{SUFFIX}"
FLAVOR = f"simulate-{SUFFIX}"
VALUES = f"""
flavors:
  {FLAVOR}: {{accelerator: v5e, topology: 2x4}}
cohorts: {{simulate-{SUFFIX}: {{}}}}
clusterQueues:
  {OURS}: {{chipsAlone: true, cohort: simulate-{SUFFIX}, quota: {{{FLAVOR}: {{slices: 2, borrowing: 0}}}}}}
  {THEIRS}: {{chipsAlone: true, cohort: simulate-{SUFFIX}, quota: {{{FLAVOR}: {{slices: 2, borrowing: 0}}}}}}
teams:
  ours: {{namespace: {OURS}, queue: multislice, clusterQueue: {OURS}, members: {{sim-alice: User}}}}
  theirs: {{namespace: {THEIRS}, queue: multislice, clusterQueue: {THEIRS}, members: {{sim-bob: User}}}}
"""
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads/{}"
HOUR = 3600
COMPLETED = {
    "type": "Completed",
    "status": "True",
    "reason": "AllJobsCompleted",
    "message": "",
    "lastTransitionTime": "2026-01-02T03:04:05Z",
}


class World(NamedTuple):
    plane: ControlPlane
    admin: LauncherCli
    alice: LauncherCli


def ago(seconds: float) -> str:
    time = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def add_workload(
    api: Api, namespace: str, name: str, chips: int, *, held: float | None = None, limit: int | None = None
) -> None:
    """Create a Workload as Kueue does: one that waits, or one that has had its quota for `held` seconds."""
    container = {"name": "main", "image": "example.invalid/x:1", "resources": {"requests": {"google.com/tpu": chips}}}
    selector = {"cloud.google.com/gke-tpu-topology": "2x4"}
    pods = {"spec": {"containers": [container], "restartPolicy": "Never", "nodeSelector": selector}}
    spec: Object = {
        "queueName": "multislice",
        "priority": 0,
        "podSets": [{"name": "main", "count": 1, "template": pods}],
    }
    if limit is not None:
        spec["maximumExecutionTimeSeconds"] = limit
    kind = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"}
    api.create({**kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec})
    if held is None:
        return
    reserved = {"status": "True", "reason": "QuotaReserved", "message": "", "lastTransitionTime": ago(held)}
    assignment = {
        "name": "main",
        "count": 1,
        "flavors": {"google.com/tpu": FLAVOR},
        "resourceUsage": {"google.com/tpu": str(chips)},
    }
    status = {
        "admission": {"clusterQueue": namespace, "podSetAssignments": [assignment]},
        "conditions": [{**reserved, "type": "QuotaReserved"}, {**reserved, "type": "Admitted", "reason": "Admitted"}],
    }
    api.merge(f"{WORKLOADS.format(namespace, name)}/status", {"status": status})


@pytest.fixture(scope="module")
def world(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two teams with two slices each. A run holds each pair, and more wait: one that fits and one that never can."""
    admin = control_plane.api
    base_cluster(control_plane)
    made = render(tool("helm"), tree(VALUES), tmp_path_factory.mktemp("values"))
    for name in (OURS, THEIRS):
        control_plane.add_namespace(name)
    for obj in made:
        if obj["metadata"]["name"] not in ("queues-queue-reader", "low", "normal", "high"):
            admin.ensure(obj)
    for obj in made:  # releases of other tests have objects of that name
        if obj["metadata"]["name"] == "queues-queue-reader":
            obj["metadata"]["name"] += f"-{SUFFIX}"
            if "roleRef" in obj:
                obj["roleRef"]["name"] += f"-{SUFFIX}"
            admin.ensure(obj)
    add_workload(admin, OURS, "runs", 16, held=HOUR, limit=2 * HOUR)
    add_workload(admin, OURS, "waits", 16)
    add_workload(admin, OURS, "too-large", 64)
    add_workload(admin, THEIRS, "theirs-runs", 16, held=600)
    add_workload(admin, THEIRS, "theirs-waits", 8)
    for name in (OURS, THEIRS):
        used = [{"name": FLAVOR, "resources": [{"name": "google.com/tpu", "total": "16", "borrowed": "0"}]}]
        status = {"flavorsReservation": used, "pendingWorkloads": 2 if name == OURS else 1, "reservingWorkloads": 1}
        admin.merge(f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{name}/status", {"status": status})
    kubeconfig = control_plane.kubeconfig_for("sim-alice", namespace=OURS)
    alice = Api(kubeconfig)
    until(lambda: alice.open("GET", "/apis/kueue.x-k8s.io/v1beta2/clusterqueues").status == 200)
    until(lambda: alice.open("GET", f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{OURS}/workloads").status == 200)
    alice.close()
    folder = tmp_path_factory.mktemp("simulate")
    yield World(
        control_plane,
        LauncherCli(control_plane.admin, OURS, folder / "admin"),
        LauncherCli(kubeconfig, OURS, folder / "alice"),
    )
    for obj in made:
        admin.delete(path_of(obj))
    for name in (OURS, THEIRS):
        remove_namespace(admin, name)


def simulate(cli: LauncherCli, *arguments: str) -> Any:
    done = cli("simulate", "-n", cli.namespace, "-o", "json", *arguments)
    assert (done.code, done.err) == (0, "")
    return done.json


def by_name(data: Any) -> dict[str, Any]:
    return {run["name"]: run for run in data["runs"]}


def test_when_a_run_starts_and_what_it_waits_for(world: World) -> None:
    runs = by_name(simulate(world.admin))
    assert set(runs) == {"runs", "waits", "too-large"}
    running, waiting, large = runs["runs"], runs["waits"], runs["too-large"]
    assert (running["state"], running["starts"], running["takes"]["source"]) == ("running", None, "deadline")
    assert running["takes"]["text"] == "its deadline is 2 h"
    assert running["ends"]["seconds"] == pytest.approx(HOUR, abs=60)
    assert running["ends"]["earliest"] == pytest.approx(HOUR / 4, abs=60)
    assert (waiting["state"], waiting["takes"]["source"], waiting["waits_for"]) == ("waiting", "assumed", ["runs"])
    assert waiting["starts"]["seconds"] == pytest.approx(HOUR, abs=60)
    assert waiting["starts"]["earliest"] == pytest.approx(HOUR / 4, abs=60)
    assert waiting["ends"]["seconds"] == pytest.approx(5 * HOUR, abs=60)
    assert waiting["ends"]["latest"] == pytest.approx(9 * HOUR, abs=60)
    assert large["starts"]["seconds"] is None
    assert large["never"] == f"it requests 64 of google.com/tpu, and the queue {OURS} can have at most 16"


def test_the_text_names_starts_bands_and_assumptions(world: World) -> None:
    done = world.admin("simulate", "-n", OURS, "--assume", "2h")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0].split() == ["RUN", "QUEUE", "STARTS", "ENDS", "TAKES"]
    waits = next(line for line in lines if line.startswith("waits "))
    assert "in about" in waits and "assumed to take 2 h" in waits
    assert "waits waits for the quota of runs." in lines
    assert any(line.startswith("too-large does not start: it requests 64") for line in lines)
    assert any(line.startswith("Note: Kueue's own configuration may not be read") for line in lines)


def test_the_runs_of_all_namespaces_need_the_right_to_list_them(world: World) -> None:
    done = world.admin("simulate", "-A", "-o", "json")
    assert done.code == 0, done.err
    names = {run["name"] for run in done.json["runs"] if run["namespace"] in (OURS, THEIRS)}
    assert names == {"runs", "waits", "too-large", "theirs-runs", "theirs-waits"}
    shown = world.admin("simulate", "-A").out
    assert f"\n{THEIRS}/theirs-waits waits for the quota of {THEIRS}/theirs-runs.\n" in shown
    refused = world.alice("simulate", "-A")
    assert (refused.code, refused.out) == (1, "")
    assert "You may not list the Workloads of all namespaces, so --all-namespaces is not possible." in refused.err
    both = world.alice("simulate", "-A", "-n", OURS)
    assert both.code == 2
    assert "--all-namespaces cannot be used with" in both.err


def test_a_version_and_a_feature_gate_that_are_not_simulated_are_named(world: World) -> None:
    gates = "featureGates: {PrioritizePreemptorWorkloads: true, FlavorFungibility: true, LendingLimit: true}\n"
    made = [doctor_objects.kueue("v0.20.0"), doctor_objects.config_map(doctor_objects.KUEUE_CONFIG + gates)]
    world.plane.add_namespace("kueue-system")
    for obj in made:
        world.plane.api.ensure(obj)
    try:
        notes = " ".join(simulate(world.admin)["notes"])
    finally:
        for obj in made:
            world.plane.api.delete(path_of(obj))
    assert "Kueue 0.20.0 is simulated as 0.19." in notes  # as on the page upgrade-controllers.md
    assert "Kueue's feature gate PrioritizePreemptorWorkloads is on; it is simulated as off." in notes
    assert "FlavorFungibility" not in notes and "own configuration" not in notes


def test_the_page_of_a_cluster_has_the_expected_starts(world: World, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    done = world.admin("simulate", "-n", OURS, "--html", str(file))
    assert (done.code, done.err) == (0, f"Wrote {file}.\n")
    page = file.read_text()
    assert f"<title>The runs of {OURS} · Slipway simulation</title>" in page
    assert '<section id="expected">' in page
    assert "assumed to take 4 h" in page


def test_what_a_member_may_not_read_is_assumed_and_said(world: World) -> None:
    data = simulate(world.alice)
    runs = by_name(data)
    assert runs["waits"]["starts"]["seconds"] == pytest.approx(HOUR, abs=60)
    notes = " ".join(data["notes"])
    assert f"the quota that they hold in the queue {THEIRS} is assumed to be free in 4 h (--assume)" in notes
    assert f"You may not read the 1 run that waits in the queue {THEIRS}" in notes
    hidden = simulate(world.alice, "--add", f"{{queue: {OURS}, chips: 8, lasts: 1h}}")["before"]["runs"]
    assert [run["team"] for run in hidden if run["name"].startswith(f"hidden-{THEIRS}-")] == ["other teams"]
    seen = simulate(world.admin, "--add", f"{{queue: {OURS}, chips: 8, lasts: 1h}}")["before"]["runs"]
    assert f"{THEIRS}/theirs-runs" in {run["name"] for run in seen}


def test_a_change_of_the_cluster_is_compared(world: World, tmp_path: Path) -> None:
    values = tmp_path / "queues.yaml"
    values.write_text(VALUES)
    data = simulate(world.admin, "-f", str(values), "--set", f"clusterQueues.{OURS}.quota.{FLAVOR}.slices=+2")
    starts = [{run["name"]: run["starts"] for run in data[when]["runs"]}["waits"] for when in ("before", "after")]
    assert starts == [pytest.approx(HOUR, abs=60), pytest.approx(0, abs=5)]
    (quota,) = [row for row in data["comparison"] if (row["about"], row["figure"]) == (FLAVOR, "quota")]
    assert (quota["before"], quota["after"], quota["difference"]) == (32, 48, 16)
    out = simulate(world.admin, "--outage", f"{FLAVOR}:0-30m")
    (row,) = [row for row in out["comparison"] if (row["about"], row["figure"]) == ("", "preemptions")]
    assert row["difference"] >= 2


def test_measured_steps_give_the_end(cli: LauncherCli, control_plane: ControlPlane) -> None:
    assert cli("submit", "-f", cli.values("job-set"), "--detach").code == 0
    (run,) = cli.runs(control_plane.api)
    replayer = follow_as(control_plane, "three-then-one-and-two", run, run="slices-3")
    replayer.step_past("Workload", PodsReady="True")
    pods = control_plane.api.items(f"/api/v1/namespaces/{cli.namespace}/pods?labelSelector=slipway.dev/run%3Ddemo")
    control_plane.write_log(cli.namespace, *log_of(pods), [begun(3000), step(0, 10.0), step(1, 9.0)])
    demo = by_name(simulate(cli))["demo"]
    assert demo["state"] == "running"
    assert demo["takes"] == {
        "seconds": pytest.approx(2998 * 2.0),
        "source": "measured",
        "text": "2,998 of 3,000 steps left, as fast as the last steps",
    }
    assert demo["ends"]["seconds"] == pytest.approx(2998 * 2.0, abs=30)


def test_a_user_who_may_not_read_queues(control_plane: ControlPlane, tmp_path: Path) -> None:
    nobody = control_plane.kubeconfig_for(f"nobody-{SUFFIX}", namespace="default")
    done = LauncherCli(nobody, "default", tmp_path)("simulate", "-n", "default")
    assert (done.code, done.out) == (1, "")
    assert "may not list clusterqueues of kueue.x-k8s.io" in done.err


@pytest.fixture
def buckets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a folder whose folders are the buckets of Cloud Storage."""
    home = tmp_path / "buckets"
    home.mkdir()
    with bucket(home) as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        gcsfs.GCSFileSystem.clear_instance_cache()  # it keeps the address of its server
        yield home
    gcsfs.GCSFileSystem.clear_instance_cache()


@pytest.mark.usefixtures("buckets")
def test_a_recorded_trace_is_simulated_again(world: World, tmp_path: Path) -> None:
    api = world.plane.api
    add_workload(api, OURS, "ended", 8, held=4 * HOUR)
    finished = {
        "type": "Finished",
        "status": "True",
        "reason": "Succeeded",
        "message": "",
        "lastTransitionTime": ago(HOUR),
    }
    path = f"{WORKLOADS.format(OURS, 'ended')}/status"
    conditions = api.get(WORKLOADS.format(OURS, "ended"))["status"]["conditions"]
    api.merge(path, {"status": {"conditions": [*conditions, finished]}})
    done = world.admin("simulate", "-n", OURS, "--record", "30d")
    assert done.code == 0, done.err
    assert "Note: Deleted runs whose folder was not read, or that never started, are not in the trace." in done.err
    rows = {row["name"].split("/")[1]: row for row in yaml.safe_load(done.out) if row["name"].startswith(f"{OURS}/")}
    assert set(rows) == {"runs", "waits", "too-large", "ended"}
    assert (rows["ended"]["team"], rows["ended"]["chips"]) == ("ours", 8)
    assert FLAVOR in rows["ended"]["flavors"]
    assert rows["ended"]["lasts"] == pytest.approx(3 * HOUR, abs=60)
    assert rows["runs"]["lasts"] == pytest.approx(2 * HOUR, abs=60)
    trace, values = tmp_path / "trace.yaml", tmp_path / "queues.yaml"
    trace.write_text(yaml.safe_dump([{**row, "flavors": [FLAVOR]} for row in rows.values()]))
    values.write_text(VALUES)
    again = world.admin("simulate", "-f", str(values), "--trace", str(trace), "-o", "json")
    assert (again.code, again.err) == (0, "")
    assert len(again.json["before"]["runs"]) == 4
    hidden = world.admin("simulate", "-n", OURS, "--record", "30d", "--anonymous", "-o", "json")
    assert {row["name"] for row in hidden.json} == {f"run-{number}" for number in range(1, len(hidden.json) + 1)}
    assert "ours" not in {row.get("team") for row in hidden.json}
    assert OURS not in hidden.out.replace(FLAVOR, "")
    api.delete(WORKLOADS.format(OURS, "ended"))


def test_a_recorded_trace_has_deleted_runs_from_their_folders(world: World, buckets: Path) -> None:
    begin = time.time() - 5 * HOUR
    config = {
        **runs.config("deleted", steps=20),
        "run": {"name": "deleted", "kind": "job-set"},
        "team": {"name": "ours", "namespace": OURS},
        "queue": {"name": "multislice"},
        "slice": {"accelerator": "v5e", "topology": "2x4", "count": 2},
        "accelerator": {"name": "v5e", "kind": "tpu", "topology": "2x4", "chips": 8},
    }
    for name, changed in (("deleted", config), ("runs", {**config, "run": {**config["run"], "name": "runs"}})):
        at = begin if name == "deleted" else time.time()  # the Workload of the run "runs" is older
        events = [{"event": "phase", "time": runs.stamp(at), "phase": "ray"}, runs.loop(at + 1800, 0, 20)]
        runs.write(buckets / "team-runs" / name, events=events, config=changed)
    missing = str(buckets / "missing")
    done = world.admin("simulate", "-n", OURS, "--record", "30d", "--runs", "gs://team-runs", "--runs", missing)
    assert done.code == 0, done.err
    assert f"Note: The runs in {missing} are left out. {missing} cannot be read: No such file or directory." in done.err
    assert "Note: 1 runs whose Workload no longer exists are from their folders" in done.err
    rows = [row for row in yaml.safe_load(done.out) if row["name"].startswith(f"{OURS}/")]
    assert sorted(row["name"].split("/")[1] for row in rows) == ["deleted", "runs", "too-large", "waits"]
    (row,) = [row for row in rows if row["name"] == f"{OURS}/deleted/folder-1"]
    assert (row["team"], row["chips"], row["lasts"]) == ("ours", 16, 1800)
    assert FLAVOR in row["flavors"]


def values_of_mine(cli: LauncherCli) -> str:
    """Write the values of the run "mine", which needs the whole queue."""
    plain = {"team": {"name": "ours", "namespace": OURS, "serviceAccount": "ours"}, "storage": {"bucket": "b-runs"}}
    return cli.values("job-set", "mine", slice={"count": 2}, worker={"cpu": "", "memory": ""}, **plain)


def test_a_dry_run_has_the_expected_start(world: World) -> None:
    """A new run waits for the run that holds the queue's quota, and behind the run that waits there already."""
    file = values_of_mine(world.alice)
    dry = world.admin("submit", "-f", file, "--dry-run", "-n", OURS)
    assert dry.code == 0, dry.err
    (line,) = [each for each in dry.err.splitlines() if each.startswith("By a simulation")]
    # "runs" has an hour left at most, and "waits" needs the whole queue for 4 hours after it.
    assert re.fullmatch(
        r"By a simulation of the queue, it would start in about (5 h|4 h 5\d min) "
        r"\(1 h \d+ min to (9 h|8 h 5\d min)\), with the quota of waits\.",
        line,
    ), line


@pytest.fixture
def waiting_run(world: World) -> Iterator[str]:
    """Submit the run "mine", which waits behind another run. Return the name of its Workload."""
    done = world.admin("submit", "-f", values_of_mine(world.alice), "--detach", "-n", OURS)
    assert done.code == 0, done.err
    api = world.plane.api
    run = api.get(JOB_SETS.format(OURS) + "/mine")
    workload = queued_workload({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", **run}, "multislice")
    workload["metadata"]["labels"] = {"kueue.x-k8s.io/job-uid": run["metadata"]["uid"]}
    pods = {"spec": {"containers": [{"name": "c", "image": "x", "resources": {"requests": {"google.com/tpu": 16}}}]}}
    workload["spec"]["podSets"] = [{"name": "slice", "count": 1, "template": pods}]
    created = api.create(workload)
    name: str = created["metadata"]["name"]
    yield name
    api.delete(WORKLOADS.format(OURS, name))
    api.delete(JOB_SETS.format(OURS) + "/mine")


@pytest.mark.usefixtures("waiting_run")
def test_a_status_and_a_list_have_the_expected_start(world: World) -> None:
    data = world.admin("status", "mine", "-n", OURS, "-o", "json").json
    assert data["state"] == "queued"
    assert data["starts"]["seconds"] == pytest.approx(5 * HOUR, abs=120)
    text = world.admin("status", "mine", "-n", OURS).out
    assert re.search(r"^starts +in about (5 h|4 h 5\d min) ", text, re.MULTILINE), text
    for cli in (world.admin, world.alice):
        done = cli("list", "-n", OURS, "-o", "json")
        assert (done.code, done.err) == (0, "")
        run, *foreign = done.json  # the other Workloads of this namespace have no run
        assert (run["name"], {other["foreign"] for other in foreign}) == ("mine", {True})
        assert run["starts"]["seconds"] == pytest.approx(5 * HOUR, abs=120)
        assert run["starts"]["earliest"] < run["starts"]["seconds"] < run["starts"]["latest"]
        table = cli("list", "-n", OURS).out
        assert re.search(r"  STARTS\n.*  in about (4 h 5\d min|5 h)\n", table), table
    everywhere = world.admin("list", "-A", "-o", "json")
    assert {run.get("starts") for run in everywhere.json if run["namespace"] == OURS} == {None}


@pytest.mark.usefixtures("waiting_run")
def test_a_list_and_a_simulation_on_a_narrow_terminal(world: World, tmp_path: Path) -> None:
    here = Launcher(tmp_path, tmp_path)
    env = {**world.admin.env, "NO_COLOR": "1"}
    code, output = on_terminal(here, "list", "-n", OURS, columns=40, env=env)
    assert code == 0
    titles = [line.partition(":")[0] for line in output.partition("\r\n\r\n")[0].splitlines()]
    assert titles == ["NAME", "TEAM", "KIND", "SLICES", "STATE", "AGE", "QUEUE", "STARTS"]
    assert re.search(r"^STARTS: +in about (4 h 5\d min|5 h)\r$", output, re.MULTILINE), output
    code, output = on_terminal(here, "simulate", "-n", OURS, columns=40, env=env)
    assert code == 0
    assert max(map(len, output.splitlines())) <= 40
    assert "RUN:    too-large\r\nQUEUE:  " in output


@pytest.mark.usefixtures("waiting_run")
def test_a_list_for_a_user_who_may_not_read_the_queues(world: World, tmp_path: Path) -> None:
    api, meta = world.plane.api, {"name": f"lists-{SUFFIX}", "namespace": OURS}
    kinds = ("jobsets", "rayjobs", "rayclusters", "rayservices", "workloads", "pods")
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": meta,
        "rules": [{"apiGroups": ["*"], "resources": list(kinds), "verbs": ["list"]}],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": meta["name"]},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": meta["name"]}],
    }
    for obj in (role, binding):
        api.ensure(obj)
    user = LauncherCli(world.plane.kubeconfig_for(meta["name"], namespace=OURS), OURS, tmp_path)
    done = until(lambda: found if (found := user("list", "-n", OURS, "-o", "json")).code == 0 else None)
    assert (done.err, [run["name"] for run in done.json if not run.get("foreign")]) == ("", ["mine"])
    assert "starts" not in done.json[0]
    table = user("list", "-n", OURS)
    assert (table.code, table.err) == (0, "")
    assert "STARTS" not in table.out


@pytest.fixture
def proxied(world: World, tmp_path: Path) -> Iterator[tuple[Proxy, LauncherCli]]:
    """Return a proxy for the API server, and the launcher that uses it as an admin."""
    with Proxy(world.plane) as proxy:
        yield proxy, LauncherCli(proxy.kubeconfig(tmp_path, OURS), OURS, tmp_path)


def requested(proxy: Proxy, cli: LauncherCli, *arguments: str) -> Counter[str]:
    """Return the paths that the command requests, each with its number."""
    proxy.requests.clear()
    done = cli(*arguments)
    assert (done.code, done.err.removesuffix("No run has this state and age.\n")) == (0, "")
    return Counter(request.partition("?")[0].removeprefix("GET ") for request in proxy.requests)


def test_a_list_without_a_waiting_run_makes_no_other_request(
    world: World, waiting_run: str, proxied: tuple[Proxy, LauncherCli]
) -> None:
    waits = requested(*proxied, "list", "-n", OURS, "-o", "json")
    assert waits["/apis/kueue.x-k8s.io/v1beta2/cohorts"] == waits["/apis/kueue.x-k8s.io/v1beta2/resourceflavors"] == 1
    assert waits["/apis/jobset.x-k8s.io/v1alpha2/jobsets"] == 1
    ended = requested(*proxied, "list", "-n", OURS, "-o", "json", "--state", "succeeded")
    assert not [path for path in ended if "cohorts" in path or "resourceflavors" in path]
    # If the run has ended, its objects are read, and the pods that can use chips without quota.
    api = world.plane.api
    api.merge(JOB_SETS.format(OURS) + "/mine/status", {"status": {"conditions": [COMPLETED]}})
    finished = {**COMPLETED, "type": "Finished", "reason": "Succeeded"}
    api.merge(f"{WORKLOADS.format(OURS, waiting_run)}/status", {"status": {"conditions": [finished]}})
    kinds = (JOB_SETS, RAY_JOBS, RAY_JOBS.replace("rayjobs", "rayclusters"), WORKLOADS.removesuffix("/{}"))
    paths = [kind.format(OURS) for kind in kinds] + [f"/api/v1/namespaces/{OURS}/pods"]
    assert requested(*proxied, "list", "-n", OURS, "-o", "json") == dict.fromkeys(paths, 1)


def test_the_log_of_a_run_that_has_ended_is_not_read(
    world: World, waiting_run: str, proxied: tuple[Proxy, LauncherCli]
) -> None:
    """Its Workload keeps the condition QuotaReserved."""
    reserved = {**COMPLETED, "type": "QuotaReserved", "reason": "QuotaReserved"}
    finished = {**COMPLETED, "type": "Finished", "reason": "Succeeded"}
    path = f"{WORKLOADS.format(OURS, waiting_run)}/status"
    pods = f"/api/v1/namespaces/{OURS}/pods"
    world.plane.api.merge(path, {"status": {"conditions": [reserved]}})
    assert requested(*proxied, "simulate", "-n", OURS)[pods] == 1
    world.plane.api.merge(path, {"status": {"conditions": [reserved, finished]}})
    assert requested(*proxied, "simulate", "-n", OURS)[pods] == 0


@pytest.mark.usefixtures("waiting_run")
def test_a_list_whose_simulation_is_too_slow(
    proxied: tuple[Proxy, LauncherCli], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, cli = proxied
    release = threading.Event()

    def answers(_method: str, path: str) -> None:
        if path.endswith("/cohorts"):
            release.wait(60)

    proxy.answers = answers
    monkeypatch.setattr(list_command, "_MOST_SECONDS", 1.0)
    started = time.monotonic()
    done = cli("list", "-n", OURS, "-o", "json")
    seconds = time.monotonic() - started
    release.set()
    assert seconds < 10
    assert (done.code, [run["name"] for run in done.json if not run.get("foreign")]) == (0, ["mine"])
    assert "starts" not in done.json[0]
    assert done.err == (
        "The list does not show when the waiting runs start, because reading the queues and simulating them takes "
        f"longer than 1 s. To simulate it: launcher simulate -n {OURS}\n"
    )
    # The table is printed, too.
    release.clear()
    table = cli("list", "-n", OURS)
    release.set()
    assert (table.code, table.err) == (0, done.err)
    assert table.out.startswith("NAME ")
    assert "STARTS" not in table.out


@pytest.mark.usefixtures("waiting_run")
def test_a_list_of_a_cluster_with_too_many_workloads(
    proxied: tuple[Proxy, LauncherCli], monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy, cli = proxied
    monkeypatch.setattr(expected_start, "MOST_WORKLOADS", 3)
    done = cli("list", "-n", OURS, "-o", "json")
    assert (done.code, [run["name"] for run in done.json if not run.get("foreign")]) == (0, ["mine"])
    assert done.err == (
        "The list does not show when the waiting runs start, because the cluster has more than 3 Workloads. "
        f"To simulate it: launcher simulate -n {OURS}\n"
    )
    assert not any(request.startswith("GET /apis/jobset.x-k8s.io/v1alpha2/jobsets?") for request in proxy.requests)


def test_what_the_queues_have_and_use(world: World) -> None:
    """A member sees the queue of the namespace. Only an admin sees those of all."""
    [queue] = world.alice("queues", "-n", OURS, "-o", "json").json["cluster_queues"]
    assert (queue["name"], queue["cohort"], queue["pending"]) == (OURS, f"simulate-{SUFFIX}", 2)
    amounts = {"nominal": 16, "used": 16, "borrowed": 0, "lent": 0, "free": 0}
    assert [each for each in queue["quotas"] if each["resource"] == "google.com/tpu"] == [
        {"flavor": FLAVOR, "resource": "google.com/tpu", **amounts}
    ]
    text = world.alice("queues", "-n", OURS).out.splitlines()
    assert text[0].split() == [
        *("QUEUE", "COHORT", "FLAVOR", "RESOURCE", "QUOTA", "USED", "BORROWED", "LENT", "FREE", "RUNS", "WAITING"),
    ]
    assert text[1].split() == [OURS, f"simulate-{SUFFIX}", FLAVOR, "chips", "16", "16", "0", "0", "0", "0", "2"]
    assert text[3].split() == ["NAMESPACE", "LOCAL", "QUEUE", "QUEUE", "USED", "RUNS", "WAITING"]
    assert text[4].split() == [OURS, "multislice", OURS, "nothing", "0", "0"]
    found = {each["name"] for each in world.admin("queues", "-A", "-o", "json").json["cluster_queues"]}
    assert found >= {OURS, THEIRS}
    refused = world.alice("queues", "-A")
    assert (refused.code, refused.out) == (1, "")
    assert "localqueues" in refused.err and "Forbidden" not in refused.err
    both = world.admin("queues", "-A", "-n", OURS)
    assert (both.code, both.err.splitlines()[-1]) == (
        2,
        "Error: --all-namespaces cannot be used with --namespace.",
    )
