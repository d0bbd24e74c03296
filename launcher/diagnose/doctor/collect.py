"""Read all that the doctor needs of a cluster, in about 25 requests, most of them in parallel.

Errors are recorded, also those for what the user may not read.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from launcher.diagnose.doctor import components, kueue_config, permissions
from launcher.diagnose.doctor.inventory import VISIBILITY, ClusterInventory, Fetched
from launcher.k8s import client as k
from launcher.k8s.errors import ClusterError
from launcher.k8s.objects import Manifest

if TYPE_CHECKING:
    from launcher.k8s.client import Cluster

ENDPOINT_SLICE = k.Kind("EndpointSlice", "discovery.k8s.io/v1", "endpointslices")
CONFIG_MAP = k.Kind("ConfigMap", "v1", "configmaps")
# The number of connections that the client keeps open.
_AT_ONCE = 8


def collect(cluster: Cluster) -> ClusterInventory:
    """Read everything in parallel. Errors of the cluster are not raised but recorded in place of the answer."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:

        def ask[T](call: Callable[..., T], *arguments: Any, **options: Any) -> Future[Fetched[T]]:
            return pool.submit(_fetch, call, *arguments, **options)

        # The largest response first.
        nodes = ask(cluster.list, k.NODE)
        deployments = ask(cluster.list, k.DEPLOYMENT, all_namespaces=True)
        mutating, validating = ask(cluster.list, k.MUTATING_WEBHOOK), ask(cluster.list, k.VALIDATING_WEBHOOK)
        served = {group: ask(cluster.served, group) for group in (*components.GROUPS, VISIBILITY)}
        flavors, queues = ask(cluster.list, k.RESOURCE_FLAVOR), ask(cluster.list, k.CLUSTER_QUEUE)
        cohorts, topologies = ask(cluster.list, k.COHORT), ask(cluster.list, k.TOPOLOGY)
        local_queues, priorities = ask(cluster.list, k.LOCAL_QUEUE), ask(cluster.list, k.PRIORITY_CLASS)
        own_namespace = ask(cluster.get, k.NAMESPACE, cluster.namespace)
        mine = ask(permissions.read, cluster)

        controllers = components.controllers(deployments.result().seen or [])
        config: Future[Fetched[Manifest | None]] | None = None
        if kueue := controllers.get(components.KUEUE):
            config = ask(
                cluster.get, CONFIG_MAP, kueue_config.config_map_name(kueue[0]), kueue[0]["metadata"]["namespace"]
            )
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
        )


def _fetch[T](call: Callable[..., T], *arguments: Any, **options: Any) -> Fetched[T]:
    try:
        return Fetched(call(*arguments, **options))
    except ClusterError as error:
        return Fetched(why=error)
