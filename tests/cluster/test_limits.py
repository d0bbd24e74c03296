"""The limits of a team's namespace from charts/queues, tested with a real API server and real quotas."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.k8s.client import RAY_JOB, WORKLOAD, connect
from tests.charts.queues_chart import BASE, merged, render, tree
from tests.cluster.api import Api, ApiError, Object, path_of
from tests.cluster.control_plane import ControlPlane, remove_namespace
from tests.cluster.launching import LauncherCli, add_team, remove_cluster_queue, until
from tests.tools import tool

SPACE = f"limits-{secrets.token_hex(3)}"


@pytest.fixture(scope="module")
def admin(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """The admin's client. The namespace SPACE has the chart's limits, with a lower one for RayJobs and JobSets."""
    values = merged(
        BASE,
        tree(f"""
        teams:
          product: null
          research:
            namespace: {SPACE}
            resourceQuota: {{count/rayjobs.ray.io: "1", count/jobsets.jobset.x-k8s.io: "1"}}
        """),
    )
    rendered = render(tool("helm"), values, tmp_path_factory.mktemp("values"))
    quotas = [obj for obj in rendered if obj["kind"] == "ResourceQuota"]
    assert len(quotas) == 2
    control_plane.add_namespace(SPACE)
    control_plane.create_all(quotas)
    until(lambda: all(counted(control_plane.api, quota).keys() == quota["spec"]["hard"].keys() for quota in quotas))
    yield control_plane.api
    remove_namespace(control_plane.api, SPACE)


def counted(admin: Api, quota: Object) -> Object:
    """The amounts in use that the controller manager has counted."""
    found: Object = admin.get(path_of(quota)).get("status", {}).get("used") or {}
    return found


def obj(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": SPACE}, "spec": spec}


@pytest.mark.parametrize("kind", ["LoadBalancer", "NodePort"])
def test_no_service_is_reachable_from_outside(admin: Api, kind: str) -> None:
    """KubeRay would create such a Service for a run (headGroupSpec.serviceType)."""
    with pytest.raises(ApiError, match=r"exceeded quota: research, requested: services\.(loadbalancers|nodeports)=1"):
        admin.create(obj("Service", kind.lower(), {"type": kind, "ports": [{"port": 8265}]}))


def test_the_services_of_runs_are_allowed(admin: Api) -> None:
    admin.create(obj("Service", "head", {"ports": [{"port": 8265}]}))
    admin.create(obj("Service", "hosts", {"clusterIP": "None", "selector": {"a": "b"}}))


def test_claims_have_a_limit(admin: Api) -> None:
    """JobSet (volumeClaimPolicies) and Kubernetes (an ephemeral volume) create the claims that a run requests."""
    with pytest.raises(ApiError, match=r"exceeded quota: research, requested: requests\.storage=500Ti"):
        admin.create(obj("PersistentVolumeClaim", "large", claim("500Ti")))
    admin.create(obj("PersistentVolumeClaim", "lustre", claim("9000Gi")))


def claim(size: str) -> Object:
    return {"accessModes": ["ReadWriteMany"], "storageClassName": "none", "resources": {"requests": {"storage": size}}}


@pytest.mark.parametrize("priority", ["system-node-critical", "system-cluster-critical"])
def test_no_pod_has_a_system_priority(admin: Api, priority: str) -> None:
    spec = {"containers": [{"name": "a", "image": "example.invalid/a"}], "nodeSelector": {"no": "node"}}
    admin.create(obj("Pod", f"plain-{priority}", spec))
    with pytest.raises(ApiError, match="exceeded quota: research-system-priorities, requested: pods=1"):
        admin.create(obj("Pod", priority, {**spec, "priorityClassName": priority}))


@pytest.mark.parametrize("kind", ["ray-job", "job-set"])
def test_a_loop_of_submits_ends_at_the_limit(
    control_plane: ControlPlane, admin: Api, tmp_path: Path, kind: str
) -> None:
    add_team(control_plane, SPACE)
    cli = LauncherCli(control_plane.admin, SPACE, tmp_path)
    done = cli("submit", "-f", cli.values(kind, name=f"{kind}-1"), "--detach")
    assert done.code == 0, done.err
    refused = cli("submit", "-f", cli.values(kind, name=f"{kind}-2"), "--detach")
    remove_cluster_queue(admin, SPACE)
    plural = {"ray-job": "rayjobs.ray.io", "job-set": "jobsets.jobset.x-k8s.io"}[kind]
    assert (refused.code, refused.err.splitlines()[1:]) == (
        1,
        [
            f"Error: The ResourceQuota research in the context admin is used up: 1 of 1 {plural} are in use.",
            "Hint: Delete what is no longer needed, or ask the platform team for more.",
        ],
    )


def test_the_limit_of_pod_sets_is_that_of_the_installed_kueue(
    admin: Api, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(control_plane.admin))
    crd = admin.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/workloads.kueue.x-k8s.io")
    schema = next(version for version in crd["spec"]["versions"] if version["name"] == "v1beta2")["schema"]
    spec = schema["openAPIV3Schema"]["properties"]["spec"]["properties"]
    cluster = connect()
    assert cluster.fields(WORKLOAD)["podSets"]["maxItems"] == spec["podSets"]["maxItems"] >= 8
    assert "maxItems" not in cluster.fields(WORKLOAD)["queueName"]
    # KubeRay 1.7 added this field.
    assert "historyServerOptions" in cluster.fields(RAY_JOB, "rayClusterSpec")
