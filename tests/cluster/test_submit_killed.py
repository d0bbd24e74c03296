"""The launcher is killed at each of its requests. The next command finds one complete run, or none, and no orphans.

At a read, it is killed once. At a request that changes something, it is killed twice: before the API server receives
the request, and after the server has processed it but before the launcher receives the answer.
"""

from __future__ import annotations

import copy
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from launcher import api as launcher_api
from launcher.backends.base import State
from launcher.backends.kubernetes.submitter import KubernetesSubmitter
from launcher.config.plan import LaunchPlan
from launcher.diagnose import preflight
from launcher.k8s.client import connect
from tests.cluster.api import Api, Object, path_of
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_controllers import controllers
from tests.cluster.launching import JOB_SETS, ROOT, LauncherCli, add_team, fast_polling, remove_cluster_queue
from tests.cluster.proxy import Proxy

# A launcher that has already read its values, rendered them with Helm and listed the used names. It forks for each line
# on stdin, because a start of Python for each of them would take most of the time.
WARM = """
import os, sys
from launcher import api
from launcher.k8s.client import connect
from launcher.backends.kubernetes.submitter import KubernetesSubmitter
from launcher.diagnose import preflight
plan = api.plan([sys.argv[1]])
backend = KubernetesSubmitter(connect(), poll_seconds=0.05, preflight=preflight.problems)
backend.prepare([plan])
print("ready", flush=True)
for verb in sys.stdin:
    child = os.fork()
    if child == 0:
        if verb == "submit\\n":
            backend.submit(plan, accept_changes=False)
        else:
            backend.cancel(plan.name)
        os._exit(0)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class KillableLauncher:
    """A launcher whose requests go through a proxy, which can kill it at each of them."""

    def __init__(self, proxy: Proxy, cli: LauncherCli, file: str) -> None:
        self.proxy = proxy
        self._pids: queue.Queue[int] = queue.Queue()
        self._process = subprocess.Popen(
            [sys.executable, "-c", WARM, file],
            env={**os.environ, **cli.env, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"  # its requests until then are not counted

    def __call__(self, verb: str, request: int = 0, *, answered: bool = False) -> int:
        """Run `verb`, and kill it at that request, or not at all if it is 0. Returns the exit code (killed: -9)."""
        self.proxy.stop_at(request, answered=answered, stop=lambda: os.kill(self._pids.get(), signal.SIGKILL))
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(verb, file=self._process.stdin, flush=True)
        self._pids.put(int(self._process.stdout.readline()))
        code = int(self._process.stdout.readline())
        while not self._pids.empty():
            self._pids.get()
        return code

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


class Scenario:
    """A namespace with at most one run, `demo`; a launcher that is killed, and one (`backend`) that is not."""

    def __init__(self, plane: ControlPlane, proxy: Proxy, cli: LauncherCli, folder: Path) -> None:
        self.admin: Api = plane.api
        self.cli = cli
        file = cli.values("job-set")
        self.plan: LaunchPlan = launcher_api.plan([file])
        cluster = connect(namespace=cli.namespace)
        self.backend = KubernetesSubmitter(cluster, poll_seconds=0.05, preflight=preflight.problems)
        self.backend.prepare([self.plan])
        proxied = LauncherCli(proxy.kubeconfig(folder, cli.namespace), cli.namespace, cli.folder)
        self._proxy, self._proxied, self._file = proxy, proxied, file
        self.path = f"{JOB_SETS.format(cli.namespace)}/demo"
        self.workloads = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{cli.namespace}/workloads"

    @cached_property
    def launcher(self) -> KillableLauncher:
        """The launcher that is killed. It starts, and lists the used names, when a test first needs it."""
        return KillableLauncher(self._proxy, self._proxied, self._file)

    def submit(self) -> bool:
        return self.backend.submit(self.plan, accept_changes=False).created

    def clear(self) -> None:
        self.admin.delete(f"{self.workloads}/demo")
        for run in self.cli.runs(self.admin):
            self.admin.delete(path_of(run))
        assert self.cli.runs(self.admin) == []

    def failed_run(self) -> None:
        """Create a failed run."""
        self.clear()
        self.submit()
        failed = {"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "It failed."}
        failed["lastTransitionTime"] = "2026-01-02T03:04:05Z"
        self.admin.merge(f"{self.path}/status", {"status": {"conditions": [failed]}})

    def admitted_run(self) -> None:
        """Create a run that Kueue has admitted, without pods."""
        self.clear()
        self.submit()
        run = self.admin.get(self.path)
        uid = run["metadata"]["uid"]
        owner = {"apiVersion": run["apiVersion"], "kind": "JobSet", "name": "demo", "uid": uid}
        pods = {"spec": {"containers": [{"name": "trainer", "image": "example.invalid/trainer:1"}]}}
        workload = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {
                "name": "demo",
                "namespace": self.cli.namespace,
                "labels": {"kueue.x-k8s.io/job-uid": uid},
                "ownerReferences": [owner],
            },
            "spec": {"queueName": "multislice", "podSets": [{"name": "slice", "count": 2, "template": pods}]},
        }
        self.admin.create(workload)
        now = "2026-01-02T03:04:05Z"
        conditions = [
            {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": now}
            for kind in ("QuotaReserved", "Admitted")
        ]
        assigned = {"name": "slice", "count": 2, "flavors": {"google.com/tpu": "v5e-2x4"}}
        admission = {"clusterQueue": self.cli.namespace, "podSetAssignments": [assigned]}
        self.admin.merge(
            f"{self.workloads}/demo/status", {"status": {"conditions": conditions, "admission": admission}}
        )

    def check_run(self, reference: Object) -> Object:
        """Check that there is one run, with the spec and labels of `reference`, and return it."""
        (run,) = self.cli.runs(self.admin)
        attempt = run["metadata"].get("annotations", {}).get("slipway.dev/attempt")
        expected = copy.deepcopy(reference["spec"])
        if attempt:  # the pods keep their output under the number of the attempt
            (job,) = expected["replicatedJobs"]
            job["template"]["spec"]["template"]["metadata"]["annotations"]["slipway.dev/attempt"] = attempt
        assert run["spec"] == expected
        assert run["metadata"]["labels"] == reference["metadata"]["labels"]
        return run


@pytest.fixture
def scenario(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scenario]:
    add_team(control_plane, namespace)
    cli = LauncherCli(control_plane.admin, namespace, tmp_path / "cli")
    cli.use_environment(monkeypatch)
    with Proxy(control_plane) as proxy, fast_polling():
        made = Scenario(control_plane, proxy, cli, tmp_path)
        yield made
        made.launcher.close()
    remove_cluster_queue(control_plane.api, namespace)


def kill_points(requests: list[str]) -> list[tuple[int, bool]]:
    """The requests at which to kill: the number, and whether the server has processed it.

    After the last request that changes something, the launcher only polls, so one of those reads is enough.
    """
    found: list[tuple[int, bool]] = []
    last = 0
    for number, request in enumerate(requests, 1):
        found.append((number, False))
        if not request.startswith("GET ") and "dryRun" not in request:
            found.append((number, True))
            last = len(found)
    return found[: last + 1]


def every_step(scenario: Scenario, verb: str, before: Callable[[], Any]) -> Iterator[tuple[str, bool]]:
    """Kill the launcher at each of its requests, each time after `before`.

    Yields the request, and whether the server has processed it.
    """
    before()
    assert scenario.launcher(verb) == 0
    for number, answered in kill_points(list(scenario.launcher.proxy.requests)):
        before()
        assert scenario.launcher(verb, number, answered=answered) == -signal.SIGKILL, number
        yield scenario.launcher.proxy.requests[number - 1], answered


def test_a_new_run(scenario: Scenario) -> None:
    scenario.submit()
    (reference,) = scenario.cli.runs(scenario.admin)
    seen = 0
    for request, answered in every_step(scenario, "submit", scenario.clear):
        made = request.startswith("POST ") and answered
        assert scenario.submit() is not made
        run = scenario.check_run(reference)
        assert "slipway.dev/attempt" not in run["metadata"].get("annotations", {})
        seen += made
    assert seen == 1


def test_the_next_attempt_of_a_run_that_failed(scenario: Scenario) -> None:
    scenario.submit()
    (reference,) = scenario.cli.runs(scenario.admin)
    gone = 0
    for request, answered in every_step(scenario, "submit", scenario.failed_run):
        made = request.startswith("POST ") and "dryRun" not in request and answered
        left = scenario.admin.find(scenario.path)
        assert scenario.submit() is not made, request
        run = scenario.check_run(reference)
        # Between the delete and the create, the run and its attempt number do not exist, but its checkpoints do.
        attempt = run["metadata"].get("annotations", {}).get("slipway.dev/attempt", "1")
        assert attempt == ("2" if left else "1"), request
        gone += left is None
    assert gone > 1


def test_a_run_that_is_cancelled(scenario: Scenario, control_plane: ControlPlane) -> None:
    with controllers(control_plane, scenario.cli.namespace, every=0.02):
        killed = 0
        for _ in every_step(scenario, "cancel", scenario.admitted_run):
            assert scenario.backend.cancel("demo").state is State.CANCELLED
            workload = scenario.admin.get(f"{scenario.workloads}/demo")
            assert workload["spec"]["active"] is False
            assert "admission" not in workload["status"]
            killed += 1
        assert killed > 6  # four reads, and two changes, each before and after
