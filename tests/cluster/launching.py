"""The launcher in front of an API server: values of a small run, and the command as a user types it.

desk = LauncherCli(kubeconfig, namespace, folder)
desk("submit", "-f", desk.values("job-set"), "--detach")    # in this process: no second start of Python
desk.start("submit", "-f", …)                              # in one of its own, for signals
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from launcher.__main__ import run
from launcher.backends.kubernetes.backend import KubernetesBackend
from tests.cli.conftest import Result
from tests.cluster.api import Api, ApiError, Object
from tests.cluster.control_loop import control_loop
from tests.cluster.control_plane import ControlPlane
from tests.cluster.site import base_cluster
from tests.tools import tool

ROOT = Path(__file__).resolve().parents[2]
RAY_JOBS = "/apis/ray.io/v1/namespaces/{}/rayjobs"
JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}"
PATHS = {"ray-job": RAY_JOBS, "job-set": JOB_SETS}
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class LauncherCli:
    """Somebody with a kubeconfig, who works in `namespace` and has a folder for values files."""

    kubeconfig: Path | str
    namespace: str
    folder: Path

    def values(self, kind: str = "job-set", name: str = "demo", **over: Any) -> str:
        """A values file of a run on one v5e slice of two hosts; `over` are sections that replace keys of it."""
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
    def where(self) -> str:
        """How the launcher names the place to an admin of the control plane."""
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
        """`launcher …` in this process; what follows a run looks every POLL_SECONDS. One at a time: it takes stderr.

        `err` may be given to read along.
        """
        out, err = io.StringIO(), io.StringIO() if err is None else err
        with (
            mock.patch.dict(os.environ, self.env),
            quickly(),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = run(arguments)
        return Result(int(code), out.getvalue(), err.getvalue())

    def unlike(self, before: Result, *arguments: str) -> Result | None:
        """What the command says now, unless it is what it said before: rights are in force a moment after."""
        now = self(*arguments)
        return now if (now.code, now.err) != (before.code, before.err) else None

    def sit_down(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The rest of the test is done by this one, with launcher.api."""
        for key, value in self.env.items():
            monkeypatch.setenv(key, value)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """`launcher …` in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-c", QUICKLY, *arguments],
            env={**os.environ, **self.env, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            cwd=self.folder,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def runs(self, api: Api) -> list[Object]:
        """All RayJobs and JobSets of the namespace."""
        return [obj for path in PATHS.values() for obj in api.items(path.format(self.namespace))]


def settle(plane: ControlPlane, namespace: str) -> None:
    """What a team finds: nodes and flavors as in the recordings, a queue `multislice`, its service account."""
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
            "metadata": {"name": "launching"},
            "spec": {"namespaceSelector": {}, "resourceGroups": groups},
        }
    )
    api.ensure(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": "multislice", "namespace": namespace},
            "spec": {"clusterQueue": "launching"},
        }
    )
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "research", "namespace": namespace}}
    api.ensure(account)


@contextlib.contextmanager
def kuberay_lets_go(api: Api, namespace: str) -> Iterator[None]:
    """RayJobs that are deleted go, as with KubeRay, which takes its finalizer from them.

    A stand-in, for KubeRay cannot be had where tests run, and recordings put its finalizer on a run.
    """

    def step() -> None:
        for job in api.items(RAY_JOBS.format(namespace)):
            if "deletionTimestamp" in job["metadata"]:
                path = f"{RAY_JOBS.format(namespace)}/{job['metadata']['name']}"
                with contextlib.suppress(ApiError):  # gone by now
                    api.merge(path, {"metadata": {"finalizers": None}})

    with control_loop(step, name="kuberay"):
        yield


# A test would wait ten times as long at the pace that spares an API server.
QUICKLY = f"""
import sys
from launcher.__main__ import main
from launcher.backends.kubernetes.backend import KubernetesBackend
KubernetesBackend.__init__.__kwdefaults__["poll_seconds"] = {POLL_SECONDS}
main()
"""


@contextlib.contextmanager
def quickly() -> Iterator[None]:
    """Whoever follows a run looks every POLL_SECONDS."""
    defaults = KubernetesBackend.__init__.__kwdefaults__
    assert defaults is not None
    with mock.patch.dict(defaults, {"poll_seconds": POLL_SECONDS}):
        yield


def until(holds: Callable[[], Any], seconds: float = 20) -> Any:
    """What `holds` returns once it is true."""
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
    return found
