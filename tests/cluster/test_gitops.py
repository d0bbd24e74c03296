"""The charts as Argo CD applies them: `helm template`, and a server-side apply, again and again."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.charts import docs, schemas
from tests.charts.helm import template
from tests.cluster.api import Api, Object, path_of
from tests.tools import tool

CHARTS = docs.CHECKOUT / "charts"

# NAME is the namespace of the test. The quantities are not in canonical form.
QUEUES = """\
topologies:
  NAME: {levels: [cloud.google.com/gke-nodepool, kubernetes.io/hostname]}
flavors:
  NAME-tpu: {accelerator: v6e, topology: 4x4, topologyName: NAME, hostCpu: "180000m", hostMemory: 716800Mi}
  NAME-spot: {accelerator: v6e, topology: 4x4, provisioning: spot, hostCpu: "180", hostMemory: 700Gi}
  NAME-flex: {accelerator: v6e, topology: 4x4, provisioning: flex-start, hostCpu: "180", hostMemory: 700Gi}
  NAME-cpu: {accelerator: cpu}
cohorts:
  NAME: {quota: {NAME-spot: {slices: 2}}}
clusterQueues:
  NAME:
    cohort: NAME
    fairWeight: 0.25
    preemption: {reclaimWithinCohort: Any, withinClusterQueue: LowerPriority}
    quota:
      NAME-tpu: {slices: 125, borrowing: 2, lending: 1}
      NAME-spot: {slices: 0}
      NAME-flex: {slices: 1}
      NAME-cpu: {cpu: "64000m", memory: 262144Mi}
priorities:
  low: null
  normal: null
  high: null
  NAME: {value: 600, pods: true}
flexStart: {name: NAME}
teams:
  NAME:
    clusterQueue: NAME
    members: {research@example.com: Group}
    clusters: [ours]
    k8sTokenAuth: true
    resourceQuota: {pods: "2000", requests.storage: 1024Gi}
"""
RUN = """\
run: {name: NAME}
team: {name: NAME}
slice: {accelerator: v6e, topology: 4x4}
image: {repository: registry.example.com/slipway, tag: "1"}
storage: {kind: gcsfuse, bucket: our-bucket}
data: {corpus: python}
head: {cpu: "0.5", memory: 1024Mi}
worker: {cpu: 1000m, memory: 1.5Gi}
"""


@pytest.fixture
def manifests(namespace: str, api: Api, helm4: Path, tmp_path: Path) -> Iterator[list[str]]:
    """Render the charts without a cluster, as Argo CD does."""
    rendered = []
    for chart, text, *options in (
        ("queues", QUEUES),
        ("ray-cluster", RUN),
        ("run", RUN, "--set=run.kind=ray-job"),
        ("run", RUN, "--set=run.kind=job-set"),
    ):
        file = tmp_path / f"{chart}.yaml"
        file.write_text(text.replace("NAME", namespace))
        rendered.append(template(helm4, CHARTS / chart, [file], "--namespace", "default", *options))
    yield rendered
    for path in [path_of(obj) for text in rendered for obj in schemas.objects(text)]:
        if "/namespaces/" not in path:
            api.delete(path)


def apply(kubeconfig: Path, manifests: list[str]) -> None:
    command = [str(tool("kubectl")), "apply", "--server-side", "--force-conflicts", "--field-manager=argocd-controller"]
    deadline = time.monotonic() + 60
    while True:
        # kubectl caches the API server's kinds, and a control plane that has just started lacks those of new CRDs.
        with tempfile.TemporaryDirectory() as cache:
            done = subprocess.run(
                [*command, "--kubeconfig", str(kubeconfig), "--cache-dir", cache, "-f", "-"],
                input="\n---\n".join(manifests),
                capture_output=True,
                text=True,
                check=False,
            )
        if "no matches for kind" not in done.stderr or time.monotonic() > deadline:
            break
        time.sleep(1)
    assert done.returncode == 0, done.stderr


def test_a_second_apply_changes_nothing(manifests: list[str], kubeconfig: Path, api: Api) -> None:
    paths = [path_of(obj) for text in manifests for obj in schemas.objects(text)]

    def live() -> list[Object]:
        return [api.get(path) for path in paths]

    apply(kubeconfig, manifests)
    # Controllers write the status of quotas and namespaces, at any time. A change by the apply happens every time.
    for _ in range(3):
        before = live()
        apply(kubeconfig, manifests)
        changed = [(old, new) for old, new in zip(before, live(), strict=True) if version(old) != version(new)]
        if not changed:
            break
        time.sleep(1)
    assert changed == []


def test_a_dry_run_by_the_server_refuses_what_a_sync_would_not(
    manifests: list[str], kubeconfig: Path, namespace: str, helm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check that docs/how-to/gitops.md shows: with lookups, and for objects that belong to no release."""
    apply(kubeconfig, manifests)
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    command = [str(helm), "template", "queues", str(CHARTS / "queues"), "--namespace", "default", "--dry-run=server"]
    command += ["--validate"] * (helm == tool("helm3"))
    command += ["-f", str(tmp_path / "queues.yaml"), "--set", f"flavors.{namespace}-spot.topology=8x8"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert f"nodeLabels of the ResourceFlavor {namespace}-spot would change" in done.stderr


def version(obj: Object) -> str:
    return str(obj["metadata"]["resourceVersion"])
