"""Runs the launcher with an API server: values of a small run, and the command as a user types it.

cli = LauncherCli(kubeconfig, namespace, folder)
cli("submit", "-f", cli.values("job-set"), "--detach")    # in this process, without a second start of Python
cli.start("submit", "-f", …)                              # in a separate process, which can receive signals
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from launcher.__main__ import run
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.kubernetes.submitter import KubernetesSubmitter
from launcher.cli.commands import list as list_command
from tests.cli.conftest import Result
from tests.cluster.api import Api, ApiError, Object
from tests.cluster.control_loop import control_loop
from tests.cluster.control_plane import ControlPlane
from tests.cluster.recorded_cluster import base_cluster
from tests.tools import tool

ROOT = Path(__file__).resolve().parents[2]
RAY_JOBS = "/apis/ray.io/v1/namespaces/{}/rayjobs"
JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}"
PATHS = {"ray-job": RAY_JOBS, "job-set": JOB_SETS}
POLL_SECONDS = 0.1
# On a slow machine, the list would leave out when runs start, and print why.
list_command._MOST_SECONDS = 60.0


@dataclass(frozen=True)
class LauncherCli:
    """The launcher of a user with this kubeconfig, for `namespace`; `folder` is for values files."""

    kubeconfig: Path | str
    namespace: str
    folder: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list, compare=False)

    def values(self, kind: str = "job-set", name: str = "demo", **over: Any) -> str:
        """Write a values file of a run on one v5e slice of two hosts; `over`: sections whose keys override it."""
        tree: dict[str, Any] = {
            "run": {"name": name, "kind": kind, "maxRestarts": 1},
            "team": {"name": "research", "namespace": self.namespace},
            "queue": {"name": "multislice", "priority": ""},
            "slice": {"accelerator": "v5e", "topology": "2x4", "count": 1},
            "image": {"repository": "example.invalid/slipway", "tag": "1.0.0"},
            "storage": {"kind": "gcsfuse", "bucket": "example-runs"},
            "worker": {"cpu": "8", "memory": "64Gi"},
            "data": {"files": ["/data/text"]},
            "train": {"model_name": "llama3-8b", "steps": 30},
        }
        for section, keys in over.items():
            tree[section] = {**tree.get(section, {}), **keys}
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / f"{name}-{kind}-{len(list(self.folder.iterdir()))}.yaml"
        file.write_text(json.dumps(tree))  # JSON is YAML
        return str(file)

    @property
    def target(self) -> str:
        """The target as the launcher prints it for an admin of the control plane."""
        return f"cluster test, context admin, namespace {self.namespace}"

    @property
    def env(self) -> dict[str, str]:
        return {
            "KUBECONFIG": str(self.kubeconfig),
            "SLIPWAY_HOME": str(self.folder / "home"),
            "SLIPWAY_HELM": str(tool("helm")),
            "COLUMNS": "80",
        }

    def __call__(self, *arguments: str, err: io.StringIO | None = None) -> Result:
        """Run `launcher …` in this process, polling every POLL_SECONDS. Not thread-safe: it redirects the output.

        err: the stream for stderr, if the caller reads it while the command runs.
        """
        out, err = io.StringIO(), io.StringIO() if err is None else err
        with (
            mock.patch.dict(os.environ, self.env),
            fast_polling(),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = run(arguments)
        return Result(int(code), out.getvalue(), err.getvalue())

    def changed_result(self, before: Result, *arguments: str) -> Result | None:
        """Run the command. Returns its result if it differs from `before`, or else None.

        Changes of rights take effect with a delay.
        """
        now = self(*arguments)
        return now if (now.code, now.err) != (before.code, before.err) else None

    def use_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Set the environment for the rest of the test, so that launcher.api uses this kubeconfig."""
        for key, value in self.env.items():
            monkeypatch.setenv(key, value)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start `launcher …` in a separate process, which `close` ends."""
        process = subprocess.Popen(
            [sys.executable, "-c", FAST_POLLING, *arguments],
            env={**os.environ, **self.env, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            cwd=self.folder,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.started.append(process)
        return process

    def close(self) -> None:
        """End the processes that a failed test has left, and close their pipes."""
        for process in self.started:
            process.kill()
            process.wait()
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()

    def runs(self, api: Api) -> list[Object]:
        """All RayJobs and JobSets of the namespace."""
        return [obj for path in PATHS.values() for obj in api.items(path.format(self.namespace))]


def add_team(plane: ControlPlane, namespace: str) -> None:
    """Create what a team needs: nodes and flavors as in the recordings, a queue `multislice`, its service account.

    The ClusterQueue has the name of the namespace, so that no run of another test waits in it.
    """
    base_cluster(plane)
    api = plane.api
    quotas: dict[str, dict[str, Any]] = {"v5e-2x4": {"google.com/tpu": 80}, "cpu": {"cpu": 1000, "memory": "4000Gi"}}
    groups = [
        {
            "coveredResources": list(quota),
            "flavors": [
                {
                    "name": flavor,
                    "resources": [{"name": resource, "nominalQuota": amount} for resource, amount in quota.items()],
                }
            ],
        }
        for flavor, quota in quotas.items()
    ]
    api.ensure(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": namespace},
            "spec": {"namespaceSelector": {}, "resourceGroups": groups},
        }
    )
    api.ensure(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": "multislice", "namespace": namespace},
            "spec": {"clusterQueue": namespace},
        }
    )
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "research", "namespace": namespace}}
    api.ensure(account)


def remove_cluster_queue(api: Api, namespace: str) -> None:
    """Delete what `add_team` created outside of the namespace."""
    api.delete(f"/apis/kueue.x-k8s.io/v1beta2/clusterqueues/{namespace}")


@contextlib.contextmanager
def kuberay_removes_finalizers(api: Api, namespace: str) -> Iterator[None]:
    """While this is open, remove KubeRay's finalizer from deleted RayJobs, as KubeRay does.

    This replaces KubeRay, which is not available where the tests run: recordings set its finalizer on a run.
    """

    def step() -> None:
        for job in api.items(RAY_JOBS.format(namespace)):
            if "deletionTimestamp" in job["metadata"]:
                path = f"{RAY_JOBS.format(namespace)}/{job['metadata']['name']}"
                with contextlib.suppress(ApiError):  # already deleted
                    api.merge(path, {"metadata": {"finalizers": None}})

    with control_loop(step, name="kuberay"):
        yield


# The default polling interval, which limits the load on an API server, would make a test ten times as slow.
FAST_POLLING = f"""
import sys
from launcher.__main__ import main
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.kubernetes.submitter import KubernetesSubmitter
for backend in (KubernetesBackend, KubernetesSubmitter):
    backend.__init__.__kwdefaults__["poll_seconds"] = {POLL_SECONDS}
main()
"""


@contextlib.contextmanager
def fast_polling() -> Iterator[None]:
    """While this is open, the launcher polls runs every POLL_SECONDS."""
    with contextlib.ExitStack() as stack:
        for backend in (KubernetesBackend, KubernetesSubmitter):
            defaults = backend.__init__.__kwdefaults__
            assert defaults is not None
            stack.enter_context(mock.patch.dict(defaults, {"poll_seconds": POLL_SECONDS}))
        yield


def until(holds: Callable[[], Any], seconds: float = 20) -> Any:
    """The first true value of `holds`. Raises AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, f"timed out after {seconds} s"
        time.sleep(0.05)
    return found
