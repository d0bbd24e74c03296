"""Detect pods that have no node, and pods that can never start: a missing image, Secret, claim or bucket. Pure.

A state of a few seconds is not a failure: while the hosts of a large run are placed, some pods have no node yet, and a
kubelet repeats what fails. So a pod counts only after some seconds in which no other pod of the run made progress.

The cluster does not end a run for these: the kubelet retries forever while the run holds its chips. Failures that may
resolve by themselves are not included: a registry that does not answer or limits its rate, a slow pull, a full node.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from launcher.k8s.objects import Condition, Object, seconds_since
from launcher.k8s.pods import Pod

IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError")
SETTINGS = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
NO_IMAGE = "the registry has no such image"
REFUSED = "the registry denies access"

# Patterns of registry errors and their causes; the first match wins. Status codes match as whole words, because digests
# contain the same digits.
_CAUSES = (
    (r"toomanyrequests|\b429\b|[Rr]ate ?limit|pull QPS exceeded", "the registry limits the rate of requests"),
    (r"content digest \S+ not found|httpReadSeeker", "its layers do not arrive complete at the node"),
    (r"not found|manifest unknown|NotFound|name unknown", NO_IMAGE),
    (r"\b40[13]\b|unauthorized|Unauthorized|denied|forbidden|Forbidden|authorization|no basic auth", REFUSED),
    (r"no such host|lookup .* on|server misbehaving", "the registry's name cannot be resolved"),
    (r"x509|certificate", "the registry's certificate is not trusted"),
    (r"timeout|deadline exceeded|connection refused|no route to host", "the registry does not answer"),
    (r"no match for platform|exec format", "the image is not for this kind of machine"),
    (r"no space left", "the node's disk is full"),
)
_FOR_GOOD = (NO_IMAGE, REFUSED, "the image is not for this kind of machine")
_BUCKET_GONE = r"NotFound|bucket (?:does not|doesn't) exist|bucket not found"
_BUCKET_REFUSED = r"PermissionDenied|\b403\b|Unauthenticated|does not have storage\."
# The seconds that a scheduled pod may take to mount its volumes before its events are read.
_SLOW = 60
# The seconds after which a pod without a node counts as a failure. The scheduler places some tens of pods per second,
# and tries a pod again that found no node after 1 to 10 seconds.
NODE_SECONDS = 30.0
# The seconds after which a container that cannot start counts as a failure, from the time when its pod got a node. A
# kubelet repeats a failed pull after 10 seconds.
CONTAINER_SECONDS = 10.0


@dataclass(frozen=True)
class Waiting:
    """A container that has not started, with the reason and message of the kubelet."""

    pod: Pod
    container: str
    image: str
    reason: str
    message: str


def waiting(pods: Sequence[Pod]) -> Iterator[Waiting]:
    """Yield the waiting containers of these pods, with the reason."""
    for pod in pods:
        for container in pod.all_containers:
            if container.waiting is not None and container.waiting.reason:
                reason, message = container.waiting.reason, container.waiting.message
                yield Waiting(pod, container.name, container.image, reason, message)


def failing(pods: Sequence[Pod], now: datetime | None = None) -> list[Waiting]:
    """Return the waiting containers of pods that got their node some time ago, if no pod became ready since."""
    if any(pod.ready and _age(pod.condition("Ready"), now) < CONTAINER_SECONDS for pod in pods):
        return []
    return [item for item in waiting(pods) if _age(item.pod.scheduled, now) >= CONTAINER_SECONDS]


def unplaced(pods: Sequence[Pod], now: datetime | None = None) -> list[Pod]:
    """Return the pods that have had no node for some time, if no pod of the run got a node since."""
    if any(pod.scheduled.is_true and _age(pod.scheduled, now) < NODE_SECONDS for pod in pods):
        return []
    return [pod for pod in pods if pod.unschedulable and _age(pod.scheduled, now) >= NODE_SECONDS]


def _age(condition: Condition, now: datetime | None) -> float:
    """Return the seconds since a condition changed; infinity if the time is unknown."""
    return seconds_since(condition.since, now) if condition.since else math.inf


def image_cause(text: str, image: str) -> str:
    """Return the cause of a failed pull from the text of the kubelet and the registry; "" if it is unknown.

    `image` is the image's name, which is ignored in the text because it may match any pattern.
    """
    text = text.replace(image, "")
    return next((found for pattern, found in _CAUSES if re.search(pattern, text)), "")


def to_be_asked(pods: Sequence[Pod]) -> Pod | None:
    """Return a pod whose events may name the cause: its mounts are slow, or its failed pull has no known cause."""
    for item in waiting(pods):
        if item.reason in IMAGE[:2] and not image_cause(item.message, item.image):
            return item.pod
    for pod in pods:
        since = pod.scheduled.since
        if pod.preparing and _making(pod) and since and seconds_since(since) > _SLOW:
            return pod
    return None


def warnings(events: Sequence[Object]) -> list[str]:
    """Return the messages of the warnings among a pod's events, newest first.

    Events are kept for an hour. The kubelet pulls an image after all volumes are mounted, so mount warnings from before
    the pull are resolved, for example because a Secret was created a minute later. They are left out.
    """
    pulled = max((_time(event) for event in events if event.get("reason") in ("Pulling", "Pulled")), default="")
    warning_events = [
        event
        for event in events
        if event.get("type") == "Warning" and not (event.get("reason") == "FailedMount" and _time(event) < pulled)
    ]
    return [str(event.get("message") or "") for event in sorted(warning_events, key=_time, reverse=True)]


def _time(event: Object) -> str:
    """Return the time of the event's last occurrence, RFC 3339 without fractions of a second."""
    of_series = (event.get("series") or {}).get("lastObservedTime")
    return str(of_series or event.get("lastTimestamp") or event.get("eventTime") or "")[:19]


def fatal_reason(pods: Sequence[Pod], events: Sequence[str] = ()) -> str:
    """Return sentences about why these pods can never run, and the fix; "" if no such cause is known.

    `events` are the `warnings` of the pod that `to_be_asked` returns.
    """
    for item in failing(pods):
        if reason := _image(item, events) or _settings(item):
            return reason
    for pod in unplaced(pods):
        if absent := re.search(r'persistentvolumeclaim "([^"]+)" not found', pod.scheduled.message):
            return (
                f"Its storage, the PersistentVolumeClaim {absent[1]}, does not exist. Correct storage.claim, or create "
                "the claim."
            )
    asked = to_be_asked(pods)
    return _mount(asked, events) if asked is not None and _making(asked) else ""


def _image(item: Waiting, events: Sequence[str]) -> str:
    if item.reason == "InvalidImageName":
        return f"The name of the image {item.image} is not valid. Correct image.repository, image.tag or image.digest."
    if item.reason == "ErrImageNeverPull":
        return f"The image {item.image} is not on the node, and image.pullPolicy is Never. Set it to IfNotPresent."
    if item.reason not in IMAGE[:2]:
        return ""
    causes = (image_cause(text, item.image) for text in (item.message, *events))
    cause = next(filter(None, causes), "")
    if cause not in _FOR_GOOD:
        return ""
    fix = {
        NO_IMAGE: "Correct image.repository, image.tag or image.digest, or push the image.",
        REFUSED: "Check the spelling of image.repository, and that image.pullSecrets or the nodes have access to it.",
    }.get(cause, "Build it for the machines of the slice.")
    return f"The image {item.image} cannot be pulled: {cause}. {fix}"


def _settings(item: Waiting) -> str:
    if item.reason != "CreateContainerConfigError":
        return ""
    absent = re.search(r'(secret|configmap) "([^"]+)" not found', item.message, re.IGNORECASE)
    if absent:
        kind = "Secret" if absent[1].lower() == "secret" else "ConfigMap"
        what = f"The {kind} {absent[2]} does not exist in the namespace"
    elif key := re.search(r"couldn't find key (\S+) in (Secret|ConfigMap) (\S+)", item.message):
        what = f"The {key[2]} {key[3]} has no key {key[1]}"
    else:
        return ""
    return (
        f"{what}, but its container {item.container} needs it. Create it, or correct worker.secretEnv, worker.envFrom "
        "or tracking."
    )


def _mount(pod: Pod, events: Sequence[str]) -> str:
    for text in events:
        if absent := re.search(r'(secret|configmap|persistentvolumeclaim) "([^"]+)" not found', text):
            return f"Its pod {pod.name} cannot mount the {absent[1]} {absent[2]}: it does not exist. Create it."
        if "MountVolume" not in text and "mount" not in text.lower():
            continue
        if re.search(_BUCKET_REFUSED, text):
            return (
                "Its bucket cannot be mounted: access is denied. Give the run's service account access to it "
                "(storage.bucket; roles/storage.objectUser, by Workload Identity)."
            )
        if re.search(_BUCKET_GONE, text):
            return "Its bucket cannot be mounted: the bucket does not exist. Correct storage.bucket."
    return ""


def _making(pod: Pod) -> bool:
    """Return whether none of the pod's containers has started yet, and none reports a reason."""
    reasons = {container.waiting.reason if container.waiting else "" for container in pod.containers}
    return reasons <= {"ContainerCreating", "PodInitializing"}
