"""An upgrade of the CRDs of Kueue, JobSet and KubeRay under objects of Slipway's charts, without the controllers."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from tests import upstream
from tests.cluster import crds
from tests.cluster.api import path_of
from tests.cluster.control_plane import ControlPlane, add_namespace
from tests.cluster.fake_controllers import KUEUE, RUNS, Conditions, queued_workload
from tests.cluster.launching import LauncherCli

QUEUES: dict[str, Any] = {
    "flavors": {"v5e": {"accelerator": "v5e", "topology": "2x4"}, "cpu": {"accelerator": "cpu"}},
    "clusterQueues": {"all": {"quota": {"v5e": {"slices": 2}, "cpu": {"cpu": "64", "memory": "256Gi"}}}},
    "teams": {"research": {"clusterQueue": "all", "namespace": "upgraded"}},
    "policies": {"runs": False, "tokens": False},
}
OLDEST = {project: versions[0] for project, versions in upstream.versions().items()}


def test_objects_stay_readable_and_verbs_print_the_same(tmp_path: Path) -> None:
    queues = tmp_path / "queues.yaml"
    queues.write_text(yaml.safe_dump(QUEUES))
    with mock.patch.dict(os.environ), ControlPlane.start(with_crds=OLDEST) as plane:
        add_namespace(plane.api, "slipway")  # the chart creates the namespace "upgraded"
        cli = LauncherCli(plane.admin, "upgraded", tmp_path / "runs")

        def run(*arguments: str, codes: tuple[int, ...] = (0,)) -> str:
            done = cli(*arguments)
            assert done.code in codes, done
            return done.out

        run("install", "queues", "-f", str(queues), "-n", "slipway", "--yes", "--timeout", "0")
        collections = [path.format("upgraded") for path in RUNS.values()]
        for kind, name in (("ray-job", "ray"), ("job-set", "set")):
            file = cli.values(kind, name, queue={"name": "research"})
            run("submit", "-f", file, "--name", name, "--detach")
        for path in collections:
            (made,) = plane.api.items(path)
            kinds = {RUNS["RayJob"]: ("RayJob", "ray.io/v1"), RUNS["JobSet"]: ("JobSet", "jobset.x-k8s.io/v1alpha2")}
            kind, version = next(kinds[each] for each in kinds if each.format("upgraded") == path)
            workload = plane.api.create(queued_workload({**made, "kind": kind, "apiVersion": version}, "research"))
            plane.api.merge(f"{path_of(workload)}/status", {"status": {"conditions": considered(workload)}})
        collections += [f"{KUEUE}/{each}" for each in ("workloads", "clusterqueues", "localqueues", "resourceflavors")]

        def objects() -> dict[str, Any]:
            return {path: [each["spec"] for each in plane.api.items(path)] for path in collections}

        def printed() -> list[Any]:
            """Return what the launcher prints, without times."""
            place = ("-n", "upgraded")
            states: list[Any] = [(one["name"], one["state"]) for one in json.loads(run("list", *place, "-o", "json"))]
            for name in ("ray", "set"):
                state = json.loads(run("status", name, *place, "-o", "json", codes=(0, 1)))
                explained = run("explain", name, *place, codes=(0, 1))
                states += [state["state"], re.sub(r"[0-9]+ (s|min)\b", "TIME", explained)]
            return [sorted(map(str, states)), json.loads(run("queues", "-A", "-o", "json"))]

        stored, shown = objects(), printed()
        assert all(stored.values())
        assert "('ray', 'queued')" in shown[0] and "('set', 'queued')" in shown[0]
        crds.install(plane.api)
        assert_kept(stored, objects())
        assert printed() == shown
        now = {crd["metadata"]["name"]: crd["status"]["storedVersions"] for crd in plane.api.items(crds.PATH)}
        assert now["workloads.kueue.x-k8s.io"] == ["v1beta2"]


def considered(workload: Any) -> list[Any]:
    """Return the condition of a Workload that waits. Without it, what `explain` prints depends on its age."""
    conditions = Conditions(workload)
    message = "couldn't assign flavors to pod set slice: insufficient unused quota for cpu in flavor cpu, 2 more needed"
    conditions.set("QuotaReserved", "False", "Pending", message)
    return conditions.all


def assert_kept(before: Any, now: Any, path: str = "") -> None:
    """Compare the fields of `before`. The new CRDs can have defaults for more fields."""
    if isinstance(before, dict):
        for key, value in before.items():
            assert key in now, f"{path}.{key}"
            assert_kept(value, now[key], f"{path}.{key}")
    elif isinstance(before, list):
        assert len(before) == len(now), path
        for number, (one, other) in enumerate(zip(before, now, strict=True)):
            assert_kept(one, other, f"{path}[{number}]")
    else:
        assert before == now, path
