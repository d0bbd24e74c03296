"""Rules for runs whose Workload has the reason of Kueue: no free nodes that are close together, or what it reports."""

from __future__ import annotations

from launcher.diagnose.explain.finding import Evidence, Finding
from launcher.diagnose.explain.formatting import one_line, sentence
from launcher.diagnose.explain.rules_queue import message_of, quote, waits
from launcher.diagnose.explain.situation import Situation


def topology_full(situation: Situation) -> Finding | None:
    """Kueue's topology-aware scheduling found no placement: quota is available, but adjacent machines are not."""
    text = message_of(situation)
    if (
        not waits(situation)
        or "topology" not in text
        or not ("doesn't allow to fit" in text or "allows to fit only" in text)
    ):
        return None
    part = text[text.index("topology") :]
    return Finding(
        f"{situation.name} waits for nodes: quota is available, but Kueue finds no free nodes that are as close "
        f"together as its slices require ({one_line(part, 160)}).",
        quote(situation),
        (
            "Wait until a run on these nodes ends, or use fewer or smaller slices (slice.count, slice.topology).",
            "slice.placement: exclusive leaves the placement to GKE's node pools, if the queue's flavor allows it.",
            "Ask the platform team whether nodes are missing or not ready: kubectl get nodes.",
        ),
    )


# The reasons of the condition QuotaReserved with which Kueue reports why a Workload waits (KEP-10852; by default from
# Kueue 0.19). A sentence without its subject, and what helps.
_REASONS = {
    "WaitingForQuota": ("waits for quota that other runs use", "launcher queues shows which runs hold the quota."),
    "ExceedsMaxQuota": (
        "can never start: it requests more than the whole quota of its queue and its cohort",
        "Reduce slice.count or the size of the slice, or ask the platform team for more quota.",
    ),
    "NoMatchingFlavor": (
        "can never start: its queue has no flavor whose nodes its pods could use",
        "Use an accelerator and a topology of the queue: launcher queues lists them.",
    ),
    "TopologyPlacementFailed": (
        "waits for nodes that are close enough to each other",
        "Wait for a run to end, or use slice.placement: any if the distance does not matter.",
    ),
    "WaitingForPreemptedWorkloads": (
        "is about to start: it waits until the pods of preempted runs have ended",
        "No action is needed.",
    ),
    "WaitingForPodsReady": (
        "waits until the pods of the runs that Kueue admitted before it are ready",
        "No action is needed; the platform team can change waitForPodsReady.blockAdmission in Kueue's configuration.",
    ),
    "Misconfigured": (
        "cannot start because its queue is not configured correctly",
        "Ask the platform team to correct the queue: kubectl describe clusterqueue shows what is wrong.",
    ),
    "Suspended": ("waits because its queue is stopped", "Ask the platform team when the queue is started again."),
    "AdmissionGated": (
        "waits for another controller that decides when it may be admitted",
        "The annotation kueue.x-k8s.io/admission-gated-by of the Workload names the controller.",
    ),
}


def reported_reason(situation: Situation) -> Finding | None:
    """Kueue reports a reason that no other rule covers, for example because RBAC hides the queues."""
    text = message_of(situation)
    if not waits(situation) or not text or situation.workload is None:
        return None
    shown = (Evidence("Workload", situation.workload.name, sentence(one_line(text, 1000))),)
    known = _REASONS.get(situation.workload.reserved.reason)
    if known is None or situation.workload.reserved.is_true:
        text = sentence(one_line(text))
        return Finding(f"{situation.name} waits in the queue {situation.queue}, and Kueue reports: {text}", shown)
    headline, suggestion = known
    return Finding(f"{situation.name} {headline}.", shown, (suggestion,))
