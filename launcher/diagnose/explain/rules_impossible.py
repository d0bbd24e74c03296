"""Rules for runs that can never start as they are: the queue lacks the quota or the flavor, or has too little quota."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from launcher.diagnose.explain.finding import Evidence, Finding
from launcher.diagnose.explain.formatting import amount, join_words, number, resource_word
from launcher.diagnose.explain.queue_situation import QueueSituation
from launcher.diagnose.explain.rules_queue import quote, waits
from launcher.k8s.kueue.flavor_fit import FlavorFit
from launcher.k8s.kueue.quota import Fit

TOPOLOGY = "cloud.google.com/gke-tpu-topology"
ACCELERATOR = "cloud.google.com/gke-tpu-accelerator"
_KEYS = {
    TOPOLOGY: "slice.topology",
    ACCELERATOR: "slice.accelerator",
    "cloud.google.com/gke-accelerator": "slice.accelerator",
    "nvidia.com/gpu.product": "slice.accelerator",
    "amd.com/gpu.product-name": "slice.accelerator",
    "cloud.google.com/gke-spot": "slice.provisioning",
    "cloud.google.com/reservation-name": "slice.reservation",
    "node.kubernetes.io/instance-type": "slice.machineType",
    "cloud.google.com/machine-family": "slice.machineType",
}


def worst(situation: QueueSituation, fit: Fit) -> FlavorFit | None:
    """Return the first verdict with this `fit`; None if another verdict is worse, or if none has it."""
    if not waits(situation) or situation.cluster_queue is None:
        return None
    verdicts = situation.verdicts
    return verdicts[0] if verdicts and verdicts[0].fit is fit else None


def not_covered(situation: QueueSituation) -> Finding | None:
    """The queue has no quota for a resource that the pods request."""
    verdict = worst(situation, Fit.NOT_COVERED)
    if verdict is None:
        return None
    queue, part = situation.cluster_queue_name, verdict.pod_set.name
    missing = [
        item.resource for item in situation.verdicts if item.fit is Fit.NOT_COVERED and item.pod_set == verdict.pod_set
    ]
    wants = join_words([amount(item, verdict.pod_set.asks[item]) for item in missing])
    has = situation.quotas.resources(queue)
    who = "its head requests" if part == "head" else f"its pods ({part}) request"
    suggestions = [
        f"Ask the platform team to add a flavor cpu and quota for it: clusterQueues.{queue}.quota.cpu "
        f"({{cpu: …, memory: …}}) in the values of charts/queues."
    ]
    if part == "head":
        suggestions.append(
            "A run without Ray has no head: submit it under another name with --set run.kind=job-set (its hosts then "
            "request only worker.cpu and worker.memory)."
        )
    elif set(missing) <= {"cpu", "memory"}:
        suggestions.append("Leave worker.cpu and worker.memory empty: a host then requests only its chips.")
    return Finding(
        f"{situation.name} can never start in the queue {queue}: {who} {wants}, and the queue has no quota for "
        f"{join_words(missing, 'or')}.",
        (
            *quote(situation),
            Evidence("ClusterQueue", queue, f"has quota for {join_words(has)}." if has else "has no quota."),
        ),
        tuple(suggestions),
    )


def no_flavor(situation: QueueSituation) -> Finding | None:
    """No flavor of the queue matches the pods."""
    verdict = worst(situation, Fit.NO_FLAVOR)
    if verdict is None:
        return None
    queue, what = situation.cluster_queue_name, resource_word(verdict.resource)
    lines = [
        Evidence("ResourceFlavor", item.flavor, f"has the taint {item.taint}, which its pods do not tolerate.")
        if item.taint
        else Evidence("ResourceFlavor", item.flavor, f"is for {item.key}={item.has}; the pods require {item.wants}.")
        for item in verdict.mismatches
    ]
    # Prefer a flavor of the same accelerator; otherwise keep the queue's order.
    first = min(verdict.mismatches, key=lambda item: _KEYS.get(item.key) == "slice.accelerator", default=None)
    shown = (*quote(situation), *lines)
    if first is None:
        return Finding(
            f"{situation.name} waits because none of the flavors of the queue {queue} exists.",
            shown,
            ("Ask the platform team to install them: flavors in the values of charts/queues.",),
        )
    many = len(verdict.mismatches) > 1
    if first.taint:
        key, _, effect = first.taint.partition(":")
        toleration = f"{{key: {key.partition('=')[0]}, operator: Exists, effect: {effect}}}"
        return Finding(
            f"{situation.name} can never start in the queue {queue}: its pods do not tolerate the taint {first.taint} "
            f"of the {'flavors' if many else 'flavor'} {join_words([item.flavor for item in verdict.mismatches])}.",
            shown,
            (
                f"Tolerate the taint: worker.tolerations.NAME: {toleration}.",
                f"Or ask the platform team to tolerate it for all runs: flavors.{first.flavor}.tolerations in the "
                "values of charts/queues.",
                *_elsewhere(situation),
            ),
        )
    has = join_words(sorted({item.has for item in verdict.mismatches if item.key == first.key}), "or")
    offer = (
        f"no flavor of the queue {queue} for {what} matches (they are for {has})"
        if many
        else f"the only flavor of the queue {queue} for {what}, {first.flavor}, is for {has}"
    )
    key = _KEYS.get(first.key, "worker.nodeSelector")
    adjust = " (and adjust slice.count)" if key == "slice.topology" else ""
    return Finding(
        f"{situation.name} can never start: its pods require nodes with {first.key}={first.wants}, and {offer}.",
        shown,
        (
            f"Use what the queue has: {situation.with_values(f'{key}={first.has}')}{adjust}.",
            *_elsewhere(situation),
            f"Or ask the platform team for a flavor for such machines in the queue {queue}.",
        ),
        key,
    )


def too_large(situation: QueueSituation) -> Finding | None:
    """The run requests more than the queue can ever have."""
    verdict = worst(situation, Fit.TOO_LARGE)
    if verdict is None:
        return None
    queue, quotas = situation.cluster_queue_name, situation.quotas
    quota, cohort = quotas.quota(queue, verdict.what), quotas.cohort(queue)
    most = amount(verdict.resource, verdict.capacity)
    bound = f"has {number(verdict.resource, quota.nominal)} of its own"
    if cohort and quota.borrowing_limit is not None:
        bound += f" and may borrow {number(verdict.resource, quota.borrowing_limit)} (borrowingLimit) from {cohort}"
    elif cohort:
        bound += f"; with all that the cohort {cohort} lends, it has {number(verdict.resource, verdict.capacity)}"
    return Finding(
        f"{situation.name} can never start in the queue {queue}: it requests {amount(verdict.resource, verdict.need)} "
        f"of {verdict.flavor}, and the queue can have at most {most}.",
        (*quote(situation), Evidence("ClusterQueue", queue, f"{bound} ({verdict.flavor}).")),
        (
            *_smaller(situation, verdict),
            *_elsewhere(situation),
            f"Or ask the platform team for more: clusterQueues.{queue}.quota.{verdict.flavor} in the values of "
            "charts/queues.",
        ),
    )


def _smaller(situation: QueueSituation, verdict: FlavorFit) -> Iterator[str]:
    """Suggest the largest run that would fit the same queue."""
    if verdict.resource in ("cpu", "memory"):
        word = verdict.resource
        yield f"Request less: worker.{word}, head.{word}, or fewer slices (slice.count)."
        return
    per_slice = verdict.need / situation.slices
    fits = int(verdict.capacity // per_slice) if per_slice else 0
    if 1 <= fits < situation.slices:
        yield (
            f"At most {fits} slice{'s' if fits > 1 else ''} ({amount(verdict.resource, per_slice * fits)}) can fit: "
            f"{situation.with_values(f'{situation.slices_key}={fits}')}."
        )
    elif fits < 1:
        best = sorted(_shapes(situation, verdict), key=lambda item: -item[1])
        if best:
            shape, capacity = best[0]
            yield (
                f"A smaller slice fits (the queue has up to {amount(verdict.resource, capacity)} of {shape}): "
                f"{situation.with_values(f'slice.topology={shape}')}."
            )
        else:
            yield "Use a smaller slice (slice.topology); the queue has no other topology of this accelerator."


def _shapes(situation: QueueSituation, verdict: FlavorFit) -> Iterator[tuple[str, Decimal]]:
    """Yield other topologies of the same accelerator if the queue has quota for a whole slice, with that quota."""
    queue = situation.cluster_queue_name
    wants = next(iter(verdict.pod_set.spec.get("nodeSelector") or {}), None) and verdict.pod_set.spec["nodeSelector"]
    for flavor in situation.quotas.flavors(queue, verdict.resource):
        flavor_object = situation.flavors.get(flavor)
        labels = flavor_object.node_labels if flavor_object else {}
        shape, capacity = labels.get(TOPOLOGY), situation.quotas.potential_available(queue, (flavor, verdict.resource))
        if not wants or not shape or flavor == verdict.flavor or labels.get(ACCELERATOR) != wants.get(ACCELERATOR):
            continue
        chips = 1
        for side in shape.split("x"):
            chips *= int(side)
        if chips <= capacity:
            yield shape, capacity


def _elsewhere(situation: QueueSituation) -> Iterator[str]:
    """Suggest another queue of the namespace that could admit the run as it is."""
    for called, queue in sorted(situation.local_queues.items()):
        target = queue.cluster_queue
        if called == situation.queue or target == situation.cluster_queue_name:
            continue
        verdicts = situation.fits_in(target)
        if verdicts and verdicts[0].fit <= Fit.WAITS:
            yield f"The queue {called} can have enough quota: {situation.with_values(f'queue.name={called}')}."
            return
