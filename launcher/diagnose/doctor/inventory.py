"""The objects that the doctor read from a cluster, and the errors for those that it could not read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from launcher.diagnose.doctor.finding import clause, join_words
from launcher.k8s.errors import ClusterError, Forbidden
from launcher.k8s.objects import Manifest

if TYPE_CHECKING:
    from launcher.k8s.deployments import Deployment
    from launcher.k8s.kueue.queues import ClusterQueue, Cohort, LocalQueue, PriorityClass, ResourceFlavor, Topology
    from launcher.k8s.kueue.workloads import Workload
    from launcher.k8s.nodes import Node
    from launcher.k8s.objects import ApiObject
    from launcher.k8s.pods import Pod
    from launcher.k8s.rbac import Permissions

Objects = list[Manifest]
Served = Mapping[str, Sequence[str]]
RoleKey = tuple[str, str, str]
VISIBILITY = "visibility.kueue.x-k8s.io"


@dataclass(frozen=True)
class Fetched[T]:
    """The result of a read, or the error that prevented it."""

    seen: T | None = None
    why: ClusterError | None = None

    @property
    def forbidden(self) -> Forbidden | None:
        return self.why if isinstance(self.why, Forbidden) else None

    @property
    def says(self) -> str:
        """The reason that it is unknown, as a clause."""
        return hidden([self])


def hidden(looks: Iterable[Fetched[Any]]) -> str:
    """Return why these are unknown, or "": "you may not list nodes nor deployments of apps in the whole cluster"."""
    looks = list(looks)
    forbidden: dict[tuple[str, str], list[str]] = {}
    for look in looks:
        if error := look.forbidden:
            what = error.resource + (f" of {error.group}" if error.group else "")
            resources = forbidden.setdefault((error.verb, error.namespace), [])
            resources += [] if what in resources else [what]
    words = []
    for (verb, namespace), resources in forbidden.items():
        place = f"the namespace {namespace}" if namespace else "the whole cluster"
        words.append(f"you may not {verb} {join_words(resources)} in {place}")
    words += [clause(look.why.message).rstrip(".") for look in looks if look.why is not None and look.forbidden is None]
    return "; ".join(dict.fromkeys(words))


@dataclass(frozen=True)
class TeamObjects:
    """The objects that separate the teams of charts/queues; empty if the cluster has no team.

    `roles`: the Roles and ClusterRoles that bindings give to members besides the member's own Role, by their kind,
    namespace ("" for a ClusterRole) and name.
    """

    queues: Fetched[list[LocalQueue]] = field(default_factory=Fetched)  # of all teams
    namespaces: Fetched[Objects] = field(default_factory=Fetched)
    daemon_sets: Fetched[Objects] = field(default_factory=Fetched)
    network_policies: Fetched[Objects] = field(default_factory=Fetched)  # those of charts/queues
    policies: Fetched[Objects] = field(default_factory=Fetched)  # ValidatingAdmissionPolicies of charts/queues
    policy_bindings: Fetched[Objects] = field(default_factory=Fetched)
    role_bindings: Fetched[Objects] = field(default_factory=Fetched)
    cluster_role_bindings: Fetched[Objects] = field(default_factory=Fetched)
    roles: Mapping[RoleKey, Fetched[Manifest | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class UsedChips:
    """The objects that show which chips are in use; empty if the cluster has no Kueue.

    `pods` are those that have nodes. `everywhere` is False if they are only those of the user's own namespace, because
    the user may not read others.
    """

    pods: Fetched[list[Pod]] = field(default_factory=Fetched)
    workloads: Fetched[list[Workload]] = field(default_factory=Fetched)
    ray_clusters: Fetched[list[ApiObject]] = field(default_factory=Fetched)
    everywhere: bool = True


@dataclass(frozen=True)
class ClusterInventory:
    """The data that was read from a cluster. The rules read nothing else."""

    namespace: str
    served: Mapping[str, Fetched[Served]]
    deployments: Fetched[list[Deployment]]
    webhooks: Mapping[str, Fetched[Objects]]  # mutating, validating
    nodes: Fetched[list[Node]]
    flavors: Fetched[list[ResourceFlavor]]
    cluster_queues: Fetched[list[ClusterQueue]]
    cohorts: Fetched[list[Cohort]]
    local_queues: Fetched[list[LocalQueue]]
    priorities: Fetched[list[PriorityClass]]
    own_namespace: Fetched[Manifest | None]
    rights: Fetched[Permissions]
    # The rest is empty here: products read it for their checks.
    topologies: Fetched[list[Topology]] = field(default_factory=Fetched)
    kueue_config: Fetched[Manifest | None] = field(default_factory=Fetched)  # empty if there is no Kueue
    endpoints: Mapping[str, Fetched[Objects]] = field(default_factory=dict)  # EndpointSlices, by namespace
    teams: TeamObjects = field(default_factory=TeamObjects)
    used: UsedChips = field(default_factory=UsedChips)

    def serves(self, group: str) -> bool:
        return bool(self.served[group].seen)
