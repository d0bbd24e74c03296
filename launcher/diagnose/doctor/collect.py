"""Read all that the doctor needs of a cluster, in about 40 requests, most of them in parallel.

Errors are recorded, also those for what the user may not read.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from launcher.diagnose.doctor import components, isolation, kueue_config, permissions
from launcher.diagnose.doctor.inventory import VISIBILITY, ClusterInventory, Fetched, TeamObjects, UsedChips
from launcher.k8s import client as k
from launcher.k8s import label_keys
from launcher.k8s.deployments import Deployment
from launcher.k8s.errors import ClusterError
from launcher.k8s.kueue import uncounted
from launcher.k8s.kueue.queues import ClusterQueue, Cohort, LocalQueue, PriorityClass, ResourceFlavor, Topology
from launcher.k8s.kueue.workloads import TEMPLATES, Workload
from launcher.k8s.nodes import Node
from launcher.k8s.objects import ApiObject, Manifest, Object
from launcher.k8s.pods import Pod

if TYPE_CHECKING:
    from launcher.k8s.client import Cluster

ENDPOINT_SLICE = k.Kind("EndpointSlice", "discovery.k8s.io/v1", "endpointslices")
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
# The number of connections that the client keeps open.
_AT_ONCE = 8


def collect(cluster: Cluster) -> ClusterInventory:
    """Read everything in parallel. Errors of the cluster are not raised but recorded in place of the answer."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:

        def ask[T](call: Callable[..., T], *arguments: Any, **options: Any) -> Future[Fetched[T]]:
            return pool.submit(_fetch, call, *arguments, **options)

        def listed[T](parse: Callable[[Object], T], kind: k.Kind, **options: Any) -> Future[Fetched[list[T]]]:
            return ask(lambda: list(map(parse, cluster.list(kind, **options))))

        # More requests depend on the first; then the largest response.
        team_queues = listed(LocalQueue, k.LOCAL_QUEUE, labels=label_keys.TEAM, all_namespaces=True)
        nodes = listed(Node, k.NODE)
        deployments = listed(Deployment, k.DEPLOYMENT, all_namespaces=True)
        mutating, validating = ask(cluster.list, k.MUTATING_WEBHOOK), ask(cluster.list, k.VALIDATING_WEBHOOK)
        served = {group: ask(cluster.served, group) for group in (*components.GROUPS, VISIBILITY)}
        flavors, queues = listed(ResourceFlavor, k.RESOURCE_FLAVOR), listed(ClusterQueue, k.CLUSTER_QUEUE)
        cohorts, topologies = listed(Cohort, k.COHORT), listed(Topology, k.TOPOLOGY)
        local_queues, priorities = listed(LocalQueue, k.LOCAL_QUEUE), listed(PriorityClass, k.PRIORITY_CLASS)
        own_namespace = ask(cluster.get, k.NAMESPACE, cluster.namespace)
        mine = ask(permissions.read, cluster)
        used = pool.submit(_used_chips, cluster)

        teams = TeamObjects(team_queues.result())
        if isolation.teams(teams, local_queues.result()):
            teams = _teams(cluster, teams, ask)

        controllers = components.controllers(deployments.result().seen or [])
        config: Future[Fetched[Manifest | None]] | None = None
        if kueue := controllers.get(components.KUEUE):
            config = ask(cluster.get, CONFIG_MAP, kueue_config.config_map_name(kueue[0]), kueue[0].namespace)
        hooks = {"mutating": mutating.result(), "validating": validating.result()}
        behind = {
            service.namespace
            for component in components.COMPONENTS
            for each in hooks.values()
            for service in components.services(component, each.seen or [], controllers.get(component, []))
        }
        endpoints = {namespace: ask(cluster.list, ENDPOINT_SLICE, namespace) for namespace in sorted(behind)}
        return ClusterInventory(
            namespace=cluster.namespace,
            served={group: each.result() for group, each in served.items()},
            deployments=deployments.result(),
            webhooks=hooks,
            nodes=nodes.result(),
            flavors=flavors.result(),
            cluster_queues=queues.result(),
            cohorts=cohorts.result(),
            topologies=topologies.result(),
            local_queues=local_queues.result(),
            priorities=priorities.result(),
            own_namespace=own_namespace.result(),
            rights=mine.result(),
            kueue_config=config.result() if config else Fetched(),
            endpoints={namespace: each.result() for namespace, each in endpoints.items()},
            teams=teams,
            used=used.result(),
        )


def _used_chips(cluster: Cluster) -> UsedChips:
    """Read the pods that have nodes, and the Workloads: of all namespaces, or of the own one if RBAC denies that."""

    def read(everywhere: bool) -> UsedChips:
        def listed[T](parse: Callable[[Object], T], kind: k.Kind, **options: Any) -> Fetched[list[T]]:
            return _fetch(lambda: list(map(parse, cluster.list(kind, all_namespaces=everywhere, **options))))

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
    found: dict[str, Any] = {field: each.result() for field, each in asked.items()}
    teams = replace(teams, **found)
    roles = {
        key: ask(cluster.get, _ROLES[key[0]], key[2], key[1] or None)
        for key in sorted(isolation.roles_of_members(teams))
    }
    return replace(teams, roles={key: each.result() for key, each in roles.items()})


def _fetch[T](call: Callable[..., T], *arguments: Any, **options: Any) -> Fetched[T]:
    try:
        return Fetched(call(*arguments, **options))
    except ClusterError as error:
        return Fetched(why=error)
