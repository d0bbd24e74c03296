"""An API server of the oldest Kubernetes that kubeVersion of the charts allows accepts what they render.

The API server of the tests emulates it: it has the APIs and the CEL of that version.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from launcher.paths import charts_dir
from tests.charts.docs import parents
from tests.charts.helm import template
from tests.charts.schemas import objects
from tests.cluster.api import path_of
from tests.cluster.control_plane import ControlPlane
from tests.cluster.run_policy import installed
from tests.tools import tool

QUEUES = charts_dir() / "queues"


def test_the_oldest_kubernetes_accepts_what_the_charts_render(tmp_path: Path) -> None:
    (oldest,) = {yaml.safe_load((chart / "Chart.yaml").read_text())["kubeVersion"] for chart in parents(charts_dir())}
    version = oldest.removeprefix(">=").removesuffix(".0-0")
    everything = QUEUES / "ci" / "everything-values.yaml"
    rendered = objects(template(tool("helm"), QUEUES, [everything], "--kube-version", f"{version}.0"))
    with ControlPlane.start(with_crds=True, emulates=version) as plane:
        shown = plane.api.get("/version")
        assert f"{shown['emulationMajor']}.{shown['emulationMinor']}" == version
        for namespace in {obj["metadata"].get("namespace", "default") for obj in rendered}:
            plane.add_namespace(namespace)
        for obj in rendered:
            if obj["kind"] != "Namespace" and not obj["apiVersion"].startswith("monitoring."):  # without CRDs here
                plane.api.request("POST", f"{path_of(obj).rpartition('/')[0]}?dryRun=All", obj)
        with installed(plane, tmp_path) as users:
            for kind, obj in users.objects.items():
                assert users.attempt(users.alice, obj) == "", kind
                del obj["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
                assert "kueue.x-k8s.io/queue-name must be research" in users.attempt(users.alice, obj), kind
