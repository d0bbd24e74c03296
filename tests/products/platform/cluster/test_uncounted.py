"""Chips that no quota counts, and objects that Slipway did not create, in front of a real API server.

The recordings have what the real Kueue and KubeRay wrote for a RayJob that kubectl created.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher import api
from launcher.k8s.target import Target
from launcher.products.platform import uncounted
from tests.cluster.api import Api, path_of
from tests.cluster.control_plane import ControlPlane
from tests.cluster.launching import LauncherCli
from tests.cluster.replay import RecordingReplayer

WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads"


@pytest.fixture
def rayjob(control_plane: ControlPlane, cli: LauncherCli) -> Iterator[str]:
    """A RayJob of kubectl with its Workload and its pods, which use 8 chips. Its cluster has no Kueue to change it."""
    replayer = RecordingReplayer(control_plane, "rayjob-admitted", cli.namespace, skip=("LocalQueue", "ClusterQueue"))
    replayer.step_to()
    yield "rayjob"


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Report chips without the minute that the controllers have to release them."""
    monkeypatch.setattr(uncounted, "SETTLES", 0)


def listed(cli: LauncherCli) -> dict[str, Any]:
    return {entry["name"]: entry for entry in cli("list", "-n", cli.namespace, "-o", "json").json}


def test_a_rayjob_of_kubectl_is_listed_and_explained(rayjob: str, cli: LauncherCli) -> None:
    entry = listed(cli)[rayjob]
    assert (entry["kind"], entry["foreign"], entry["queue"], entry["uncounted_chips"]) == (
        *("RayJob", True, "multislice"),
        0,
    )
    text = cli("list", "-n", cli.namespace)
    assert "MADE BY" in text.out
    assert "another client" in text.out
    assert "no quota counts" not in text.err
    explained = cli("explain", rayjob, "-n", cli.namespace)
    assert explained.code == 0, explained.err
    assert "Slipway did not create it" in explained.out
    for verb in (["cancel", rayjob], ["delete", rayjob, "--yes"], ["delete", "ray*", "--yes"]):
        assert cli(*verb, "-n", cli.namespace).code == 1  # verbs that change runs do not see it
    for name in ("status", "cancel", "logs", "wait"):
        refused = cli(name, rayjob, "-n", cli.namespace)
        assert refused.code == 1
        assert f'"{rayjob}" is a RayJob in a queue of the namespace {cli.namespace} that Slipway' in refused.err
        assert f"kubectl delete rayjob {rayjob} -n {cli.namespace}" in refused.err


def test_chips_of_a_rayjob_that_has_ended(
    rayjob: str, cli: LauncherCli, admin: Api, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KubeRay keeps its Ray cluster for ttlSecondsAfterFinished, and Kueue has released its quota."""
    (workload,) = admin.items(WORKLOADS.format(cli.namespace))
    workload["kind"], workload["apiVersion"] = "Workload", "kueue.x-k8s.io/v1beta2"
    conditions = [
        *workload["status"]["conditions"],
        {
            "type": "Finished",
            "status": "True",
            "reason": "Succeeded",
            "message": "Job finished successfully.",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        },
    ]
    admin.merge(f"{path_of(workload)}/status", {"status": {"conditions": conditions}})
    result = cli("list", "-n", cli.namespace, "-o", "json")
    (entry,) = result.json
    assert (entry["state"], entry["uncounted_chips"]) == ("succeeded", 8)
    assert entry["uncounted_reason"].endswith("and its pods were not deleted.")
    assert f"The RayJob {cli.namespace}/rayjob uses 8 chips that no quota counts (2 pods on " in result.err
    assert f"To release them: kubectl delete rayjob rayjob -n {cli.namespace}" in result.err
    assert "8 chips" in cli("list", "-n", cli.namespace).out
    cli.use_environment(monkeypatch)
    says = [one.says for one in api.doctor(Target(namespace=cli.namespace)) if one.subject == "chips in use"]
    (ours,) = [each for each in says if each.startswith(f"{cli.namespace} uses")]
    assert ours.startswith(f"{cli.namespace} uses 8 chips, and Kueue counts 0; 8 are in no quota, ")


def test_a_pod_with_chips_and_without_a_queue(
    rayjob: str, cli: LauncherCli, control_plane: ControlPlane, at_once: None
) -> None:
    node = control_plane.add_nodes("uncounted", "tpu-v5-lite-podslice", "2x4", 1, 4)[0]
    resources = {"limits": {"google.com/tpu": "4"}}
    spec = {"nodeName": node, "containers": [{"name": "a", "image": "example.invalid/a", "resources": resources}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bare", "namespace": cli.namespace}, "spec": spec}
    control_plane.api.create(pod)
    entry = listed(cli)["bare"]
    assert (entry["kind"], entry["foreign"], entry["uncounted_chips"]) == ("Pod", True, 4)
    assert entry["uncounted_reason"] == "Kueue has no Workload for it."
    control_plane.api.delete(path_of(pod))
    control_plane.api.delete(f"/api/v1/nodes/{node}")


def test_a_user_without_the_right_to_read_pods(
    rayjob: str, cli: LauncherCli, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """The list is complete except for the chips, which a note reports."""
    rules = [
        {"apiGroups": ["ray.io"], "resources": ["rayjobs"], "verbs": ["get", "list"]},
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["get", "list"]},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["get", "list"]},
    ]
    rbac = "rbac.authorization.k8s.io/v1"
    meta = {"name": "no-pods", "namespace": cli.namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "no-pods"}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "nora"}]
    control_plane.api.create({"apiVersion": rbac, "kind": "Role", "metadata": meta, "rules": rules})
    control_plane.api.create(
        {"apiVersion": rbac, "kind": "RoleBinding", "metadata": meta, "roleRef": role, "subjects": subjects}
    )
    nora = LauncherCli(control_plane.kubeconfig_for("nora", namespace=cli.namespace), cli.namespace, tmp_path)
    result = nora("list", "-o", "json")
    assert (result.code, [entry["name"] for entry in result.json]) == (0, ["rayjob"]), result.err
    assert "You (nora) may not list pods" in result.err
    assert "Chips that no quota counts are not shown." in result.err
