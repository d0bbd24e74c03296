"""make bench, the cluster's part: compares the launcher with xpk, kubectl and helm, on the control plane of
tests/cluster.

The rows are like those of tests/bench.py. If a row compares with a limit instead of a command, its name contains the
limit. All rows take six minutes on an idle machine. `python -m tests.bench cluster status list` measures only these
two parts. Each row is printed as soon as it is measured, so its result remains if you stop the command.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pexpect
import psutil

from tests.cluster.control_plane import ControlPlane
from tests.cluster.run_policy import installed, many_teams, seconds_added
from tests.tools.go_tools import tool

CHECKOUT = Path(__file__).parents[1]
LAUNCHER = str(CHECKOUT / ".venv/bin/launcher")
RUN = CHECKOUT / "charts/run/ci/job-set-values.yaml"
TEAMS = ("research", "search", "ads")
RUNS, CHIPS = 1000, 10_000
# Of 16 slices of v5e 16x16.
HOSTS = 1024
VERBS = ("status", "explain")
# The limits in seconds and GB of a command that reads a thousand objects.
SECONDS, MEMORY = 1.0, 0.2
POLICY_SECONDS = 0.02
# The limits of a command that updates itself, and how long it starts and is watched, in seconds.
LIVE_SHARE, LIVE_MEMORY, LIVE_START, LIVE_SECONDS = 0.05, 0.15, 30.0, 120.0
SWEPT, INSTALLS = 100, 10
Row = tuple[str, list[float], list[float], float]
Alternate = Callable[..., tuple[list[float], list[float]]]
Timed = Callable[[Sequence[str]], float]


# The parts that can be selected by name. "list" includes explain, with the same number of runs.
PARTS = ("render", "status", "sweep", "policy", "list", "board", "large")


def rows(
    xpk: Callable[[], Path],
    alternate: Alternate,
    timed: Timed,
    cpu_time: Timed,
    say: Callable[[str], None],
    parts: Sequence[str] = PARTS,
) -> Iterator[Row]:
    """Yield the rows of the cluster's part as they are measured. `xpk` returns the environment with xpk."""
    say("Starting a control plane...")
    with ControlPlane.start(with_crds=True) as plane, environment(plane):
        for team in TEAMS:
            plane.add_namespace(team)
        if "render" in parts:
            yield _render(xpk(), alternate, cpu_time)
        if "status" in parts:
            yield _status(plane, alternate, timed)
        if "sweep" in parts:
            say(f"Measuring a sweep of {SWEPT} runs, and {INSTALLS} helm installs...")
            yield _sweep(timed)
        if "policy" in parts:
            yield from _policy(plane)
        if {"list", "board"} & {*parts}:
            say(f"Making {RUNS} runs on {CHIPS} simulated chips...")
            fill(plane)
        if "list" in parts:
            yield from _thousand()
        if "board" in parts:
            say("Watching the board and top...")
            yield from _live("board", ["board", "-A", "-o", "json"])
            yield from _live("top", ["top", "-A"])
        if "large" in parts:
            say(f"Making a run on {HOSTS} simulated hosts...")
            _large(plane)
            yield from _limited(
                {f"{verb} of a run on {HOSTS} hosts": [verb, "large", "-n", "research"] for verb in VERBS}
            )


@contextmanager
def environment(plane: ControlPlane) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(KUBECONFIG=str(plane.admin), SLIPWAY_HELM=str(tool("helm")))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _run_options(team: str) -> list[str]:
    return ["-f", str(RUN), "--set", f"team.name={team}", "--set", "team.serviceAccount=default"]


def _render(xpk: Path, alternate: Alternate, cpu_time: Timed) -> Row:
    other = [str(xpk / "bin/xpk"), "workload", "create", "--cluster", "c", "--project", "p", "--zone", "us-east5-b"]
    other += ["--workload", "w1", "--tpu-type", "v6e-16", "--num-slices", "1", "--docker-image", "example.invalid/x:1"]
    other += ["--dry-run", "--command", "python train.py"]
    ours = [LAUNCHER, "render", *_run_options("research"), "--name", "w1"]
    times = alternate(lambda: cpu_time(ours), lambda: cpu_time(other), rounds=6)
    return "launcher render / xpk workload create --dry-run, CPU", times[0][1:], times[1][1:], 0.25


def _status(plane: ControlPlane, alternate: Alternate, timed: Timed) -> Row:
    """The goal is 1.5 x kubectl plus the import of the client. That sum is the other side of the ratio, whose goal is
    1."""
    subprocess.run(
        [LAUNCHER, "submit", *_run_options("research"), "--name", "status", "--detach", "--force"],
        check=True,
        capture_output=True,
    )
    imports = [sys.executable, "-c", "from launcher.k8s.client import connect; connect()"]
    bare = [sys.executable, "-c", "pass"]
    client, nothing = alternate(lambda: timed(imports), lambda: timed(bare), rounds=6)
    importing = statistics.median(client[1:]) - statistics.median(nothing[1:])
    kubectl = [str(tool("kubectl")), "get", "jobsets,workloads,pods", "-n", "research", "-o", "json"]
    ours, other = alternate(
        lambda: timed([LAUNCHER, "status", "status", "-n", "research"]), lambda: timed(kubectl), rounds=8
    )
    return (
        f"launcher status / kubectl get + {importing:.2f} s of import",
        ours[1:],
        [1.5 * seconds + importing for seconds in other[1:]],
        1.0,
    )


def _sweep(timed: Timed) -> Row:
    """A sweep, and Helm. The API server is slow at its first requests, so each is first run once without a clock."""

    def swept(name: str, runs: int) -> float:
        values = ",".join(f"{number}e-5" for number in range(1, runs + 1))
        sweep = [LAUNCHER, "submit", *_run_options("research"), "--name", name, "--detach", "--force"]
        return timed([*sweep, "--sweep", f"train.learning_rate={values}"])

    def installed(number: int) -> None:
        timed(
            [
                os.environ["SLIPWAY_HELM"],
                *("install", f"h-{number}", str(CHECKOUT / "charts/run"), "-n", "research"),
                *("--set", f"train.learning_rate={number + 1}e-5", *_run_options("research")),
                *("--set", f"run.name=h-{number}"),
            ]
        )

    swept("first", 2)
    installed(INSTALLS)
    ours = swept("sw", SWEPT)
    started = time.perf_counter()
    for number in range(INSTALLS):
        installed(number)
    installs = (time.perf_counter() - started) * SWEPT / INSTALLS
    return f"a sweep of {SWEPT} runs / {SWEPT} x helm install (of {INSTALLS})", [ours], [installs], 0.15


def _policy(plane: ControlPlane) -> Iterator[Row]:
    """Measure what the admission policy of charts/queues for 200 teams adds to a create."""
    with tempfile.TemporaryDirectory() as folder, installed(plane, Path(folder), {"teams": many_teams()}) as found:
        seconds_added(found)  # the API server is slow at its first requests
        added = [seconds_added(found) for _ in range(5)]
    yield f"what policies of 200 teams add to a create (limit: {POLICY_SECONDS:g} s)", added, [POLICY_SECONDS], 1.0


def _thousand() -> Iterator[Row]:
    last = f"{TEAMS[0]}-{max(range(0, RUNS, len(TEAMS)))}"
    commands = {
        f"list of {RUNS} runs": ["list", "-A"],
        f"explain among {RUNS} runs": ["explain", last, "-n", TEAMS[0]],
    }
    yield from _limited(commands)


def _live(what: str, arguments: Sequence[str]) -> Iterator[Row]:
    """Measure the share of a core and the memory of a command that updates itself, in a terminal."""
    shell = pexpect.spawn(LAUNCHER, list(arguments), dimensions=(50, 200), encoding="utf-8", timeout=120)
    process = psutil.Process(shell.pid)
    begin = (0.0, 0.0)
    url, headers = "", {}
    if what == "board":
        shell.expect(r"\{.*\}")
        url, _, token = str(json.loads(str(shell.after))["url"]).partition("?token=")
        headers = {"Authorization": f"Bearer {token}"}
    for end in (LIVE_START, LIVE_SECONDS):
        begin = sum(process.cpu_times()[:2]), time.monotonic()
        while time.monotonic() < begin[1] + end:
            if url:  # as the page does, but more often
                state = httpx.get(f"{url}state.json", headers=headers, timeout=60).raise_for_status().json()
                if len(state["runs"]) < RUNS:
                    raise SystemExit(f"The board shows {len(state['runs'])} runs: {state['notes']}")
            shell.expect([pexpect.TIMEOUT, pexpect.EOF], timeout=5)
    share = (sum(process.cpu_times()[:2]) - begin[0]) / (time.monotonic() - begin[1])
    memory = process.memory_info().rss / 1e9
    shell.close(force=True)
    yield f"{what} of {RUNS} runs: share of a core (limit: {LIVE_SHARE:g})", [share], [LIVE_SHARE], 1.0
    yield f"  its memory in GB (limit: {LIVE_MEMORY:g})", [memory], [LIVE_MEMORY], 1.0


def _limited(commands: Mapping[str, Sequence[str]]) -> Iterator[Row]:
    for what, arguments in commands.items():
        usage = [_measured([LAUNCHER, *arguments]) for _ in range(5)][1:]
        yield f"{what} (limit: {SECONDS:g} s)", [seconds for seconds, _ in usage], [SECONDS], 1.0
        yield f"  its memory in GB (limit: {MEMORY:g})", [memory for _, memory in usage], [MEMORY], 1.0


# Runs a command, with its stdout on stderr, and prints its seconds, peak memory in KiB and exit code. Linux counts the
# memory of the process that starts a command as the command's own. This process is small; the benchmark is not.
_MEASURE = """
import os, sys, time
started = time.perf_counter()
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)])
_, status, usage = os.wait4(pid, 0)
print(time.perf_counter() - started, usage.ru_maxrss, os.waitstatus_to_exitcode(status))
"""


def _measured(command: Sequence[str]) -> tuple[float, float]:
    """Run a command. Returns its seconds and its peak memory in GB."""
    done = subprocess.run([sys.executable, "-c", _MEASURE, *command], capture_output=True, text=True, check=True)
    seconds, kibibytes, code = done.stdout.split()
    if int(code):
        raise SystemExit(done.stderr)
    return float(seconds), int(kibibytes) * 1024 / 1e9


def fill(plane: ControlPlane) -> None:
    """Create 1,000 runs of three teams with 16 chips each, on the nodes of 625 slices. As many as fit are admitted.

    Their Workloads are like those of Kueue 0.19 (the recording quota-in-use-by-others), because Kueue itself is
    not available here.
    """
    from launcher import api
    from launcher.backends.kubernetes.run_object import RunObject
    from launcher.helm.client import run_objects

    plane.add_nodes("v6e", "tpu-v6e-slice", "4x4", hosts=CHIPS // 4, chips=4)
    plane.create_all(list(_queues()))
    plans = {
        team: api.plan(
            [str(RUN)],
            [f"team.name={team}", "team.serviceAccount=default", "slice.topology=4x4", "slice.accelerator=v6e"],
            name=f"{team}-number",
        )
        for team in TEAMS
    }
    # Rendered once for each team, because the runs of a team differ only in their names.
    texts = dict(zip(plans, map(json.dumps, run_objects(list(plans.values()))), strict=True))
    teams = [TEAMS[number % len(TEAMS)] for number in range(RUNS)]
    objects = [json.loads(texts[team].replace(f"{team}-number", f"{team}-{at}")) for at, team in enumerate(teams)]
    made = plane.create_all(objects)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda pair: _workload(plane, *pair), enumerate(made)))
    assert all(RunObject.parse(obj).is_run for obj in made)


def _large(plane: ControlPlane) -> None:
    """Create a run of 1,024 hosts that starts: half of its pods are ready, the others wait for their containers."""
    from launcher import api
    from launcher.helm.client import run_object

    nodes = plane.add_nodes("v5e", "tpu-v5-lite-podslice", "16x16", hosts=HOSTS, chips=4)
    sets = ["slice.accelerator=v5e", "slice.topology=16x16", "slice.count=16"]
    plan = api.plan([str(RUN)], ["team.name=research", "team.serviceAccount=default", *sets], name="large")
    run = plane.api.create({**run_object(plan), "metadata": {**run_object(plan)["metadata"], "namespace": "research"}})
    _workload(plane, 0, run, ready=False)
    job = run["spec"]["replicatedJobs"][0]["template"]["spec"]
    template = job["template"]
    pods = []
    for number, node in enumerate(nodes):
        slice_, host = divmod(number, HOSTS // 16)
        labels = {"jobset.sigs.k8s.io/job-index": str(slice_), "batch.kubernetes.io/job-completion-index": str(host)}
        meta = {
            "name": f"large-{slice_}-{host}",
            "namespace": "research",
            "labels": {**template["metadata"]["labels"], **labels},
            "annotations": {**template["metadata"]["annotations"]}
            | ({"simulated/pending": "true"} if number % 2 else {}),
        }
        spec = {**template["spec"], "nodeName": node}
        pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    plane.create_all(pods)
    deadline = time.monotonic() + 300
    path = "/api/v1/namespaces/research/pods?labelSelector=slipway.dev/run%3Dlarge&fieldSelector=status.phase%3DRunning"
    while len(plane.api.items(path)) < HOSTS // 2:
        assert time.monotonic() < deadline, "the pods do not become ready"
        time.sleep(1)


def _queues() -> Iterator[dict[str, Any]]:
    kueue = "kueue.x-k8s.io/v1beta2"
    labels = {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "4x4",
    }
    yield {
        "apiVersion": kueue,
        "kind": "ResourceFlavor",
        "metadata": {"name": "v6e-4x4"},
        "spec": {"nodeLabels": labels},
    }
    for team in TEAMS:
        quota = {"name": "google.com/tpu", "nominalQuota": CHIPS // len(TEAMS)}
        spec = {
            "cohortName": "all",
            "namespaceSelector": {},
            "resourceGroups": [
                {"coveredResources": ["google.com/tpu"], "flavors": [{"name": "v6e-4x4", "resources": [quota]}]}
            ],
        }
        yield {"apiVersion": kueue, "kind": "ClusterQueue", "metadata": {"name": team}, "spec": spec}
        yield {
            "apiVersion": kueue,
            "kind": "LocalQueue",
            "metadata": {"name": team, "namespace": team},
            "spec": {"clusterQueue": team},
        }


def _workload(plane: ControlPlane, number: int, obj: dict[str, Any], *, ready: bool = True) -> None:
    meta = obj["metadata"]
    job = obj["spec"]["replicatedJobs"][0]
    pods = int(job["template"]["spec"]["parallelism"]) * int(job.get("replicas") or 1)
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": f"jobset-{meta['name']}",
            "namespace": meta["namespace"],
            "labels": {"kueue.x-k8s.io/job-uid": meta["uid"]},
            "ownerReferences": [
                {
                    "apiVersion": obj["apiVersion"],
                    "kind": obj["kind"],
                    "name": meta["name"],
                    "uid": meta["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": {
            "active": True,
            "queueName": meta["namespace"],
            "priority": 0,
            "podSets": [{"name": "slice", "count": pods, "template": job["template"]["spec"]["template"]}],
        },
    }
    made = plane.api.create(workload)
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

    def condition(kind: str, status: str, reason: str, message: str) -> dict[str, str]:
        return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}

    fits = number < CHIPS // 16
    if fits:
        usage = {"google.com/tpu": str(4 * pods)}
        assigned = {
            "name": "slice",
            "count": pods,
            "flavors": {"google.com/tpu": "v6e-4x4"},
            "resourceUsage": usage,
        }
        state: dict[str, Any] = {
            "admission": {"clusterQueue": meta["namespace"], "podSetAssignments": [assigned]},
            "conditions": [
                condition("QuotaReserved", "True", "QuotaReserved", f"Quota reserved in {meta['namespace']}"),
                condition("Admitted", "True", "Admitted", "The workload is admitted"),
                condition("PodsReady", "True", "Started", "All pods reached readiness and the workload is running")
                if ready
                else condition("PodsReady", "False", "WaitForStart", "Not all pods are ready or succeeded"),
            ],
        }
    else:
        message = (
            "couldn't assign flavors to pod set slice: insufficient unused quota for google.com/tpu in flavor "
            f"v6e-4x4, {4 * pods} more needed"
        )
        state = {"conditions": [condition("QuotaReserved", "False", "Pending", message)]}
    path = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{meta['namespace']}/workloads/{made['metadata']['name']}/status"
    plane.api.request("PUT", path, {**made, "status": state})
