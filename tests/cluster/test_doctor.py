"""The doctor with a real API server: real RBAC, real Deployments and EndpointSlices, simulated nodes.

Upstream's controllers are not available here. Deployments with their names and images replace them (doctor_objects.py).
KWOK simulates their pods, so Kubernetes itself writes their status and the endpoints of their Services.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher import api
from launcher.__main__ import run
from launcher.diagnose.doctor import Finding, Level
from launcher.k8s.target import Target
from launcher.paths import charts_dir
from tests.cluster import doctor_objects as upstream
from tests.cluster.api import path_of
from tests.cluster.control_plane import ControlPlane, free_ports

# A separate label, so that these flavors do not match nodes of other tests, and other flavors do not match these nodes.
OURS = {"example.com/pool": "clinic"}
QUEUES = """\
flavors:
  clinic-v6e: {accelerator: v6e, topology: 2x2, nodeLabels: {example.com/pool: clinic}}
  clinic-v5p: {accelerator: v5p, topology: 2x2x1, nodeLabels: {example.com/pool: clinic}}
  clinic-cpu: {accelerator: cpu}
clusterQueues:
  clinic:
    quota: {clinic-v6e: {slices: 2}, clinic-v5p: {slices: 1}, clinic-cpu: {cpu: "40", memory: 80Gi}}
priorities: {low: null, high: null, normal: null, clinic: {value: 7}}
teams:
  clinic: {clusterQueue: clinic, members: {clinic@example.com: Group}}
"""
Object = dict[str, Any]
Doctor = Callable[..., dict[str, list[Finding]]]


@pytest.fixture(scope="module")
def team_queues(
    control_plane: ControlPlane, helm4: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Object]]:
    """A team's queues from charts/queues, and nodes: two slices of v6e 2x2, and a v5e 1x1 without a flavor."""
    values = tmp_path_factory.mktemp("clinic") / "queues.yaml"
    values.write_text(QUEUES)
    command = [str(helm4), "template", "clinic", str(charts_dir() / "queues"), "-f", str(values)]
    done = subprocess.run([*command, "--kube-version", "1.36.0"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    objects = [one for one in yaml.load_all(done.stdout, yaml.CSafeLoader) if one]
    for one in sorted(objects, key=lambda one: one["kind"] != "Namespace"):
        control_plane.api.create(one)
    nodes = [
        *control_plane.add_nodes("clinic-v6e", "tpu-v6e-slice", "2x2", 2, 4, **OURS),
        *control_plane.add_nodes("clinic-v5e", "tpu-v5-lite-podslice", "1x1", 1, 1, **OURS),
        *control_plane.add_nodes("clinic-cpu", "cpu", "", 1, 0, **OURS),
    ]
    yield objects
    for one in reversed(objects):
        control_plane.api.delete(path_of(one))
    for name in nodes:
        control_plane.api.delete(f"/api/v1/nodes/{name}")


@pytest.fixture(scope="module")
def controller_namespaces(control_plane: ControlPlane) -> Iterator[None]:
    spaces = {build()["metadata"]["namespace"] for build in upstream.CONTROLLERS}
    for space in spaces:
        control_plane.add_namespace(space)
    yield
    for space in spaces:
        control_plane.api.delete(f"/api/v1/namespaces/{space}")


@pytest.fixture
def installed(control_plane: ControlPlane, team_queues: list[Object], controller_namespaces: None) -> Iterator[None]:
    """The Deployments that replace the four controllers; their pods are available."""
    deployments = [build() for build in upstream.CONTROLLERS]
    made = [*deployments, *upstream.services(), upstream.config_map(), *upstream.webhooks()]
    control_plane.create_all(made)
    for one in deployments:
        _await(control_plane, one, 1)
    _await_endpoints(control_plane, "jobset-system", 1)
    yield
    for one in made:
        control_plane.api.delete(path_of(one))


def _await(plane: ControlPlane, deployment: Object, available: int) -> None:
    deadline = time.monotonic() + 30
    while (plane.api.get(path_of(deployment))["status"].get("availableReplicas") or 0) != available:
        assert time.monotonic() < deadline, plane.api.get(path_of(deployment))["status"]
        time.sleep(0.1)


def _await_endpoints(plane: ControlPlane, namespace: str, ready: int) -> None:
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    deadline = time.monotonic() + 30
    while sum(one["conditions"].get("ready") for s in plane.api.items(path) for one in s["endpoints"] or []) != ready:
        assert time.monotonic() < deadline, plane.api.items(path)
        time.sleep(0.1)


@pytest.fixture
def doctor(control_plane: ControlPlane, helm4: Path, monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """A function that returns the findings by subject, by default for the cluster's admin in the team's namespace."""
    monkeypatch.setenv("SLIPWAY_HELM", str(helm4))

    def examine(kubeconfig: Path = control_plane.admin, namespace: str = "clinic") -> dict[str, list[Finding]]:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        found: dict[str, list[Finding]] = {}
        for one in api.doctor(Target(namespace=namespace)):
            found.setdefault(one.subject, []).append(one)
        return found

    return examine


def test_plain_kubernetes(doctor: Doctor) -> None:
    with ControlPlane.start() as plane:
        found = doctor(plane.admin, "default")
        assert found["API server"][0].says.startswith("answers, Kubernetes v1.36.")
        assert [one.level for one in found["Kueue"] + found["JobSet"] + found["KubeRay"]] == [Level.PROBLEM] * 3
        assert found["Kueue"][0].says == "not installed: no run can wait in a queue."
        assert found["nodes"][0].says == "0 nodes, no chips."
        assert found["TPU webhook"][0].level is Level.OK
        assert all(one.level is Level.OK for one in found["submit"] + found["install"])


def test_crds_without_controllers(doctor: Doctor, team_queues: list[Object]) -> None:
    found = doctor()
    for subject in ("Kueue", "JobSet", "KubeRay"):
        assert [one.level for one in found[subject]] == [Level.PROBLEM]
        assert found[subject][0].says.startswith("its API is served, but its controller has no Deployment")
    assert found["TPU webhook"][0].level is Level.PROBLEM
    # No controller writes the status of the queues.
    assert any("has not processed" in one.says and "clinic" in one.says for one in found["ClusterQueues"])
    assert "namespace" not in found
    assert (
        doctor(namespace="clinc")["namespace"][0].says == "the namespace clinc does not exist, so it can have no runs."
    )


@pytest.mark.usefixtures("installed")
def test_all_four_controllers(doctor: Doctor) -> None:
    found = doctor()
    for subject in ("Kueue", "JobSet", "KubeRay", "TPU webhook", "Kueue's configuration"):
        assert [(one.level, one.says) for one in found[subject]] == [(Level.OK, found[subject][0].says)], subject
    assert found["Kueue"][0].says.startswith("0.19.2 in kueue-system (Deployment kueue-controller-manager)")
    assert "clinic (7)" in found["priorities"][0].says
    assert found["LocalQueue clinic"][0].says == "its ClusterQueue is clinic."


def test_flavors_and_nodes(doctor: Doctor, team_queues: list[Object]) -> None:
    found = doctor()
    assert [(one.level, one.says) for one in found["flavor clinic-v6e"]] == [
        (Level.OK, "quota for 8 chips; 8 chips on 2 nodes.")
    ]
    assert found["flavor clinic-v5p"][0].level is Level.WARNING
    assert found["flavor clinic-v5p"][0].says.startswith("no node matches it now (cloud.google.com/gke-tpu-acc")
    assert found["v5e 1x1 (pool clinic-v5e)"][0].says == "1 node matches no flavor, so no run can use 1 chip."
    assert found["flavor clinic-cpu"][0].level is Level.OK


def warnings(found: dict[str, list[Finding]]) -> list[tuple[str, str]]:
    """The subjects and the first clauses of the warnings about what separates the team clinic from others.

    The cluster can have teams of other tests.
    """
    those = [one for each in found.values() for one in each if one.part == "between teams"]
    return [
        (one.subject, one.says.partition(":")[0])
        for one in those
        if one.level is Level.WARNING and "clinic" in one.says
    ]


@pytest.mark.usefixtures("installed")
def test_what_separates_the_teams(control_plane: ControlPlane, doctor: Doctor) -> None:
    """All is well except what this cluster lacks: Workload Identity, and an agent that enforces NetworkPolicies."""
    found = doctor()
    assert [subject for subject, _ in warnings(found)] == ["metadata server"]
    assert (found["network"][0].level, found["network"][0].says.partition(":")[0]) == (
        Level.WARNING,
        "no known agent that enforces NetworkPolicies runs on the nodes",
    )
    agent = upstream.deployment("calico-node", "kube-system", "example.invalid/calico-node:v3") | {"kind": "DaemonSet"}
    agent["spec"].pop("replicas")
    try:
        control_plane.api.create(agent)
        deadline = time.monotonic() + 30
        while not control_plane.api.get(path_of(agent))["status"].get("desiredNumberScheduled"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        network = doctor()["network"][0]
    finally:
        control_plane.api.delete(path_of(agent))
    assert (network.level, network.says) == (
        Level.OK,
        "Calico (kube-system/calico-node) can enforce the teams' NetworkPolicies.",
    )


@pytest.mark.usefixtures("installed")
def test_what_does_not_separate_the_teams(
    control_plane: ControlPlane, doctor: Doctor, team_queues: list[Object]
) -> None:
    """Each protection is taken away, as an administrator can do by mistake."""
    policy = next(
        one for one in team_queues if one["kind"] == "ValidatingAdmissionPolicyBinding" and name(one).endswith("-runs")
    )
    network = next(one for one in team_queues if one["kind"] == "NetworkPolicy")
    rbac = "rbac.authorization.k8s.io"
    given = [
        upstream.named(
            "RoleBinding",
            f"{rbac}/v1",
            "helpers",
            "clinic",
            roleRef={"apiGroup": rbac, "kind": "ClusterRole", "name": role},
            subjects=[subject],
        )
        | {"metadata": {"name": f"helpers-{role}", "namespace": "clinic"}}
        for role, subject in (
            ("edit", {"apiGroup": rbac, "kind": "Group", "name": "clinic@example.com"}),
            ("admin", {"kind": "ServiceAccount", "name": "default", "namespace": "clinic"}),
            ("view", {"apiGroup": rbac, "kind": "Group", "name": "clinic@example.com"}),
            ("cluster-admin", {"apiGroup": rbac, "kind": "User", "name": "olivia"}),
        )
    ]
    enforce = "pod-security.kubernetes.io/enforce"
    try:
        control_plane.api.delete(path_of(policy))
        control_plane.api.delete(path_of(network))
        label(control_plane, "/api/v1/namespaces/clinic", enforce, None)
        control_plane.create_all(given)
        found = doctor()
        label(control_plane, "/api/v1/namespaces/clinic", enforce, "privileged")
        privileged = doctor()
    finally:
        label(control_plane, "/api/v1/namespaces/clinic", enforce, "baseline")
        for one in given:
            control_plane.api.delete(path_of(one))
        for one in (policy, network):
            control_plane.api.create(one)
    # Rights to read do not avoid the limits, and olivia is not a member.
    assert [found for found in warnings(found) if found[0] != "metadata server"] == [
        ("runs without a queue", "in clinic, a run that names no queue starts at once, on machines of any team"),
        ("network", "clinic has no NetworkPolicy of charts/queues"),
        ("Pod Security", "clinic enforces no level"),
        (
            "members of clinic",
            "the ClusterRole admin gives the service account default more than a member's rights in clinic",
        ),
        (
            "members of clinic",
            "the ClusterRole edit gives the group clinic@example.com more than a member's rights in clinic",
        ),
    ]
    assert [one.level for one in found["external IPs"]] == [Level.UNKNOWN]
    assert f"kubectl label namespace clinic {enforce}=baseline" in found["Pod Security"][0].hint
    assert "create pods" in found["members of clinic"][0].says
    assert ("Pod Security", "clinic allows privileged pods") in warnings(privileged)


def name(one: Object) -> str:
    return str(one["metadata"]["name"])


def label(plane: ControlPlane, path: str, key: str, value: str | None) -> None:
    plane.api.merge(path, {"metadata": {"labels": {key: value}}})


@pytest.mark.usefixtures("installed")
def test_versions_out_of_range_and_controllers_that_are_down(control_plane: ControlPlane, doctor: Doctor) -> None:
    def change(deployment: Object, patch: Object) -> None:
        control_plane.api.merge(path_of(deployment), {"spec": patch})

    old, down = upstream.kueue("v0.15.2"), upstream.job_set()
    change(upstream.kueue(), {"template": {"spec": {"containers": old["spec"]["template"]["spec"]["containers"]}}})
    change(down, {"replicas": 0})
    try:
        _await_endpoints(control_plane, "jobset-system", 0)
        _await(control_plane, down, 0)
        found = doctor()
    finally:
        change(upstream.kueue(), {"template": upstream.kueue()["spec"]["template"]})
        change(down, {"replicas": 1})
        _await(control_plane, down, 1)
        _await_endpoints(control_plane, "jobset-system", 1)
    assert (
        Finding(
            "controllers",
            Level.PROBLEM,
            "Kueue",
            "version 0.15.2 is too old; supported versions are 0.16 to 0.19.",
            "Upgrade Kueue",
        )
        in found["Kueue"]
    )
    says = [one.says for one in found["JobSet"] if one.level is Level.PROBLEM]
    assert "has no ready pod" in says[0]
    assert says[1].startswith("its webhook's Service jobset-system/jobset-webhook-service has no ready endpoint")


@pytest.mark.usefixtures("installed")
def test_a_member_with_the_role_of_charts_queues(control_plane: ControlPlane, doctor: Doctor) -> None:
    found = doctor(control_plane.kubeconfig_for("mia", ["clinic@example.com"], namespace="clinic"))
    for subject in ("submit", "list, status, wait", "logs", "explain", "cancel", "delete"):
        assert [(one.level, one.says) for one in found[subject]] == [(Level.OK, "allowed in the namespace clinic.")]
    assert found["install"][0].says.startswith("you may not install releases")
    assert "Role to apply" not in found
    assert "explain (queues)" not in found
    # Only a platform engineer may read these.
    for subject in ("Kueue", "JobSet", "KubeRay", "TPU webhook"):
        assert [one.level for one in found[subject]] == [Level.UNKNOWN], subject
        assert "you may not list deployments of apps" in found[subject][0].says
    # Members may read quota and nodes.
    assert found["flavor clinic-v6e"][0].level is Level.OK
    assert found["LocalQueue clinic"][0].level is Level.OK
    # A member may not read most of what separates the teams.
    assert [(one.level, one.says) for one in found["teams"]] == [
        (
            Level.UNKNOWN,
            "you may not list namespaces, daemonsets of apps, networkpolicies of networking.k8s.io, "
            "validatingadmissionpolicies of admissionregistration.k8s.io, validatingadmissionpolicybindings of "
            "admissionregistration.k8s.io and 2 more in the whole cluster; the checks that need these are left out.",
        )
    ]
    assert [one.part for those in found.values() for one in those].count("between teams") == 1
    # The member has no rights in another namespace.
    assert doctor(control_plane.kubeconfig_for("mia", ["clinic@example.com"]), "default")["submit"][0].level is (
        Level.PROBLEM
    )


def test_a_user_without_any_rights(
    control_plane: ControlPlane, team_queues: list[Object], helm4: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("SLIPWAY_HELM", str(helm4))
    monkeypatch.setenv("KUBECONFIG", str(control_plane.kubeconfig_for("noah", namespace="clinic")))
    assert run(["doctor", "-o", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert {"part", "level", "subject", "says", "hint"} == set(found[0])
    levels = {one["subject"]: one["level"] for one in found}
    for subject in ("Kueue", "ClusterQueues", "LocalQueues", "nodes"):
        assert levels[subject] == "unknown", subject
    for subject in ("submit", "list, status, wait", "logs", "cancel", "delete"):
        assert levels[subject] == "problem", subject
    # After the printed Role is applied and bound, no right is missing.
    role = next(one["hint"] for one in found if one["subject"] == "Role to apply")
    made = yaml.safe_load(role)
    binding = upstream.named(
        "RoleBinding",
        "rbac.authorization.k8s.io/v1",
        "noah",
        "clinic",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": made["metadata"]["name"]},
        subjects=[{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "noah"}],
    )
    try:
        control_plane.api.create(made)
        control_plane.api.create(binding)
        deadline = time.monotonic() + 10
        while True:  # a new binding takes effect with a delay
            run(["doctor", "-o", "json"])
            now = {one["subject"]: one["level"] for one in json.loads(capsys.readouterr().out)}
            if now["submit"] == "ok":
                break
            assert time.monotonic() < deadline
        assert "Role to apply" not in now
        assert [now[subject] for subject in ("logs", "cancel", "explain")] == ["ok"] * 3
    finally:
        control_plane.api.delete(path_of(binding))
        control_plane.api.delete(path_of(made))


def test_an_api_server_that_does_not_answer(control_plane: ControlPlane, doctor: Doctor, tmp_path: Path) -> None:
    config = json.loads(control_plane.admin.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{free_ports(1)[0]}"
    nowhere = tmp_path / "kubeconfig"
    nowhere.write_text(json.dumps(config))
    found = doctor(nowhere)
    assert list(found) == ["Python", "Helm", "training here", "kubeconfig", "API server"]
    assert found["API server"][0].level is Level.PROBLEM
    assert "does not answer: connection refused" in found["API server"][0].says


def test_an_unknown_token(control_plane: ControlPlane, doctor: Doctor) -> None:
    found = doctor(control_plane.kubeconfig_for("stale", token="no-such-token"))
    assert "rejects your credentials" in found["API server"][0].says
