"""Rules for runs that do not wait: they have ended, are being deleted, or run normally."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from launcher.backends.base import State
from launcher.backends.kubernetes import states
from launcher.diagnose.explain.finding import Evidence, Finding
from launcher.diagnose.explain.formatting import clause, join_words, one_line, sentence
from launcher.diagnose.explain.situation import Situation
from launcher.k8s import label_keys

_FINALIZERS = {
    "ray.io/": "KubeRay's operator",
    "kueue.x-k8s.io/": "Kueue",
    "foregroundDeletion": "Kubernetes when the pods are gone",
    "jobset.sigs.k8s.io/": "JobSet's controller",
}
_MAINTENANCE = "cloud.google.com/active-node-maintenance"
_TERMINATION = "cloud.google.com/impending-node-termination"
_MOST_NODES = 5
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
CONFIG_ERROR = 2
"""The trainer's exit code for an invalid config, which a restart does not fix."""


def being_deleted(situation: Situation) -> Finding | None:
    """The run is being deleted."""
    meta = situation.run.raw["metadata"]
    if not meta.get("deletionTimestamp"):
        return None
    holding = list(meta.get("finalizers") or [])
    since = situation.ago(meta["deletionTimestamp"])
    if not holding:
        return Finding(f"{situation.name} is being deleted (for {since}).", _pods_left(situation))
    who = join_words([f"{item} (removed by {_remover(item)})" for item in holding])
    finalizers = "finalizers" if len(holding) > 1 else "finalizer"
    return Finding(
        f"{situation.name} is being deleted (for {since}), and waits for the {finalizers} {who}.",
        (
            Evidence(situation.run.kind, situation.name, f"has the {finalizers} {', '.join(holding)}."),
            *_pods_left(situation),
        ),
        ("If this takes minutes, check that this controller is running: launcher doctor.",),
    )


def succeeded(situation: Situation) -> Finding | None:
    """The run succeeded."""
    if situation.state is not State.SUCCEEDED:
        return None
    ended = states.ended(states.ObservedRun(situation.run, situation.workload))
    when = f" {situation.ago(ended)} ago" if ended else ""
    return Finding(f"{situation.name} succeeded{when}.")


def cancelled(situation: Situation) -> Finding | None:
    """The run was cancelled, by `launcher cancel` or by making its Workload inactive."""
    if situation.state is not State.CANCELLED:
        return None
    again = f"launcher submit with the same name ({situation.name}) resumes from its last checkpoint."
    when = situation.run.cancelled_at
    if when:
        return Finding(f"{situation.name} was cancelled {situation.ago(when)} ago.", suggestions=(again,))
    evicted = situation.seen.workload_condition("Evicted")
    called = situation.workload.name if situation.workload else ""
    return Finding(
        f"{situation.name} was stopped by a user who set its Workload inactive, and stays stopped.",
        (Evidence("Workload", called, sentence(one_line(evicted.message or "spec.active is false"))),),
        (
            again,
            f"kubectl -n {situation.namespace} patch workload {called} --type merge -p "
            """'{"spec":{"active":true}}' puts it back in the queue.""",
        ),
    )


def given_up(situation: Situation) -> Finding | None:
    """Kueue deactivated the Workload: no retries are left, or an admission check rejected it permanently."""
    if situation.workload is None or situation.workload.active:
        return None
    evicted = situation.workload.evicted
    if not evicted.reason.startswith("DeactivatedDueTo"):
        return None
    shown = (Evidence("Workload", situation.workload.name, sentence(one_line(evicted.message))),)
    if "Requeuing" in evicted.reason:
        return Finding(
            f"Kueue has deactivated {situation.name}: not all its pods were ready in time, and Kueue has no retries "
            "left.",
            shown,
            (
                "Find out why its pods did not start. With slice.provisioning spot or on-demand, no machines may have "
                "been available; flex-start and reservation wait for them.",
                "Ask the platform team for a longer waitForPodsReady.timeout in Kueue's configuration.",
                f"launcher submit with the same name ({situation.name}) queues it again.",
            ),
        )
    checks = [
        f"{check.name}: {one_line(check.message) or check.state}"
        for check in situation.workload.checks
        if check.state == "Rejected"
    ]
    return Finding(
        f"Kueue has deactivated {situation.name}: {sentence(join_words(checks) or one_line(evicted.message))}",
        shown,
        ("Ask the platform team what this admission check requires; then submit it again.",),
    )


def failed(situation: Situation) -> Finding | None:
    """The run failed."""
    state, reason = situation.state_and_reason
    if state is not State.FAILED:
        return None
    ends = list(ended_containers(situation))
    shown = [Evidence(situation.run.kind, situation.name, sentence(one_line(_last_words(situation), 200)))]
    shown += [Evidence("Pod", pod, says) for pod, _, says in ends[:3]]
    shown += [Evidence("log", "", one_line(line)) for line in _log(situation)]
    codes = {code for _, code, _ in ends}
    restarts = states.restarts(situation.seen)
    after = f" after {restarts} restart{'s' if restarts != 1 else ''}" if restarts else ""
    suggestions = []
    if any("OOMKilled" in says for _, _, says in ends):
        reason = "a container needed more memory than its limit"
        suggestions.append("Increase worker.memory, or use a smaller batch or model.")
    elif CONFIG_ERROR in codes:
        suggestions.append(
            "The trainer rejects its values, so a restart does not help: correct them, and submit it again."
        )
    elif "reaching max number of restarts" in _last_words(situation):
        suggestions.append("If such failures are temporary, increase run.maxRestarts.")
    suggestions.append(f"launcher logs {situation.command_args} shows its output.")
    suggestions.append("launcher submit with the same name resumes from its last checkpoint.")
    text = clause(one_line(reason)) or "its controller does not report a reason"
    return Finding(f"{situation.name} failed{after}: {sentence(text)}", tuple(shown), tuple(suggestions))


def being_stopped(situation: Situation) -> Finding | None:
    """A user or an administrator is stopping the run, and it has not ended yet."""
    if situation.workload is None or situation.workload.active:
        return None
    left = len([pod for pod in situation.pods if not situation.run.suspended])
    return Finding(
        f"{situation.name} is being stopped: its Workload is inactive, and "
        f"{left or 'some'} of its pods are still ending.",
        (Evidence("Workload", situation.workload.name, "spec.active is false"), *_pods_left(situation)),
    )


def half_cancelled(situation: Situation) -> Finding | None:
    """The user cancelled the run, but Kueue was not notified, or created its Workload only afterwards."""
    when = situation.run.cancelled_at
    if not when or situation.state.ended:
        return None
    repeat = f"launcher cancel {situation.command_args} deactivates the Workload"
    if situation.workload is not None:
        return Finding(
            f"{situation.name} was cancelled {situation.ago(when)} ago, but its Workload is still active, so Kueue may "
            "start it.",
            (Evidence("Workload", situation.workload.name, "spec.active is not false."),),
            (f"{repeat}.",),
        )
    if not situation.seen.holds_nothing or "the Workloads" in situation.unseen:
        return Finding(f"{situation.name} is being cancelled (for {situation.ago(when)}).", _pods_left(situation))
    return Finding(
        f"{situation.name} was cancelled {situation.ago(when)} ago and holds nothing, but it can still start: Kueue "
        "has not created its Workload yet, which the cancellation has to deactivate.",
        (Evidence(situation.run.kind, situation.name, f"requests the queue {situation.queue} and is suspended."),),
        (
            f"launcher delete {situation.command_args} removes the run.",
            f"{repeat} when Kueue is running again; launcher doctor shows whether it is.",
        ),
    )


def running(situation: Situation) -> Finding | None:
    """The run is running."""
    if situation.state is not State.RUNNING:
        return None
    since = states.started(states.ObservedRun(situation.run, situation.workload))
    span = f" (for {situation.ago(since)})" if since else ""
    shown = []
    if situation.workload is not None and (ready := situation.workload.condition("PodsReady")):
        shown.append(Evidence("Workload", situation.workload.name, sentence(ready.message)))
    restarts, preemptions = states.restarts(situation.seen), states.preemptions(situation.seen)
    if restarts:
        often = "after a failure" if restarts == 1 else f"{restarts} times after failures"
        shown.append(Evidence(situation.run.kind, situation.name, f"was restarted {often}."))
    if preemptions:
        often = "once" if preemptions == 1 else f"{preemptions} times"
        shown.append(Evidence(situation.run.kind, situation.name, f"was preempted {often}."))
    due = list(maintenance(situation))
    headline = f"{situation.name} is running{span}."
    if not due:
        return Finding(headline, tuple(shown))
    stops = "GKE stops the pods of a node for its maintenance. The run then restarts from its last checkpoint."
    return Finding(headline, (*shown, *due[:_MOST_NODES]), (stops,))


def maintenance(situation: Situation) -> Iterator[Evidence]:
    """Yield the maintenance that GKE has announced or begun on the nodes of the run's pods.

    GKE labels such a node with the time (seconds since 1970), and taints it shortly before it stops the node's pods.
    """
    names = {pod.node for pod in situation.pods if pod.node}
    for node in situation.nodes_with_maintenance if names else ():
        if node.name not in names:
            continue
        at = node.label(label_keys.MAINTENANCE_TIME)
        if node.label(_MAINTENANCE) == "ONGOING" or any(taint.key == _TERMINATION for taint in node.taints):
            yield Evidence("Node", node.name, "is about to stop for maintenance.")
        elif at.isdecimal():
            when = datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%d %H:%M UTC")
            yield Evidence("Node", node.name, f"has maintenance scheduled for {when}.")


def ended_containers(situation: Situation) -> Iterator[tuple[str, int, str]]:
    """Yield the containers that failed, now or before their last restart: pod, exit code, and a sentence."""
    for pod in situation.pods:
        for container in pod.all_containers:
            ended = next((each for each in (container.ended, container.ended_before) if each and each.exit_code), None)
            if ended is None:
                continue
            error = states.last_error(ended.message.splitlines()) or one_line(ended.message)
            why = "" if ended.reason in ("", "Error", "Completed") else f" ({ended.reason})"
            text = f"{container.name} ended with exit code {ended.exit_code}{why}"
            yield pod.name, ended.exit_code, sentence(f"{text}: {error}" if error else text)


def _last_words(situation: Situation) -> str:
    """Return the message of the run's controller on its failure, without the log."""
    if not situation.run.ray:
        return situation.run.condition("Failed").message
    job = situation.run.ray_job
    return (job.message or job.reason).split(", last available logs")[0]


def _log(situation: Situation) -> list[str]:
    lines = (_COLOUR.sub("", line).strip() for line in states.log_tail(states.ObservedRun(situation.run)))
    return [line for line in lines if line][-6:]


def _pods_left(situation: Situation) -> tuple[Evidence, ...]:
    ending = [pod for pod in situation.pods if pod.deleting]
    left = [pod for pod in situation.pods if not pod.is_true("PodCompleted")]
    if not left:
        return ()
    return (Evidence("Pod", "", f"{len(left)} are left; {len(ending)} of them are terminating."),)


def _remover(finalizer: str) -> str:
    for prefix, who in _FINALIZERS.items():
        if finalizer.startswith(prefix):
            return who
    return "the controller that added it"
