"""The launcher killed at every request that it makes: what comes next finds one whole run, or none, and no orphan.

Reads are as good as each other, so it is killed at each of them once; at whatever changes something it is killed
before the API server has heard of it, and after the server has done it and before the launcher knows.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher import api as launcher_api
from launcher.backends.base import State
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.config.plan import LaunchPlan
from launcher.diagnose import preflight
from launcher.k8s.client import connect
from tests.cluster.api import Api, Object, path_of
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_controllers import controllers
from tests.cluster.launching import JOB_SETS, ROOT, LauncherCli, add_team, fast_polling
from tests.cluster.proxy import Proxy

# A launcher that has read its values and let Helm render them, and forks for each line that it is sent: starting
# Python for each would take most of the time.
WARM = """
import os, sys
from launcher import api
from launcher.k8s.client import connect
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.diagnose import preflight
plan = api.plan([sys.argv[1]])
backend = KubernetesBackend(connect(), poll_seconds=0.05, preflight=preflight.problems)
backend.prepare([plan])
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


class Victim:
    """A launcher whose requests go through a proxy, and which can be killed at each of them."""

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

    def __call__(self, verb: str, request: int = 0, *, answered: bool = False) -> int:
        """Do it, killed at that request unless it is 0; the exit code, -9 when it was killed."""
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


class Scene:
    """A namespace with one run at most, `demo`; a launcher that is killed, and one (`backend`) that is not."""

    def __init__(self, plane: ControlPlane, proxy: Proxy, cli: LauncherCli, folder: Path) -> None:
        self.admin: Api = plane.api
        self.cli = cli
        file = cli.values("job-set")
        self.plan: LaunchPlan = launcher_api.plan([file])
        cluster = connect(namespace=cli.namespace)
        self.backend = KubernetesBackend(cluster, poll_seconds=0.05, preflight=preflight.problems)
        self.backend.prepare([self.plan])
        proxied = LauncherCli(proxy.kubeconfig(folder, cli.namespace), cli.namespace, cli.folder)
        self.victim = Victim(proxy, proxied, file)
        self.path = f"{JOB_SETS.format(cli.namespace)}/demo"
        self.workloads = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{cli.namespace}/workloads"

    def submit(self) -> bool:
        return self.backend.submit(self.plan, accept_changes=False).created

    def clear(self) -> None:
        self.admin.delete(f"{self.workloads}/demo")
        for run in self.cli.runs(self.admin):
            self.admin.delete(path_of(run))
        assert self.cli.runs(self.admin) == []

    def failed_run(self) -> None:
        """One that has failed."""
        self.clear()
        self.submit()
        failed = {"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "It failed."}
        failed["lastTransitionTime"] = "2026-01-02T03:04:05Z"
        self.admin.merge(f"{self.path}/status", {"status": {"conditions": [failed]}})

    def admitted_run(self) -> None:
        """One that Kueue has admitted, and whose pods are to come."""
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
        admission = {"clusterQueue": "launching", "podSetAssignments": [assigned]}
        self.admin.merge(
            f"{self.workloads}/demo/status", {"status": {"conditions": conditions, "admission": admission}}
        )

    def whole(self, reference: Object) -> Object:
        """The one run that there is, which is like `reference`."""
        (run,) = self.cli.runs(self.admin)
        assert run["spec"] == reference["spec"]
        assert run["metadata"]["labels"] == reference["metadata"]["labels"]
        return run


@pytest.fixture
def scene(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    add_team(control_plane, namespace)
    cli = LauncherCli(control_plane.admin, namespace, tmp_path / "cli")
    cli.use_environment(monkeypatch)
    with Proxy(control_plane) as proxy, fast_polling():
        made = Scene(control_plane, proxy, cli, tmp_path)
        yield made
        made.victim.close()


def steps(requests: list[str]) -> list[tuple[int, bool]]:
    """Where to kill: the number of each request up to the last that changes something, and whether it was answered.

    After that one there are the looks of somebody who waits, of which one is enough.
    """
    found: list[tuple[int, bool]] = []
    last = 0
    for number, request in enumerate(requests, 1):
        found.append((number, False))
        if not request.startswith("GET ") and "dryRun" not in request:
            found.append((number, True))
            last = len(found)
    return found[: last + 1]


def every_step(scene: Scene, verb: str, before: Callable[[], Any]) -> Iterator[tuple[str, bool]]:
    """Kill the launcher at each of its requests, on what `before` made; the request, and whether it was answered."""
    before()
    assert scene.victim(verb) == 0
    for number, answered in steps(list(scene.victim.proxy.requests)):
        before()
        assert scene.victim(verb, number, answered=answered) == -signal.SIGKILL, number
        yield scene.victim.proxy.requests[number - 1], answered


def test_a_new_run(scene: Scene) -> None:
    scene.submit()
    (reference,) = scene.cli.runs(scene.admin)
    seen = 0
    for request, answered in every_step(scene, "submit", scene.clear):
        made = request.startswith("POST ") and answered
        assert scene.submit() is not made
        run = scene.whole(reference)
        assert "slipway.dev/attempt" not in run["metadata"].get("annotations", {})
        seen += made
    assert seen == 1


def test_the_next_attempt_of_a_run_that_failed(scene: Scene) -> None:
    scene.submit()
    (reference,) = scene.cli.runs(scene.admin)
    gone = 0
    for request, answered in every_step(scene, "submit", scene.failed_run):
        made = request.startswith("POST ") and "dryRun" not in request and answered
        left = scene.admin.find(scene.path)
        assert scene.submit() is not made, request
        run = scene.whole(reference)
        # Between the two the run is not there, and with it the number of its attempts; its checkpoints are.
        attempt = run["metadata"].get("annotations", {}).get("slipway.dev/attempt", "1")
        assert attempt == ("2" if left else "1"), request
        gone += left is None
    assert gone > 1


def test_a_run_that_is_cancelled(scene: Scene, control_plane: ControlPlane) -> None:
    with controllers(control_plane, scene.cli.namespace, every=0.02):
        killed = 0
        for _ in every_step(scene, "cancel", scene.admitted_run):
            assert scene.backend.cancel("demo").state is State.CANCELLED
            workload = scene.admin.get(f"{scene.workloads}/demo")
            assert workload["spec"]["active"] is False
            assert "admission" not in workload["status"]
            killed += 1
        assert killed > 6  # four looks, and two changes before and after
