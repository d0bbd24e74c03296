"""The doctor's findings on the separation of teams, on objects like those of charts/queues."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from launcher.diagnose.doctor.finding import Finding, Level
from launcher.diagnose.doctor.inventory import ClusterInventory, Fetched, TeamObjects
from launcher.k8s.errors import Forbidden
from launcher.k8s.kueue.queues import LocalQueue
from launcher.k8s.nodes import Node
from launcher.products.platform.doctor import isolation
from launcher.products.platform.doctor.isolation import selects
from tests.cluster import doctor_objects as upstream
from tests.unit.test_doctor import healthy, parsed, slice_nodes

Object = dict[str, Any]
OURS = {"app.kubernetes.io/part-of": "slipway", "slipway.dev/team": "research"}
ANYWHERE: Object = {"ports": [{"port": 80}], "to": [{"ipBlock": {"cidr": "169.254.169.254/32"}}]}
OPERATOR: Object = {
    "namespaceSelector": {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["gke-managed-ray-operator"]}
        ]
    }
}


def ours(obj: Object) -> Object:
    return {**obj, "metadata": {**obj["metadata"], "labels": OURS}}


def network_policy(*egress: Object, peer: Object | None = None) -> Object:
    spec = {"ingress": [{"ports": [{"port": 8265}], "from": [peer or OPERATOR]}], "egress": list(egress)}
    return ours(upstream.named("NetworkPolicy", "networking.k8s.io/v1", "research", "research", spec=spec))


def policy(**matches: Any) -> Object:
    names = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["research"]}
    rules = [{"operations": ["CREATE", "UPDATE"], "resources": [kind]} for kind in ("rayjobs", "jobsets")]
    spec = {"matchConstraints": {"namespaceSelector": {"matchExpressions": [names]}, "resourceRules": rules, **matches}}
    return ours(upstream.named("ValidatingAdmissionPolicy", "admissionregistration.k8s.io/v1", "q-runs", spec=spec))


def binding(*actions: str) -> Object:
    spec = {"policyName": "q-runs", "validationActions": list(actions)}
    return ours(
        upstream.named("ValidatingAdmissionPolicyBinding", "admissionregistration.k8s.io/v1", "q-runs", spec=spec)
    )


def separated(**changes: Any) -> TeamObjects:
    """The objects of a team that nothing is wrong with."""
    space = upstream.named("Namespace", "v1", "research")
    space["metadata"]["labels"] = {
        "kubernetes.io/metadata.name": "research",
        "pod-security.kubernetes.io/enforce": "baseline",
    }
    agent = upstream.named("DaemonSet", "apps/v1", "anetd", "kube-system", status={"desiredNumberScheduled": 3})
    objects = TeamObjects(
        queues=parsed(LocalQueue, ours(upstream.local_queue("research", "research", "research"))),
        namespaces=Fetched([space]),
        daemon_sets=Fetched([agent]),
        network_policies=Fetched([network_policy(ANYWHERE)]),
        policies=Fetched([policy()]),
        policy_bindings=Fetched([binding("Deny")]),
        role_bindings=Fetched([]),
        cluster_role_bindings=Fetched([]),
    )
    return replace(objects, **changes)


def examine(inventory: ClusterInventory) -> list[Finding]:
    return [one for one in isolation.examine(inventory) if one.level is not Level.OK]


def found(**changes: Any) -> list[tuple[str, str]]:
    """The subjects and the first clauses of the findings on the cluster with a team whose objects are changed."""
    given = healthy(nodes=Fetched([]), teams=separated(**changes))
    return [(one.subject, one.says.partition(":")[0]) for one in examine(given)]


def test_a_team_that_is_separated_and_a_cluster_without_teams() -> None:
    assert found() == []
    assert list(isolation.examine(healthy())) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"policies": Fetched([])},
        {"policy_bindings": Fetched([])},
        {"policy_bindings": Fetched([binding("Warn")])},
        {"policies": Fetched([policy(namespaceSelector={"matchLabels": {"a": "b"}})])},
        {"policies": Fetched([policy(resourceRules=[{"operations": ["CREATE"], "resources": ["rayjobs"]}])])},
        {
            "policies": Fetched(
                [policy(resourceRules=[{"operations": ["UPDATE"], "resources": ["rayjobs", "jobsets"]}])]
            )
        },
    ],
)
def test_a_policy_that_does_not_check_all_runs(changes: Any) -> None:
    assert [subject for subject, _ in found(**changes)] == ["runs without a queue", "external IPs"]


@pytest.mark.parametrize(
    ("keys", "closed"),
    [
        ("manageJobsWithoutQueueName: true", True),
        ("manageJobsWithoutQueueName: false", False),
        (
            "{manageJobsWithoutQueueName: true, managedJobsNamespaceSelector: {matchExpressions: "
            "[{key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}]}}",
            True,
        ),
        (
            "{manageJobsWithoutQueueName: true, managedJobsNamespaceSelector: {matchLabels: {team: other}}}",
            False,
        ),
        ("[", False),
    ],
)
def test_kueue_can_manage_runs_without_a_queue(keys: str, closed: bool) -> None:
    given = healthy(kueue_config=Fetched(upstream.config_map(keys)), teams=separated(policies=Fetched([])))
    assert ("runs without a queue" not in [one.subject for one in examine(given)]) is closed


def test_the_network_that_a_team_has() -> None:
    flannel = upstream.named("DaemonSet", "apps/v1", "kube-flannel-ds", "kube-flannel")
    # GKE creates this one on every cluster; without Calico, it selects no node.
    calico = upstream.named("DaemonSet", "apps/v1", "calico-node", "kube-system", status={"desiredNumberScheduled": 0})
    for agents in ([], [flannel], [calico]):
        assert found(daemon_sets=Fetched(agents)) == [
            ("network", "no known agent that enforces NetworkPolicies runs on the nodes")
        ]
    assert found(network_policies=Fetched([])) == [("network", "research has no NetworkPolicy of charts/queues")]


def test_an_operator_that_cannot_reach_the_heads() -> None:
    """It has other labels than those in network.operatorLabels, or another namespace."""
    says = (
        "network",
        "the NetworkPolicies of research do not let KubeRay's operator gke-managed-ray-operator/kuberay-operator reach "
        "the heads, so runs of kind ray-job never start there.",
    )
    labels = {"podSelector": {"matchLabels": {"app.kubernetes.io/component": "kuberay-operator"}}}
    elsewhere = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ray-system"}}}
    others: list[Object] = [{**OPERATOR, **labels}, elsewhere, {"podSelector": {}}]
    for peer in others:
        assert found(network_policies=Fetched([network_policy(ANYWHERE, peer=peer)])) == [says]
    others = [{"ipBlock": {"cidr": "10.0.0.0/8"}}, {"namespaceSelector": {}}]
    for peer in others:
        assert found(network_policies=Fetched([network_policy(ANYWHERE, peer=peer)])) == []


@pytest.mark.parametrize(
    ("policies", "closed"),
    [
        ([network_policy(ANYWHERE)], False),
        ([network_policy({"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]})], False),
        ([network_policy({"ports": [{"port": 988}]})], False),
        ([network_policy({"ports": [{"port": 443}], "to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]})], True),
        ([network_policy({"ports": [{"port": 53}], "to": ANYWHERE["to"]})], True),
        ([network_policy({"to": [{"podSelector": {}}]})], True),
    ],
)
def test_nodes_that_give_their_own_identity(policies: list[Object], closed: bool) -> None:
    label = {"iam.gke.io/gke-metadata-server-enabled": "true"}
    bare, good = (slice_nodes(pool, "tpu-v6e-slice", "4x4", 4, 4, **more) for pool, more in (("a", {}), ("b", label)))
    given = healthy(nodes=parsed(Node, *bare, *good), teams=separated(network_policies=Fetched(policies)))
    says = [one.says for one in examine(given) if one.subject == "metadata server"]
    expected = (
        "on 4 nodes without Workload Identity (node pool a), the pods of research can get the node's own service "
        "account, and read all that it may read."
    )
    assert says == ([] if closed else [expected])
    assert "metadata server" not in [one.subject for one in examine(replace(given, nodes=parsed(Node, *good)))]
    # Kubernetes elsewhere has no such label.
    elsewhere = slice_nodes("c", "cpu", "", 1, 0)
    del elsewhere[0]["metadata"]["labels"]["cloud.google.com/gke-nodepool"]
    assert "metadata server" not in [one.subject for one in examine(replace(given, nodes=parsed(Node, *elsewhere)))]


def bound(role: str, *subjects: tuple[str, str], kind: str = "ClusterRoleBinding", **labels: str) -> Object:
    made = upstream.named(kind, "rbac.authorization.k8s.io/v1", role, "research" if kind == "RoleBinding" else "")
    made["metadata"]["labels"] = labels
    return {
        **made,
        "roleRef": {"kind": "ClusterRole", "name": role},
        "subjects": [{"kind": one, "name": called} for one, called in subjects],
    }


@pytest.mark.parametrize(
    ("subject", "member"),
    [
        (("Group", "ml@example.com"), True),
        (("Group", "system:authenticated"), True),
        (("Group", "system:serviceaccounts:research"), True),
        (("User", "system:serviceaccount:research:default"), True),
        (("User", "ml@example.com"), False),
        (("Group", "system:masters"), False),
        (("Group", "system:serviceaccounts:product"), False),
    ],
)
@pytest.mark.parametrize("role", ["member", "lead"])
def test_members_with_more_rights(subject: tuple[str, str], member: bool, role: str) -> None:
    own = bound("member", ("Group", "ml@example.com"), kind="RoleBinding", **OURS)
    own["roleRef"] = {"kind": "Role", "name": f"research-{role}"}
    objects = separated(role_bindings=Fetched([own]), cluster_role_bindings=Fetched([bound("cluster-admin", subject)]))
    key = ("ClusterRole", "", "cluster-admin")
    assert isolation.roles_of_members(objects) == ({key} if member else set())
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    for roles, reported in (
        ({key: Fetched(upstream.named("ClusterRole", "", "cluster-admin", rules=rules))}, member),
        ({key: Fetched(upstream.named("ClusterRole", "", "cluster-admin", rules=[]))}, False),
        ({key: Fetched(None)}, False),
        ({}, False),
    ):
        says = [one.subject for one in examine(healthy(teams=replace(objects, roles=roles)))]
        assert ("members of research" in says) is reported


@pytest.mark.parametrize(
    ("rule", "rights"),
    [
        ({"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "patch"]}, []),
        (
            {"apiGroups": [""], "resources": ["pods", "pods/exec"], "verbs": ["create"]},
            ["create pods", "create pods/exec"],
        ),
        ({"apiGroups": [""], "resources": ["*/exec"], "verbs": ["*"]}, ["create pods/exec"]),
        ({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["token"]}, []),
        ({"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["patch"]}, []),
        ({"apiGroups": ["*"], "resources": ["workloads"], "verbs": ["update"]}, ["update workloads"]),
        ({"nonResourceURLs": ["/metrics"], "verbs": ["get"]}, []),
    ],
)
def test_rights_that_avoid_the_limits(rule: Object, rights: list[str]) -> None:
    assert isolation._excess([rule]) == rights


def test_what_a_member_may_not_read_is_unknown_once() -> None:
    no = Fetched[Any](why=Forbidden("no", "", verb="list", resource="things", group="", namespace=""))
    nothing = TeamObjects(no, no, no, no, no, no, no, no)
    own = parsed(LocalQueue, ours(upstream.local_queue("research", "research", "research")))
    given = healthy(teams=nothing, local_queues=own)
    assert [(one.level, one.subject, one.says) for one in examine(given)] == [
        (
            Level.UNKNOWN,
            "teams",
            "you may not list things in the whole cluster; the checks that need these are left out.",
        )
    ]


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        (None, True),
        ({}, True),
        ({"matchLabels": {"a": "1"}}, True),
        ({"matchLabels": {"a": "2"}}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, True),
        ({"matchExpressions": [{"key": "b", "operator": "In", "values": ["1"]}]}, False),
        ({"matchExpressions": [{"key": "b", "operator": "NotIn", "values": ["1"]}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, False),
        ({"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists"}]}, False),
    ],
)
def test_label_selectors(selector: Object | None, matches: bool) -> None:
    assert selects(selector, {"a": "1"}) is matches
