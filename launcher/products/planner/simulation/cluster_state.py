"""Read what a simulation needs from a cluster: queues, Workloads, runs, and Kueue's configuration.

Objects that RBAC hides are not an error, except the queues; `assumed` lists the assumptions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime

from launcher.backends.base import RunStatus
from launcher.backends.kubernetes import reader
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.kubernetes.run_object import RunObject
from launcher.config.values.files import chart_defaults
from launcher.config.values.reader import read_text
from launcher.diagnose.doctor import components
from launcher.errors import LauncherError
from launcher.k8s import label_keys
from launcher.k8s.client import (
    CLUSTER_QUEUE,
    COHORT,
    DEPLOYMENT,
    LOCAL_QUEUE,
    PRIORITY_CLASS,
    RESOURCE_FLAVOR,
    WORKLOAD,
    Cluster,
    Kind,
)
from launcher.k8s.deployments import Deployment
from launcher.k8s.errors import ClusterError, Forbidden, KindNotServed
from launcher.k8s.kueue.queues import ClusterQueue, LocalQueue
from launcher.k8s.kueue.workloads import Workload, workloads
from launcher.k8s.objects import Object
from launcher.k8s.target import Target
from launcher.products.common import clock
from launcher.products.planner.scheduler.rules import GATES, MINOR_VERSIONS, parse_version
from launcher.products.planner.simulation.offline import Kueue
from launcher.products.planner.simulation.platform import Platform, from_objects

_CONFIG_MAP = Kind("ConfigMap", "v1", "configmaps")
_CONFIG_FILE = "controller_manager_config.yaml"
# The parts of a pod's template that decide neither its requests nor its flavors.
_TEMPLATE = "spec.podSets.*.template"
_WITHOUT = (
    f"{_TEMPLATE}.metadata",
    f"{_TEMPLATE}.spec.volumes",
    *(f"{_TEMPLATE}.spec.containers.*.{part}" for part in ("env", "volumeMounts", "command", "args")),
)
_MOST_LOGS = 40
_PARALLEL = 8


class TooManyWorkloads(LauncherError):
    """The cluster has more Workloads than the limit of the caller."""


@dataclass(frozen=True)
class ClusterState:
    """The state of a cluster at the time `now`.

    `queues` are the ClusterQueues with their status. `runs` are the RayJobs and JobSets that can be read, by uid, and
    `statuses` those of the runs that run, by uid. `namespace` is the user's; with `all_namespaces`, the user asks for
    the runs of all namespaces. `assumed` has sentences.
    """

    now: datetime
    namespace: str
    platform: Platform
    queues: Sequence[ClusterQueue]
    local_queues: Mapping[tuple[str, str], LocalQueue]
    workloads: Sequence[Workload]
    runs: Mapping[str, RunObject]
    statuses: Mapping[str, RunStatus]
    kueue: Kueue
    all_visible: bool
    assumed: Sequence[str] = field(default_factory=list)
    all_namespaces: bool = False

    def selects(self, namespace: str) -> bool:
        """Return whether the user asks for the runs of a namespace."""
        return self.all_namespaces or namespace == self.namespace


def read_cluster(
    target: Target, given: Kueue, *, deadline: float | None = None, most_workloads: int | None = None
) -> ClusterState:
    """Read the state of the cluster. Raises LauncherError if it has no Kueue, or if its queues may not be read.

    Raises DeadlineExceeded at a `deadline` of time.monotonic(), and TooManyWorkloads if the cluster has more than
    `most_workloads`.
    """
    cluster = target.cluster()
    cluster.deadline = deadline
    assumed: list[str] = []
    try:
        with ThreadPoolExecutor(_PARALLEL) as pool:
            counted = pool.submit(_count, cluster) if most_workloads is not None else None
            kinds = (CLUSTER_QUEUE, COHORT, RESOURCE_FLAVOR, PRIORITY_CLASS)
            queues, cohorts, flavors, priorities = pool.map(cluster.list, kinds)
    except KindNotServed as error:
        raise LauncherError(
            f"{cluster.name[:1].upper()}{cluster.name[1:]} has no Kueue, so nothing waits in a queue.",
            "launcher doctor shows what the cluster has.",
        ) from error
    count = counted.result() if counted is not None else None
    if count is not None and most_workloads is not None and count > most_workloads:
        raise TooManyWorkloads(f"The cluster has more than {most_workloads:,} Workloads.")
    with ThreadPoolExecutor(_PARALLEL) as pool:
        of_queues = pool.submit(all_or_own, cluster, LOCAL_QUEUE)
        of_workloads = pool.submit(all_or_own, cluster, WORKLOAD, _WITHOUT)
        of_runs, of_kueue = pool.submit(_runs, cluster), pool.submit(_kueue, cluster, given)
    local_queues, _ = of_queues.result()
    listed, all_visible = of_workloads.result()
    if target.all_namespaces and not all_visible:
        raise LauncherError(
            "You may not list the Workloads of all namespaces, so --all-namespaces is not possible.",
            f"The runs of one namespace: launcher simulate{cluster.cli_args}",
        )
    common = chart_defaults("queues").tree["common"]
    platform = from_objects(
        [*queues, *cohorts, *flavors, *priorities, *local_queues], common["accelerators"], common.get("prices") or {}
    )
    runs = {run.uid: run for run in of_runs.result()}
    all_workloads = workloads(listed)
    statuses = _statuses(cluster, all_workloads, runs, assumed)
    kueue, not_known = of_kueue.result()
    assumed += not_known
    assumed += [f"{sentence} It is left out." for sentence in sorted(cluster.unreadable)]
    now, skew = clock.of_cluster(cluster)
    assumed += [skew] if skew else []
    return ClusterState(
        now=now,
        namespace=cluster.namespace,
        platform=platform,
        queues=[ClusterQueue(obj) for obj in queues],
        local_queues={(queue.namespace, queue.name): queue for queue in map(LocalQueue, local_queues)},
        workloads=all_workloads,
        runs=runs,
        statuses=statuses,
        kueue=kueue,
        all_visible=all_visible,
        assumed=assumed,
        all_namespaces=target.all_namespaces,
    )


def all_or_own(cluster: Cluster, kind: Kind, without: Sequence[str] = ()) -> tuple[list[Object], bool]:
    """Return the objects of all namespaces; those of the user's namespace, and False, if the others are hidden."""
    try:
        return list(cluster.list(kind, all_namespaces=True, without=without)), True
    except Forbidden:
        return list(cluster.list(kind, without=without)), False


def _count(cluster: Cluster) -> int | None:
    """Return the number of Workloads of the cluster; None if it is not known."""
    try:
        return cluster.count(WORKLOAD)
    except ClusterError:  # those of the namespace may be visible, and are fewer
        return None


def _runs(cluster: Cluster) -> list[RunObject]:
    """Return the runs of all namespaces; those of the user's namespace if the others are hidden."""
    try:
        return reader.run_objects(cluster, all_namespaces=True)
    except Forbidden:
        return reader.run_objects(cluster)


def _statuses(
    cluster: Cluster, all_workloads: Sequence[Workload], runs: Mapping[str, RunObject], assumed: list[str]
) -> dict[str, RunStatus]:
    """Return the status of the runs with quota, with their steps, which come from their logs. The user's come first."""
    holding = [
        (runs[uid], workload)
        for workload in all_workloads
        if workload.has_quota and not workload.is_true("Finished") and (uid := job_uid(workload)) in runs
    ]
    holding.sort(key=lambda pair: (pair[0].namespace != cluster.namespace, pair[0].namespace, pair[0].name))
    if len(holding) > _MOST_LOGS:
        assumed.append(f"The steps of only {_MOST_LOGS} of {len(holding)} running runs were read, yours first.")

    def status(pair: tuple[RunObject, Workload]) -> RunStatus | None:
        run, workload = pair
        try:
            return KubernetesBackend(cluster.in_namespace(run.namespace)).status_of(run, workload)
        except (ClusterError, LauncherError):  # another duration is used, which the answer names
            return None

    with ThreadPoolExecutor(_PARALLEL) as pool:
        statuses = list(pool.map(status, holding[:_MOST_LOGS]))
    return {run.uid: seen for (run, _), seen in zip(holding, statuses, strict=False) if seen is not None}


def job_uid(workload: Workload) -> str:
    """Return the uid of the object that a Workload belongs to, or ""."""
    return workload.label(label_keys.KUEUE_JOB_UID)


def _on(value: bool) -> str:
    return "on" if value else "off"


def _kueue(cluster: Cluster, given: Kueue) -> tuple[Kueue, list[str]]:
    """Return Kueue's version and configuration: as given, else as its Deployment and ConfigMap have them.

    Also returns a sentence for each thing that is assumed.
    """
    newest = ".".join(map(str, MINOR_VERSIONS[-1]))
    if given.version and given.fair_sharing:
        return given, []
    try:
        deployments = [Deployment(obj) for obj in cluster.list(DEPLOYMENT, all_namespaces=True)]
        (kueue, *_) = components.controllers(deployments)[components.KUEUE]
        version = components.version_of(components.KUEUE, kueue)
        config_map = cluster.get(_CONFIG_MAP, components.config_map_name(kueue), kueue.namespace)
        text = ((config_map or {}).get("data") or {}).get(_CONFIG_FILE)
        config = read_text(str(text).encode(), _CONFIG_FILE).tree if text is not None else None
    except (LauncherError, KeyError):
        return given, [
            f"Kueue's own configuration may not be read: it is assumed to be version {given.version or newest} with "
            f"fair sharing {_on(given.fair_sharing)}. Options: --kueue VERSION, --fair-sharing."
        ]
    assumed = []
    if not given.version and parse_version(version) is None:
        assumed.append(f"Kueue {version or 'of an unknown version'} is simulated as {newest}.")
        version = newest
    config = config if isinstance(config, Mapping) else {}
    gates = config.get("featureGates")
    for gate, default in GATES.items():
        if isinstance(gates, Mapping) and gates.get(gate, default) is not default:
            assumed.append(f"Kueue's feature gate {gate} is {_on(not default)}; it is simulated as {_on(default)}.")
    return Kueue(given.version or version, given.fair_sharing or bool(config.get("fairSharing"))), assumed
