"""Read all that the doctor needs of a cluster, in about 40 requests, most of them in parallel.

Errors are recorded, also those for what the user may not read.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from launcher.diagnose.doctor import components, permissions
from launcher.diagnose.doctor.inventory import VISIBILITY, ClusterInventory, Fetched
from launcher.k8s import client as k
from launcher.k8s.deployments import Deployment
from launcher.k8s.errors import ClusterError
from launcher.k8s.kueue.queues import ClusterQueue, Cohort, LocalQueue, PriorityClass, ResourceFlavor
from launcher.k8s.nodes import Node
from launcher.k8s.objects import Object

if TYPE_CHECKING:
    from launcher.k8s.client import Cluster

ENDPOINT_SLICE = k.Kind("EndpointSlice", "discovery.k8s.io/v1", "endpointslices")
# The number of connections that the client keeps open.
AT_ONCE = 8


def collect(cluster: Cluster) -> ClusterInventory:
    """Read everything in parallel. Errors of the cluster are not raised but recorded in place of the answer."""
    with ThreadPoolExecutor(AT_ONCE) as pool:

        def ask[T](call: Callable[..., T], *arguments: Any, **options: Any) -> Future[Fetched[T]]:
            return pool.submit(fetch, call, *arguments, **options)

        def listed[T](parse: Callable[[Object], T], kind: k.Kind, **options: Any) -> Future[Fetched[list[T]]]:
            return ask(lambda: list(map(parse, cluster.list(kind, **options))))

        # The largest response first.
        nodes = listed(Node, k.NODE)
        deployments = listed(Deployment, k.DEPLOYMENT, all_namespaces=True)
        mutating, validating = ask(cluster.list, k.MUTATING_WEBHOOK), ask(cluster.list, k.VALIDATING_WEBHOOK)
        served = {group: ask(cluster.served, group) for group in (*components.GROUPS, VISIBILITY)}
        flavors, queues = listed(ResourceFlavor, k.RESOURCE_FLAVOR), listed(ClusterQueue, k.CLUSTER_QUEUE)
        cohorts = listed(Cohort, k.COHORT)
        local_queues, priorities = listed(LocalQueue, k.LOCAL_QUEUE), listed(PriorityClass, k.PRIORITY_CLASS)
        own_namespace = ask(cluster.get, k.NAMESPACE, cluster.namespace)
        mine = ask(permissions.read, cluster)

        controllers = components.controllers(deployments.result().seen or [])
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
            local_queues=local_queues.result(),
            priorities=priorities.result(),
            own_namespace=own_namespace.result(),
            rights=mine.result(),
            endpoints={namespace: each.result() for namespace, each in endpoints.items()},
        )


def fetch[T](call: Callable[..., T], *arguments: Any, **options: Any) -> Fetched[T]:
    """Return what the call returns, or the error of the cluster."""
    try:
        return Fetched(call(*arguments, **options))
    except ClusterError as error:
        return Fetched(why=error)
