"""Check a run against the cluster before it is submitted: whether its queue exists, and whether it can start there.

The rules are those of `explain`, applied to the Workload that Kueue would create for the object.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher import paths
from launcher.backends.kubernetes import reader, run_object
from launcher.backends.kubernetes.run_object import RunObject
from launcher.backends.kubernetes.snapshot import Snapshot
from launcher.config.checks import weights_rules
from launcher.config.checks.problems import ERROR, WARNING, Problem
from launcher.config.maxtext import models
from launcher.config.values.tree import Origin, Values
from launcher.config.weights import Source
from launcher.diagnose.explain import rules_impossible, rules_queue
from launcher.diagnose.explain.finding import Finding
from launcher.diagnose.explain.queue_situation import QueueSituation
from launcher.k8s import client, label_keys, objects
from launcher.k8s.client import NAMESPACE, PRIORITY_CLASS, PVC, SERVICE_ACCOUNT, WORKLOAD, ClusterError, Forbidden, Kind
from launcher.k8s.kueue.quota import Fit
from launcher.k8s.kueue.workloads import Workload
from launcher.k8s.shapes import SHAPES, fault

if TYPE_CHECKING:
    from launcher.config.plan import LaunchPlan

_ALWAYS_ACCEPTED = 8  # the pod sets that each supported version of Kueue accepts
_Rule = Callable[[QueueSituation], Finding | None]
# (rule, default key, severity). ERROR refuses the run. The default key is reported if the finding has no key that the
# user set.
_RULES: tuple[tuple[_Rule, str, str], ...] = (
    (rules_queue.no_local_queue, "queue.name", ERROR),
    (rules_queue.no_cluster_queue, "queue.name", ERROR),
    (rules_queue.local_queue_stopped, "queue.name", WARNING),
    (rules_queue.cluster_queue_closed, "queue.name", WARNING),
    (rules_impossible.not_covered, "queue.name", ERROR),
    (rules_impossible.no_flavor, "slice", ERROR),
    (rules_impossible.too_large, "slice.count", ERROR),
)


def problems(plan: LaunchPlan, obj: Mapping[str, Any], cluster: Snapshot) -> list[Problem]:
    """Return the problems of submitting the plan's object to this cluster. Hidden objects (RBAC) are not a problem."""
    if wrong := fault(obj["spec"], SHAPES[str(obj["kind"])]["spec!"], "spec"):
        return [_problem(plan.values, "wrong_type", ERROR, "pods", f"In the {obj['kind']} of the run, {wrong}.")]
    situation = _before(obj, cluster)
    found = [
        *_missing(plan, objects.namespace(obj), cluster),
        *_too_many_pod_sets(plan, obj, cluster),
        *_weights(plan, cluster),
        *_pod_security(plan, objects.namespace(obj), cluster),
        *_history_server(plan, obj, cluster),
    ]
    if situation.queue and not situation.local_queues and "LocalQueue" in situation.absent:
        text = (
            f"Kueue is not installed in {cluster.cluster.name}, so {situation.name} would not wait for its chips in "
            f'the queue "{situation.queue}": it would start at once, or its pods would wait for nodes.'
            "\n  launcher doctor shows more."
        )
        return [*found, _problem(plan.values, "no_kueue", WARNING, "queue.name", text)]
    for rule, key, severity in _RULES:
        finding = rule(situation) if situation.queue else None
        if finding is not None:
            text = finding.headline.replace(f"{situation.name} waits", f"{situation.name} would wait")
            exactly = finding.key and _origin(plan.values, tuple(finding.key.split(".")))
            pointed = finding.key if exactly else key
            found.append(_problem(plan.values, rule.__name__, severity, pointed, text, finding.suggestions))
            break  # later findings would follow from this one
    priority = objects.label(obj, label_keys.KUEUE_PRIORITY_CLASS)
    if situation.queue and priority and _lacks_priority(situation, priority):
        there = ", ".join(sorted(situation.priorities))
        text = f'There is no WorkloadPriorityClass "{priority}".'
        hint = f"The cluster has: {there}."
        if not there:
            hint = 'The cluster has none: charts/queues creates them; set "" to use none.'
        found.append(_problem(plan.values, "no_priority", ERROR, "queue.priority", text, (hint,)))
    return found


def has_room(obj: Mapping[str, Any], cluster: Snapshot) -> bool:
    """Return whether the queue of the object has the free quota for it now, so that Kueue would admit it at once.

    False if RBAC hides the queue.
    """
    verdicts = _before(obj, cluster).verdicts
    return bool(verdicts) and all(verdict.fit is Fit.NOW for verdict in verdicts)


def _lacks_priority(situation: QueueSituation, priority: str) -> bool:
    """Return whether the priority class is known to be missing: not if RBAC hides the classes, or without Kueue."""
    if priority in situation.priorities:
        return False
    return f"the {PRIORITY_CLASS.kind}s" not in situation.unseen and PRIORITY_CLASS.kind not in situation.absent


def expected_workload(obj: Mapping[str, Any], *, created: str, priority: int = 0, uid: str = "") -> Workload:
    """Return the Workload that Kueue would create for the object at a time (RFC 3339), for a job with this uid.

    Its own uid is the same: it decides the order of two Workloads of the same second.
    """
    return Workload(
        {
            "metadata": {
                "name": objects.name(obj),
                "namespace": objects.namespace(obj),
                "uid": uid,
                "creationTimestamp": created,
                "labels": {label_keys.KUEUE_JOB_UID: uid},
            },
            "spec": {
                "queueName": objects.label(obj, label_keys.KUEUE_QUEUE),
                "priority": priority,
                "podSets": list(_pod_sets(obj)),
            },
        }
    )


def _before(obj: Mapping[str, Any], cluster: Snapshot) -> QueueSituation:
    """Return the situation right after creation: suspended, with the Workload that Kueue would create."""
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    run = copy.deepcopy(dict(obj))
    run["metadata"]["creationTimestamp"] = now
    run["spec"]["suspend"] = True
    return QueueSituation(RunObject.parse(run), cluster, expected_workload=expected_workload(run, created=now))


def _pod_sets(run: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the pod sets that Kueue would create: head and worker groups of a RayJob, replicated jobs of a JobSet."""
    if run["kind"] == "RayJob":
        cluster = run["spec"]["rayClusterSpec"]
        yield {"name": "head", "count": 1, "template": cluster["headGroupSpec"]["template"]}
        for group in cluster.get("workerGroupSpecs") or []:
            count = int(group.get("replicas") or 0) * int(group.get("numOfHosts") or 1)
            yield {"name": group["groupName"], "count": count, "template": group["template"]}
        return
    for job in run["spec"]["replicatedJobs"]:
        spec = job["template"]["spec"]
        count = int(job.get("replicas") or 1) * int(spec.get("parallelism") or 1)
        yield {"name": job["name"], "count": count, "template": spec["template"]}


def _missing(plan: LaunchPlan, namespace: str, cluster: Snapshot) -> Iterator[Problem]:
    """Report what the pods need but the namespace lacks: they could not be created, or would wait indefinitely."""
    config = plan.config
    team, storage = config["team"], config["storage"]
    account = team["serviceAccount"] or team["name"]
    if account and not _exists(cluster, SERVICE_ACCOUNT, account, namespace):
        text = f'The namespace {namespace} has no service account "{account}", so no pod could be created.'
        hint = "charts/queues creates one for each team; team.serviceAccount selects another."
        yield _problem(plan.values, "no_service_account", ERROR, "team.serviceAccount", text, (hint,))
    if storage["kind"] == "pvc" and not _exists(cluster, PVC, storage["claim"], namespace):
        claim = storage["claim"]
        text = f'The namespace {namespace} has no PersistentVolumeClaim "{claim}", so its pods would wait indefinitely.'
        hint = f"kubectl get pvc -n {namespace} lists those that exist."
        yield _problem(plan.values, "no_claim", ERROR, "storage.claim", text, (hint,))


def _too_many_pod_sets(plan: LaunchPlan, obj: Mapping[str, Any], cluster: Snapshot) -> Iterator[Problem]:
    """Compare the number of pod sets with the limit in the cluster's schema of Workloads, which depends on Kueue."""
    count = sum(1 for _ in _pod_sets(obj))
    if count <= _ALWAYS_ACCEPTED:
        return
    limit = cluster.cluster.fields(WORKLOAD).get("podSets", {}).get("maxItems")
    if limit is not None and count > limit:
        yield _problem(
            plan.values,
            "pod_sets",
            ERROR,
            "slice.count",
            f"{objects.name(obj)} has {count} pod sets, including its head, and Kueue in {cluster.cluster.name} "
            f"accepts at most {limit}.",
            ("Use fewer slices, or slice.placement: exclusive. Kueue 0.18 accepts 10 pod sets, and 0.19 accepts 18.",),
        )


def _weights(plan: LaunchPlan, cluster: Snapshot) -> Iterator[Problem]:
    """Compare the run with the run whose weights it starts from, if the cluster still has the object of that run."""
    given, config = plan.config.get("from") or "", plan.config
    source = Source.parse(given)
    if not source.name or config["run"]["command"]:
        return
    try:
        run = reader.find(cluster.cluster, source.name)
    except ClusterError:
        return
    if run is None or not run.config:  # its checkpoints may still be in the storage
        return
    theirs, ours = (
        run_object.folder_of({"run": {"name": source.name}, "storage": each.get("storage")})
        for each in (run.config, config)
    )
    if theirs != ours:
        text = f"from: the checkpoints of the run {source.name} are in {theirs}, and this run searches them in {ours}."
        yield _problem(plan.values, "weights", ERROR, "from", text, ("Use the storage of that run.",))
    elif models.adapter(run.config.get("tuning")):
        text = f"from: the checkpoints of {source.name} have adapters only, and a run starts from a whole model."
        hint = f"Import what launcher export {source.name} --merge writes: docs/how-to/fine-tune-with-adapters.md."
        yield _problem(plan.values, "weights", ERROR, "from", text, (hint,))
    elif differences := weights_rules.differences(run.config.get("train") or {}, config["train"]):
        key, text = weights_rules.sentence(given, differences)
        pointed = f"train.{key}" if _origin(plan.values, ("train", key)) else "from"
        yield _problem(plan.values, "weights", ERROR, pointed, text)
    elif text := weights_rules.tokenizer_sentence(given, run.config, config):
        yield _problem(plan.values, "weights", WARNING, "data.tokenizer.path", text)


def _pod_security(plan: LaunchPlan, namespace: str, cluster: Snapshot) -> Iterator[Problem]:
    """Compare the run with the namespace's level of Pod Security, which refuses pods only after the run has its chips.

    Other settings of the charts' pods satisfy each level (tests/charts/test_pod_security.py).
    """
    try:
        space = cluster.get(NAMESPACE, namespace)
    except Forbidden:
        return  # members whose rights are not from charts/queues; its admission policy has the same rules
    level = "" if space is None else objects.label(space, "pod-security.kubernetes.io/enforce")
    security = plan.config["security"]
    collector = (plan.config["tracking"].get("historyServer") or {}).get("image")
    for key, value, refused, levels in (
        ("security.privileged", security["privileged"], bool(security["privileged"]), ("baseline", "restricted")),
        ("security.runAsUser", security["runAsUser"], security["runAsUser"] == 0, ("restricted",)),
        # KubeRay gives the collector no security context.
        ("tracking.historyServer.image", collector, bool(collector), ("restricted",)),
    ):
        if refused and level in levels:
            yield _problem(
                plan.values,
                "pod_security",
                ERROR,
                key,
                f'The namespace {namespace} has the Pod Security level "{level}", which refuses pods with '
                f"{key}: {json.dumps(value)}.",
                ("Remove the key, or ask the platform team for another level: teams.NAME.podSecurity.",),
            )


def _history_server(plan: LaunchPlan, obj: Mapping[str, Any], cluster: Snapshot) -> Iterator[Problem]:
    """Report a KubeRay that lacks the field, which the API server would drop, and what Kueue does not count."""
    if "historyServerOptions" not in (obj["spec"].get("rayClusterSpec") or {}):
        return
    key, fields = "tracking.historyServer.image", cluster.cluster.fields(client.RAY_JOB, "rayClusterSpec")
    if fields and "historyServerOptions" not in fields:
        text = f"KubeRay in {cluster.cluster.name} has no historyServerOptions, so the run would have no collector."
        yield _problem(plan.values, "history_server", ERROR, key, text, ("Use KubeRay 1.7 or later.",))
    else:
        text = "Kueue does not count the collector of KubeRay's history server in each pod: 50m CPU, 256Mi of memory."
        yield _problem(plan.values, "history_server", WARNING, key, text)


def _exists(cluster: Snapshot, kind: Kind, name: str, namespace: str) -> bool:
    try:
        return cluster.get(kind, name, namespace) is not None
    except Forbidden:
        return True  # it may exist


def _problem(
    values: Values, rule: str, severity: str, key: str, text: str, suggestions: tuple[str, ...] = ()
) -> Problem:
    message = "\n  ".join([text, *suggestions])
    origin = _origin(values, tuple(key.split(".")))
    file, line = (origin.file, origin.line) if origin else (None, None)
    return Problem(f"live.{rule}", severity, message, file, line, key)


def _origin(values: Values, path: tuple[str, ...]) -> Origin | None:
    """Return where the user set the key, or the first key below it; None for the chart's defaults."""
    charts = paths.charts_dir()
    for at, origin in values.origins.items():
        if at[: len(path)] == path and not Path(origin.file).is_relative_to(charts):
            return origin
    return None
