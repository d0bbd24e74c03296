"""Explain the state of a served model: by the rules for runs while it waits and starts, and by its own after that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from launcher.backends.base import State
from launcher.backends.kubernetes.logs import ray_workers
from launcher.diagnose.explain import (
    queue_position,
    rules_lifecycle,
    rules_not_queued,
    rules_pods,
    rules_queue,
    rules_start,
)
from launcher.diagnose.explain.finding import Evidence, Explanation, Finding
from launcher.diagnose.explain.formatting import one_line, sentence
from launcher.diagnose.explain.rule_order import UNTIL_PODS_RUN, hidden_objects
from launcher.diagnose.explain.situation import Situation, warnings
from launcher.k8s import client, label_keys, objects
from launcher.k8s.client import Cluster
from launcher.k8s.kueue.workloads import Workload
from launcher.k8s.objects import ApiObject, Object, seconds_since
from launcher.k8s.pods import Pod
from launcher.products.models.serving.models import FAILING, ServedModel, last_line

_PATIENCE = 900.0
"""Seconds after which loading a model is reported as slow. vLLM compiles for minutes on a TPU."""
_MOST_LINES = 12


@dataclass
class ServedSituation(Situation):
    """A served model and the related objects. Its RayCluster and its pods are those of the newest cluster."""

    model: ServedModel = field(kw_only=True)

    @property
    def again(self) -> str:
        return f"install it again (launcher install serve {self.name})"

    def with_values(self, *sets: str) -> str:
        given = " ".join(f"--set {item}" for item in sets)
        return f"launcher install serve {self.command_args} -f FILE {given}"

    def worker_option(self, pod: str) -> str:
        hosts = [host.name for host in ray_workers(self.pods)]
        return f" --worker {hosts.index(pod)}" if pod in hosts else ""

    @property
    def resumes(self) -> str:
        return "It starts again automatically"

    @property
    def slices_key(self) -> str:
        return "serve.replicas.min"

    @cached_property
    def workload(self) -> Workload | None:
        """Its Workload with the templates of its pods, which the model's does not have."""
        known = self.model.workload
        obj = None if known is None else self._get(client.WORKLOAD, known.name)
        return None if obj is None else Workload(obj)

    @cached_property
    def templates(self) -> list[Object]:
        spec = self.run.raw["spec"]["rayClusterConfig"]
        groups = [*(spec.get("workerGroupSpecs") or []), spec["headGroupSpec"]]
        return [group.get("template") or {} for group in groups]

    @cached_property
    def slices(self) -> int:
        spec = self.run.raw["spec"]["rayClusterConfig"]
        return sum(int(group.get("replicas") or 0) for group in spec.get("workerGroupSpecs") or []) or 1

    @cached_property
    def ray_cluster(self) -> ApiObject | None:
        name = self.model.newest_cluster
        obj = self._get(client.RAY_CLUSTER, name) if name else None
        return ApiObject(obj) if obj else None

    @cached_property
    def pods(self) -> list[Pod]:
        """The pods of the newest of its Ray clusters."""
        listed = map(Pod, self._list(client.POD, labels=f"{label_keys.MODEL}={self.name}"))
        own = self.model.newest_cluster
        return [pod for pod in listed if pod.created >= self.run.created and pod.label(label_keys.RAY_CLUSTER) == own]

    @cached_property
    def pods_wanted(self) -> int:
        spec = self.run.raw["spec"]["rayClusterConfig"]
        return 1 + sum(
            int(group.get("replicas") or 0) * int(group.get("numOfHosts") or 1)
            for group in spec.get("workerGroupSpecs") or []
        )

    @cached_property
    def state_and_reason(self) -> tuple[State, str]:
        """The state of the run that is most similar, for the rules of runs."""
        state, reason = self.model.state_and_reason
        now = {"queued": State.QUEUED, "failed": State.FAILED, "ready": State.RUNNING}.get(state, State.STARTING)
        return now, reason


type _Rule = Callable[[ServedSituation], Finding | None]


def explain(cluster: Cluster, model: ServedModel) -> Explanation:
    """Return the explanation of the served model's state. Raises LauncherError if the cluster does not answer."""
    situation = ServedSituation(model.object, cluster, cli_args=cluster.cli_args, model=model)
    state, reason = model.state_and_reason
    finding = next(filter(None, (rule(situation) for rule in _RULES)), None)
    if finding is None:
        finding = Finding(f"{situation.name} is {state}{f': {reason}' if reason else '.'}")
    stand = queue_position.queue_position(situation) if state == "queued" else None
    shown = [*finding.evidence]
    if stand is not None and (stand.position is not None or stand.ahead or stand.waiting):
        shown.append(queue_position.evidence(situation, stand))
    if model.updating and model.answers and finding.headline.startswith(f"{situation.name} cannot start"):
        shown.append(Evidence("RayService", situation.name, "the old version still answers; the new one is not ready."))
    shown += hidden_objects(situation)
    return Explanation(
        situation.name,
        state,
        finding.headline,
        stand.position if stand else None,
        tuple(shown),
        tuple(dict.fromkeys(finding.suggestions)),
    )


def _given_up(situation: ServedSituation) -> Finding | None:
    """KubeRay rejected the RayService, or it was not ready in time; or Kueue deactivated it."""
    state, reason = situation.model.state_and_reason
    if state != "failed":
        return None
    ready = objects.condition(situation.run.raw, "Ready")
    if situation.model.given_up == "InitializingTimeout":
        return Finding(
            f"{situation.name} failed: it did not answer within the time limit for its start, and KubeRay has deleted "
            "its Ray clusters.",
            (Evidence("RayService", situation.name, f"Ready is False, {ready.reason}: {sentence(one_line(reason))}"),),
            (f"KubeRay does not try again: launcher uninstall {situation.command_args}, then {situation.again}.",),
        )
    if situation.model.given_up:
        return Finding(
            f"{situation.name} failed: KubeRay does not accept its RayService: {sentence(one_line(reason))}",
            (Evidence("RayService", situation.name, f"Ready is False, {ready.reason}."),),
            (f"Correct the values, and {situation.again}.",),
        )
    return Finding(f"{situation.name} failed: {sentence(one_line(reason))}", rules_queue.quote(situation))


def _application_failing(situation: ServedSituation) -> Finding | None:
    """Ray Serve cannot deploy the application, or its replicas fail their checks."""
    model = situation.model
    if not model.failure:
        return None
    part = model.pending or model.active
    shown = []
    for name, application in (part.get("applicationStatuses") or {}).items():
        if application.get("status") in FAILING:
            for line in (application.get("message") or "").strip().splitlines()[-_MOST_LINES:]:
                shown.append(Evidence("application", name, f"{application['status']}: {line.rstrip()}"))
    failed = any(each.get("status") == "DEPLOY_FAILED" for each in (part.get("applicationStatuses") or {}).values())
    cause = sentence(one_line(last_line(model.failure)))
    if model.updating and model.answers:
        return Finding(
            f"The new version of {situation.name} does not answer, and the old one continues: {cause}",
            tuple(shown),
            (
                f"Correct the values, or restore the previous ones, and {situation.again}.",
                f"launcher logs {situation.command_args} shows the log of the new version's head.",
            ),
        )
    what = "Ray Serve cannot deploy the model" if failed else "its replicas fail their health checks"
    return Finding(
        f"{situation.name} does not answer: {what}: {cause}",
        tuple(shown),
        (
            f"Correct the values, and {situation.again}."
            if failed
            else "Ray Serve replaces the replicas automatically.",
            f"launcher logs {situation.command_args} --worker 0 shows the log of a replica's host.",
        ),
    )


def _updating(situation: ServedSituation) -> Finding | None:
    """Both the old and the new version exist."""
    model = situation.model
    if not (model.updating and model.answers):
        return None
    ready = sum(pod.ready for pod in situation.pods)
    moved = model.pending.get("trafficRoutedPercent")
    percent = f", which receives {moved} % of the requests" if moved is not None else ""
    return Finding(
        f"{situation.name} is being updated: the old version answers until the new one is ready.",
        (
            Evidence("RayCluster", str(model.active["rayClusterName"]), "is the old version, and answers."),
            Evidence(
                "RayCluster",
                model.newest_cluster,
                f"is the new version{percent}; {ready} of {situation.pods_wanted} pods are ready.",
            ),
        ),
        ("No action is needed: KubeRay deletes the old version when the new one has taken over.",),
    )


def _too_few(situation: ServedSituation) -> Finding | None:
    """Fewer replicas than the minimum answer."""
    model = situation.model
    low, _ = model.replica_limits
    if not model.answers or low is None or model.replicas >= low:
        return None
    waiting = [pod for pod in situation.pods if not pod.ready]
    return Finding(
        f"{situation.name} answers with {model.replicas} replicas of at least {low}.",
        tuple(Evidence("Pod", pod.name, _pod_text(pod)) for pod in waiting[:3]),
        (f"launcher status {situation.command_args} shows its pods.",),
    )


def _ready(situation: ServedSituation) -> Finding | None:
    model = situation.model
    if not model.answers:
        return None
    low, high = model.replica_limits
    limits = f" of {low}" if low == high else f" (between {low} and {high})"
    return Finding(f"{situation.name} is ready: {model.replicas} replicas{limits} answer at {model.url}.")


def _stopped_answering(situation: ServedSituation) -> Finding | None:
    """It answered, and now no replica does."""
    ready = objects.condition(situation.run.raw, "Ready")
    if ready.reason != "ZeroServeEndpoints":
        return None
    waiting = [pod for pod in situation.pods if not pod.ready]
    return Finding(
        f"{situation.name} has not answered for {situation.ago(ready.since)}: no replica is ready.",
        tuple(Evidence("Pod", pod.name, _pod_text(pod)) for pod in waiting[:3]),
        (f"launcher status {situation.command_args} shows its pods.",),
    )


def _loading(situation: ServedSituation) -> Finding | None:
    """Its pods are starting, or are ready and the model is being loaded."""
    if situation.state is not State.STARTING:
        return None
    ready, wanted = sum(pod.ready for pod in situation.pods), situation.pods_wanted
    since = max((pod.scheduled.since for pod in situation.pods), default="") or situation.run.created
    took = seconds_since(since, situation.now)
    # A host is ready when its replica answers, so the head alone is ready while the model is loaded.
    head = any(pod.ready and pod.label(label_keys.RAY_NODE_TYPE) == "head" for pod in situation.pods)
    doing = "the model is being loaded" if head else "its pods are starting"
    events = warnings(situation.run_events)
    return Finding(
        f"{situation.name} is starting: {doing}, and {ready} of {wanted} pods are ready.",
        tuple(Evidence("event", event.reason, sentence(one_line(event.message))) for event in events[:2]),
        (f"launcher status {situation.command_args} shows its pods." if took > _PATIENCE else "No action is needed.",),
    )


def _pod_text(pod: Pod) -> str:
    for container in pod.all_containers:
        waiting = container.waiting
        if waiting is not None and waiting.reason not in ("", "PodInitializing"):
            return sentence(one_line(": ".join(filter(None, (waiting.reason, waiting.message)))))
    if pod.scheduled.is_false and pod.scheduled.message:
        return sentence(one_line(pod.scheduled.message))
    return f"is {(pod.phase or 'Pending').lower()}, and not ready."


# These compare spec.suspend with the Workload, which before Kueue 0.17 is that of the model's Ray cluster.
_ONLY_RUNS = (rules_not_queued.unmanaged, rules_not_queued.silent_kueue)

_RULES: tuple[_Rule, ...] = (
    rules_lifecycle.being_deleted,
    _given_up,
    *(rule for rule in UNTIL_PODS_RUN if rule not in _ONLY_RUNS),
    # The container of a host restarts while its application cannot be deployed, so the application is the cause.
    _application_failing,
    rules_pods.crashing,
    rules_start.refused,
    _updating,
    _too_few,
    _ready,
    _stopped_answering,
    _loading,
)
