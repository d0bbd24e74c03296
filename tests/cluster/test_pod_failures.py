"""Runs that cannot start are reported as stuck. A submit that follows such a run cancels it, to release its chips.

The pods are those of the recorded JobSet. The tests write their status as a kubelet does (kubernetes 1.36:
pkg/kubelet/images, kuberuntime), because simulated nodes do not pull images.
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
    """Submit a run whose pods are all scheduled but not ready. Returns its values file."""
    file = cli.values("job-set")
    assert cli("submit", "-f", file, "--detach", "--force").code == 0
    (run,) = cli.runs(plane.api)
    follow_as(plane, "three-then-one-and-two", run).step_past("Pod", PodScheduled="True")
    return file


def set_waiting(api: Api, cli: LauncherCli, reason: str, message: str) -> None:
    """Set the waiting state of all containers of the run, as a kubelet does."""
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


def stuck_after(seconds: float) -> mock._patch[float]:
    return mock.patch.object(KubernetesBackend, "stuck_seconds", seconds)


def test_a_run_with_a_missing_image_is_cancelled_with_the_reason(cli: LauncherCli, control_plane: ControlPlane) -> None:
    file, api = submitted(cli, control_plane), control_plane.api
    here = ("demo", "-n", cli.namespace)
    for what in (SLOW, LIMITED):
        set_waiting(api, cli, *what)
        assert json.loads(cli("status", *here, "-o", "json").out)["stuck"] is False
    set_waiting(api, cli, *ABSENT)
    reason = (
        "The image example.invalid/slipway:1.0.0 cannot be pulled: the registry has no such image. Correct "
        "image.repository, image.tag or image.digest, or push the image."
    )
    shown = cli("status", *here, "-o", "json").json
    assert (shown["state"], shown["reason"], shown["stuck"]) == ("starting", reason, True)
    (row,) = cli("list", "-n", cli.namespace, "-o", "json").json
    assert (row["reason"], row["stuck"]) == (reason, True)
    assert "cannot be pulled: the registry has no such image" in cli("explain", *here).out

    with controllers(control_plane, cli.namespace), stuck_after(0.5):
        done = cli("submit", "-f", file, "--force", "-o", "json")
    assert done.code == 1, done.err
    assert (done.json["state"], done.json["reason"]) == ("cancelled", reason)
    assert f'{reason} Waiting does not fix this, so the run "demo" is cancelled and its chips are released.' in done.err
    (workload,) = api.items(f"{KUEUE.format(cli.namespace)}/workloads")
    assert workload["spec"]["active"] is False
    assert "admission" not in workload["status"]
    assert cli("status", *here, "-o", "json").json["reason"] == reason


def test_a_run_continues_when_a_missing_secret_is_created(cli: LauncherCli, control_plane: ControlPlane) -> None:
    submitted(cli, control_plane)
    here = ("demo", "-n", cli.namespace)
    set_waiting(control_plane.api, cli, *SECRET)
    shown = cli("status", *here, "-o", "json").json
    assert shown["stuck"]
    assert shown["reason"].startswith("The Secret hugging-face does not exist in the namespace, but its")
    set_waiting(control_plane.api, cli, *SLOW)
    assert until(lambda: not cli("status", *here, "-o", "json").json["stuck"])
