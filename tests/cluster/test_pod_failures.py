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
from tests.cluster.fake_controllers import controllers
from tests.cluster.launching import KUEUE, LauncherCli, until
from tests.cluster.replay import follow_as

ABSENT = (
    "ErrImagePull",
    'failed to pull and unpack image "example.invalid/slipway:1.0.0": failed to resolve reference '
    '"example.invalid/slipway:1.0.0": example.invalid/slipway:1.0.0: not found',
)
SLOW = ("ContainerCreating", "")
LIMITED = ("ErrImagePull", "toomanyrequests: you have reached your pull rate limit")
SECRET = ("CreateContainerConfigError", 'secret "hugging-face" not found')


def submitted(cli: LauncherCli, plane: ControlPlane) -> str:
    """A run of which all pods are made and placed, and none is ready; its values file."""
    file = cli.values("job-set")
    assert cli("submit", "-f", file, "--detach", "--force").code == 0
    (run,) = cli.runs(plane.api)
    follow_as(plane, "three-then-one-and-two", run).step_past("Pod", PodScheduled="True")
    return file


def say(api: Api, cli: LauncherCli, reason: str, message: str) -> None:
    """What the kubelet would say of all containers of the run."""
    listed = api.items(f"/api/v1/namespaces/{cli.namespace}/pods?labelSelector=slipway.dev/run%3Ddemo")
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
        path = f"/api/v1/namespaces/{cli.namespace}/pods/{pod['metadata']['name']}/status"
        api.merge(path, {"status": {"phase": "Pending", "containerStatuses": containers}})


def patience(seconds: float) -> mock._patch[float]:
    return mock.patch.object(KubernetesBackend, "stuck_seconds", seconds)


def test_a_run_whose_image_is_not_there_is_ended_and_says_why(cli: LauncherCli, control_plane: ControlPlane) -> None:
    file, api = submitted(cli, control_plane), control_plane.api
    here = ("demo", "-n", cli.namespace)
    for what in (SLOW, LIMITED):
        say(api, cli, *what)
        assert json.loads(cli("status", *here, "-o", "json").out)["stuck"] is False
    say(api, cli, *ABSENT)
    reason = (
        "The image example.invalid/slipway:1.0.0 cannot be pulled: the registry has no such image. Correct "
        "image.repository, image.tag or image.digest, or push the image."
    )
    shown = cli("status", *here, "-o", "json").json
    assert (shown["state"], shown["reason"], shown["stuck"]) == ("starting", reason, True)
    (row,) = cli("list", "-n", cli.namespace, "-o", "json").json
    assert (row["reason"], row["stuck"]) == (reason, True)
    assert "cannot be pulled, the registry has no such image" in cli("explain", *here).out

    with controllers(control_plane, cli.namespace), patience(0.5):
        done = cli("submit", "-f", file, "--force", "-o", "json")
    assert done.code == 1, done.err
    assert (done.json["state"], done.json["reason"]) == ("cancelled", reason)
    assert f'{reason} Waiting does not fix this, so the run "demo" is cancelled and its chips are released.' in done.err
    (workload,) = api.items(f"{KUEUE.format(cli.namespace)}/workloads")
    assert workload["spec"]["active"] is False
    assert "admission" not in workload["status"]
    assert cli("status", *here, "-o", "json").json["reason"] == reason


def test_a_secret_that_comes_in_time_costs_nothing(cli: LauncherCli, control_plane: ControlPlane) -> None:
    submitted(cli, control_plane)
    here = ("demo", "-n", cli.namespace)
    say(control_plane.api, cli, *SECRET)
    shown = cli("status", *here, "-o", "json").json
    assert shown["stuck"]
    assert shown["reason"].startswith("The Secret hugging-face does not exist in the namespace, but its")
    say(control_plane.api, cli, *SLOW)
    assert until(lambda: not cli("status", *here, "-o", "json").json["stuck"])
