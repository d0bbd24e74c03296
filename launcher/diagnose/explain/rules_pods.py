"""Rules for runs whose pods exist but do not run: images, settings, storage, crashes."""

from __future__ import annotations

import re

from launcher.backends.base import State
from launcher.backends.kubernetes import pod_failures, states
from launcher.backends.kubernetes.pod_failures import Waiting
from launcher.diagnose.explain.finding import Evidence, Finding
from launcher.diagnose.explain.formatting import clause, join_words, one_line, sentence
from launcher.diagnose.explain.rules_lifecycle import CONFIG_ERROR, ended_containers
from launcher.diagnose.explain.rules_not_queued import PATIENCE
from launcher.diagnose.explain.rules_start import STARTING
from launcher.diagnose.explain.situation import Situation, warnings
from launcher.k8s.objects import seconds_since
from launcher.k8s.pods import Pod

# Seconds after which creating a container or mounting a volume is reported as slow.
_SLOW = 60

_REPLACED = "its pods are being replaced"


def failing(situation: Situation) -> list[Waiting]:
    """Return the containers of the run's pods that have not started for some time, without progress."""
    return pod_failures.failing(situation.pods, situation.now)


def image_not_pulled(situation: Situation) -> Finding | None:
    """An image cannot be pulled."""
    stuck = [item for item in failing(situation) if item.reason in pod_failures.IMAGE]
    if not stuck:
        return None
    first = stuck[0]
    text = first.message
    for event in warnings(situation.pod_events(first.pod)):
        # The back-off message may lack the cause; the event of the failed pull has it.
        if event.reason in ("Failed", "FailedToRetrieveImagePullSecret") and "Back-off" not in event.message:
            text = f"{text} {event.message}"
    cause, suggestions = _image_cause(first, text)
    pods = {item.pod.name for item in stuck}
    return Finding(
        f"{situation.name} cannot start because the image {first.image} cannot be pulled: {cause}.",
        (
            Evidence("Pod", first.pod.name, f"{first.reason}: {sentence(one_line(text, 400))}"),
            *(
                [Evidence("Pod", "", f"{len(pods)} of {len(situation.pods)} pods wait for it.")]
                if len(pods) > 1
                else []
            ),
        ),
        suggestions,
    )


def wrong_settings(situation: Situation) -> Finding | None:
    """A Secret, ConfigMap or key that a container needs does not exist."""
    stuck = [item for item in failing(situation) if item.reason in pod_failures.SETTINGS]
    if not stuck:
        return None
    first = stuck[0]
    match = re.search(r'(secret|configmap) "([^"]+)" not found', first.message, re.IGNORECASE)
    key = re.search(r"couldn't find key (\S+) in (Secret|ConfigMap) (\S+)", first.message)
    if match:
        kind = "Secret" if match[1].lower() == "secret" else "ConfigMap"
        what = f"there is no {kind} {match[2]} in the namespace {situation.namespace}"
    elif key:
        what = f"the {key[2]} {key[3]} has no key {key[1]}"
    else:
        what = one_line(first.message, 200) or first.reason
    return Finding(
        f"{situation.name} cannot start because the container {first.container} cannot be created: {what}.",
        (Evidence("Pod", first.pod.name, f"{first.reason}: {sentence(one_line(first.message, 400))}"),),
        (
            "Create it in the namespace, or correct its name: worker.secretEnv, worker.envFrom, tracking.",
            "The pods continue automatically when it exists.",
        ),
    )


def crashing(situation: Situation) -> Finding | None:
    """Containers fail and are restarted, in a run that has not failed (yet)."""
    if situation.state not in (*STARTING, State.RUNNING):
        return None
    loops = [item for item in pod_failures.waiting(situation.pods) if item.reason == "CrashLoopBackOff"]
    # Ignore a single restart while the pods of a run connect, and restarts of pods that are ready again.
    bad = {pod.name for pod in situation.pods if not pod.ready and (_ended(pod) or pod.restarts > 1)}
    ends = [item for item in ended_containers(situation) if item[0] in bad]
    if not ends or not (loops or situation.state in (State.STARTING, State.RESTARTING)):
        return None
    pod, code, says = next((item for item in ends if loops and item[0] == loops[0].pod.name), ends[0])
    shown = [Evidence("Pod", which, text) for which, _, text in ends[:3]]
    restarts = max(item.restarts for item in situation.pods if item.name == pod)
    often = f" ({restarts} times so far)" if restarts > 1 else ""
    container = says.split(" ", 1)[0]
    if "OOMKilled" in says:
        key = "head.memory" if container == "ray-head" else "worker.memory"
        return Finding(
            f"{situation.name} does not start: its container {container} needs more memory than its limit and is "
            f"killed{often}.",
            tuple(shown),
            (f"Increase {key}, or use a smaller batch or model, and {situation.again}.",),
        )
    hints = [f"launcher logs {situation.command_args}{situation.worker_option(pod)} shows its output."]
    if code == CONFIG_ERROR and container in ("trainer", "ray-head", "ray-worker"):
        hints.insert(0, f"The trainer rejects its values: correct them, and {situation.again}.")
    return Finding(
        f"{situation.name} does not start: {says.rstrip('.')}{often}, and is restarted.",
        tuple(shown),
        tuple(hints),
    )


def not_mounted(situation: Situation) -> Finding | None:
    """The kubelet cannot mount a volume."""
    if situation.state not in STARTING:
        return None
    lasting = [
        pod
        for pod in situation.pods
        if pod.preparing and situation.lasts(pod.scheduled.since, pod_failures.CONTAINER_SECONDS)
    ]
    for pod in lasting[:3]:
        failed = warnings(situation.pod_events(pod), "FailedMount", "FailedAttachVolume", "FailedMapVolume")
        if not failed:
            continue
        event = failed[0]
        match = re.search(r'for volume "([^"]+)"', event.message)
        text = one_line(event.message, 300)
        bucket = str((situation.run.config.get("storage") or {}).get("bucket") or "")
        hints = []
        if re.search(r"PermissionDenied|403|Unauthenticated|does not have storage\.", text):
            hints.append(
                "Give the run's service account access to the bucket"
                f"{f' {bucket}' if bucket else ''} (roles/storage.objectUser, by Workload Identity)."
            )
        if re.search(r"NotFound|does not exist|not exist", text):
            hints.append(f"Check that the bucket{f' {bucket}' if bucket else ''} exists: storage.bucket.")
        if re.search(r'(secret|configmap) "', text):
            hints.append("Create the Secret or ConfigMap in the namespace.")
        volume = f"the volume {match[1]}" if match else "a volume"
        return Finding(
            f"{situation.name} cannot start: its pods cannot mount {volume}.",
            (Evidence("Pod", pod.name, f"{event.reason}: {sentence(text)}"),),
            tuple(hints or ["Correct storage in the values, or ask the platform team about the volume."]),
        )
    return None


def head_unreachable(situation: Situation) -> Finding | None:
    """KubeRay cannot submit the job because Ray's dashboard does not answer."""
    job = situation.run.ray_job
    if not situation.run.ray or job.deployment != "Running" or job.job != "Failure":
        return None
    head = job.condition("HeadPodReady")
    if head.is_true and not situation.lasts(head.since, PATIENCE):
        return None  # the dashboard answers some seconds after the head is ready
    text = one_line(job.message)
    shown = [Evidence("RayJob", situation.name, sentence(text))]
    if head.is_false:
        why = one_line(head.message) or head.reason
        shown.append(Evidence("RayCluster", job.cluster, f"HeadPodReady is False: {sentence(why)}"))
        return Finding(
            f"{situation.name} lost its Ray head {situation.ago(head.since)} ago; KubeRay creates "
            "a new one and restarts the job.",
            tuple(shown),
            ("No action is needed: training resumes from its last checkpoint.",),
        )
    return Finding(
        f"{situation.name} has all its pods, but KubeRay cannot reach its Ray head to start the job: {sentence(text)}",
        tuple(shown),
        (
            f"launcher logs {situation.command_args} shows whether Ray started on the head.",
            "Ask the platform team whether the NetworkPolicy allows access from KubeRay's operator: "
            "network.operatorNamespaces in the values of charts/queues.",
        ),
    )


def restarting(situation: Situation) -> Finding | None:
    """The run is restarting after a failure or a preemption."""
    state, reason = situation.state_and_reason
    if state is not State.RESTARTING:
        return None
    ends = [Evidence("Pod", pod, says) for pod, _, says in ended_containers(situation)]
    if reason == states.PREEMPTED:
        return Finding(
            f"{situation.name} is starting again after a preemption.",
            tuple(ends[:3]),
            ("No action is needed: it resumes from its last checkpoint.",),
        )
    reason = one_line(reason)
    count = situation.run.ray_job.failed if situation.run.ray else states.restarts(situation.seen)
    nth = f" (restart {count})" if count else ""
    return Finding(
        f"{situation.name} is restarting after a failure{nth}: {sentence(clause(reason or _REPLACED))}",
        tuple(ends[:3]),
        (
            "No action is needed: it resumes from its last checkpoint.",
            f"launcher logs {situation.command_args} shows why it failed.",
        ),
    )


def coming_up(situation: Situation) -> Finding | None:
    """The pods are starting, without errors."""
    if situation.state not in (State.ADMITTED, State.STARTING):
        return None
    pods, wanted = situation.pods, situation.pods_wanted
    ready = sum(pod.ready for pod in pods)
    if not pods:
        return Finding(
            f"{situation.name} is admitted, and its pods are about to be created.",
            (
                Evidence(
                    situation.run.kind, situation.name, sentence(situation.state_and_reason[1] or "has no pods yet")
                ),
            ),
        )
    if ready >= wanted:
        return Finding(f"{situation.name} has all its {wanted:,} pods, and its job is about to start.")
    slow = [pod for pod in pods if pod.preparing and seconds_since(pod.created, situation.now) > _SLOW]
    doing = sorted({item.reason for item in pod_failures.waiting(pods)})
    homeless = sum(not pod.scheduled.is_true for pod in pods)
    says = f"; {homeless:,} have no node yet" if homeless else ""
    says += f"; the others: {join_words(doing)}" if doing else ""
    hints = [
        f"Pulling a large image takes minutes; kubectl -n {situation.namespace} describe pod {pod.name} shows the "
        "progress."
        for pod in slow[:1]
    ]
    return Finding(
        f"{situation.name} is starting: {ready:,} of its {wanted:,} pods are ready.",
        (Evidence("Pod", "", f"{len(pods):,} of {wanted:,} exist, and {ready:,} are ready{says}."),),
        tuple(hints),
    )


def _image_cause(item: Waiting, text: str) -> tuple[str, tuple[str, ...]]:
    secrets = [str(entry.get("name")) for entry in (item.pod.spec.get("imagePullSecrets") or [])]
    if item.reason == "InvalidImageName":
        return "its name is not valid", ("Correct image.repository, image.tag or image.digest.",)
    if item.reason == "ErrImageNeverPull":
        return "it is not on the node, and image.pullPolicy is Never", ("Set image.pullPolicy: IfNotPresent.",)
    missing = re.search(r"(?:Unable to retrieve some image pull secrets|imagePullSecrets?)\D*?\(([^)]+)\)", text)
    cause = pod_failures.image_cause(text, item.image) or one_line(text, 160) or "the reason is unknown"
    if cause == pod_failures.REFUSED:
        given = f" ({join_words(secrets)})" if secrets else ""
        used = f" with the pull secrets {join_words(secrets)}" if secrets else ", and no pull secret is set"
        check = "exist in the namespace and are valid" if secrets else "names a Secret of the namespace"
        return (
            f"the registry denies access{used}",
            (
                f"Check that {'the Secrets in ' if secrets else ''}image.pullSecrets{given} {check}"
                f"{f' (missing: {missing[1]})' if missing else ''}.",
                "On GKE the nodes' service account needs roles/artifactregistry.reader.",
                "Check the spelling of image.repository: some registries also deny access to images that do not exist.",
            ),
        )
    if cause == pod_failures.NO_IMAGE:
        return cause, ("Correct image.repository, image.tag or image.digest, or push the image.",)
    return cause, ("Correct image.repository, or ask the platform team about the registry.",)


def _ended(pod: Pod) -> bool:
    """Return whether a container of a pod has failed and has not been restarted yet."""
    return any(
        (container.ended is not None and container.ended.exit_code)
        or (container.waiting is not None and container.waiting.reason == "CrashLoopBackOff")
        for container in pod.containers
    )
