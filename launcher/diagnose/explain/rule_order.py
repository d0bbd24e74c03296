"""The rules of `explain`, in order. The first rule that returns a finding is the answer."""

from __future__ import annotations

from collections.abc import Callable

from launcher.backends.base import State
from launcher.diagnose.explain import (
    queue_position,
    rules_impossible,
    rules_lifecycle,
    rules_nodes,
    rules_not_queued,
    rules_pods,
    rules_queue,
    rules_quota,
    rules_reported,
    rules_start,
)
from launcher.diagnose.explain.finding import Evidence, Explanation, Finding
from launcher.diagnose.explain.situation import Situation

Rule = Callable[[Situation], Finding | None]

RULES: tuple[Rule, ...] = (
    # The run has ended or is being stopped.
    rules_lifecycle.being_deleted,
    rules_lifecycle.succeeded,
    rules_lifecycle.given_up,
    rules_lifecycle.failed,
    rules_lifecycle.cancelled,
    rules_lifecycle.being_stopped,
    rules_lifecycle.half_cancelled,
    # The run is not in a queue.
    rules_not_queued.no_queue,
    rules_not_queued.no_kueue,
    rules_not_queued.unmanaged,
    rules_start.webhook_down,
    rules_not_queued.no_workload,
    rules_queue.no_local_queue,
    rules_queue.no_cluster_queue,
    # The queue does not accept the run.
    rules_queue.local_queue_stopped,
    rules_queue.cluster_queue_closed,
    rules_not_queued.inadmissible,
    # The run can never start.
    rules_impossible.not_covered,
    rules_impossible.no_flavor,
    rules_impossible.too_large,
    # The run has to wait.
    rules_quota.makes_room,
    rules_quota.preempted,
    rules_quota.pods_ready_timeout,
    rules_quota.evicted,
    rules_reported.topology_full,
    rules_quota.quota_in_use,
    rules_quota.strict_line,
    rules_quota.not_looked_at,
    rules_reported.reported_reason,
    rules_start.check_pending,
    rules_not_queued.silent_kueue,
    rules_start.silent_operator,
    # The run has its quota, but its pods are rejected.
    rules_start.over_namespace_quota,
    rules_start.pod_security,
    # The pods exist but do not run.
    rules_pods.image_not_pulled,
    rules_pods.wrong_settings,
    rules_nodes.volume_unbound,
    rules_nodes.scaling_up,
    rules_nodes.not_scaling_up,
    rules_nodes.no_such_nodes,
    rules_nodes.taint_not_tolerated,
    rules_nodes.nodes_full,
    rules_nodes.gated,
    rules_pods.not_mounted,
    rules_pods.crashing,
    rules_start.refused,
    rules_pods.head_unreachable,
    rules_pods.restarting,
    # Nothing is wrong.
    rules_lifecycle.running,
    rules_pods.coming_up,
)

UNTIL_PODS_RUN = RULES[RULES.index(rules_not_queued.no_kueue) : RULES.index(rules_pods.not_mounted) + 1]
"""The rules for the time in the queue and until the pods run, which apply to served models too."""

_MOST_UNREADABLE = 5


def explain(situation: Situation) -> Explanation:
    """Return the explanation of the run's state."""
    finding = next(filter(None, (rule(situation) for rule in RULES)), None)
    if finding is None:
        state, reason = situation.state_and_reason
        finding = Finding(
            f"{situation.name} is {state}{f': {reason}' if reason else ', and the cluster does not report a reason'}"
        )
    stand = None if situation.state.ended else queue_position.queue_position(situation)
    shown = [*finding.evidence]
    if stand is not None and (stand.position is not None or stand.ahead or stand.waiting):
        shown.append(queue_position.evidence(situation, stand))
    shown += hidden_objects(situation)
    return Explanation(
        situation.name,
        str(situation.state),
        finding.headline,
        stand.position if stand else None,
        tuple(shown),
        tuple(dict.fromkeys(finding.suggestions)),
    )


def hidden_objects(situation: Situation) -> list[Evidence]:
    """Return the evidence on objects that this user may not read, or that cannot be read."""
    # They do not matter for a run that has ended, or runs.
    unseen = [] if situation.state.ended or situation.state is State.RUNNING else dict.fromkeys(situation.unseen)
    return [
        *(
            Evidence("RBAC", "", f"you may not read {phrase}, so this explanation does not include them.")
            for phrase in unseen
        ),
        *(
            Evidence("API server", "", f"returned an object that this explanation does not include. {sentence}")
            for sentence in sorted(situation.look.unreadable)[:_MOST_UNREADABLE]
        ),
    ]
