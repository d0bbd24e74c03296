"""The objects of a team in charts/queues, field by field: namespace, limits, rights, network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.charts.queues_chart import BASE, CHECKOUT, PRESETS, Tree, merged, names, one, render, tree

THREE_TEAMS = tree((PRESETS / "three-teams.yaml").read_text())
RUN = tree((CHECKOUT / "charts" / "run" / "values.yaml").read_text())


def test_a_team_has_all_it_needs(helm: Path, tmp_path: Path) -> None:
    over = tree("teams: {product: null, research: {members: {alice@example.com: User}, resourceQuota: {pods: '9'}}}")
    objects = render(helm, merged(BASE, over), tmp_path)
    of_team = {
        (obj["kind"], obj["metadata"]["name"], obj["metadata"].get("namespace"))
        for obj in objects
        if obj["metadata"]["labels"].get("slipway.dev/team") == "research"
    }
    assert of_team == {
        ("Namespace", "research", None),
        ("LocalQueue", "research", "research"),
        ("ServiceAccount", "research", "research"),
        ("ResourceQuota", "research", "research"),
        ("ResourceQuota", "research-system-priorities", "research"),
        ("NetworkPolicy", "research", "research"),
        ("Role", "research-member", "research"),
        ("RoleBinding", "research-member", "research"),
    }
    labels = one(objects, "Namespace", "research")["metadata"]["labels"]
    assert {key.partition("/")[2]: value for key, value in labels.items() if "pod-security" in key} == {
        "enforce": "baseline",
        "warn": "restricted",
        "audit": "restricted",
    }
    assert one(objects, "ServiceAccount", "research")["automountServiceAccountToken"] is False
    assert one(objects, "ResourceQuota", "research")["spec"]["hard"]["pods"] == "9"
    assert one(objects, "ResourceQuota", "research-system-priorities")["spec"] == {
        "hard": {"pods": "0"},
        "scopeSelector": {
            "matchExpressions": [
                {
                    "scopeName": "PriorityClass",
                    "operator": "In",
                    "values": ["system-cluster-critical", "system-node-critical"],
                }
            ]
        },
    }


def test_limits_of_a_team_are_those_of_all_teams_and_its_own(helm: Path, tmp_path: Path) -> None:
    over = tree("""
    resourceQuota: {count/secrets: "7", count/jobs.batch: null, services: "8"}
    teams: {research: {resourceQuota: {services.loadbalancers: null, services: "9", requests.storage: 1Ti}}}
    """)
    values = merged(BASE, over)
    values["resourceQuota"]["count/jobs.batch"] = None
    values["teams"]["research"]["resourceQuota"]["services.loadbalancers"] = None
    objects = render(helm, values, tmp_path)
    of_all = {
        "count/rayjobs.ray.io": "500",
        "count/jobsets.jobset.x-k8s.io": "500",
        "count/rayclusters.ray.io": "500",
        "count/rayservices.ray.io": "100",
        "persistentvolumeclaims": "20",
        "pods": "10k",
        "services.nodeports": "0",
        "count/secrets": "7",
    }
    hard = {name: one(objects, "ResourceQuota", name)["spec"]["hard"] for name in ("research", "product")}
    assert hard == {
        "research": {**of_all, "services": "9", "requests.storage": "1Ti"},
        "product": {**of_all, "services": "8", "services.loadbalancers": "0", "requests.storage": "32Ti"},
    }


def test_the_namespace_default_has_only_the_limits_that_its_team_sets(helm4: Path, tmp_path: Path) -> None:
    for keys, limits in (("{}", []), ("{resourceQuota: {pods: '9'}}", [{"pods": "9"}])):
        over = tree("teams: {product: null, research: {namespace: default, networkPolicy: false}}")
        over["teams"]["research"] |= tree(keys)
        objects = render(helm4, merged(BASE, over), tmp_path)
        assert [obj["spec"]["hard"] for obj in objects if obj["kind"] == "ResourceQuota"] == limits


@pytest.mark.parametrize(
    ("keys", "created"),
    [
        ("{}", True),
        ("{namespace: ml}", True),
        ("{namespace: default, networkPolicy: false}", False),
        ("{namespace: platform}", False),  # the namespace of the release
        ("{createNamespace: false}", False),
    ],
)
def test_existing_namespaces_are_not_created(helm: Path, tmp_path: Path, keys: str, created: bool) -> None:
    over = {"teams": {"product": None, "research": tree(keys)}}
    objects = render(helm, merged(BASE, over), tmp_path, "--namespace", "platform")
    assert any(obj["kind"] == "Namespace" for obj in objects) is created
    queue = one(objects, "LocalQueue", "research")
    assert queue["metadata"]["namespace"] == tree(keys).get("namespace", "research")


def test_a_namespace_has_its_labels_and_a_limit_range(helm: Path, tmp_path: Path) -> None:
    over = tree("""
    limitRange:
      Container: {defaultRequest: {cpu: 1000m}, max: {memory: 600Gi}}
      PersistentVolumeClaim: {max: {storage: 1Ti}}
    clusterQueues: {research: {namespaceSelector: {trusted: 'yes', slipway.dev/team: research}}}
    teams:
      research:
        labels: {trusted: 'yes'}
        annotations: {example.com/cost-center: '42'}
        serviceAccount: {imagePullSecrets: [registry]}
        limitRange: {Pod: {max: {cpu: '64'}}, Container: {defaultRequest: {cpu: '2'}}}
    """)
    values = merged(BASE, over)
    values["teams"]["research"]["limitRange"]["PersistentVolumeClaim"] = None
    objects = render(helm, values, tmp_path)
    space = one(objects, "Namespace", "research")["metadata"]
    assert space["labels"] | {"trusted": "yes"} == space["labels"]
    assert space["annotations"] == {"helm.sh/resource-policy": "keep", "example.com/cost-center": "42"}
    assert one(objects, "ServiceAccount", "research")["imagePullSecrets"] == [{"name": "registry"}]
    assert one(objects, "LimitRange", "research")["spec"]["limits"] == [
        {"type": "Container", "defaultRequest": {"cpu": "2"}},
        {"type": "Pod", "max": {"cpu": "64"}},
    ]
    assert one(objects, "LimitRange", "product")["spec"]["limits"] == [
        {"type": "Container", "defaultRequest": {"cpu": "1"}, "max": {"memory": "600Gi"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Ti"}},
    ]
    assert "LimitRange" not in {kind for kind, _ in names(render(helm, BASE, tmp_path))}


def test_a_run_without_a_priority_is_a_normal_run(helm4: Path, tmp_path: Path) -> None:
    """Kueue gives it 0."""
    objects = render(helm4, {}, tmp_path)
    assert [one(objects, "WorkloadPriorityClass", name)["value"] for name in ("low", "normal", "high")] == [
        -100,
        0,
        1000,
    ]


def test_without_members_no_rights_are_granted(helm4: Path, tmp_path: Path) -> None:
    assert not {kind for kind, _ in names(render(helm4, BASE, tmp_path))} & {"Role", "RoleBinding", "ClusterRole"}


def allowed(role: Tree) -> dict[str, set[str]]:
    """Return the verbs that a role allows by resource; for a rule with resource names, by RESOURCE:NAME."""
    verbs: dict[str, set[str]] = {}
    for rule in role["rules"]:
        for resource in rule["resources"]:
            for name in rule.get("resourceNames", [""]):
                verbs.setdefault(f"{resource}:{name}".rstrip(":"), set()).update(rule["verbs"])
    return verbs


def test_what_members_may_do(helm4: Path, tmp_path: Path) -> None:
    over = tree("teams: {product: null, research: {members: {ml: Group}, clusters: [notebooks]}}")
    objects = render(helm4, merged(BASE, over), tmp_path)
    may = allowed(one(objects, "Role", "research-member"))
    everything = {"get", "list", "watch", "create", "patch", "delete"}
    assert may["rayjobs"] == may["jobsets"] == may["rayservices"] == everything
    for resource in ("rayclusters", "localqueues", "pods"):
        assert may[resource] == {"get", "list", "watch"}
    # patch is for `cancel`; the admission policy allows no other change. update would be wrong: the policy recognizes
    # administrators by that verb.
    assert may["workloads"] == {"get", "list", "watch", "patch"}
    assert {"workloads/status", "rayjobs/status", "jobsets/status"}.isdisjoint(may)
    # Members may use only the Secrets and dashboards of their long-lived clusters, by name, and may not grant rights.
    assert may["secrets:notebooks"] == {"get"}
    assert {name for name in may if name.startswith("services/proxy")} == {
        "services/proxy:notebooks-head-svc:8265",
        "services/proxy:http:notebooks-head-svc:8265",
    }
    assert "secrets" not in may
    assert not set(may) & {"*", "configmaps", "roles", "rolebindings", "pods/exec", "serviceaccounts/token"}
    cluster = allowed(one(objects, "ClusterRole", "x-queue-reader"))
    assert set.union(*cluster.values()) == {"get", "list", "watch"}
    assert {"clusterqueues", "cohorts", "resourceflavors", "admissionchecks", "clusterqueues/pendingworkloads"} <= set(
        cluster
    )


def test_the_waiting_runs_of_other_teams_can_be_hidden(helm4: Path, tmp_path: Path) -> None:
    """The member's Role keeps the position in the team's own queue."""
    over = tree("{visibility: {waitingRuns: false}, teams: {research: {members: {ml: Group}}}}")
    objects = render(helm4, merged(BASE, over), tmp_path)
    assert "clusterqueues/pendingworkloads" not in allowed(one(objects, "ClusterRole", "x-queue-reader"))
    assert allowed(one(objects, "Role", "research-member"))["localqueues/pendingworkloads"] == {"get"}


def test_a_policy_guards_what_members_may_patch(helm4: Path, tmp_path: Path) -> None:
    """The policy is rendered if there are members. In tests/cluster a real API server enforces it."""
    over = tree("teams: {research: {members: {ml: Group}, namespace: space}}")
    objects = render(helm4, merged(BASE, over), tmp_path)
    spec = one(objects, "ValidatingAdmissionPolicy", "x-workloads")["spec"]
    (names_in,) = spec["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    assert (names_in["key"], names_in["values"]) == ("kubernetes.io/metadata.name", ["space"])
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"], rule["apiVersions"]) == (["workloads"], ["UPDATE"], ["*"])
    assert spec["failurePolicy"] == "Fail"
    binding = one(objects, "ValidatingAdmissionPolicyBinding", "x-workloads")["spec"]
    assert binding == {"policyName": "x-workloads", "validationActions": ["Deny"]}
    without_members = names(render(helm4, BASE, tmp_path))
    assert not {(f"ValidatingAdmissionPolicy{kind}", "x-workloads") for kind in ("", "Binding")} & without_members


def test_with_kubernetes_tokens_members_read_no_secret(helm4: Path, tmp_path: Path) -> None:
    over = tree(
        "teams: {research: {members: {ml: Group}, clusters: [notebooks], k8sTokenAuth: true, namespace: space,"
        " serviceAccount: {name: pods}}}"
    )
    objects = render(helm4, merged(BASE, over), tmp_path)
    may = allowed(one(objects, "Role", "research-member"))
    assert not [name for name in may if name.startswith("secrets")]
    assert may["serviceaccounts/token:notebooks-ray-client"] == {"create"}
    assert not [name for name in may if name.startswith("rayclusters:")]
    # The launcher sends the cluster a token of this account, and never the user's own.
    client = one(objects, "ServiceAccount", "notebooks-ray-client")
    assert client["metadata"]["labels"]["slipway.dev/ray-client"] == "notebooks"
    assert allowed(one(objects, "Role", "notebooks-ray-client")) == {"rayclusters:notebooks": {"ray:write"}}
    subject = {"kind": "ServiceAccount", "name": "notebooks-ray-client", "namespace": "space"}
    assert one(objects, "RoleBinding", "notebooks-ray-client")["subjects"] == [subject]
    assert "services/proxy:notebooks-head-svc:8265" in may
    # The Ray cluster's processes have the permissions for their requests to the API server.
    pods = {"kind": "ServiceAccount", "name": "pods", "namespace": "space"}
    assert allowed(one(objects, "Role", "research-ray")) == {"rayclusters:notebooks": {"ray:write"}}
    assert one(objects, "RoleBinding", "research-ray")["subjects"] == [pods]
    binding = one(objects, "ClusterRoleBinding", "x-ray-tokens")
    assert (binding["roleRef"]["name"], binding["subjects"]) == ("system:auth-delegator", [pods])
    assert ("ClusterRoleBinding", "x-ray-tokens") not in names(render(helm4, BASE, tmp_path))


def test_without_clusters_there_is_no_dashboard_to_reach(helm4: Path, tmp_path: Path) -> None:
    over = tree("teams: {research: {members: {ml: Group}, createClusters: true}}")
    may = allowed(one(render(helm4, merged(BASE, over), tmp_path), "Role", "research-member"))
    assert not [name for name in may if name.startswith(("services/proxy", "secrets"))]


def test_rights_go_to_members_alone(helm4: Path, tmp_path: Path) -> None:
    over = tree(
        "{teams: {product: {members: {bob: User, ops/ci: ServiceAccount}},"
        " research: {members: {ci: ServiceAccount, bob: User}}}}"
    )
    objects = render(helm4, merged(BASE, over), tmp_path)
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}
    own, other = ({"kind": "ServiceAccount", "name": "ci", "namespace": name} for name in ("research", "ops"))
    for name, kind, subjects in (
        ("x-queue-reader", "ClusterRoleBinding", [user, other, own]),
        ("research-member", "RoleBinding", [user, own]),
        ("product-member", "RoleBinding", [user, other]),
    ):
        assert sorted(one(objects, kind, name)["subjects"], key=str) == subjects
    assert one(objects, "RoleBinding", "research-member")["roleRef"]["name"] == "research-member"


def test_create_clusters(helm4: Path, tmp_path: Path) -> None:
    over = tree("teams: {research: {members: {ml: Group}, createClusters: true}}")
    may = allowed(one(render(helm4, merged(BASE, over), tmp_path), "Role", "research-member"))
    assert may["rayclusters"] == may["rayjobs"]


def test_a_shell_is_a_right_of_its_own(helm4: Path, tmp_path: Path) -> None:
    over = tree("teams: {research: {members: {ml: Group}}, product: {members: {ml: Group}, shell: true}}")
    objects = render(helm4, merged(BASE, over), tmp_path)
    assert "pods/exec" not in allowed(one(objects, "Role", "research-member"))
    assert allowed(one(objects, "Role", "product-member"))["pods/exec"] == {"get", "create"}


def test_viewers_read_and_leads_have_all_rights(helm4: Path, tmp_path: Path) -> None:
    """A viewer has the reading part of a member's Role, and a lead everything that members can be given."""
    over = tree(
        "teams: {research: {clusters: [notebooks], members: {ml: Group}, leads: {lea: User}, viewers: {vi: User},"
        " deleteRuns: false}}"
    )
    objects = render(helm4, merged(BASE, over), tmp_path)
    member, lead, viewer = (allowed(one(objects, "Role", f"research-{role}")) for role in ("member", "lead", "viewer"))
    reading = {"get", "list", "watch"}
    assert viewer == {
        resource: verbs & reading
        for resource, verbs in member.items()
        if not resource.startswith(("secrets", "services/proxy"))
    }
    assert member["rayjobs"] == member["jobsets"] == member["rayservices"] == reading | {"create", "patch"}
    assert lead == member | {
        **dict.fromkeys(("rayjobs", "jobsets", "rayservices", "rayclusters"), reading | {"create", "patch", "delete"}),
        "pods/exec": {"get", "create"},
        "pods/portforward": {"get", "create"},
        "secrets": {"create", "delete"},
    }
    readers = one(objects, "ClusterRoleBinding", "x-queue-reader")["subjects"]
    assert {subject["name"] for subject in readers} == {"ml", "lea", "vi"}
    for role, name in (("lead", "lea"), ("viewer", "vi")):
        assert [subject["name"] for subject in one(objects, "RoleBinding", f"research-{role}")["subjects"]] == [name]


@pytest.mark.parametrize(
    ("keys", "more"),
    [
        ("portForward: true", {"pods/portforward": {"get", "create"}}),
        ("secrets: true", {"secrets": {"create", "delete"}}),
        ("deleteRuns: true", {}),
    ],
)
def test_a_right_that_members_can_be_given(helm4: Path, tmp_path: Path, keys: str, more: Tree) -> None:
    over = tree("teams: {research: {members: {ml: Group}}, product: {members: {ml: Group}, " + keys + "}}")
    objects = render(helm4, merged(BASE, over), tmp_path)
    without = allowed(one(objects, "Role", "research-member"))
    assert allowed(one(objects, "Role", "product-member")) == without | more


@pytest.mark.parametrize(
    ("keys", "kept"),
    [
        ("members: {ml: Group}", False),
        ("viewers: {ml: Group}", False),
        ("members: {ml: Group}, secrets: true", True),
        ("leads: {ml: Group}", True),
    ],
)
def test_who_may_create_secrets_is_kept_from_tokens(helm4: Path, tmp_path: Path, keys: str, kept: bool) -> None:
    objects = render(helm4, merged(BASE, tree(f"teams: {{research: {{{keys}}}}}")), tmp_path)
    assert (("ValidatingAdmissionPolicy", "x-tokens") in names(objects)) is kept
    assert (("ValidatingAdmissionPolicy", "x-workloads") in names(objects)) is not keys.startswith("viewers")


def test_helm_needs_the_secrets_of_the_namespace(helm4: Path, tmp_path: Path) -> None:
    over = tree("teams: {research: {members: {ml: Group}, clusters: [notebooks], helm: true}}")
    objects = render(helm4, merged(BASE, over), tmp_path)
    may = allowed(one(objects, "Role", "research-member"))
    assert may["secrets"] == {"get", "list", "create", "update", "delete"}
    assert "secrets" not in allowed(one(objects, "ClusterRole", "x-queue-reader"))


def peers(rules: list[Tree], side: str) -> list[tuple[str, list[int | str]]]:
    """Return each peer of the rules as a string, with its ports; [] means all ports."""
    found = []
    for rule in rules:
        ports = sorted({port["port"] for port in rule.get("ports", [])}, key=str)
        for peer in rule[side]:
            selectors = json.dumps(peer.get("namespaceSelector", {})) + json.dumps(peer.get("podSelector", {}))
            found.append((peer["ipBlock"]["cidr"] if "ipBlock" in peer else selectors, ports))
    return found


OWN = "{}{}"
DNS = json.dumps({"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}) + json.dumps(
    {"matchExpressions": [{"key": "k8s-app", "operator": "In", "values": ["kube-dns", "node-local-dns"]}]}
)
KONNECTIVITY = json.dumps({"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}) + json.dumps(
    {"matchLabels": {"k8s-app": "konnectivity-agent"}}
)


# The label of the operator's pods in KubeRay's chart and in its kustomization.
OPERATOR = json.dumps({"matchLabels": {"app.kubernetes.io/component": "kuberay-operator"}})


def namespaces(*found: str) -> str:
    key = "kubernetes.io/metadata.name"
    return json.dumps({"matchExpressions": [{"key": key, "operator": "In", "values": list(found)}]}) + "{}"


def test_network_policy_of_a_team(helm: Path, tmp_path: Path) -> None:
    spec = one(render(helm, BASE, tmp_path), "NetworkPolicy", "research")["spec"]
    assert (spec["podSelector"], spec["policyTypes"]) == ({}, ["Ingress", "Egress"])
    assert peers(spec["ingress"], "from") == [
        (OWN, []),
        (namespaces("gke-managed-ray-operator"), [8265, "serve"]),
        (namespaces("kuberay-operator", "kuberay-system", "ray-system").removesuffix("{}") + OPERATOR, [8265, "serve"]),
        (KONNECTIVITY, [8265, "serve"]),
    ]
    assert peers(spec["egress"], "to") == [
        (OWN, []),
        (DNS, [53]),
        ("169.254.20.10/32", [53]),
        ("169.254.169.254/32", [53]),
        ("169.254.169.254/32", [80, 988]),
        ("169.254.169.252/32", [80, 988]),
        ("0.0.0.0/0", [443]),
    ]
    # An empty selector selects only the team's namespace if it is a podSelector.
    assert spec["ingress"][0]["from"] == spec["egress"][0]["to"] == [{"podSelector": {}}]


def test_the_network_by_values(helm4: Path, tmp_path: Path) -> None:
    over = tree("""
    network:
      operatorNamespaces: []
      konnectivity: false
      proxyCidrs: [10.128.0.0/20]
      fromNamespaces: [monitoring]
      modelsFromNamespaces: [web]
      httpsCidrs: []
      egress: {tracking: {cidr: 10.0.0.8/32, ports: [5000, 5001]}, files: {cidr: 10.1.0.0/16}}
    """)
    spec = one(render(helm4, merged(BASE, over), tmp_path), "NetworkPolicy", "research")["spec"]
    assert peers(spec["ingress"], "from") == [
        (OWN, []),
        (namespaces("monitoring"), []),
        ("10.128.0.0/20", [8265, "serve"]),
        (namespaces("web"), ["serve"]),
    ]
    assert peers(spec["egress"], "to")[-2:] == [("10.1.0.0/16", []), ("10.0.0.8/32", [5000, 5001])]
    assert not any(443 in ports for _, ports in peers(spec["egress"], "to"))


def test_operators_by_other_labels_or_by_namespace_alone(helm4: Path, tmp_path: Path) -> None:
    over = tree("network: {operatorNamespaces: [gke-managed-ray-operator, ray], konnectivity: false}")
    given = merged(BASE, over)
    own = json.dumps({"matchLabels": {"app": "kuberay"}})
    for labels, expected in (
        ({"app": "kuberay"}, [namespaces("gke-managed-ray-operator"), namespaces("ray").removesuffix("{}") + own]),
        ({}, [namespaces("gke-managed-ray-operator", "ray")]),
    ):
        given["network"]["operatorLabels"] = {"app.kubernetes.io/component": None, **labels}
        spec = one(render(helm4, given, tmp_path), "NetworkPolicy", "research")["spec"]
        assert peers(spec["ingress"], "from") == [(OWN, []), *((peer, [8265, "serve"]) for peer in expected)]


def test_a_closed_metadata_server_still_answers_dns(helm4: Path, tmp_path: Path) -> None:
    over = tree("network: {metadataServer: false}")
    spec = one(render(helm4, merged(BASE, over), tmp_path), "NetworkPolicy", "research")["spec"]
    assert [peer for peer in peers(spec["egress"], "to") if peer[0].startswith("169.254.169.")] == [
        ("169.254.169.254/32", [53])
    ]


def test_nodes_reach_all_ports_and_are_reached(helm4: Path, tmp_path: Path) -> None:
    """Pods on the network of their nodes need this: no selector matches them, and the head connects to their ports."""
    over = tree("network: {hostCidrs: [10.128.0.0/20, 'fd00::/64']}")
    spec = one(render(helm4, merged(BASE, over), tmp_path), "NetworkPolicy", "research")["spec"]
    nodes: list[tuple[str, list[int]]] = [(OWN, []), ("10.128.0.0/20", []), ("fd00::/64", [])]
    assert peers(spec["ingress"], "from")[:3] == peers(spec["egress"], "to")[:3] == nodes


def test_further_addresses_answer_dns(helm4: Path, tmp_path: Path) -> None:
    over = tree("network: {dnsCidrs: [10.96.0.10/32]}")
    spec = one(render(helm4, merged(BASE, over), tmp_path), "NetworkPolicy", "research")["spec"]
    assert ("10.96.0.10/32", [53]) in peers(spec["egress"], "to")
    (rule,) = (rule for rule in spec["egress"] if {"ipBlock": {"cidr": "10.96.0.10/32"}} in rule["to"])
    assert sorted(port["protocol"] for port in rule["ports"]) == ["TCP", "UDP"]


def test_a_network_closed_to_all_others_has_no_empty_rule(helm4: Path, tmp_path: Path) -> None:
    """A rule with ports and an empty `from` would allow all peers."""
    over = tree("network: {operatorNamespaces: [], konnectivity: false, httpsCidrs: []}")
    spec = one(render(helm4, merged(BASE, over), tmp_path), "NetworkPolicy", "research")["spec"]
    assert spec["ingress"] == [{"from": [{"podSelector": {}}]}]
    assert all(rule["to"] for rule in spec["egress"])


@pytest.mark.parametrize(
    ("keys", "kind"),
    [("{networkPolicy: false}", "NetworkPolicy"), ("{serviceAccount: {create: false}}", "ServiceAccount")],
)
def test_parts_of_a_team_can_be_left_out(helm4: Path, tmp_path: Path, keys: str, kind: str) -> None:
    over = {"teams": {"product": None, "research": tree(keys)}}
    assert kind in {found for found, _ in names(render(helm4, merged(BASE, {"teams": {"product": None}}), tmp_path))}
    assert kind not in {found for found, _ in names(render(helm4, merged(BASE, over), tmp_path))}


def test_workload_identity(helm4: Path, tmp_path: Path) -> None:
    key = "iam.gke.io/gcp-service-account"
    over = {"teams": {"research": {"serviceAccount": {"name": "trainer", "annotations": {key: "a@b.example"}}}}}
    account = one(render(helm4, merged(BASE, over), tmp_path), "ServiceAccount", "trainer")
    assert account["metadata"]["annotations"] == {key: "a@b.example"}
