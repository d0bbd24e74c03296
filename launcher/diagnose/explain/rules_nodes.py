"""Rules for runs whose pods have no node: no such nodes, nodes being added, taints, volumes, too little left."""

from __future__ import annotations

import re
from collections import Counter
from decimal import Decimal

from launcher.backends.kubernetes import pod_failures
from launcher.diagnose.explain.finding import Evidence, Finding
from launcher.diagnose.explain.formatting import amount, join_words, one_line, sentence
from launcher.diagnose.explain.rules_impossible import ACCELERATOR, TOPOLOGY
from launcher.diagnose.explain.situation import Event, Situation
from launcher.k8s import label_keys
from launcher.k8s.kueue import workloads as kueue_workloads
from launcher.k8s.nodes import Taint, tolerations
from launcher.k8s.objects import status
from launcher.k8s.pods import Pod

_TIME_LIMIT = (
    "If not all its pods are ready in time (30 min unless the platform team set another limit), Kueue stops it and "
    "puts it back into the queue."
)


def unplaced(situation: Situation) -> list[Pod]:
    """Return the pods that the scheduler has found no node for, for some time and without progress."""
    return pod_failures.unplaced(situation.pods, situation.now)


def volume_unbound(situation: Situation) -> Finding | None:
    """A PersistentVolumeClaim does not exist or has no volume."""
    pods = unplaced(situation)
    text = pods[0].scheduled.message if pods else ""
    absent = re.search(r'persistentvolumeclaim "([^"]+)" not found', text)
    if not pods or not (
        absent or "unbound immediate PersistentVolumeClaims" in text or "pvc(s) bound to non-existent" in text
    ):
        return None
    shown = [_pod(pods[0])]
    if absent:
        there = sorted(situation.claims)
        return Finding(
            f"{situation.name} cannot start: its storage, the PersistentVolumeClaim {absent[1]}, does not exist.",
            tuple(shown),
            (
                f"Correct storage.claim{f' ({situation.namespace} has {join_words(there)})' if there else ''}, or "
                "create the claim.",
            ),
        )
    named = [
        str(volume["persistentVolumeClaim"]["claimName"])
        for volume in pods[0].spec.get("volumes") or []
        if volume.get("persistentVolumeClaim")
    ]
    unbound = [called for called in named if status(situation.claims.get(called, {})).get("phase") != "Bound"]
    for called in unbound:
        claim = situation.claims.get(called)
        events = situation.events("PersistentVolumeClaim", called)
        why = f": {one_line(events[0].message)}" if events else ""
        named_class = claim["spec"].get("storageClassName") if claim else ""
        kind = (
            f"the storage class {named_class}"
            if named_class
            else f"{'the default' if claim else 'an unknown'} storage class"
        )
        phase = status(claim).get("phase") if claim else "unknown"
        shown.append(Evidence("PersistentVolumeClaim", called, sentence(f"is {phase}, with {kind}{why}")))
    return Finding(
        f"{situation.name} cannot start: its storage, the PersistentVolumeClaim {join_words(unbound or named)}, has no "
        "volume.",
        tuple(shown),
        (
            "Check that its storage class exists and can create such volumes (kubectl get storageclass). All hosts "
            "write to the volume, so it must be ReadWriteMany.",
            "Or use a bucket: storage.kind: gcsfuse, storage.bucket.",
        ),
    )


def scaling_up(situation: Situation) -> Finding | None:
    """The cluster autoscaler is adding nodes."""
    pods = [pod for pod in situation.pods if pod.unschedulable]
    event = _newest(situation, pods)
    if event is None or event.reason != "TriggeredScaleUp":
        return None
    group = re.search(r"\[\{(\S+) (\d+)->(\d+) \(max: (\d+)\)\}", event.message)
    what = f" (node pool group {group[1].rpartition('/')[2]} from {group[2]} to {group[3]})" if group else ""
    ago = situation.ago(event.at)
    return Finding(
        f"{situation.name} waits for nodes: {ago} ago the cluster began to add nodes for it{what}.",
        (_event(event), _count(situation, pods)),
        ("No action is needed; TPU nodes take minutes to start if the zone has capacity.", *_time_limit(situation)),
    )


def not_scaling_up(situation: Situation) -> Finding | None:
    """The cluster autoscaler has evaluated the pods, but will not or cannot add nodes."""
    pods = unplaced(situation)
    event = _newest(situation, pods)
    if event is None or event.reason not in ("NotTriggerScaleUp", "FailedScaleUp"):
        return None
    text = event.message
    if "max node group size reached" in text:
        why = "its node pool has its maximum number of nodes"
        hint = "Ask the platform team to raise the maximum number of nodes of the node pool."
    elif event.reason == "FailedScaleUp" or "in backoff after failed scale-up" in text:
        why = "the cloud has no such machines available, or the project has no quota for them"
        hint = "Wait, or use other machines: slice.provisioning (reservation, flex-start, spot) or slice.topology."
    else:
        why = "no node pool has machines that fit its pods"
        hint = f"Ask the platform team for a node pool with {_wants(situation, pods[0])}."
    return Finding(
        f"{situation.name} {_but(situation)} its pods cannot be scheduled, and the cluster adds no nodes: {why}.",
        (_event(event), _pod(pods[0]), _count(situation, pods)),
        (hint, *_others(situation, pods[0]), *_time_limit(situation)),
    )


def no_such_nodes(situation: Situation) -> Finding | None:
    """No node has the labels that the pods require."""
    pods = unplaced(situation)
    if not pods or (not situation.nodes and "the Nodes" in situation.unseen):
        return None
    wants = pods[0].spec.get("nodeSelector") or {}
    if any(node.has(wants) for node in situation.nodes):
        return None
    lacking = [
        f"{key}={value}" for key, value in wants.items() if not any(node.has({key: value}) for node in situation.nodes)
    ]
    what = join_words(lacking) if lacking else f"{_wants(situation, pods[0])} together"
    return Finding(
        f"{situation.name} {_but(situation)} its pods cannot be scheduled: no node of the cluster has {what}.",
        (_count(situation, pods), _pod(pods[0]), *_available_shapes(situation)),
        (
            "Ask the platform team for a node pool of that "
            f"kind{': the queue has quota for machines that do not exist' if situation.queue else ''}.",
            *_others(situation, pods[0]),
            *_time_limit(situation),
        ),
    )


def taint_not_tolerated(situation: Situation) -> Finding | None:
    """The pods do not tolerate a taint of the nodes that match."""
    pods = unplaced(situation)
    if not pods:
        return None
    pod = pods[0]
    wants, tolerated = pod.spec.get("nodeSelector") or {}, tolerations(pod.spec)
    fitting = [node for node in situation.nodes if node.has(wants)]
    taints: Counter[Taint] = Counter()
    for node in fitting:
        bad = [taint for taint in node.taints if taint.repels and not taint.tolerated(tolerated)]
        if not bad:
            return None
        taints.update(bad)
    if not taints:
        return None
    taint, count = taints.most_common(1)[0]
    if taint.key.startswith(("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")):
        return Finding(
            f"{situation.name} {_but(situation)} its pods cannot be scheduled: {count} of the {len(fitting)} matching "
            f"nodes are not usable and have the taint {taint}.",
            (_count(situation, pods), _pod(pod)),
            ("Ask the platform team about these nodes: kubectl get nodes.", *_time_limit(situation)),
        )
    return Finding(
        f"{situation.name} {_but(situation)} its pods cannot be scheduled: they do not tolerate the taint {taint} of "
        f"{count} of the {len(fitting)} matching nodes.",
        (_count(situation, pods), _pod(pod)),
        (
            "If these nodes are for your runs, tolerate the taint: worker.tolerations.NAME: "
            f"{{key: {taint.key}, operator: Exists, effect: {taint.effect}}}.",
            "Ask the platform team whose runs these nodes are for. A taint that all runs may tolerate belongs in "
            "flavors.NAME.tolerations in the values of charts/queues.",
            *_time_limit(situation),
        ),
    )


def nodes_full(situation: Situation) -> Finding | None:
    """The scheduler reports another reason: the nodes have too little left, or rules between pods exclude them."""
    pods = unplaced(situation)
    if not pods:
        return None
    text = pods[0].scheduled.message
    short = re.findall(r"\d+ Insufficient ([\w./-]+)", text)
    wants = pods[0].spec.get("nodeSelector") or {}
    fitting = [node for node in situation.nodes if node.has(wants)]
    asks = kueue_workloads.pod_asks(pods[0].spec)
    if short:
        res = short[0]
        largest = max((node.allocatable(res) for node in fitting), default=Decimal())
        need = asks.get(res, Decimal())
        if fitting and need > largest:
            has = f"the largest of the {len(fitting)} matching nodes has {amount(res, largest)}"
            why = f"a pod requests {amount(res, need)}, and {has}"
            hint = f"Request less: {_key(res, pods[0])}."
        else:
            why = f"none of the {f'{len(fitting)} ' if fitting else ''}matching nodes has enough {_plain(short)} left"
            hint = (
                "Other pods use these nodes: kubectl get pods --all-namespaces -o wide shows them. Or ask the "
                "platform team."
            )
    else:
        why = f"the scheduler finds no node ({one_line(_reasons(text), 200)})"
        hint = "Ask the platform team about the scheduler's message."
    return Finding(
        f"{situation.name} {_but(situation)} its pods cannot be scheduled: {why}.",
        (_count(situation, pods), _pod(pods[0])),
        (hint, *_time_limit(situation)),
    )


def gated(situation: Situation) -> Finding | None:
    """Kueue holds pods back until it has placed them."""
    # A pod has this condition from its creation on.
    held = [
        pod
        for pod in situation.pods
        if pod.scheduled.reason == "SchedulingGated" and situation.lasts(pod.created, pod_failures.NODE_SECONDS)
    ]
    if not held:
        return None
    gates = sorted({str(gate.get("name")) for pod in held for gate in pod.spec.get("schedulingGates") or []})
    return Finding(
        f"{len(held)} of {situation.name}'s pods are held back by {join_words(gates) or 'a scheduling gate'}.",
        (Evidence("Pod", held[0].name, "SchedulingGated."),),
        ("If it lasts for minutes, ask the platform team whether Kueue's controller is running.",),
    )


def _but(situation: Situation) -> str:
    """Return the verb of the sentence, for a run that Kueue admitted or for one without a queue."""
    return "has its quota, but" if situation.queue else "cannot start because"


def _time_limit(situation: Situation) -> tuple[str, ...]:
    return (_TIME_LIMIT,) if situation.queue else ()


def _newest(situation: Situation, pods: list[Pod]) -> Event | None:
    """Return the autoscaler's newest event of the pods (of the first three)."""
    reasons = ("TriggeredScaleUp", "NotTriggerScaleUp", "FailedScaleUp")
    events = [event for pod in pods[:3] for event in situation.pod_events(pod) if event.reason in reasons]
    ordered = [event for event in events if event.reason == "TriggeredScaleUp"] or events
    newest = max(events, key=lambda event: event.at, default=None)
    failed = newest is not None and newest.reason == "FailedScaleUp"
    return newest if failed else max(ordered, key=lambda event: event.at, default=None)


def _reasons(text: str) -> str:
    """Return the scheduler's reasons, without its message on preemption."""
    return re.split(r"\.? (?:no new claims to deallocate|preemption:)", text)[0]


def _pod(pod: Pod) -> Evidence:
    return Evidence("Pod", pod.name, sentence(one_line(_reasons(pod.scheduled.message), 400)))


def _event(event: Event) -> Evidence:
    return Evidence(event.kind, event.name, f"{event.reason}: {sentence(one_line(event.message, 400))}")


def _count(situation: Situation, pods: list[Pod]) -> Evidence:
    return Evidence(
        "Pod",
        "",
        f"{len(pods):,} of {situation.pods_wanted:,} have had no node for {situation.ago(pods[0].scheduled.since)}.",
    )


def _wants(situation: Situation, pod: Pod) -> str:
    wants = pod.spec.get("nodeSelector") or {}
    return join_words([f"{key}={value}" for key, value in wants.items()]) or "enough room for its pods"


def _available_shapes(situation: Situation) -> tuple[Evidence, ...]:
    shapes = _shapes(situation)
    if not shapes:
        return (Evidence("Node", "", f"the cluster has {len(situation.nodes)} nodes, none with TPUs."),)
    counts = [f"{count} nodes of {kind} {shape}" for (kind, shape), count in sorted(shapes.items())]
    return (Evidence("Node", "", f"the cluster has {join_words(counts)}."),)


def _others(situation: Situation, pod: Pod) -> tuple[str, ...]:
    """Suggest other topologies of the same accelerator if the cluster has such nodes."""
    wants = pod.spec.get("nodeSelector") or {}
    kind, topology = wants.get(ACCELERATOR), wants.get(TOPOLOGY)
    shapes = sorted(shape for other, shape in _shapes(situation) if other == kind and shape != topology)
    if not shapes:
        return ()
    return (
        "Or use a topology that the cluster has, if your queue has quota for it: slice.topology "
        f"{join_words(shapes, 'or')}.",
    )


def _shapes(situation: Situation) -> Counter[tuple[str, str]]:
    nodes: Counter[tuple[str, str]] = Counter()
    for node in situation.nodes:
        if kind := node.label(ACCELERATOR):
            nodes[kind, str(node.labels.get(TOPOLOGY))] += 1
    return nodes


def _key(resource: str, pod: Pod) -> str:
    head = "head" in (pod.annotation(label_keys.RAY_NODE_TYPE), pod.label(label_keys.RAY_NODE_TYPE))
    if resource in ("cpu", "memory"):
        return f"{'head' if head else 'worker'}.{resource}"
    return "slice.machineType or slice.topology"


def _plain(resources: list[str]) -> str:
    words = {"google.com/tpu": "chips", "nvidia.com/gpu": "GPUs", "amd.com/gpu": "GPUs"}
    return join_words([words.get(item, item) for item in dict.fromkeys(resources)], "or")
