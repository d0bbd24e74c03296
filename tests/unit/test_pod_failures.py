"""Pods that can never start, recognized by the messages of kubelets, the scheduler and drivers.

The texts are those of Kubernetes 1.36 (pkg/kubelet/images, pkg/kubelet/kuberuntime, pkg/scheduler), containerd and
GKE's driver of Cloud Storage FUSE.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from launcher.backends.kubernetes import pod_failures
from launcher.k8s.pods import Pod

IMAGE = "example.invalid/trainer:1"
DENYING = "example.invalid/denied:403"


def pod(
    reason: str = "",
    message: str = "",
    *,
    placed: bool = True,
    scheduler_message: str = "",
    seconds: float = 300,
    image: str = IMAGE,
) -> Pod:
    since = (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
    scheduled = {
        "type": "PodScheduled",
        "status": str(placed),
        "reason": "" if placed else "Unschedulable",
        "message": scheduler_message,
        "lastTransitionTime": since,
    }
    container = {"name": "trainer", "image": image, "state": {"waiting": {"reason": reason, "message": message}}}
    entries = [container] if reason else []
    return Pod(
        {
            "metadata": {"name": "demo-0"},
            "status": {"phase": "Pending", "conditions": [scheduled], "containerStatuses": entries},
        }
    )


@pytest.mark.parametrize(
    ("one", "starts"),
    [
        (
            pod("ErrImagePull", f'failed to resolve reference "{IMAGE}": {IMAGE}: not found'),
            f"The image {IMAGE} cannot be pulled: the registry has no such image.",
        ),
        (
            pod("ImagePullBackOff", f'Back-off pulling image "{IMAGE}": ErrImagePull: pull access denied'),
            f"The image {IMAGE} cannot be pulled: the registry denies access. Check the spelling of image.repository",
        ),
        (pod("InvalidImageName", "couldn't parse image name"), f"The name of the image {IMAGE} is not valid."),
        (
            pod("CreateContainerConfigError", 'configmap "settings" not found'),
            "The ConfigMap settings does not exist in the namespace, but its container trainer needs it.",
        ),
        (
            pod("CreateContainerConfigError", "couldn't find key token in Secret research/hugging-face"),
            "The Secret research/hugging-face has no key token, but its container trainer needs it.",
        ),
        (
            pod(placed=False, scheduler_message='0/4 nodes are available: persistentvolumeclaim "data" not found.'),
            "Its storage, the PersistentVolumeClaim data, does not exist. Correct storage.claim",
        ),
    ],
)
def test_fatal_reasons_are_reported_with_the_fix(one: Pod, starts: str) -> None:
    assert pod_failures.fatal_reason([one]).startswith(starts)


@pytest.mark.parametrize(
    "one",
    [
        pod("ContainerCreating"),
        pod("ErrImagePull", "toomanyrequests: You have reached your pull rate limit"),
        pod("ErrImagePull", "dial tcp: lookup registry.example.com: i/o timeout"),
        pod("ErrImagePull", "429 Too Many Requests: not found in cache"),
        pod("ErrImagePull", f'failed to resolve "x@sha256:{"0a403b429c401d" * 4}": i/o timeout'),
        pod("ImagePullBackOff", f'Back-off pulling image "{DENYING}": i/o timeout', image=DENYING),
        pod("ErrImagePull", "failed to copy: httpReadSeeker: failed open: content digest sha256:0a: not found"),
        pod("ImageInspectError", "rpc error: code = NotFound desc = the runtime is starting: not found"),
        pod("CrashLoopBackOff", "back-off 10s restarting failed container"),
        pod(placed=False, scheduler_message="0/4 nodes are available: 4 Insufficient google.com/tpu."),
        pod(),
    ],
)
def test_failures_that_may_pass_are_not_fatal(one: Pod) -> None:
    assert pod_failures.fatal_reason([one]) == ""


@pytest.mark.parametrize(
    ("event", "starts"),
    [
        (
            'MountVolume.SetUp failed for volume "storage" : rpc error: code = NotFound desc = failed to get GCS '
            'bucket "our-runs": storage: bucket doesn\'t exist',
            "Its bucket cannot be mounted: the bucket does not exist.",
        ),
        (
            'MountVolume.SetUp failed for volume "storage" : rpc error: code = PermissionDenied desc = googleapi: '
            "Error 403: does not have storage.objects.list access",
            "Its bucket cannot be mounted: access is denied.",
        ),
        (
            'MountVolume.SetUp failed for volume "x" : secret "keys" not found',
            "Its pod demo-0 cannot mount the secret keys: it does not exist.",
        ),
        ('MountVolume.SetUp failed for volume "storage" : driver name gcsfuse not yet registered', ""),
        ("Readiness probe failed: connection refused", ""),
    ],
)
def test_the_events_of_a_pod_that_starts_slowly_are_read(event: str, starts: str) -> None:
    slow = pod("ContainerCreating", seconds=90)
    fresh = pod("ContainerCreating", seconds=5)
    assert pod_failures.to_be_asked([fresh]) is None
    assert pod_failures.to_be_asked([fresh, slow]) == slow
    reason = pod_failures.fatal_reason([fresh, slow], [event])
    assert reason.startswith(starts) and bool(reason) == bool(starts)


def test_a_pull_whose_cause_only_the_events_have() -> None:
    one = pod("ImagePullBackOff", f'Back-off pulling image "{IMAGE}"')
    candidate = pod_failures.to_be_asked([one])
    assert candidate == one
    assert pod_failures.fatal_reason([one]) == ""
    assert "no such image" in pod_failures.fatal_reason([one], [f'Failed to pull image "{IMAGE}": not found'])


def event(reason: str, message: str, minute: int, kind: str = "Warning") -> Any:
    return {"type": kind, "reason": reason, "message": message, "lastTimestamp": f"2026-01-01T00:{minute:02}:00Z"}


def test_a_secret_that_came_later_does_not_end_a_run_whose_image_is_pulled_slowly() -> None:
    absent = event("FailedMount", 'MountVolume.SetUp failed for volume "x" : secret "keys" not found', 1)
    pulling = event("Pulling", "Pulling image", 2, "Normal")
    slow = pod("ContainerCreating")
    assert pod_failures.fatal_reason([slow], pod_failures.warnings([absent]))
    assert pod_failures.warnings([absent, pulling]) == []
    # The driver of a bucket reports errors while images are pulled, and later.
    denied = event("FailedMount", "MountVolume.SetUp failed: rpc error: code = PermissionDenied", 3)
    assert pod_failures.fatal_reason([slow], pod_failures.warnings([absent, denied, pulling])).startswith("Its bucket")


def test_the_newest_event_of_an_image_counts() -> None:
    denied = event("Failed", "Failed to pull image: 403 Forbidden", 1)
    timeout = event("Failed", "Failed to pull image: i/o timeout", 2)
    one = pod("ImagePullBackOff", f'Back-off pulling image "{IMAGE}"')
    assert pod_failures.fatal_reason([one], pod_failures.warnings([denied]))
    assert pod_failures.fatal_reason([one], pod_failures.warnings([denied, timeout])) == ""
