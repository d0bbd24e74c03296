"""The rights of a team's members by the Roles and the policy of charts/queues, tested with a real API server.

Members cancel a run by its Workload's spec.active, and RBAC cannot restrict fields. So the policy must work for the
Workloads of every supported Kueue, only for members, and only in their own namespace.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests import upstream
from tests.charts.queues_chart import BASE, merged, render, tree
from tests.cluster import crds, recordings
from tests.cluster.api import Api, ApiError, path_of
from tests.cluster.control_plane import ControlPlane, remove_namespace
from tests.tools import tool

OURS, THEIRS = "rbac-research", "rbac-product"
KINDS = {
    *("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
}
# Like the rights of Kueue's controller, which has update in addition to patch.
CONTROLLER = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "rbac-controller"},
    "rules": [{"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["get", "patch", "update"]}],
}
CONTROLLER_BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "rbac-controller"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "rbac-controller"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "controller"}],
}


class Users(NamedTuple):
    admin: Api
    member: Api  # a member of the team with the namespace OURS
    other: Api  # a member of the team with the namespace THEIRS
    controller: Api


@pytest.fixture(scope="module")
def users(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Users]:
    """The users of two teams, with the chart's RBAC and policy in effect."""
    over = tree(
        f"teams: {{research: {{namespace: {OURS}, members: {{alice: User}}, clusters: [notebooks]}},"
        f" product: {{namespace: {THEIRS}, members: {{bob: User}}}}}}"
    )
    rendered = render(tool("helm"), merged(BASE, over), tmp_path_factory.mktemp("values"))
    made = [obj for obj in rendered if obj["kind"] in KINDS] + [CONTROLLER, CONTROLLER_BINDING]
    admin = control_plane.api
    for name in (OURS, THEIRS):
        control_plane.add_namespace(name)
    for obj in made:
        admin.create(obj)
    found = Users(admin, *(Api(control_plane.kubeconfig_for(name)) for name in ("alice", "bob", "controller")))
    probe = admin.create(workload("probe", "v1beta2"))
    # Bindings and policies take effect with a delay.
    numbers = itertools.count(200)  # a patch that changes nothing is not rejected
    until(lambda: "ValidatingAdm" in refused(found.member, probe, {"spec": {"priority": next(numbers)}}))
    until(lambda: found.controller.get(path_of(probe)))
    yield found
    admin.merge(path_of(probe), {"metadata": {"finalizers": None}})
    for user in found[1:]:
        user.close()
    for obj in made:
        admin.delete(path_of(obj))
    for name in (OURS, THEIRS):
        remove_namespace(admin, name)


@pytest.fixture(scope="module", params=["0.16.9", "0.17.8", "0.18.6", "0.19.2"])
def kueue(request: pytest.FixtureRequest, users: Users) -> Iterator[str]:
    """A version of Kueue. The API server serves its Workloads."""
    put(users.admin, request.param)
    yield request.param
    put(users.admin, crds.DEFAULTS["kueue"])


def put(admin: Api, version: str) -> None:
    crds._put(admin, upstream.crd("kueue", version, "Workload"))


def workload(name: str, version: str) -> dict[str, Any]:
    """A Workload as Kueue creates it."""
    container = {"name": "trainer", "image": "example.invalid/trainer:1", "resources": {"requests": {"cpu": "1"}}}
    pods = {"metadata": {}, "spec": {"containers": [container], "restartPolicy": "Never"}}
    owner = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": name, "uid": "0-0", "controller": True}
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": OURS,
            "labels": {"kueue.x-k8s.io/job-uid": "0-0"},
            "finalizers": ["kueue.x-k8s.io/resource-in-use"],
            "ownerReferences": [owner],
        },
        "spec": {
            "active": True,
            "queueName": "research",
            "priority": 100,
            "podSets": [{"name": "slice", "count": 2, "template": pods}],
        },
    }


def until(condition: Callable[[], Any], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except ApiError as error:
            assert time.monotonic() < deadline, error
        assert time.monotonic() < deadline
        time.sleep(0.1)


def refused(user: Api, obj: dict[str, Any], patch: dict[str, Any]) -> str:
    """The server's error for a patch, or "" if it accepts the patch."""
    try:
        user.merge(path_of(obj), patch)
    except ApiError as error:
        assert error.status == 403, error
        message = str(error.body["message"])
        return (
            message[message.find("ValidatingAdmissionPolicy") :] if "ValidatingAdmissionPolicy" in message else message
        )
    return ""


@pytest.fixture
def one(users: Users, kueue: str, request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """A queued Workload in the members' namespace."""
    wanted = workload("a-run", "v1beta2")
    # Its owner must exist. Otherwise the garbage collector deletes it.
    team = users.admin.get(f"/api/v1/namespaces/{OURS}")
    wanted["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Namespace", "name": OURS, "uid": team["metadata"]["uid"], "controller": True}
    ]
    obj = users.admin.create(wanted)
    yield obj
    users.admin.merge(path_of(obj), {"metadata": {"finalizers": None}})
    users.admin.delete(path_of(obj))
    until(lambda: users.admin.find(path_of(obj)) is None)


SPEC = "Members of a team may change nothing in the spec of a Workload but active; priority and queue are labels of the"
METADATA = "Members of a team may change nothing in the metadata of a Workload."
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"spec": {"priority": 1000}}, SPEC),
    ({"spec": {"priority": 1000, "active": False}}, SPEC),
    ({"spec": {"priority": None}}, SPEC),
    ({"spec": {"queueName": "other"}}, SPEC),
    ({"spec": {"queueName": None}}, SPEC),
    ({"spec": {"maximumExecutionTimeSeconds": 5}}, SPEC),
    ({"spec": {"podSets": [{"name": "slice", "count": 1, "template": {"spec": {"containers": []}}}]}}, SPEC),
    ({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high"}}}, METADATA),
    ({"metadata": {"labels": None}}, METADATA),
    ({"metadata": {"annotations": {"a": "b"}}}, METADATA),
    ({"metadata": {"finalizers": None}}, METADATA),
    ({"metadata": {"finalizers": ["example.com/mine"]}}, METADATA),
    ({"metadata": {"ownerReferences": None}}, METADATA),
]


def test_a_member_can_stop_and_resume_a_run_but_change_nothing_else(users: Users, one: dict[str, Any]) -> None:
    for active in (False, True, False):
        assert users.member.merge(path_of(one), {"spec": {"active": active}})["spec"] == {
            **one["spec"],
            "active": active,
        }
    before = users.admin.get(path_of(one))
    for patch, message in REFUSED:
        assert message in refused(users.member, one, patch), patch
    after = users.admin.get(path_of(one))
    assert (after["spec"], after["metadata"]) == (before["spec"], before["metadata"])


def test_a_member_can_stop_an_admitted_run(users: Users, one: dict[str, Any]) -> None:
    """The Workload has the status that Kueue writes when it admits a run."""
    condition = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": ""}
    at = "2026-11-21T06:00:00Z"
    admission = {
        "clusterQueue": "research",
        "podSetAssignments": [{"name": "slice", "count": 2, "flavors": {"cpu": "cpu"}}],
    }
    status = {"conditions": [{**condition, "lastTransitionTime": at}], "admission": admission}
    users.admin.merge(f"{path_of(one)}/status", {"status": status})
    assert users.member.merge(path_of(one), {"spec": {"active": False}})["spec"]["active"] is False
    with pytest.raises(ApiError, match="forbidden"):
        users.member.merge(f"{path_of(one)}/status", {"status": {"conditions": []}})
    assert SPEC in refused(users.member, one, {"spec": {"priority": 1000}})


def test_other_requests_do_not_bypass_the_policy(users: Users, one: dict[str, Any]) -> None:
    path = path_of(one)
    applied = {"apiVersion": one["apiVersion"], "kind": "Workload", "metadata": {"name": "a-run"}}
    ways: list[tuple[str, str, Any, str]] = [
        ("PUT", path, {**one, "spec": {**one["spec"], "priority": 1000}}, "application/json"),
        ("PATCH", path, [{"op": "replace", "path": "/spec/priority", "value": 1000}], "application/json-patch+json"),
        (
            *("PATCH", f"{path}?fieldManager=me&force=true"),
            *({**applied, "spec": {"priority": 1000}}, "application/apply-patch+yaml"),
        ),
        ("POST", path.rpartition("/")[0], workload("mine", "v1beta2"), "application/json"),
        ("DELETE", path, None, "application/json"),
    ]
    for method, where, body, content_type in ways:
        with pytest.raises(ApiError, match=r"forbidden|denied"):
            users.member.request(method, where, body, content_type)
    # Members can also change active by server-side apply.
    active = {**applied, "spec": {"active": False}}
    users.member.request("PATCH", f"{path}?fieldManager=me&force=true", active, "application/apply-patch+yaml")
    assert users.admin.get(path)["spec"]["active"] is False


def test_users_with_the_right_to_update_are_not_restricted(users: Users, one: dict[str, Any]) -> None:
    for user in (users.admin, users.controller):
        for patch in (
            {"spec": {"priority": 1000}},
            {"spec": {"queueName": "other"}},
            {"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}},
            {"spec": {"active": False}},
        ):
            assert refused(user, one, patch) == "", patch


def test_another_team_cannot_read_or_stop_it(users: Users, one: dict[str, Any]) -> None:
    for patch in ({"spec": {"active": False}}, {"spec": {"priority": 1000}}):
        assert 'User "bob" cannot patch resource "workloads"' in refused(users.other, one, patch)
    with pytest.raises(ApiError, match='User "bob" cannot get resource "workloads"'):
        users.other.get(path_of(one))


@pytest.mark.parametrize(
    ("service", "status"),
    [
        # RBAC compares the resourceName with the segment of the URL. The Service does not exist, so allowed requests
        # return 404.
        ("http:notebooks-head-svc:8265", 404),
        ("notebooks-head-svc:8265", 404),
        ("notebooks-head-svc", 403),
        ("http:notebooks-head-svc:dashboard", 403),
        ("https:notebooks-head-svc:8265", 403),
        ("http:notebooks-head-svc:10001", 403),
        ("http:others-head-svc:8265", 403),
    ],
)
def test_members_reach_only_the_dashboards_of_their_clusters(users: Users, service: str, status: int) -> None:
    for namespace, user, expected in ((OURS, users.member, status), (OURS, users.other, 403)):
        path = f"/api/v1/namespaces/{namespace}/services/{service}/proxy/api/version"
        assert user.open("GET", path).status == expected


def test_members_have_the_rights_that_the_launcher_needs(users: Users) -> None:
    """The rights for submit, follow, explain and cancel, and no rights in other namespaces or to other objects."""

    def may(verb: str, resource: str, namespace: str = OURS) -> bool:
        group, _, rest = resource.rpartition("/") if "." in resource else ("", "", resource)
        name, _, subresource = rest.partition(":")
        attributes = {"verb": verb, "group": group, "resource": name, "subresource": subresource}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {**attributes, "namespace": namespace}},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return bool(users.member.request("POST", path, review)["status"]["allowed"])

    runs = ("ray.io/rayjobs", "jobset.x-k8s.io/jobsets")
    wanted = [(verb, run) for run in runs for verb in ("create", "get", "list", "watch", "patch", "delete")]
    wanted += [
        (verb, resource)
        for resource in ("kueue.x-k8s.io/workloads", "kueue.x-k8s.io/localqueues", "pods", "events", "batch/jobs")
        for verb in ("get", "list", "watch")
        if "/" not in resource or "." in resource
    ]
    wanted += [("get", "pods:log"), ("patch", "kueue.x-k8s.io/workloads"), ("list", "limitranges")]
    wanted += [("list", "autoscaling.x-k8s.io/provisioningrequests"), ("list", "resourcequotas"), ("get", "namespaces")]
    assert [each for each in wanted if not may(*each)] == []
    assert not may("list", "namespaces", "")
    everywhere = ("kueue.x-k8s.io/clusterqueues", "kueue.x-k8s.io/cohorts", "nodes", "kueue.x-k8s.io/resourceflavors")
    assert [each for each in everywhere if not may("list", each, "")] == []
    unwanted = [
        *(("get", "secrets"), ("list", "secrets"), ("create", "pods"), ("create", "pods:exec"), ("get", "configmaps")),
        *(("update", "kueue.x-k8s.io/workloads"), ("patch", "kueue.x-k8s.io/workloads:status")),
        *(("create", "kueue.x-k8s.io/workloads"), ("delete", "kueue.x-k8s.io/workloads")),
        *(("get", "services:proxy"), ("create", "serviceaccounts:token"), ("create", "ray.io/rayclusters")),
    ]
    assert [each for each in unwanted if may(*each)] == []
    assert [each for each in wanted if may(*each, namespace=THEIRS)] == []
    assert json.dumps(wanted)


def test_a_member_can_stop_a_recorded_workload(users: Users) -> None:
    """The Workload was created by the real Kueue, with all of its fields."""
    found = next(change.obj for change in recordings.read("rayjob-succeeds") if change.obj["kind"] == "Workload")
    metadata = {key: found["metadata"][key] for key in ("name", "labels", "finalizers", "ownerReferences")}
    obj = users.admin.create({**found, "metadata": {**metadata, "namespace": OURS}})
    assert users.member.merge(path_of(obj), {"spec": {"active": False}})["spec"]["active"] is False
    assert SPEC in refused(users.member, obj, {"spec": {"priority": 5}})
    users.admin.merge(path_of(obj), {"metadata": {"finalizers": None}})
