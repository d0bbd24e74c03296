"""`launcher explain` with a real API server.

The objects that Kueue, JobSet and KubeRay wrote are replayed. The components that schedule, create and reject pods are
real: the scheduler, the Job controller, ResourceQuota, Pod Security, an admission webhook without a server.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.backends.kubernetes import pod_failures
from tests.charts.queues_chart import BASE, merged, render, tree
from tests.cluster.api import Api, Object, path_of
from tests.cluster.control_plane import ControlPlane
from tests.cluster.launching import JOB_SETS, PATHS, LauncherCli
from tests.cluster.recorded_cluster import base_cluster
from tests.cluster.replay import follow_as
from tests.tools import tool


@pytest.fixture(scope="module", autouse=True)
def nodes(control_plane: ControlPlane) -> None:
    """v5e slices of 2x4, and cpu nodes."""
    base_cluster(control_plane)


@pytest.fixture
def cli(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> LauncherCli:
    return LauncherCli(control_plane.admin, namespace, tmp_path)


def explain(cli: LauncherCli, name: str = "demo") -> Any:
    done = cli("explain", name, "-n", cli.namespace, "-o", "json")
    assert (done.code, done.err) == (0, "")
    return done.json


def submit_and_replay(
    cli: LauncherCli, plane: ControlPlane, kind: str, recording: str, run: str, until: float, queue: str
) -> None:
    """Submit a run, and replay what happened to the recorded run `run` and its queues, up to `until` seconds."""
    done = cli("submit", "-f", cli.values(kind, queue={"name": queue}), "--detach", "--force")
    assert done.code == 0, done.err
    live = plane.api.get(f"{PATHS[kind].format(cli.namespace)}/demo")
    follow_as(plane, recording, live, run=run, skip_queues=False).step_to(until)


# --- recorded situations ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "recording", "run", "until", "state", "position", "headline"),
    [
        (
            *("job-set", "quota-in-use-by-others", "waiting-2", 8, "queued", 1),
            "demo waits for 16 chips of v5e-2x4: the queue tpu-NS has 8 of 24 free, and first-2 has held 16 for",
        ),
        (
            *("job-set", "preempted-by-priority", "low-3", 11, "preempted", 1),
            "demo was preempted",
        ),
        (
            *("job-set", "no-such-queue", "lost", 4, "queued", None),
            'demo waits in a queue that does not exist: the namespace NS has no LocalQueue "nosuch".',
        ),
        (
            *("ray-job", "head-not-covered-by-quota", "head-uncovered", 4, "queued", 1),
            "demo can never start in the queue tpu-NS: its head requests 2 CPUs and 8 GiB of memory, and the queue has "
            "no quota for cpu or memory.",
        ),
        ("ray-job", "rayjob-fails", "bad", 60, "failed", None, "demo failed: Job entrypoint command failed with"),
    ],
    ids=["in-use", "preempted", "no-such-queue", "not-covered", "failed"],
)
def test_a_recorded_situation(
    kind: str,
    recording: str,
    run: str,
    until: float,
    state: str,
    position: int | None,
    headline: str,
    cli: LauncherCli,
    control_plane: ControlPlane,
) -> None:
    submit_and_replay(cli, control_plane, kind, recording, run, until, "nosuch" if run == "lost" else "multislice")
    explanation = explain(cli)
    assert explanation["headline"].startswith(headline.replace("NS", cli.namespace))
    assert (explanation["name"], explanation["state"], explanation["position"]) == ("demo", state, position)
    assert explanation["suggestions"]
    assert all(item.keys() == {"kind", "name", "says"} for item in explanation["evidence"])


def test_text_has_a_headline_evidence_and_suggestions(cli: LauncherCli, control_plane: ControlPlane) -> None:
    submit_and_replay(cli, control_plane, "job-set", "no-such-queue", "lost", 4, "nosuch")
    done = cli("explain", "demo", "-n", cli.namespace)
    assert (done.code, done.err) == (0, "")
    workload = control_plane.api.items(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{cli.namespace}/workloads")[0]
    assert done.out == (
        f'demo waits in a queue that does not exist: the namespace {cli.namespace} has no LocalQueue "nosuch".\n'
        "\n"
        f"  Workload {workload['metadata']['name']}: LocalQueue nosuch doesn't exist.\n"
        "\n"
        "Suggestions:\n"
        f"  - launcher cancel demo -n {cli.namespace}, then submit it again with --set queue.name=multislice "
        "--continue (the queues of "
        f"{cli.namespace} are: multislice).\n"
    )


def test_no_such_run(cli: LauncherCli) -> None:
    done = cli("explain", "nosuch", "-n", cli.namespace)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith('Error: The run "nosuch" was not found')


# --- a member of a team, with the Role of charts/queues -----------------------------------------------------------


@pytest.fixture
def member(control_plane: ControlPlane, cli: LauncherCli, tmp_path: Path) -> Iterator[LauncherCli]:
    """The launcher of a user who has only the Role that charts/queues gives to members of a team."""
    user = f"member-{secrets.token_hex(4)}"
    over = tree(f"teams: {{research: {{namespace: {cli.namespace}, members: {{{user}: User}}}}}}")
    rendered = render(tool("helm"), merged(BASE, over), tmp_path)
    kinds = ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    made = [obj for obj in rendered if obj["kind"] in kinds]
    for obj in made:
        if obj["metadata"].get("namespace", cli.namespace) != cli.namespace:
            continue
        if obj["kind"].startswith("Cluster"):  # releases of other tests have objects of that name
            obj["metadata"]["name"] += f"-{user}"
            if "roleRef" in obj:
                obj["roleRef"]["name"] += f"-{user}"
        control_plane.api.create(obj)
    yield LauncherCli(control_plane.kubeconfig_for(user, namespace=cli.namespace), cli.namespace, tmp_path / "member")
    for obj in made:
        if obj["kind"].startswith("Cluster"):  # the others are deleted with their namespace
            control_plane.api.delete(path_of(obj))


def test_a_member_gets_what_the_role_permits(
    cli: LauncherCli, member: LauncherCli, control_plane: ControlPlane
) -> None:
    submit_and_replay(cli, control_plane, "job-set", "borrowing-then-reclaimed", "borrows-3", 15, "multislice")
    ns = cli.namespace
    whole = explain(cli)
    assert f", by owner-2 of {ns}-search, the owner of quota" in whole["headline"].replace(" ago by", ", by")
    explanation = until(lambda: explain(member))
    assert (
        "ago by the owner of quota that it had borrowed, and waits for 24 chips of v5e-2x4, of which 8 are"
        in (explanation["headline"])
    )
    says = {(item["kind"], item["name"]): item["says"] for item in explanation["evidence"]}
    assert says["RBAC", ""] == "you may not read the runs of other teams, so this explanation does not include them."
    assert "16 chips of v5e-2x4 are held by runs of other teams" in says["ClusterQueue", f"search-{ns}"]
    assert explanation["position"] == whole["position"] == 1


# --- the real scheduler and the real controllers ------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Name faults at once. tests/unit/test_explain_patience.py tests that `explain` waits."""
    monkeypatch.setattr(pod_failures, "NODE_SECONDS", 0.0)
    monkeypatch.setattr(pod_failures, "CONTAINER_SECONDS", 0.0)


def until(read: Callable[[], Any], holds: Callable[[Any], bool] = bool, seconds: float = 20) -> Any:
    """The first value of `read` for which `holds` is true. Raises AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not holds(found := read()):
        assert time.monotonic() < deadline, f"timed out, last value: {found}"
        time.sleep(0.1)
    return found


def started(cli: LauncherCli, api: Api, topology: str, accelerator: str = "v5p", **values: Any) -> None:
    """Submit a JobSet without a queue, and create its Job, because JobSet's controller does not run."""
    slice_ = {"accelerator": accelerator, "topology": topology, "count": 1}
    team = {"name": "", "namespace": cli.namespace}
    file = cli.values("job-set", team=team, queue={"name": ""}, slice=slice_, **values)
    done = cli("submit", "-f", file, "--detach", "--force")
    assert done.code == 0, done.err
    run = api.get(f"{JOB_SETS.format(cli.namespace)}/demo")
    template = run["spec"]["replicatedJobs"][0]["template"]
    labels = {"jobset.sigs.k8s.io/jobset-name": "demo", "jobset.sigs.k8s.io/job-index": "0"}
    pod = template["spec"]["template"]
    pod["metadata"]["labels"] = {**pod["metadata"].get("labels", {}), **labels}
    owner = {key: run[key] for key in ("apiVersion", "kind")}
    owner |= {"name": "demo", "uid": run["metadata"]["uid"], "controller": True}
    api.create(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": "demo-slice-0",
                "namespace": cli.namespace,
                "labels": labels,
                "ownerReferences": [owner],
            },
            "spec": template["spec"],
        }
    )
    status = [{"name": "slice", "active": 1, "ready": 0, "succeeded": 0, "failed": 0, "suspended": 0}]
    api.merge(f"{path_of(run)}/status", {"status": {"replicatedJobsStatus": status}})


def headline(cli: LauncherCli, has: str) -> str:
    """Wait until the headline contains `has`, and return it."""
    explanation = until(lambda: explain(cli), lambda found: has in found["headline"])
    return str(explanation["headline"])


@pytest.mark.usefixtures("impatient")
def test_no_node_matches(cli: LauncherCli, admin: Api) -> None:
    started(cli, admin, "2x2x1")
    assert headline(cli, "no node of").startswith(
        "demo cannot start because its pods cannot be scheduled: no node of the cluster has "
    )


@pytest.mark.usefixtures("impatient")
def test_a_taint_is_not_tolerated(cli: LauncherCli, admin: Api, control_plane: ControlPlane) -> None:
    names = control_plane.add_nodes(f"tainted-{cli.namespace}", "tpu-v5p-slice", "2x2x2", 2, 4)
    for name in names:
        node = f"/api/v1/nodes/{name}"
        taints = [*admin.get(node)["spec"].get("taints", []), {"key": "team", "value": "x", "effect": "NoSchedule"}]
        admin.merge(node, {"spec": {"taints": taints}})
    try:
        started(cli, admin, "2x2x2")
        explanation = headline(cli, "tolerate")
        assert explanation == (
            "demo cannot start because its pods cannot be scheduled: they do not tolerate the taint team=x:NoSchedule "
            "of 2 of the 2 matching nodes."
        )
    finally:
        for name in names:
            admin.delete(f"/api/v1/nodes/{name}")


@pytest.mark.usefixtures("impatient")
def test_a_volume_is_missing(cli: LauncherCli, admin: Api) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "checkpoints", "namespace": cli.namespace},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "no-such-class",
        },
    }
    admin.create(claim)
    started(cli, admin, "2x4", "v5e", storage={"kind": "pvc", "bucket": "", "claim": "checkpoints"})
    explanation = until(lambda: explain(cli), lambda found: "no volume" in found["headline"])
    assert (
        explanation["headline"]
        == "demo cannot start: its storage, the PersistentVolumeClaim checkpoints, has no volume."
    )
    says = next(item["says"] for item in explanation["evidence"] if item["kind"] == "PersistentVolumeClaim")
    assert says.startswith("is Pending, with the storage class no-such-class")


@pytest.mark.usefixtures("impatient")
def test_a_claim_is_missing(cli: LauncherCli, admin: Api) -> None:
    started(cli, admin, "2x4", "v5e", storage={"kind": "pvc", "bucket": "", "claim": "nosuch"})
    assert headline(cli, "does not exist") == (
        "demo cannot start: its storage, the PersistentVolumeClaim nosuch, does not exist."
    )


@pytest.mark.usefixtures("impatient")
def test_the_namespace_has_a_quota(cli: LauncherCli, admin: Api) -> None:
    quota: Object = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "team", "namespace": cli.namespace},
        "spec": {"hard": {"pods": "1"}},
    }
    admin.create(quota)
    until(lambda: admin.get(path_of(quota)), lambda found: "hard" in found.get("status", {}))
    started(cli, admin, "2x2x2")
    assert headline(cli, "limit") == (
        f"demo cannot start: its pods would exceed the ResourceQuota team of the namespace {cli.namespace}: they "
        "request pods=1 more, pods=1 is in use, and the limit is pods=1."
    )


@pytest.mark.usefixtures("impatient")
def test_pod_security_refuses(cli: LauncherCli, admin: Api) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "baseline"}
    admin.merge(f"/api/v1/namespaces/{cli.namespace}", {"metadata": {"labels": labels}})
    started(cli, admin, "2x2x1", security={"hostNetwork": True})
    explanation = until(lambda: explain(cli), lambda found: "allows" in found["headline"])
    assert explanation["headline"].startswith(
        f"demo cannot start: the namespace {cli.namespace} allows only baseline pods, and its pods violate this (host "
        "namespaces (hostNetwork=true)"
    )
    assert explanation["suggestions"][0] == "Set security.hostNetwork: false, and submit it again."


@pytest.mark.usefixtures("impatient")
def test_a_webhook_does_not_answer(cli: LauncherCli, admin: Api) -> None:
    name = f"explain-{cli.namespace}"
    webhook = {
        "name": "vtpu.example.com",
        "clientConfig": {"service": {"name": "tpu-webhook", "namespace": cli.namespace, "path": "/mutate"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": cli.namespace}},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
    }
    config = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [webhook],
    }
    admin.create(config)
    try:
        time.sleep(1)  # a webhook takes effect with a delay, and no status shows when
        started(cli, admin, "2x2x1")
        explanation = until(lambda: explain(cli), lambda found: "webhook" in found["headline"])
        assert explanation["headline"] == (
            "demo cannot start: the admission webhook vtpu.example.com does not answer, so the API server creates no "
            "pods for it."
        )
        assert (
            f"kubectl -n {cli.namespace} get pods,endpointslices (Service tpu-webhook)" in explanation["suggestions"][0]
        )
    finally:
        admin.delete(path_of(config))
