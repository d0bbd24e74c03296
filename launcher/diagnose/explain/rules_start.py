"""Rules for runs that have their quota but do not start: checks, refused pods, controllers that do not respond."""

from __future__ import annotations

import re

from launcher.backends.base import State
from launcher.backends.kubernetes import pod_failures
from launcher.diagnose.explain.finding import Evidence, Finding
from launcher.diagnose.explain.formatting import join_words, one_line, sentence
from launcher.diagnose.explain.queue_situation import holds_quota
from launcher.diagnose.explain.rules_not_queued import PATIENCE
from launcher.diagnose.explain.rules_queue import other_queues
from launcher.diagnose.explain.situation import Event, Situation, warnings
from launcher.k8s.objects import name, seconds_since, status

PROVISIONING = "kueue.x-k8s.io/provisioning-request"
STARTING = (State.ADMITTED, State.STARTING, State.RESTARTING)


def check_pending(situation: Situation) -> Finding | None:
    """The quota is reserved, but an admission check has not passed yet."""
    workload = situation.workload
    if workload is None or not holds_quota(workload) or workload.is_true("Admitted") or workload.evicted.is_true:
        return None
    waiting = [check for check in workload.checks if check.state != "Ready"]
    if not waiting:
        return None
    shown, controllers = [], {}
    for state in waiting:
        check = situation.admission_checks.get(state.name)
        controllers[state.name] = check.controller if check else ""
        says = one_line(state.message) or "it has reported nothing yet"
        shown.append(
            Evidence("AdmissionCheck", state.name, f"{state.state} for {situation.ago(state.since)}: {sentence(says)}")
        )
    first = waiting[0]
    since = situation.ago(workload.reserved.since)
    if controllers[first.name] == PROVISIONING:
        text = one_line(first.message, 200)
        return Finding(
            f"{situation.name} has its quota and has waited {since} for the cloud to provide its machines"
            f"{f': {sentence(text)}' if text else ' (a ProvisioningRequest is pending).'}",
            tuple(shown),
            (
                "No action is needed: it starts as soon as all machines are available together.",
                f"kubectl -n {situation.namespace} get provisioningrequests shows the cloud's messages.",
                *other_queues(situation),
            ),
        )
    names = join_words([check.name for check in waiting])
    served = [item for item in set(controllers.values()) if item]
    by = f" ({join_words(sorted(served))})" if served else ""
    return Finding(
        f"{situation.name} has its quota and has waited {since} for the admission "
        f"{'checks' if len(waiting) > 1 else 'check'} {names}{by}.",
        tuple(shown),
        (f"Ask the platform team what {names} wait{'' if len(waiting) > 1 else 's'} for.", *other_queues(situation)),
    )


def webhook_down(situation: Situation) -> Finding | None:
    """The API server cannot create an object because an admission webhook does not answer."""
    event = _refusal(situation, r"failed (?:calling|to call) webhook|no endpoints available for service")
    match = re.search(r'webhook "([^"]+)"', event.message) if event else None
    if event is None or match is None:
        return None
    cause = one_line(event.message.split(match[0], 1)[1].lstrip(": ").removeprefix("failed to call webhook: "), 200)
    service = re.search(r"https?://([\w-]+)\.([\w-]+)\.svc", event.message)
    look = f"kubectl -n {service[2]} get pods,endpointslices (Service {service[1]})" if service else "launcher doctor"
    return Finding(
        f"{situation.name} cannot start: the admission webhook {match[1]} does not answer, so the API server creates "
        f"no {'pods' if event.kind != situation.run.kind else 'objects'} for it.",
        (_shown(event, situation), Evidence("webhook", match[1], sentence(cause))),
        (
            f"Ask the platform team to start its controller: {look}.",
            "It continues automatically when the webhook answers again.",
        ),
    )


def over_namespace_quota(situation: Situation) -> Finding | None:
    """The pods would exceed a ResourceQuota of the namespace."""
    event = _refusal(situation, r"exceeded quota: ")
    if event is None:
        return None
    match = re.search(r"exceeded quota: ([^,]+), requested: (.+?), used: (.+?), limited: (.+)$", event.message)
    called = match[1] if match else ""
    detail = f"they request {match[2]} more, {match[3]} is in use, and the limit is {match[4]}" if match else ""
    but = "has its quota in the queue, but" if situation.queue else "cannot start:"
    return Finding(
        f"{situation.name} {but} its pods would exceed the ResourceQuota {called} of the namespace "
        f"{situation.namespace}{f': {detail}' if detail else ''}.",
        (_shown(event, situation), *_limits(situation, called)),
        (
            "Stop other runs or pods of the namespace; launcher list and kubectl get pods show them.",
            "Ask the platform team to raise it: teams.NAME.resourceQuota in the values of charts/queues.",
        ),
    )


def pod_security(situation: Situation) -> Finding | None:
    """The pods violate Pod Security."""
    event = _refusal(situation, r"violates PodSecurity")
    match = re.search(r'violates PodSecurity "([^":]+)(?::[^"]*)?": (.*)$', event.message) if event else None
    if event is None or match is None:
        return None
    keys = [
        key
        for sign, key in (
            ("privileged", "security.privileged: false"),
            ("host namespaces", "security.hostNetwork: false"),
            ("hostPort", "security.hostNetwork: false"),
            ("runAsNonRoot", "security.runAsUser: 1000"),
            ("runAsUser=0", "security.runAsUser: 1000"),
            ("hostPath", "storage.kind: gcsfuse or pvc"),
        )
        if sign in match[2]
    ]
    return Finding(
        f"{situation.name} cannot start: the namespace {situation.namespace} allows only {match[1]} pods, and its pods "
        f"violate this ({one_line(match[2], 200)}).",
        (_shown(event, situation),),
        (
            f"Set {join_words(list(dict.fromkeys(keys)))}, and {situation.again}."
            if keys
            else f"Remove the settings that the message names (security, storage), and {situation.again}.",
            "Or ask the platform team for another level: teams.NAME.podSecurity in the values of charts/queues.",
        ),
    )


def refused(situation: Situation) -> Finding | None:
    """The API server refuses an object of the run's controllers for another reason."""
    event = _refusal(
        situation, r"is forbidden|denied the request|is invalid|not found|[Ee]rror creating|Failed to create"
    )
    if event is None:
        return None
    rejected = "pods" if event.kind != situation.run.kind else "objects"
    cause = sentence(one_line(event.message.removeprefix("Error creating: "), 250))
    return Finding(
        f"{situation.name} cannot start: the API server rejects its {rejected}: {cause}",
        (_shown(event, situation),),
        (_refused_hint(event.message, situation),),
    )


def silent_operator(situation: Situation) -> Finding | None:
    """The run's controller has not written the object's status since the run was created or admitted."""
    who, where = (
        ("KubeRay's operator", "kuberay-system") if situation.run.ray else ("JobSet's controller", "jobset-system")
    )
    if situation.run.has_status or situation.run.suspended or warnings(situation.run_events):
        return None  # a controller that reports warnings is running
    since = situation.seen.workload_condition("Admitted").since or situation.run.created
    waited = seconds_since(since, situation.now)
    if waited < PATIENCE:
        return None
    return Finding(
        f"{situation.name} has been ready to start for {situation.ago(since)}, but {who} has not processed it and does "
        "not seem to be running.",
        (Evidence(situation.run.kind, situation.name, "has no status."),),
        (
            f"Ask the platform team to check it: kubectl -n {where} get pods (on GKE the Ray operator is an add-on).",
            "launcher doctor shows which controllers the cluster has.",
        ),
    )


def _refusal(situation: Situation, pattern: str) -> Event | None:
    """Return the newest matching warning of what creates the run's pods, if pods are missing for some time."""
    if situation.run.suspended and situation.workload is not None:
        return None
    since = situation.seen.workload_condition("Admitted").since or situation.run.created
    if situation.state.ended or (situation.pods and len(situation.pods) >= situation.pods_wanted):
        return None
    # A call that fails once may succeed when the controller repeats it, and pods of a large run are created one by one.
    latest = max([since, *(pod.created for pod in situation.pods)])
    if not situation.lasts(latest, pod_failures.CONTAINER_SECONDS):
        return None
    events = [*situation.maker_events, *situation.run_events]
    fits = [event for event in warnings(events) if re.search(pattern, event.message)]
    return fits[0] if fits else None


def _limits(situation: Situation, called: str) -> tuple[Evidence, ...]:
    for quota in situation.resource_quotas:
        if name(quota) == called:
            hard, used = status(quota).get("hard") or {}, status(quota).get("used") or {}
            parts = [f"{key} {used.get(key, 0)} of {limit}" for key, limit in sorted(hard.items())]
            return (Evidence("ResourceQuota", called, f"in use: {', '.join(parts)}."),)
    return ()


def _shown(event: Event, situation: Situation) -> Evidence:
    often = f" ({event.count} times, last {situation.ago(event.at)} ago)" if event.count > 1 else ""
    return Evidence(event.kind, event.name, f"{event.reason}: {sentence(one_line(event.message, 500))}{often}")


def _refused_hint(message: str, situation: Situation) -> str:
    if match := re.search(r'serviceaccount "?([\w.-]+)"? not found', message):
        return (
            f"The service account {match[1]} is missing: set team.serviceAccount, or ask the platform team for "
            f"teams.NAME.serviceAccount of {situation.namespace} in the values of charts/queues."
        )
    return f"Fix what the message names, and {situation.again}. If it names a policy, ask the platform team."
