"""Runs that no waiting mends are named, and ended by a submit that follows them, so that their chips are free.

The pods are those that the recorded JobSet made; what the kubelet says of them is written into their status, as it
writes it (kubernetes 1.36: pkg/kubelet/images, kuberuntime), for simulated nodes have no images to pull.
"""

from __future__ import annotations

import json
from unittest import mock

from launcher.backends.kubernetes.backend import KubernetesBackend
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.launching import KUEUE, LauncherCli, until
from tests.cluster.replay import follow_as
from tests.cluster.stand_in import controllers

ABSENT = (
    "ErrImagePull",
    'failed to pull and unpack image "example.invalid/slipway:1.0.0": failed to resolve reference '
    '"example.invalid/slipway:1.0.0": example.invalid/slipway:1.0.0: not found',
)
SLOW = ("ContainerCreating", "")
LIMITED = ("ErrImagePull", "toomanyrequests: you have reached your pull rate limit")
SECRET = ("CreateContainerConfigError", 'secret "hugging-face" not found')


def submitted(desk: LauncherCli, plane: ControlPlane) -> str:
    """A run of which all pods are made and placed, and none is ready; its values file."""
    file = desk.values("job-set")
    assert desk("submit", "-f", file, "--detach", "--force").code == 0
    (run,) = desk.runs(plane.api)
    follow_as(plane, "three-then-one-and-two", run).step_past("Pod", PodScheduled="True")
    return file


def say(api: Api, desk: LauncherCli, reason: str, message: str) -> None:
    """What the kubelet would say of all containers of the run."""
    listed = api.items(f"/api/v1/namespaces/{desk.namespace}/pods?labelSelector=slipway.dev/run%3Ddemo")
    assert listed
    for pod in listed:
        containers = [
            {
                "name": each["name"],
                "image": each["image"],
                "imageID": "",
                "ready": False,
                "restartCount": 0,
                "state": {"waiting": {"reason": reason, "message": message}},
            }
            for each in pod["spec"]["containers"]
        ]
        path = f"/api/v1/namespaces/{desk.namespace}/pods/{pod['metadata']['name']}/status"
        api.merge(path, {"status": {"phase": "Pending", "containerStatuses": containers}})


def patience(seconds: float) -> mock._patch[float]:
    return mock.patch.object(KubernetesBackend, "stuck_seconds", seconds)


def test_a_run_whose_image_is_not_there_is_ended_and_says_why(desk: LauncherCli, control_plane: ControlPlane) -> None:
    file, api = submitted(desk, control_plane), control_plane.api
    here = ("demo", "-n", desk.namespace)
    for what in (SLOW, LIMITED):
        say(api, desk, *what)
        assert json.loads(desk("status", *here, "-o", "json").out)["stuck"] is False
    say(api, desk, *ABSENT)
    reason = (
        "The image example.invalid/slipway:1.0.0 cannot be pulled: the registry has no such image. Mend "
        "image.repository, image.tag or image.digest, or push the image."
    )
    shown = desk("status", *here, "-o", "json").json
    assert (shown["state"], shown["reason"], shown["stuck"]) == ("starting", reason, True)
    (row,) = desk("list", "-n", desk.namespace, "-o", "json").json
    assert (row["reason"], row["stuck"]) == (reason, True)
    assert "cannot be pulled, the registry has no such image" in desk("explain", *here).out

    with controllers(control_plane, desk.namespace), patience(0.5):
        done = desk("submit", "-f", file, "--force", "-o", "json")
    assert done.code == 1, done.err
    assert (done.json["state"], done.json["reason"]) == ("cancelled", reason)
    assert f'{reason} No waiting helps, so the run "demo" is cancelled, and its chips are free.' in done.err
    (workload,) = api.items(f"{KUEUE.format(desk.namespace)}/workloads")
    assert workload["spec"]["active"] is False
    assert "admission" not in workload["status"]
    assert desk("status", *here, "-o", "json").json["reason"] == reason


def test_a_secret_that_comes_in_time_costs_nothing(desk: LauncherCli, control_plane: ControlPlane) -> None:
    submitted(desk, control_plane)
    here = ("demo", "-n", desk.namespace)
    say(control_plane.api, desk, *SECRET)
    shown = desk("status", *here, "-o", "json").json
    assert shown["stuck"] and shown["reason"].startswith("There is no Secret hugging-face in the namespace, which its")
    say(control_plane.api, desk, *SLOW)
    assert until(lambda: not desk("status", *here, "-o", "json").json["stuck"])
