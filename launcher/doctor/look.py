"""All that the doctor reads of a cluster: about 25 requests, most of them at once. What it may not read, it notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from launcher import cluster as k
from launcher.cluster_errors import ClusterError, Forbidden
from launcher.doctor import components, kueue_config, rights

if TYPE_CHECKING:
    from launcher.cluster import Cluster

Object = dict[str, Any]
Objects = list[Object]
Served = Mapping[str, Sequence[str]]

ENDPOINT_SLICE = k.Kind("EndpointSlice", "discovery.k8s.io/v1", "endpointslices")
CONFIG_MAP = k.Kind("ConfigMap", "v1", "configmaps")
VISIBILITY = "visibility.kueue.x-k8s.io"
# As many as the door keeps connections for.
_AT_ONCE = 8


@dataclass(frozen=True)
class Look[T]:
    """What was seen, or why it could not be looked at."""

    seen: T | None = None
    why: ClusterError | None = None

    @property
    def forbidden(self) -> Forbidden | None:
        return self.why if isinstance(self.why, Forbidden) else None

    @property
    def says(self) -> str:
        """Why it is unknown, to follow "unknown: "."""
        if self.forbidden is None:
            return str(self.why.message if self.why else "nothing is known of it").rstrip(".")
        of = f" of {self.forbidden.group}" if self.forbidden.group else ""
        place = f"the namespace {self.forbidden.namespace}" if self.forbidden.namespace else "the whole cluster"
        return f"you may not {self.forbidden.verb} {self.forbidden.resource}{of} in {place}"


@dataclass(frozen=True)
class Sight:
    """What was seen of a cluster, for the rules, which ask for nothing more."""

    namespace: str
    served: Mapping[str, Look[Served]]
    deployments: Look[Objects]
    webhooks: Mapping[str, Look[Objects]]  # mutating, validating
    nodes: Look[Objects]
    flavors: Look[Objects]
    cluster_queues: Look[Objects]
    cohorts: Look[Objects]
    topologies: Look[Objects]
    local_queues: Look[Objects]
    priorities: Look[Objects]
    own_namespace: Look[Object | None]
    rights: Look[rights.Rights]
    kueue_config: Look[Object | None] = field(default_factory=Look)  # no Look at all where Kueue is not there
    endpoints: Mapping[str, Look[Objects]] = field(default_factory=dict)  # EndpointSlices, by namespace

    def serves(self, group: str) -> bool:
        return bool(self.served[group].seen)


def look(cluster: Cluster) -> Sight:
    """Everything at once. Raises nothing: each answer that is none has its reason with it."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:

        def ask[T](call: Callable[..., T], *arguments: Any, **options: Any) -> Future[Look[T]]:
            return pool.submit(_look, call, *arguments, **options)

        # The largest answer first.
        nodes = ask(cluster.list, k.NODE)
        deployments = ask(cluster.list, k.DEPLOYMENT, all_namespaces=True)
        mutating, validating = ask(cluster.list, k.MUTATING_WEBHOOK), ask(cluster.list, k.VALIDATING_WEBHOOK)
        served = {group: ask(cluster.served, group) for group in (*components.GROUPS, VISIBILITY)}
        flavors, queues = ask(cluster.list, k.RESOURCE_FLAVOR), ask(cluster.list, k.CLUSTER_QUEUE)
        cohorts, topologies = ask(cluster.list, k.COHORT), ask(cluster.list, k.TOPOLOGY)
        local_queues, priorities = ask(cluster.list, k.LOCAL_QUEUE), ask(cluster.list, k.PRIORITY_CLASS)
        own_namespace = ask(cluster.get, k.NAMESPACE, cluster.namespace)
        mine = ask(rights.read, cluster)

        controllers = components.controllers(deployments.result().seen or [])
        config: Future[Look[Object | None]] | None = None
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
        return Sight(
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
            kueue_config=config.result() if config else Look(),
            endpoints={namespace: each.result() for namespace, each in endpoints.items()},
        )


def _look[T](call: Callable[..., T], *arguments: Any, **options: Any) -> Look[T]:
    try:
        return Look(call(*arguments, **options))
    except ClusterError as error:
        return Look(why=error)
