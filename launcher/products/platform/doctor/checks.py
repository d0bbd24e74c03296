"""Read what the checks for a platform team need of a cluster, besides what the doctor has read, and check it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from launcher.config.values.files import chart_defaults
from launcher.diagnose.doctor import components
from launcher.diagnose.doctor.collect import AT_ONCE, fetch
from launcher.diagnose.doctor.finding import Finding
from launcher.diagnose.doctor.inventory import ClusterInventory, Fetched, TeamObjects, UsedChips
from launcher.k8s import client as k
from launcher.k8s import label_keys
from launcher.k8s.kueue.queues import LocalQueue, Topology
from launcher.k8s.kueue.workloads import TEMPLATES, Workload
from launcher.k8s.objects import ApiObject, Manifest, Object
from launcher.k8s.pods import Pod
from launcher.products.platform import uncounted
from launcher.products.platform.doctor import capacity, cluster_queues, isolation, kueue_config, usage

if TYPE_CHECKING:
    from launcher.k8s.client import Cluster

CONFIG_MAP = k.Kind("ConfigMap", "v1", "configmaps")
DAEMON_SET = k.Kind("DaemonSet", "apps/v1", "daemonsets")
NETWORK_POLICY = k.Kind("NetworkPolicy", "networking.k8s.io/v1", "networkpolicies")
_ADMISSION, _RBAC = "admissionregistration.k8s.io/v1", "rbac.authorization.k8s.io/v1"
POLICY = k.Kind("ValidatingAdmissionPolicy", _ADMISSION, "validatingadmissionpolicies", namespaced=False)
POLICY_BINDING = k.Kind(
    "ValidatingAdmissionPolicyBinding", _ADMISSION, "validatingadmissionpolicybindings", namespaced=False
)
ROLE_BINDING = k.Kind("RoleBinding", _RBAC, "rolebindings")
CLUSTER_ROLE_BINDING = k.Kind("ClusterRoleBinding", _RBAC, "clusterrolebindings", namespaced=False)
_ROLES = {
    "Role": k.Kind("Role", _RBAC, "roles"),
    "ClusterRole": k.Kind("ClusterRole", _RBAC, "clusterroles", namespaced=False),
}
_OURS = f"{label_keys.PART_OF}=slipway"


def examine(cluster: Cluster, sight: ClusterInventory) -> Iterator[Finding]:
    """Return the findings on Kueue's configuration, on ClusterQueues, nodes and chips in use, and on the teams."""
    defaults = chart_defaults("run").tree
    table = defaults["common"]["accelerators"]
    sight = _complete(cluster, sight)
    yield from kueue_config.examine(sight)
    yield from cluster_queues.examine(sight, {resource: defaults["head"][resource] for resource in ("cpu", "memory")})
    yield from capacity.examine(sight, table)
    yield from usage.examine(sight, table, datetime.now(UTC))
    yield from isolation.examine(sight)


def _complete(cluster: Cluster, sight: ClusterInventory) -> ClusterInventory:
    """Return the inventory with the objects that only these checks need, read in parallel."""
    with ThreadPoolExecutor(AT_ONCE) as pool:

        def ask[T](call: Callable[..., T], *arguments: Any, **options: Any) -> Future[Fetched[T]]:
            return pool.submit(fetch, call, *arguments, **options)

        def listed[T](parse: Callable[[Object], T], kind: k.Kind, **options: Any) -> Future[Fetched[list[T]]]:
            return ask(lambda: list(map(parse, cluster.list(kind, **options))))

        team_queues = listed(LocalQueue, k.LOCAL_QUEUE, labels=label_keys.TEAM, all_namespaces=True)
        topologies = listed(Topology, k.TOPOLOGY)
        used = pool.submit(_used_chips, cluster)
        config: Future[Fetched[Manifest | None]] | None = None
        if kueue := components.controllers(sight.deployments.seen or []).get(components.KUEUE):
            config = ask(cluster.get, CONFIG_MAP, components.config_map_name(kueue[0]), kueue[0].namespace)
        teams = TeamObjects(team_queues.result())
        if isolation.teams(teams, sight.local_queues):
            teams = _teams(cluster, teams, ask)
        return replace(
            sight,
            topologies=topologies.result(),
            kueue_config=config.result() if config else Fetched(),
            teams=teams,
            used=used.result(),
        )


def _used_chips(cluster: Cluster) -> UsedChips:
    """Read the pods that have nodes, and the Workloads: of all namespaces, or of the own one if RBAC denies that."""

    def read(everywhere: bool) -> UsedChips:
        def listed[T](parse: Callable[[Object], T], kind: k.Kind, **options: Any) -> Fetched[list[T]]:
            return fetch(lambda: list(map(parse, cluster.list(kind, all_namespaces=everywhere, **options))))

        workloads = listed(Workload, k.WORKLOAD, without=[TEMPLATES])
        if workloads.seen is None:
            return UsedChips(workloads=workloads, everywhere=everywhere)
        pods = listed(Pod, k.POD, fields=uncounted.FIELDS, without=uncounted.UNUSED)
        ray_clusters: Fetched[list[ApiObject]] = Fetched([])
        if uncounted.needs_ray_clusters(pods.seen or [], workloads.seen):
            ray_clusters = listed(ApiObject, k.RAY_CLUSTER)
        return UsedChips(pods, workloads, ray_clusters, everywhere)

    used = read(everywhere=True)
    return read(everywhere=False) if used.pods.forbidden or used.workloads.forbidden else used


def _teams(cluster: Cluster, teams: TeamObjects, ask: Callable[..., Future[Fetched[Any]]]) -> TeamObjects:
    """Read what separates the teams: first all but the roles, then the roles that their members have."""
    asked: dict[str, Future[Fetched[Any]]] = {
        "namespaces": ask(cluster.list, k.NAMESPACE),
        "daemon_sets": ask(cluster.list, DAEMON_SET, all_namespaces=True),
        "network_policies": ask(cluster.list, NETWORK_POLICY, labels=label_keys.TEAM, all_namespaces=True),
        "policies": ask(cluster.list, POLICY, labels=_OURS),
        "policy_bindings": ask(cluster.list, POLICY_BINDING, labels=_OURS),
        "role_bindings": ask(cluster.list, ROLE_BINDING, all_namespaces=True),
        "cluster_role_bindings": ask(cluster.list, CLUSTER_ROLE_BINDING),
    }
    fields: dict[str, Any] = {field: each.result() for field, each in asked.items()}
    teams = replace(teams, **fields)
    roles = {
        key: ask(cluster.get, _ROLES[key[0]], key[2], key[1] or None)
        for key in sorted(isolation.roles_of_members(teams))
    }
    return replace(teams, roles={key: each.result() for key, each in roles.items()})
