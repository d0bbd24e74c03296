"""Served models, from their Kubernetes objects: the list and their status.

A served model is one RayService with the label slipway.dev/model, which charts/serve sets. KubeRay creates a RayCluster
for it, and a second one for an update; each is called active once its requests come from the service, and pending
before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from launcher.backends.base import State
from launcher.backends.kubernetes.positions import positions
from launcher.backends.kubernetes.reader import run_parallel
from launcher.backends.kubernetes.run_object import RunObject
from launcher.backends.kubernetes.states import ObservedRun, classify
from launcher.config.kinds import RunKind
from launcher.formatting import table
from launcher.k8s import label_keys, objects
from launcher.k8s.client import POD, RAY_CLUSTER, RAY_SERVICE, WORKLOAD, Cluster, KindNotServed
from launcher.k8s.kueue import workloads as kueue_workloads
from launcher.k8s.kueue.workloads import TEMPLATES, Workload
from launcher.k8s.objects import Object
from launcher.k8s.pods import Pod
from launcher.products.common.ray_hosts import Group, Host, groups_of, host

FAILING = ("DEPLOY_FAILED", "UNHEALTHY")
"""The states of an application of Ray Serve that need a user."""
_DEFAULT_PORT = 8000  # of Ray Serve


@dataclass(frozen=True)
class ServedModelStatus:
    """The current status of a served model. Scripts read its fields as JSON: add fields, never rename them.

    `state` is queued, starting, ready (it answers), updating (it answers, and its changed values are being applied),
    unhealthy (it answers not at all, or not in all replicas), failed (KubeRay rejects it or stops waiting for it, or
    Kueue has deactivated it) or deleting. `reason` explains the state. `model` is what the replicas load, and
    `model_name` its name in requests. `replicas` of at least `replicas_min` and at most `replicas_max` replicas answer.
    `url` is the address of the API for pods of the namespace. `position` is the place in the queue, from 1. A field
    that is unknown is None or empty.
    """

    name: str
    namespace: str
    state: str
    reason: str
    model: str
    model_name: str
    replicas: int
    replicas_min: int | None
    replicas_max: int | None
    url: str
    team: str
    queue: str
    position: int | None
    since: str
    context: str
    groups: tuple[Group, ...] = ()
    pods: tuple[Host, ...] = ()

    def as_text(self) -> str:
        """Return the text of `launcher status`."""
        rows = [
            ("model", f"{self.name} (namespace {self.namespace})"),
            ("state", f"{self.state}: {self.reason}" if self.reason else self.state),
            ("loads", self.model),
            ("name", self.model_name),
            ("url", self.url),
            ("replicas", _replicas(self)),
            ("queue", self.queue + (f", position {self.position}" if self.position else "")),
            ("since", self.since),
            *(("group", f"{group.name}: {group.as_text()}") for group in self.groups),
        ]
        text = table([row for row in rows if row[1]], headed=False)
        if self.pods:
            text += "\n\n" + table([("POD", "GROUP", "NODE", "READY", "CHIPS"), *(pod.as_row() for pod in self.pods)])
        return text


@dataclass(frozen=True, eq=False)
class ServedObject(RunObject):
    """A RayService, as a run's object for what applies to both: the queue, the Workload and the pods."""

    @classmethod
    def of(cls, service: Object) -> ServedObject:
        spec = service["spec"]["rayClusterConfig"]
        return cls(
            raw=service,
            kind=RAY_SERVICE.kind,
            run_kind=RunKind.RAY_JOB,  # like a RayJob, its pods are those of a RayCluster
            name=objects.name(service),
            namespace=objects.namespace(service),
            uid=objects.uid(service),
            created=str(service["metadata"].get("creationTimestamp") or ""),
            deleting=bool(service["metadata"].get("deletionTimestamp")),
            suspended=bool(spec.get("suspend")),
            queue=objects.label(service, label_keys.KUEUE_QUEUE),
            priority_class=objects.label(service, label_keys.KUEUE_PRIORITY_CLASS),
            team=objects.label(service, label_keys.TEAM),
            attempt=1,
            sweep="",
            sweep_values={},
            cancelled_at="",
            cancelled_for="",
            release=objects.label(service, label_keys.MODEL),
        )

    @property
    def has_status(self) -> bool:
        return bool(objects.status(self.raw))

    @property
    def is_run(self) -> bool:
        return False


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A RayService of charts/serve with its Workload. `kueue` is whether the cluster has Kueue."""

    raw: Object
    workload: Workload | None = None
    kueue: bool = True

    @property
    def name(self) -> str:
        return objects.name(self.raw)

    @property
    def namespace(self) -> str:
        return objects.namespace(self.raw)

    @cached_property
    def object(self) -> ServedObject:
        return ServedObject.of(self.raw)

    @property
    def active(self) -> Mapping[str, Any]:
        """The status of the RayCluster that answers requests, or did; {} before the first."""
        return objects.status(self.raw).get("activeServiceStatus") or {}

    @property
    def pending(self) -> Mapping[str, Any]:
        """The status of the RayCluster that KubeRay prepares; {} if there is none."""
        status: Mapping[str, Any] = objects.status(self.raw).get("pendingServiceStatus") or {}
        return status if status.get("rayClusterName") else {}

    @property
    def newest_cluster(self) -> str:
        """The name of the newest of its RayClusters; "" before the first."""
        return str((self.pending or self.active).get("rayClusterName") or "")

    @property
    def answers(self) -> bool:
        """Whether replicas answer. KubeRay does not update the condition Ready of a service that Kueue suspends."""
        return objects.is_true(self.raw, "Ready") and not self.object.suspended

    @property
    def updating(self) -> bool:
        return bool(self.pending and self.active.get("rayClusterName"))

    @property
    def given_up(self) -> str:
        """The reason with which KubeRay does not continue: ValidationFailed or InitializingTimeout; else "".

        ValidationFailed remains after the values are corrected, until the model answers. KubeRay does not observe a
        generation that is invalid.
        """
        ready = objects.condition(self.raw, "Ready")
        if not ready.is_false or ready.reason not in ("ValidationFailed", "InitializingTimeout"):
            return ""
        return ready.reason if ready.reason == "InitializingTimeout" or not self.observed else ""

    @property
    def observed(self) -> bool:
        """Whether KubeRay has processed the current values."""
        generation = int(self.raw["metadata"].get("generation") or 0)
        return int(objects.status(self.raw).get("observedGeneration") or 0) >= generation

    @property
    def failure(self) -> str:
        """The message of an application that does not work, in the newest RayCluster; "" if there is none."""
        for application in ((self.pending or self.active).get("applicationStatuses") or {}).values():
            if application.get("status") in FAILING:
                return last_line(application.get("message") or "") or f"Ray Serve reports {application['status']}"
        return ""

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """Ray Serve's config, which its team can change; {} if it cannot be read."""
        import yaml

        try:
            config = yaml.safe_load(str(self.raw["spec"].get("serveConfigV2") or ""))
        except (yaml.YAMLError, ValueError, RecursionError):  # ValueError: a date that does not exist
            return {}
        return config if isinstance(config, dict) else {}

    @property
    def application(self) -> Mapping[str, Any]:
        return _first(self.config.get("applications"))

    @property
    def replica_limits(self) -> tuple[int | None, int | None]:
        """The minimum and maximum number of replicas; None if they are unknown."""
        deployment = _first(self.application.get("deployments"))
        scaling = deployment.get("autoscaling_config")
        if isinstance(scaling, dict):
            return _whole(scaling.get("min_replicas")), _whole(scaling.get("max_replicas"))
        number = _whole(deployment.get("num_replicas"))
        return number, number

    @property
    def replicas(self) -> int:
        """The number of replicas that answer: the endpoints of its Service, each of which is a host with a replica.

        The head is also an endpoint if it is not excluded.
        """
        endpoints = int(objects.status(self.raw).get("numServeEndpoints") or 0)
        head = not self.raw["spec"].get("excludeHeadPodFromServeSvc")
        return max(0, endpoints - head)

    @property
    def url(self) -> str:
        http = self.config.get("http_options")
        port = (_whole(http.get("port")) if isinstance(http, dict) else None) or _DEFAULT_PORT
        return f"http://{self.name}-serve-svc.{self.namespace}:{port}/v1"

    @cached_property
    def state_and_reason(self) -> tuple[str, str]:
        """The state and the reason for it; see ServedModelStatus."""
        if self.object.deleting:
            return "deleting", "It is being deleted."
        ready = objects.condition(self.raw, "Ready")
        if self.given_up:
            return "failed", ready.message or ready.reason
        if self.answers:
            return self._answering()
        state, reason = classify(ObservedRun(self.object, self.workload, None, self.kueue))
        if state is State.FAILED:
            return "failed", reason
        if state is State.CANCELLED:
            return "queued", "Its Workload is inactive (spec.active), so Kueue does not start it."
        if state in (State.QUEUED, State.PREEMPTED):
            return "queued", reason
        if self.failure:
            return "unhealthy", _sentence(self.failure)
        if ready.reason == "ZeroServeEndpoints":
            return "unhealthy", "No replica answers any more."
        if not objects.status(self.raw):
            return "starting", "KubeRay has not processed it yet."
        if not self.newest_cluster:
            return "starting", "Its Ray cluster is about to be created."
        return "starting", self._starting()

    def _answering(self) -> tuple[str, str]:
        low, _ = self.replica_limits
        if self.updating:
            if self.failure:
                return "updating", f"The new version does not answer, and the old one continues: {self.failure}."
            moved = self.pending.get("trafficRoutedPercent")
            if moved is not None:
                return "updating", f"{moved} % of the requests go to the new version."
            return "updating", "The new version is starting, and the old one answers."
        if self.failure:
            return "unhealthy", _sentence(self.failure)
        if low is not None and self.replicas < low:
            return "unhealthy", f"{self.replicas} of at least {low} replicas answer."
        return "ready", ""

    def _starting(self) -> str:
        ray = self.pending or self.active
        conditions = objects.conditions(ray.get("rayClusterStatus") or {})
        provisioned = conditions.get("RayClusterProvisioned")
        if provisioned is not None and provisioned.is_true:
            return "The model is being loaded."
        return "Its pods are starting."


def all_models(cluster: Cluster, *, all_namespaces: bool = False) -> list[ServedModel]:
    """Return the served models of the namespace, or of all, the newest first; [] if the cluster has no RayServices."""
    try:
        services = cluster.list(RAY_SERVICE, labels=label_keys.MODEL, all_namespaces=all_namespaces)
    except KindNotServed:
        return []
    served = [each for each in services if _is_model(each)]
    if not served:
        return []
    of = _workloads_of(cluster, served, all_namespaces=all_namespaces)
    models = [_with_workload(each, of) for each in served]
    return sorted(models, key=lambda each: each.object.created, reverse=True)


def named(cluster: Cluster, name: str) -> ServedModel | None:
    """Return the served model with that name, or None."""
    try:
        obj = cluster.get(RAY_SERVICE, name)
    except KindNotServed:
        return None
    if obj is None or not _is_model(obj):
        return None
    return _with_workload(obj, _workloads_of(cluster, [obj]))


def exists(cluster: Cluster, name: str) -> bool:
    """Return whether there is a served model with that name."""
    try:
        obj = cluster.get(RAY_SERVICE, name)
    except KindNotServed:
        return False
    return obj is not None and _is_model(obj)


def pods_of(cluster: Cluster, model: ServedModel) -> list[Pod]:
    """Return the pods of a served model, those of an update included."""
    listed = map(Pod, cluster.list(POD, model.namespace, labels=f"{label_keys.MODEL}={model.name}"))
    return [pod for pod in listed if pod.created >= model.object.created]


def describe(cluster: Cluster, model: ServedModel, *, details: bool = False) -> ServedModelStatus:
    """Return the status of a served model; with `details`, with its pods and its position in the queue."""
    state, reason = model.state_and_reason
    pods: list[Pod] = []
    position = None
    if details:
        own = [model.workload] if model.workload is not None else []
        pods, places = run_parallel([partial(pods_of, cluster, model), partial(positions, cluster, own)])
        position = places.get(own[0].uid) if own else None
        if state == "starting" and pods and not all(pod.ready for pod in pods):
            reason = f"{sum(pod.ready for pod in pods)} of {len(pods)} pods are ready."
    low, high = model.replica_limits
    arguments = model.application.get("args")
    arguments = arguments if isinstance(arguments, dict) else {}
    return ServedModelStatus(
        name=model.name,
        namespace=model.namespace,
        state=state,
        reason=reason,
        model=str(arguments.get("model") or ""),
        model_name=str(arguments.get("name") or ""),
        replicas=model.replicas,
        replicas_min=low,
        replicas_max=high,
        url=model.url,
        team=model.object.team,
        queue=model.object.queue,
        position=position,
        since=model.object.created,
        context=cluster.context,
        groups=tuple(groups_of({"spec": model.raw["spec"]["rayClusterConfig"]})),
        pods=tuple(sorted(map(host, pods), key=lambda each: (each.pod, each.group))),
    )


def listing(models: Sequence[ServedModelStatus]) -> str:
    """Return the table of `launcher list`, with their namespaces if there are several; "" without served models."""
    if not models:
        return ""
    cells = {
        "SERVED MODEL": [each.name for each in models],
        "NAMESPACE": [each.namespace for each in models],
        "STATE": [each.state for each in models],
        "REPLICAS": [_replicas(each) for each in models],
        "MODEL": [each.model for each in models],
        "QUEUE": [each.queue for each in models],
        "SINCE": [each.since for each in models],
    }
    if len(set(cells["NAMESPACE"])) == 1:
        del cells["NAMESPACE"]
    return table([tuple(cells), *zip(*cells.values(), strict=True)])


def last_line(message: str) -> str:
    """Return the last line of a traceback, which has the error, without a period."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else ""


def _replicas(status: ServedModelStatus) -> str:
    """Return "2 of 1 to 4": the replicas that answer, and the limits."""
    if status.replicas_min is None or status.replicas_max is None:
        return str(status.replicas)
    if status.replicas_min == status.replicas_max:
        return f"{status.replicas} of {status.replicas_max}"
    return f"{status.replicas} of {status.replicas_min} to {status.replicas_max}"


def _is_model(service: Object) -> bool:
    return objects.label(service, label_keys.MODEL) == objects.name(service)


type _Workloads = list[Workload] | None


def _workloads_of(cluster: Cluster, services: Sequence[Object], *, all_namespaces: bool = False) -> _Workloads:
    """Return the Workloads that may belong to the services; None if the cluster does not have the kind."""
    if not any(objects.label(each, label_keys.KUEUE_QUEUE) for each in services):
        return []
    try:
        return kueue_workloads.workloads(cluster.list(WORKLOAD, all_namespaces=all_namespaces, without=[TEMPLATES]))
    except KindNotServed:
        return None


def _with_workload(service: Object, of: _Workloads) -> ServedModel:
    """Return the served model with its newest Workload.

    The Workload belongs to the RayService since Kueue 0.17, and to its RayClusters before.
    """
    status = objects.status(service)
    parts = [status.get(key) or {} for key in ("activeServiceStatus", "pendingServiceStatus")]
    names = {str(part.get("rayClusterName") or "") for part in parts} - {""}
    own = [
        each
        for each in of or ()
        if each.namespace == objects.namespace(service)
        and (
            each.label(label_keys.KUEUE_JOB_UID) == objects.uid(service)
            or any(owner.get("kind") == RAY_CLUSTER.kind and owner["name"] in names for owner in _owners(each))
        )
    ]
    return ServedModel(service, kueue_workloads.newest(own), of is not None)


def _owners(workload: Workload) -> Sequence[Object]:
    return workload.raw["metadata"].get("ownerReferences") or []


def _first(value: Any) -> Mapping[str, Any]:
    """Return the first item of a list if it is a map; else {}."""
    return value[0] if isinstance(value, list) and value and isinstance(value[0], dict) else {}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _sentence(text: str) -> str:
    return f"{text.rstrip('.')}."
