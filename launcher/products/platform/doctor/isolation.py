"""Check what separates the teams of charts/queues: queues, network, identity, Pod Security, rights. Pure functions.

Nothing is reported if the cluster has no team. Objects that the user may not read are one finding, as unknown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any

from launcher.diagnose.doctor import components
from launcher.diagnose.doctor.finding import TEAMS, Finding, Level, join_words, many
from launcher.diagnose.doctor.inventory import hidden
from launcher.k8s import label_keys
from launcher.k8s.objects import Object, label, name, namespace, status
from launcher.products.platform.doctor import capacity, kueue_config

if TYPE_CHECKING:
    from launcher.diagnose.doctor.inventory import ClusterInventory, Fetched, RoleKey, TeamObjects
    from launcher.k8s.kueue.queues import LocalQueue

# DaemonSets that enforce NetworkPolicies, and their products. Others may, too.
_AGENTS = {
    **{"anetd": "GKE Dataplane V2", "cilium": "Cilium", "calico-node": "Calico", "canal": "Canal"},
    **{"antrea-agent": "Antrea", "kube-router": "kube-router", "kube-network-policies": "kube-network-policies"},
    **{"ovnkube-node": "OVN-Kubernetes", "weave-net": "Weave Net", "azure-npm": "Azure NPM"},
}
_ENFORCE = "pod-security.kubernetes.io/enforce"
_POOL = "cloud.google.com/gke-nodepool"
_WORKLOAD_IDENTITY = "iam.gke.io/gke-metadata-server-enabled"
_METADATA_SERVER = ip_address("169.254.169.254")
_DASHBOARD = 8265
# Groups to which every user, and every service account, belongs.
_EVERYBODY = ("system:authenticated", "system:serviceaccounts")
# Rights with which a member can avoid the limits of the member's Role: by group and resource, with their verbs.
_EXCESS = {
    ("", "pods"): "create",
    ("", "pods/exec"): "create",
    ("", "pods/attach"): "create",
    ("", "pods/ephemeralcontainers"): "patch update",
    ("", "secrets"): "get list",
    ("", "serviceaccounts/token"): "create",
    ("", "services"): "create patch update",
    ("", "namespaces"): "patch update",
    ("", "nodes/proxy"): "get create",
    ("apps", "deployments"): "create patch update",
    ("apps", "daemonsets"): "create patch update",
    ("apps", "statefulsets"): "create patch update",
    ("batch", "jobs"): "create",
    ("batch", "cronjobs"): "create patch update",
    ("kueue.x-k8s.io", "workloads"): "create update",
    ("kueue.x-k8s.io", "localqueues"): "create patch update",
    ("kueue.x-k8s.io", "clusterqueues"): "create patch update",
    ("ray.io", "rayjobs/status"): "patch update",
    ("jobset.x-k8s.io", "jobsets/status"): "patch update",
    ("networking.k8s.io", "networkpolicies"): "create patch update delete",
    ("rbac.authorization.k8s.io", "rolebindings"): "create patch update",
    ("rbac.authorization.k8s.io", "clusterrolebindings"): "create patch update",
}


def teams(objects: TeamObjects, own: Fetched[list[LocalQueue]]) -> dict[str, str]:
    """Return the name of each team by its namespace, from the LocalQueues of charts/queues.

    `own` are those of the user's namespace, which a member may read.
    """
    queues = objects.queues.seen if objects.queues.seen is not None else own.seen or []
    by_namespace = {queue.namespace: team for queue in queues if (team := queue.label(label_keys.TEAM))}
    return dict(sorted(by_namespace.items()))


def examine(sight: ClusterInventory) -> Iterator[Finding]:
    """Return findings on what separates the teams; none if there is no team."""
    objects = sight.teams
    those = teams(objects, sight.local_queues)
    if not those:
        return
    spaces = _namespaces(sight, those)
    guarded = _guarded(sight, spaces)
    yield from _queueless(sight, spaces, guarded)
    yield from _external_ips(sight, spaces, guarded)
    yield from _network(objects, those)
    yield from _operator(sight, those)
    yield from _metadata_server(sight, those)
    yield from _pod_security(objects, spaces)
    yield from _members(objects, those)
    looks = (
        *(objects.namespaces, objects.daemon_sets, objects.network_policies, objects.policies),
        *(objects.policy_bindings, objects.role_bindings, objects.cluster_role_bindings, *objects.roles.values()),
    )
    if not_read := hidden(looks):
        yield _finding(Level.UNKNOWN, "teams", f"{not_read}; the checks that need these are left out.")


def _namespaces(sight: ClusterInventory, those: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the labels of the teams' namespaces; of one that cannot be read, only the label that all of them have."""
    seen = [*([sight.own_namespace.seen] if sight.own_namespace.seen else []), *(sight.teams.namespaces.seen or [])]
    labels = {name(one): one["metadata"].get("labels") or {} for one in seen}
    return {space: {"kubernetes.io/metadata.name": space, **labels.get(space, {})} for space in those}


# --- quota ---------------------------------------------------------------------------------------------------------


def _guarded(sight: ClusterInventory, spaces: Mapping[str, Mapping[str, str]]) -> set[str]:
    """Return the teams' namespaces in which policies of charts/queues check every new run."""
    kinds = [plural for group, plural in (("ray.io", "rayjobs"), ("jobset.x-k8s.io", "jobsets")) if sight.serves(group)]
    policies = {name(policy): policy for policy in sight.teams.policies.seen or []}
    checked: defaultdict[str, set[str]] = defaultdict(set)
    for binding in sight.teams.policy_bindings.seen or []:
        spec = binding["spec"]
        policy = policies.get(str(spec.get("policyName")))
        if policy is None or "Deny" not in (spec.get("validationActions") or []):
            continue
        constraints = policy["spec"].get("matchConstraints") or {}
        selectors = [
            matches.get("namespaceSelector") for matches in (constraints, spec.get("matchResources") or {}) if matches
        ]
        created = {
            resource
            for rule in constraints.get("resourceRules") or []
            if {"CREATE", "*"} & set(rule.get("operations") or [])
            for resource in rule.get("resources") or []
        }
        for space, labels in spaces.items():
            if all(selects(selector, labels) for selector in selectors):
                checked[space] |= created
    return {space for space in spaces if kinds and set(kinds) <= checked[space]}


def _queueless(
    sight: ClusterInventory, spaces: Mapping[str, Mapping[str, str]], guarded: set[str]
) -> Iterator[Finding]:
    subject = "runs without a queue"
    selector = kueue_config.managed_without_queue(sight)
    free = [
        space
        for space, labels in spaces.items()
        if space not in guarded and (selector is None or not selects(selector, labels))
    ]
    if not free:
        yield _finding(Level.OK, subject, "members can start runs only through their queues.")
    elif None not in (sight.teams.policies.seen, sight.teams.policy_bindings.seen) and not sight.kueue_config.why:
        yield _finding(
            Level.WARNING,
            subject,
            f"in {join_words(free)}, a run that names no queue starts at once, on machines of any team: quota does not "
            "apply to it.",
            "The policy of charts/queues prevents this (launcher install queues); or set manageJobsWithoutQueueName in "
            "Kueue's configuration.",
        )


def _external_ips(
    sight: ClusterInventory, spaces: Mapping[str, Mapping[str, str]], guarded: set[str]
) -> Iterator[Finding]:
    free = [space for space in spaces if space not in guarded]
    if free and sight.teams.policies.seen is not None and sight.serves(components.KUBERAY.group):
        yield _finding(
            Level.UNKNOWN,
            "external IPs",
            f"in {join_words(free)}, a RayJob can give its Service external IPs, and receive the traffic of other "
            "teams to these addresses, unless the API server uses DenyServiceExternalIPs, which it does not report.",
            "The policy of charts/queues refuses such RayJobs (launcher install queues).",
        )


# --- network -------------------------------------------------------------------------------------------------------


def _network(objects: TeamObjects, those: Mapping[str, str]) -> Iterator[Finding]:
    subject = "network"
    if objects.daemon_sets.seen is not None:
        agents = [
            f"{_AGENTS[name(one)]} ({namespace(one)}/{name(one)})"
            for one in objects.daemon_sets.seen
            if name(one) in _AGENTS and int(status(one).get("desiredNumberScheduled") or 0)
        ]
        if agents:
            yield _finding(Level.OK, subject, f"{join_words(agents)} can enforce the teams' NetworkPolicies.")
        else:
            yield _finding(
                Level.WARNING,
                subject,
                "no known agent that enforces NetworkPolicies runs on the nodes: those of the teams may do nothing, "
                "and then all pods of the cluster can reach the ports of their runs.",
                "Enforcing networks are GKE's Dataplane V2, Cilium and Calico, for example. If yours enforces them in "
                "another way, ignore this.",
            )
    if objects.network_policies.seen is not None:
        with_policy = {namespace(policy) for policy in objects.network_policies.seen}
        if without := [space for space in those if space not in with_policy]:
            yield _finding(
                Level.WARNING,
                subject,
                f"{join_words(without)} {'has' if len(without) == 1 else 'have'} no NetworkPolicy of charts/queues: "
                "all pods of the cluster can reach the ports of the runs there.",
                "Remove networkPolicy: false from the team (teams.NAME.networkPolicy in charts/queues).",
            )


def _operator(sight: ClusterInventory, those: Mapping[str, str]) -> Iterator[Finding]:
    """Check that the teams' NetworkPolicies let KubeRay's operator reach the heads: it submits the runs there."""
    policies = sight.teams.network_policies.seen or []
    closed: dict[str, list[str]] = {}
    for operator in components.controllers(sight.deployments.seen or []).get(components.KUBERAY, []):
        space = {"kubernetes.io/metadata.name": operator.namespace}
        for policy in policies:
            rules = [rule for rule in policy["spec"].get("ingress") or [] if _has_port(rule, {_DASHBOARD})]
            peers = [peer for rule in rules for peer in rule.get("from") or [{}]]
            if namespace(policy) in those and not any(
                not peer
                or "ipBlock" in peer
                or (
                    ("namespaceSelector" in peer or namespace(policy) == operator.namespace)
                    and selects(peer.get("namespaceSelector"), space)
                    and selects(peer.get("podSelector"), operator.pod_labels)
                )
                for peer in peers
            ):
                closed.setdefault(f"{operator.namespace}/{operator.name}", []).append(namespace(policy))
    for operator_name, spaces in closed.items():
        yield _finding(
            Level.WARNING,
            "network",
            f"the NetworkPolicies of {join_words(sorted(set(spaces)))} do not let KubeRay's operator {operator_name} "
            "reach the heads, so runs of kind ray-job never start there.",
            "Set network.operatorNamespaces and network.operatorLabels in charts/queues to its namespace and the "
            "labels of its pods.",
        )


def _has_port(rule: Object, ports: Iterable[int]) -> bool:
    """Return whether a rule of a NetworkPolicy is for one of these ports; without `ports` it is for all."""
    return not rule.get("ports") or any(port.get("port") in (None, *ports) for port in rule["ports"])


def _metadata_server(sight: ClusterInventory, those: Mapping[str, str]) -> Iterator[Finding]:
    policies = sight.teams.network_policies.seen
    if policies is None or sight.nodes.seen is None or sight.flavors.seen is None:
        return
    closed = {namespace(policy) for policy in policies} - {
        namespace(policy)
        for policy in policies
        if any(_to_metadata(rule) for rule in policy["spec"].get("egress") or [])
    }
    reached = [space for space in those if space not in closed]
    flavors = capacity.flavors(sight.flavors.seen, [])
    bare = Counter(
        node.label(_POOL)
        for node in sight.nodes.seen
        if node.label(_POOL)
        and node.label(_WORKLOAD_IDENTITY) != "true"
        and any(flavor.matches(node) for flavor in flavors)
    )
    if reached and bare:
        yield _finding(
            Level.WARNING,
            "metadata server",
            f"on {many(bare.total(), 'node')} without Workload Identity (node pool {join_words(sorted(bare))}), the "
            f"pods of {join_words(reached)} can get the node's own service account, and read all that it may read.",
            "Turn on Workload Identity for these node pools (--workload-metadata=GKE_METADATA), or set "
            "network.metadataServer: false in charts/queues.",
        )
    elif reached and any(node.label(_POOL) for node in sight.nodes.seen):
        yield _finding(Level.OK, "metadata server", "all nodes of flavors have Workload Identity.")


def _to_metadata(rule: Object) -> bool:
    peers = rule.get("to")
    return _has_port(rule, {80, 988}) and (
        not peers
        or any(
            _METADATA_SERVER in ip_network(peer["ipBlock"]["cidr"], strict=False) for peer in peers if "ipBlock" in peer
        )
    )


# --- pods and rights -----------------------------------------------------------------------------------------------


def _pod_security(objects: TeamObjects, spaces: Mapping[str, Mapping[str, str]]) -> Iterator[Finding]:
    if objects.namespaces.seen is None:
        return
    levels = {space: labels.get(_ENFORCE) or "" for space, labels in spaces.items()}
    subject = "Pod Security"
    if missing := [space for space, level in levels.items() if not level]:
        yield _finding(
            Level.WARNING,
            subject,
            f"{join_words(missing)} {'enforces' if len(missing) == 1 else 'enforce'} no level: a member can start a "
            "privileged pod, which controls its node and all that runs there.",
            "\n".join(f"kubectl label namespace {space} {_ENFORCE}=baseline" for space in missing[:5]),
        )
    if privileged := [space for space, level in levels.items() if level == "privileged"]:
        yield _finding(
            Level.WARNING,
            subject,
            f"{join_words(privileged)} {'allows' if len(privileged) == 1 else 'allow'} privileged pods: each member "
            "can control any node, and read what other teams run there.",
            "Runs of charts/run need at most baseline: set teams.NAME.podSecurity in charts/queues, and the label "
            f"{_ENFORCE} of the namespace.",
        )
    if not missing and not privileged:
        yield _finding(Level.OK, subject, f"{join_words(spaces)}: {join_words(sorted(set(levels.values())))}.")


def roles_of_members(objects: TeamObjects) -> set[RoleKey]:
    """Return the Roles and ClusterRoles, besides charts/queues' own, that bindings give to members of teams."""
    return {key for _, key, _ in _bound(objects, teams(objects, objects.queues))}


def _members(objects: TeamObjects, those: Mapping[str, str]) -> Iterator[Finding]:
    """Report members with rights that avoid the limits of the member's Role."""
    if objects.role_bindings.seen is None or objects.cluster_role_bindings.seen is None:
        return
    reported = False
    for space, key, subjects in _bound(objects, those):
        role = objects.roles.get(key)
        rights = _excess((role.seen or {}).get("rules") or []) if role is not None else []
        if rights:
            reported = True
            yield _finding(
                Level.WARNING,
                f"members of {those[space]}",
                f"the {key[0]} {key[2]} gives {join_words(subjects)} more than a member's rights in {space}: "
                f"{join_words(rights)}.",
                "Members run programs as any service account of the namespace. Remove the binding, if these rights are "
                "not intended.",
            )
    if not reported:
        yield _finding(Level.OK, "members", "have no rights that avoid these limits.")


def _bound(objects: TeamObjects, those: Mapping[str, str]) -> Iterator[tuple[str, RoleKey, list[str]]]:
    """Yield each binding of members of a team: its namespace, its role, and the members as text."""
    bindings = objects.role_bindings.seen or []
    everywhere = [binding for binding in objects.cluster_role_bindings.seen or [] if not _is_ours(binding)]
    for space, team in those.items():
        local = [binding for binding in bindings if namespace(binding) == space]
        members = {
            _key(subject, space)
            for binding in local
            if _is_ours(binding) and binding["roleRef"]["name"] in (f"{team}-member", f"{team}-lead")
            for subject in binding.get("subjects") or []
        }
        grouped: dict[RoleKey, list[str]] = {}
        for binding in (*(other for other in local if not _is_ours(other)), *everywhere):
            kind = str(binding["roleRef"]["kind"])
            key = (kind, space if kind == "Role" else "", str(binding["roleRef"]["name"]))
            for subject in binding.get("subjects") or []:
                if _is_member(subject, space, members) and (says := _as_text(subject)) not in grouped.get(key, []):
                    grouped.setdefault(key, []).append(says)
        yield from ((space, key, subjects) for key, subjects in grouped.items())


def _is_ours(obj: Object) -> bool:
    return label(obj, label_keys.PART_OF) == "slipway"


def _key(subject: Mapping[str, Any], space: str) -> tuple[str, str, str]:
    kind, called = str(subject.get("kind")), str(subject.get("name"))
    return kind, str(subject.get("namespace") or space) if kind == "ServiceAccount" else "", called


def _is_member(subject: Mapping[str, Any], space: str, members: set[tuple[str, str, str]]) -> bool:
    """Return whether a subject is a member, a group that includes members, or an account that their pods can use."""
    kind, of, called = _key(subject, space)
    return (
        (kind, of, called) in members
        or (kind == "ServiceAccount" and of == space)
        or (kind == "User" and called.startswith(f"system:serviceaccount:{space}:"))
        or (kind == "Group" and called in (*_EVERYBODY, f"system:serviceaccounts:{space}"))
    )


def _as_text(subject: Mapping[str, Any]) -> str:
    words = {"ServiceAccount": "service account", "Group": "group", "User": "user"}
    return f"the {words.get(str(subject.get('kind')), 'subject')} {subject.get('name')}"


def _excess(rules: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the rights of these rules, on objects of any name, that avoid a member's limits, such as "create pods"."""
    rights = []
    for (group, resource), verbs in _EXCESS.items():
        sub = f"*/{resource.partition('/')[2]}" if "/" in resource else "*"
        for rule in rules:
            granted = set(rule.get("verbs") or [])
            if (
                not rule.get("resourceNames")
                and {group, "*"} & set(rule.get("apiGroups") or [])
                and {resource, sub, "*"} & set(rule.get("resources") or [])
                and (mine := [verb for verb in verbs.split() if granted & {verb, "*"}])
            ):
                rights.append(f"{mine[0]} {resource}")
                break
    return rights


def _finding(level: Level, subject: str, says: str, hint: str = "") -> Finding:
    return Finding(TEAMS, level, subject, says, hint)


def selects(selector: Object | None, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector matches; one that is empty or missing matches everything."""
    selector = selector or {}
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for term in selector.get("matchExpressions") or []:
        key, values = term["key"], term.get("values") or []
        holds = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not holds.get(term["operator"]):
            return False
    return True
