"""Name the nodes on which hosts of a run fail repeatedly or are slow, and the value with which a run avoids them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from launcher.backends.base import Backend, RunStatus
from launcher.backends.log_excerpt import Excerpt
from launcher.diagnose.explain.finding import Evidence
from launcher.errors import LauncherError
from launcher.k8s import client, label_keys
from launcher.k8s.pods import Pod
from launcher.trainer_output import EventKind, events_in_log

_FAILURES = 2
_LINES = 10_000
_AVOIDED = timedelta(days=7)
_MOST = 64
"""The nodes that worker.avoidNodes can have (charts/_rules.json)."""


def sick_nodes(backend: Backend, status: RunStatus) -> tuple[Sequence[Evidence], Sequence[str]] | None:
    """Return the evidence and the suggestions for the nodes of a run in a cluster; None if its nodes are healthy.

    The result lacks what cannot be read.
    """
    if backend.cluster is None or not status.has_object:
        return None
    hosts: list[Pod] = []
    reasons: dict[str, str] = {}
    with suppress(LauncherError):
        pods = map(Pod, backend.cluster.list(client.POD, labels=f"{label_keys.RUN}={status.name}"))
        hosts = [pod for pod in pods if pod.node and pod.label(label_keys.RAY_NODE_TYPE) != "head"]
        reasons |= _failing(hosts)
    with suppress(LauncherError):
        reasons |= _slow(backend, status.name) if hosts else {}
    sick = {node: reason for node, reason in reasons.items() if node in {pod.node for pod in hosts}}
    if not sick:
        return None
    day = (datetime.now(UTC) + _AVOIDED).strftime("%Y-%m-%d")
    nodes = sorted(_with_slices(hosts, sick))
    again = "Submit it again" if status.state.ended else "Cancel the run, and submit it again"
    escaped = [node.replace(".", r"\.") for node in nodes]
    sets = ",".join(f"worker.avoidNodes.{node}={day}" for node in escaped)
    which = "this node" if len(nodes) == 1 else "the nodes of these slices" if len(nodes) > len(sick) else "these nodes"
    suggestions = [
        f"Ask the platform team to examine the node{'s' if len(sick) > 1 else ''} {', '.join(sorted(sick))}."
    ]
    if len(nodes) <= _MOST:
        suggestions.insert(0, f"{again} with --set '{sets}'. It then avoids {which} until {day}.")
    return [Evidence("Node", node, reason) for node, reason in sorted(sick.items())], suggestions


def _failing(hosts: Sequence[Pod]) -> Mapping[str, str]:
    """Return the nodes with several failures, if most nodes of the run have fewer: a wrong program fails everywhere."""
    failures: dict[str, list[str]] = defaultdict(list)
    for pod in hosts:
        failures[pod.node] += _failures(pod)
    often = {node: texts for node, texts in failures.items() if len(texts) >= _FAILURES}
    if 2 * len(often) > len(failures):
        return {}
    return {
        node: f"{len(texts)} failures of this run: {', '.join(dict.fromkeys(texts))}." for node, texts in often.items()
    }


def _failures(pod: Pod) -> Iterator[str]:
    """Yield one text for each failure of a container in this pod, which stays on its node."""
    for container in pod.all_containers:
        failed = container.ended is not None and container.ended.exit_code != 0
        before = container.ended_before is not None and container.ended_before.exit_code != 0
        yield from [f"{pod.name} ({container.name})"] * (failed + container.restarts * before)


def _slow(backend: Backend, name: str) -> Mapping[str, str]:
    """Return the nodes whose hosts the trainer found to be slow."""
    lines = backend.logs(name, follow=False, worker=None, excerpt=Excerpt(tail=_LINES))
    return {event.node: event.message for event in events_in_log(lines) if event.kind is EventKind.SLOW_HOST}


def _with_slices(hosts: Sequence[Pod], sick: Mapping[str, str]) -> set[str]:
    """Return the nodes, with all others of their TPU slices: a slice needs all nodes of its node pool."""

    def slice_of(pod: Pod) -> tuple[str, ...]:
        if "cloud.google.com/gke-tpu-topology" not in (pod.spec.get("nodeSelector") or {}):
            return (pod.node,)
        return tuple(map(pod.label, (label_keys.JOB_SET_JOB, label_keys.RAY_GROUP, label_keys.RAY_SLICE)))

    slices = {slice_of(pod) for pod in hosts if pod.node in sick}
    return {pod.node for pod in hosts if slice_of(pod) in slices}
