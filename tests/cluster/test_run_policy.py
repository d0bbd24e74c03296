"""Attacks by members of a team on quota and on other teams, and what charts/queues does against them.

A real API server applies the chart's Roles and policies. The objects are those that charts/run and charts/ray-cluster
render; each attack changes one of them. Most requests are dry runs, which admission treats like any other.
"""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import upstream
from tests.charts.queues_chart import merged, tree
from tests.cluster import crds
from tests.cluster.api import ApiError, Object, path_of
from tests.cluster.control_plane import ControlPlane
from tests.cluster.launching import LauncherCli
from tests.cluster.run_policy import (
    OURS,
    OWNER,
    PRIORITY,
    QUEUE,
    THEIRS,
    Change,
    Users,
    installed,
    rendered_runs,
    set_at,
    without_queue,
)
from tests.cluster.test_rbac_workloads import until

ADDED = tree("""
policies:
  volumes: [csi, downwardAPI, emptyDir, persistentVolumeClaim, nfs]
  csiDrivers: [gcsfuse.csi.storage.gke.io, secrets.example.com]
  runtimeClasses: [gvisor]
  labelPrefixes: [example.com/]
  annotationPrefixes: [example.com/]
  fields: {pod: [hostAliases], container: [args], RayJob: [runtimeEnvYAML]}
  bounds: {graceSeconds: 200}
""")
"""Additions of the platform team to the policy, and a lower bound."""


@pytest.fixture(scope="module")
def users(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Users]:
    with installed(control_plane, tmp_path_factory.mktemp("policy"), ADDED) as found:
        until(lambda: "x-tokens" in found.attempt(found.alice, TOKEN_SECRET))
        yield found


TOKEN_SECRET: Object = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {
        "name": "stolen",
        "namespace": OURS,
        "annotations": {"kubernetes.io/service-account.name": "default"},
    },
    "type": "kubernetes.io/service-account-token",
}


JOB_POD = ("spec", "replicatedJobs", 0, "template", "spec", "template", "spec")
HEAD, WORKER = ("headGroupSpec",), ("workerGroupSpecs", 0)
OF_HEAD = ("spec", "rayClusterSpec", *HEAD, "template", "spec")
OF_WORKER = ("spec", "rayClusterSpec", *WORKER, "template", "spec")
HOST_PATH = {"name": "storage", "hostPath": {"path": "/"}}


def of_pods(*keys: str | int, value: Any) -> list[tuple[str, Change]]:
    """Return an attack on the pods of each kind: a JobSet's, and Ray's head and workers."""
    ray_job, pod = ("spec", "rayClusterSpec"), ("template", "spec")
    return [
        ("JobSet", set_at(*JOB_POD, *keys, value=value)),
        ("RayJob", set_at(*ray_job, *HEAD, *pod, *keys, value=value)),
        ("RayJob", set_at(*ray_job, *WORKER, *pod, *keys, value=value)),
        ("RayCluster", set_at("spec", *HEAD, *pod, *keys, value=value)),
        ("RayCluster", set_at("spec", *WORKER, *pod, *keys, value=value)),
    ]


def of_every(*keys: str | int, value: Any) -> list[tuple[str, Change]]:
    return [(kind, set_at(*keys, value=value)) for kind in ("JobSet", "RayJob", "RayCluster")]


def of_ray(*keys: str | int, value: Any) -> list[tuple[str, Change]]:
    return [
        ("RayJob", set_at("spec", "rayClusterSpec", *keys, value=value)),
        ("RayCluster", set_at("spec", *keys, value=value)),
    ]


ATTACKS: list[tuple[str, list[tuple[str, Change]], str]] = [
    (
        "no queue",
        of_every("metadata", "labels", QUEUE, value=""),
        f"metadata.labels: {QUEUE} must be research (queue.name in the values of a run), so that Kueue counts the",
    ),
    ("another queue", of_every("metadata", "labels", QUEUE, value="product"), "must be research"),
    ("owner", of_every("metadata", "ownerReferences", value=[OWNER]), "metadata.ownerReferences must not be set"),
    (
        "unknown priority",
        of_every("metadata", "labels", PRIORITY, value="urgent"),
        f"metadata.labels: {PRIORITY} must be high, low, normal or absent",
    ),
    (
        "priority of the system",
        of_pods("priorityClassName", value="system-node-critical"),
        "priorityClassName of the pods must be low or normal or absent",
    ),
    ("priority without pods", of_pods("priorityClassName", value="high"), "must be low or normal or absent"),
    (
        "another service account",
        of_pods("serviceAccountName", value="deployer"),
        "serviceAccountName of the pods must be default or research",
    ),
    ("its old field", of_pods("serviceAccount", value="deployer"), "template.spec.serviceAccount must be absent"),
    ("host path", of_pods("volumes", 0, value=HOST_PATH), "template.spec.volumes[0].hostPath must be absent: it gives"),
    ("host pid", of_pods("hostPID", value=True), "template.spec.hostPID must be absent: it gives access"),
    ("host ipc", of_pods("hostIPC", value=True), "template.spec.hostIPC must be absent: it gives access"),
    ("node name", of_pods("nodeName", value="node-of-others"), "template.spec.nodeName must be absent: it bypasses"),
    ("host network", of_pods("hostNetwork", value=True), "template.spec.hostNetwork must not be true"),
    (
        "external addresses",
        of_ray(*HEAD, "headService", value={"metadata": {}, "spec": {"externalIPs": ["10.0.0.10"]}}),
        "headGroupSpec.headService must be absent: with it, KubeRay publishes",
    ),
    ("load balancer", of_ray(*HEAD, "serviceType", value="LoadBalancer"), "headGroupSpec.serviceType must be absent"),
    ("ingress", of_ray(*HEAD, "enableIngress", value=True), "headGroupSpec.enableIngress must be absent"),
    ("annotations", of_ray("headServiceAnnotations", value={"a": "b"}), "headServiceAnnotations must be absent"),
    ("network policy", of_ray("networkPolicy", value={"mode": "DenyAll"}), "networkPolicy must be absent"),
    (
        "autoscaling run",
        [("RayJob", set_at("spec", "rayClusterSpec", "enableInTreeAutoscaling", value=True))],
        "enableInTreeAutoscaling must not be true: KubeRay grants",
    ),
    (
        "asks for tokens",
        of_ray("authOptions", value={"mode": "token", "enableK8sTokenAuth": True}),
        "authOptions.enableK8sTokenAuth must not be true",
    ),
]
CASES = [
    (f"{name} {kind} {n}", kind, change, why) for name, all_, why in ATTACKS for n, (kind, change) in enumerate(all_)
]


@pytest.mark.parametrize(("kind", "change", "why"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_member_cannot_create(users: Users, kind: str, change: Change, why: str) -> None:
    obj = copy.deepcopy(users.objects[kind])
    change(obj)
    refusal = users.attempt(users.alice, obj)
    assert "ValidatingAdmissionPolicy 'x-runs'" in refusal, refusal
    assert why in refusal


def test_what_the_charts_render_is_accepted(users: Users, tmp_path: Path) -> None:
    for obj in users.objects.values():
        assert users.attempt(users.alice, obj) == ""
        for key in ("low", "normal", "high"):
            obj_with = merged(obj, {"metadata": {"labels": {PRIORITY: key}}})
            assert users.attempt(users.alice, obj_with) == ""
    # The platform team has listed this cluster, which therefore receives tokens.
    listed = merged(users.objects["RayCluster"], {"spec": {"authOptions": {"enableK8sTokenAuth": True}}})
    assert users.attempt(users.alice, listed, name="shared") == ""
    elastic = {"annotations": {"kueue.x-k8s.io/elastic-job": "true"}}
    scaling = merged(users.objects["RayCluster"], {"metadata": elastic, "spec": {"enableInTreeAutoscaling": True}})
    assert users.attempt(users.alice, scaling) == ""
    # Every exception of a team.
    theirs = rendered_runs(tmp_path, "product", THEIRS)
    job = theirs["RayJob"]
    assert "volumeAttributes[bucketName]" in users.attempt(users.bob, job)
    for number, change in enumerate(
        (
            set_at(*OF_HEAD, "volumes", 0, "csi", "volumeAttributes", "bucketName", value="models"),
            set_at(*OF_WORKER, "volumes", 0, "csi", "volumeAttributes", "bucketName", value="models"),
            set_at("metadata", "labels", QUEUE, value="night"),
            set_at("metadata", "labels", PRIORITY, value="low"),
            set_at(*OF_HEAD, "serviceAccountName", value="loader"),
            set_at(*OF_WORKER, "containers", 0, "securityContext", value={"privileged": True}),
            set_at(*OF_WORKER, "containers", 0, "securityContext", "capabilities", value={"add": ["IPC_LOCK"]}),
            set_at(*OF_WORKER, "hostNetwork", value=True),
            set_at("spec", "rayClusterSpec", "enableInTreeAutoscaling", value=True),
        )
    ):
        change(job)
        refusal = users.attempt(users.bob, job)
        assert (refusal == "") == (number >= 1), refusal
    set_at("metadata", "labels", PRIORITY, value="high")(job)
    assert "must be low or absent" in users.attempt(users.bob, job)


def test_what_the_platform_team_adds_is_accepted(users: Users) -> None:
    of_job = ("spec", "replicatedJobs", 0, "template", "spec", "template")
    at = ("spec", "volumes", 3)
    for kind, change in (
        ("JobSet", set_at(*of_job, *at, value={"name": "x", "nfs": {"server": "10.0.0.2", "path": "/ours"}})),
        ("JobSet", set_at(*of_job, *at, value={"name": "x", "csi": {"driver": "secrets.example.com"}})),
        ("JobSet", set_at(*of_job, "spec", "runtimeClassName", value="gvisor")),
        ("JobSet", set_at(*of_job, "spec", "hostAliases", value=[{"ip": "10.0.0.9", "hostnames": ["x"]}])),
        ("JobSet", set_at(*of_job, "spec", "containers", 0, "args", value=["x"])),
        ("JobSet", set_at(*of_job, "spec", "nodeSelector", "example.com/pool", value="x")),
        ("JobSet", set_at(*of_job, "spec", "tolerations", 1, value={"key": "example.com/slow", "operator": "Exists"})),
        ("JobSet", set_at(*of_job, "metadata", "labels", "example.com/x", value="y")),
        ("JobSet", set_at(*of_job, "metadata", "annotations", "example.com/x", value="y")),
        ("JobSet", set_at("metadata", "annotations", "example.com/x", value="y")),
        ("JobSet", set_at("metadata", "labels", "example.com/x", value="y")),
        ("RayJob", set_at("spec", "runtimeEnvYAML", value="env_vars: {A: b}")),
    ):
        obj = copy.deepcopy(users.objects[kind])
        change(obj)
        assert users.attempt(users.alice, obj) == ""
    lowered = copy.deepcopy(users.objects["JobSet"])
    set_at(*of_job, "spec", "terminationGracePeriodSeconds", value=201)(lowered)
    assert "must be at most 200" in users.attempt(users.alice, lowered)


def test_a_csi_driver_of_one_team(users: Users, tmp_path: Path) -> None:
    """A member of the team that lists the driver can use it; a member of another team cannot."""
    volume = {"name": "scratch", "csi": {"driver": "scratch.example.com", "volumeAttributes": {"pool": "fast"}}}
    for user, team, space, why in (
        (users.bob, "product", THEIRS, ""),
        (users.alice, "research", OURS, "csi.driver must be one of gcsfuse.csi.storage.gke.io, secrets.example.com,"),
    ):
        job = rendered_runs(tmp_path, team, space)["JobSet"]
        set_at(*JOB_POD, "volumes", value=[volume])(job)
        set_at(*JOB_POD, "containers", 0, "volumeMounts", value=[])(job)
        refusal = users.attempt(user, job)
        assert why in refusal if why else refusal == ""


def test_a_team_with_a_list_of_claims_mounts_no_other_claim(users: Users, tmp_path: Path) -> None:
    for claim, why in (
        ("ours", ""),
        ("theirs", "persistentVolumeClaim.claimName must be the name of a claim, and one of"),
    ):
        job = rendered_runs(tmp_path, "product", THEIRS, f"storage: {{kind: pvc, claim: {claim}}}")["JobSet"]
        refusal = users.attempt(users.bob, job)
        assert why in refusal if why else refusal == ""


def test_controllers_and_administrators_are_not_restricted(users: Users) -> None:
    """They are recognized by the right to update the status of the kind, and not by their name."""
    for kind in ("JobSet", "RayCluster"):
        owned = without_queue(users.objects[kind])
        owned["metadata"]["ownerReferences"] = [OWNER]
        assert users.attempt(users.operator, owned) == ""
        assert users.attempt(users.admin, owned) == ""
    # The operator may not update the status of RayJobs here.
    assert "x-runs" in users.attempt(users.operator, without_queue(users.objects["RayJob"]))


GATEWAY = {
    "type": "NewClusterWithIncrementalUpgrade",
    "clusterUpgradeOptions": {"gatewayClassName": "istio", "stepSizePercent": 5, "intervalSeconds": 10},
}

OTHER_GATEWAY = {"clusterUpgradeOptions": {"gatewayClassName": "other"}}


@pytest.fixture
def more_kinds(users: Users) -> Iterator[None]:
    """KubeRay's other kinds, and a Role for alice that a platform team may have added."""
    definition = upstream.crd("kuberay", crds.DEFAULTS["kuberay"], "RayCronJob")
    meta = {"name": "more", "namespace": OURS}
    role: Object = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": meta,
        "rules": [{"apiGroups": ["ray.io"], "resources": ["raycronjobs"], "verbs": ["create"]}],
    }
    binding: Object = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "more"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}],
    }
    for obj in (role, binding):
        users.admin.create(obj)
    crds._put(users.admin, definition)
    yield
    for obj in (binding, role, definition):
        users.admin.delete(path_of(obj))


def test_other_kinds_of_ray_are_not_a_way_around(users: Users, more_kinds: None) -> None:
    """KubeRay creates the objects of a RayService and a RayCronJob with its own rights."""
    meta = {"name": "deputy", "namespace": OURS}
    cron: Object = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCronJob",
        "metadata": meta,
        "spec": {"schedule": "0 * * * *", "jobTemplate": users.objects["RayJob"]["spec"]},
    }
    until(lambda: "Members of a team must not create RayCronJobs" in users.attempt(users.alice, cron))
    service = users.objects["RayService"]
    config = service["spec"]["rayClusterConfig"]
    for spec, why in (
        ({}, ""),
        ({"rayClusterConfig": merged(config, {"headGroupSpec": {"serviceType": "LoadBalancer"}})}, "serviceType"),
        ({"serveService": {"spec": {"externalIPs": ["10.0.0.10"]}}}, "spec.serveService must be absent"),
        ({"upgradeStrategy": GATEWAY}, ""),
        ({"upgradeStrategy": merged(GATEWAY, OTHER_GATEWAY)}, "clusterUpgradeOptions.gatewayClassName must be one of"),
        ({"rayClusterConfig": {**config, "enableInTreeAutoscaling": True}}, "as many replicas at most as at least"),
    ):
        refusal = users.attempt(users.alice, {**service, "spec": {**service["spec"], **spec}})
        assert why in refusal if why else refusal == ""
    assert "must be research" in users.attempt(users.alice, without_queue(service))


class Run(NamedTuple):
    mine: Object  # a run of alice
    child: Object  # the Ray cluster that KubeRay created for it


@pytest.fixture(scope="module")
def run(users: Users) -> Iterator[Run]:
    mine = users.alice.create(users.objects["RayJob"])
    users.admin.merge(path_of(mine), {"metadata": {"finalizers": ["ray.io/x"]}})
    owner = {**OWNER, "apiVersion": "ray.io/v1", "kind": "RayJob", "name": "demo", "uid": mine["metadata"]["uid"]}
    meta = {"name": "demo-x1", "namespace": OURS, "ownerReferences": [owner]}
    spec = users.objects["RayJob"]["spec"]["rayClusterSpec"]
    child = users.operator.create({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": meta, "spec": spec})
    yield Run(mine, child)
    users.admin.merge(path_of(mine), {"metadata": {"finalizers": None}})
    for obj in (child, mine):
        users.admin.delete(path_of(obj))


def test_a_member_still_stops_and_labels_a_run(users: Users, run: Run) -> None:
    for change in (
        {"spec": {"suspend": True}},
        {"metadata": {"annotations": {"slipway.dev/cancelled": "2026-01-01T00:00:00Z"}}},
        {"metadata": {"labels": {PRIORITY: "high"}}},
        {"metadata": {"labels": {QUEUE: "research", "note": "x"}}},
    ):
        assert users.patch(users.alice, run.mine, change) == ""


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"metadata": {"labels": {QUEUE: None}}}, "must be research"),
        ({"metadata": {"labels": {QUEUE: "product"}}}, "must be research"),
        ({"metadata": {"labels": {PRIORITY: "urgent"}}}, "or absent"),
        ({"metadata": {"ownerReferences": [OWNER]}}, "ownerReferences must not be set or changed"),
        ({"metadata": {"finalizers": ["ray.io/x", "example.com/x"]}}, "metadata.finalizers must not be set or changed"),
        ({"metadata": {"finalizers": None}}, "metadata.finalizers must not be set or changed"),
        ({"metadata": {"labels": {"slipway.dev/team": "product"}}}, "metadata.labels[slipway.dev/team]"),
        ({"metadata": {"annotations": {"ray.io/x": "y"}}}, "metadata.annotations[ray.io/x]"),
        ({"spec": {"rayClusterSpec": {"enableInTreeAutoscaling": True}}}, "spec of a RayJob must not be changed"),
        ({"spec": {"rayClusterSpec": {"headGroupSpec": {"serviceType": "LoadBalancer"}}}}, "must not be changed"),
        ({"spec": {"activeDeadlineSeconds": 60}}, "spec of a RayJob must not be changed"),
        ({"spec": {"suspend": False}}, ""),
    ],
)
def test_a_member_cannot_change_a_run_to_an_attack(users: Users, run: Run, change: Object, why: str) -> None:
    refusal = users.patch(users.alice, run.mine, change)
    assert why in refusal if why else refusal == ""


SUBRESOURCES = (
    *(("", f"pods/{name}") for name in ("exec", "attach", "ephemeralcontainers", "eviction", "resize", "portforward")),
    *(("", f"pods/{name}") for name in ("status", "binding", "proxy")),
    *(("", name) for name in ("pods", "secrets", "serviceaccounts/token", "services", "persistentvolumeclaims")),
    *(("ray.io", f"{kind}/{part}") for kind in ("rayjobs", "rayservices") for part in ("status", "scale")),
    *(("ray.io", f"rayclusters/{part}") for part in ("status", "scale", "finalizers")),
    *(("jobset.x-k8s.io", f"jobsets/{part}") for part in ("status", "scale")),
    *(("batch", name) for name in ("jobs", "jobs/status")),
    *(("kueue.x-k8s.io", name) for name in ("workloads/status", "localqueues")),
    ("resource.k8s.io", "resourceclaims"),
)


def test_a_member_has_no_subresource_that_changes_a_run(users: Users) -> None:
    """bob's team has neither shell nor helm; the API server answers for its Role."""
    allowed = []
    for group, resource in SUBRESOURCES:
        name, _, below = resource.partition("/")
        for verb in ("create", "update", "patch", "delete"):
            attributes = {"namespace": THEIRS, "verb": verb, "group": group, "resource": name, "subresource": below}
            review = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            }
            answer = users.bob.request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
            if answer["status"]["allowed"]:
                allowed.append((verb, resource))
    assert allowed == []


def test_a_member_suspends_a_run_and_does_not_resume_it(users: Users) -> None:
    """Between the member's false and Kueue's true, pods would start that no quota covers."""
    for kind in ("JobSet", "RayCluster"):
        suspended = merged(users.objects[kind], {"metadata": {"name": users.objects[kind]["metadata"]["name"]}})
        suspended["spec"]["suspend"] = True
        waiting = users.alice.create(suspended)
        try:
            for value in (False, None):
                refusal = users.patch(users.alice, waiting, {"spec": {"suspend": value}})
                assert "spec.suspend must not be set to false: only Kueue starts a run" in refusal
            assert users.patch(users.alice, waiting, {"metadata": {"labels": {"note": "x"}}}) == ""
            assert users.patch(users.operator, waiting, {"spec": {"suspend": False}}) == ""
            users.operator.merge(path_of(waiting), {"spec": {"suspend": False}})
            assert users.patch(users.alice, waiting, {"spec": {"suspend": True}}) == ""
        finally:
            users.admin.delete(path_of(waiting))


def test_a_member_cannot_enlarge_the_ray_cluster_of_an_admitted_run(users: Users, run: Run) -> None:
    groups = copy.deepcopy(run.child["spec"]["workerGroupSpecs"])
    groups[0]["replicas"] = groups[0]["maxReplicas"] = 40
    assert "belongs to another object" in users.patch(users.alice, run.child, {"spec": {"workerGroupSpecs": groups}})
    assert "ownerReferences" in users.patch(users.alice, run.child, {"metadata": {"ownerReferences": None}})
    assert users.patch(users.operator, run.child, {"spec": {"workerGroupSpecs": groups}}) == ""


def test_an_object_from_before_the_policy_can_still_be_stopped(users: Users) -> None:
    """Its member may stop it and change what the policy does not check, but not resume the attack elsewhere."""
    made = without_queue(users.objects["JobSet"])
    set_at(*JOB_POD, "hostNetwork", value=True)(made)
    set_at("metadata", "labels", "example.org/old", value="x")(made)
    old = users.admin.create(made)
    try:
        for change in ({"spec": {"suspend": True}}, {"metadata": {"labels": {"note": "x"}}}):
            assert users.patch(users.alice, old, change) == ""
        assert "must be research" in users.patch(users.alice, old, {"metadata": {"labels": {QUEUE: "other"}}})
    finally:
        users.admin.delete(path_of(old))


def test_helm_does_not_give_a_member_other_accounts_tokens(users: Users) -> None:
    """`helm: true` gives members the right to create Secrets, and Kubernetes fills some of them with tokens."""
    assert "Members of a team must not create Secrets of the type" in users.attempt(users.alice, TOKEN_SECRET)
    for kind in ("Opaque", "helm.sh/release.v1"):
        assert users.attempt(users.alice, {**TOKEN_SECRET, "type": kind}) == ""
    assert users.attempt(users.admin, TOKEN_SECRET) == ""


def test_a_team_without_the_right_to_it_creates_no_ray_cluster(users: Users, tmp_path: Path) -> None:
    theirs = rendered_runs(tmp_path, "product", THEIRS)
    assert 'User "bob" cannot create resource "rayclusters"' in users.attempt(users.bob, theirs["RayCluster"])
    for one, other in itertools.permutations((OURS, THEIRS)):
        user = users.bob if one == OURS else users.alice
        assert "cannot create resource" in users.attempt(
            user, json.loads(json.dumps(users.objects["JobSet"]).replace(OURS, one).replace(other, one))
        )


def test_submit_reports_the_field_the_accepted_value_and_whom_to_ask(
    users: Users, control_plane: ControlPlane, tmp_path: Path
) -> None:
    cli = LauncherCli(control_plane.kubeconfig_for("alice", namespace=OURS), OURS, tmp_path)
    team, forced = {"name": "research", "namespace": OURS, "serviceAccount": "deployer"}, ("--detach", "--force")
    done = cli(
        "submit", "-f", cli.values("job-set", name="mine", team=team, queue={"name": ""}), *forced
    )  # --force: the namespace has no queue here
    assert done.code == 1
    assert done.err.splitlines()[-1] == (
        "Error: The API server of the context alice@test rejects the request: serviceAccountName of the pods must be "
        "default or research (team.serviceAccount in the values of a run). Or ask your platform team (teams.research "
        "in the values of charts/queues). (from the policy x-runs)"
    )


ORPHANS = ({"propagationPolicy": "Orphan"}, {"orphanDependents": True})


@pytest.mark.parametrize("kind", ["RayJob", "RayCluster", "RayService", "JobSet"])
def test_a_deleted_run_takes_its_pods_with_it(users: Users, kind: str) -> None:
    obj = users.objects[kind]
    made = users.admin.create({**copy.deepcopy(obj), "metadata": {**obj["metadata"], "name": "orphan"}})
    try:
        for options in ORPHANS:
            # A body overrides the options in the query, so dryRun is in it.
            body = {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"], **options}
            with pytest.raises(ApiError, match="propagationPolicy must not be Orphan"):
                users.alice.request("DELETE", path_of(made), body)
            users.admin.request("DELETE", path_of(made), body)
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}
        users.alice.request("DELETE", path_of(made), body)
    finally:
        users.admin.delete(path_of(made))
