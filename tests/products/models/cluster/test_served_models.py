"""The verbs for served models, with a real API server: the release is installed by Helm, its status is a stand-in's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.paths import presets_dir
from tests.cli.conftest import Result
from tests.cluster import fake_kuberay
from tests.cluster.api import Object
from tests.cluster.control_plane import ControlPlane, remove_namespace
from tests.cluster.fake_controllers import queued_workload
from tests.cluster.fake_kuberay import RAY, add_pods, write
from tests.cluster.launching import KUEUE, LauncherCli, add_team, remove_cluster_queue, until

NAME = "llama"
IMAGE = "example.invalid/serve:1"


class Served:
    """A served model that is installed in the namespace of a team."""

    def __init__(self, cli: LauncherCli, plane: ControlPlane, folder: Path) -> None:
        self.cli, self.plane, self.api = cli, plane, plane.api
        tree = yaml.safe_load((presets_dir() / "serve" / "llama3.1-8b-v6e.yaml").read_text())
        tree["team"] = {"name": "research", "namespace": cli.namespace}
        tree["queue"] = {"name": "multislice"}
        tree["slice"] = {"accelerator": "v5e", "topology": "2x4", "machineType": "ct5lp-hightpu-8t"}
        tree["serve"] |= {"replicas": {"min": 1, "max": 1}, "model": "exports/llama3.1-8b"}
        self.file = folder / "model.yaml"
        self.file.write_text(yaml.safe_dump(tree))
        self.path = f"{RAY}/{cli.namespace}/rayservices/{NAME}"

    def __call__(self, *arguments: str) -> Result:
        return self.cli(*arguments, "-n", self.cli.namespace)

    def install(self, *arguments: str) -> Result:
        return self("install", "serve", NAME, "-f", str(self.file), *arguments)

    def json(self, verb: str, *arguments: str) -> Any:
        done = self(verb, *arguments, "-o", "json")
        assert (done.code, done.err) == (0, "")
        return done.json

    def write(self, status: Object) -> None:
        write(self.api, self.cli.namespace, NAME, status)

    def put_in_queue(self, *, message: str = "") -> Object:
        """Suspend the RayService and create its Workload, as Kueue's webhook and controller do."""
        self.api.merge(self.path, {"spec": {"rayClusterConfig": {"suspend": True}}})
        live = {"apiVersion": "ray.io/v1", "kind": "RayService", **self.api.get(self.path)}
        workload = queued_workload(live, "multislice")
        chips = {"google.com/tpu": 8}
        containers = [{"name": "c", "image": "x", "resources": {"requests": chips, "limits": chips}}]
        workload["spec"]["podSets"] = [{"name": "slice", "count": 20, "template": {"spec": {"containers": containers}}}]
        workload = self.api.create(workload)
        self.set_conditions(workload, ("QuotaReserved", "False", "Pending", message))
        return workload

    def set_conditions(self, workload: Object, *conditions: tuple[str, str, str, str]) -> None:
        path = f"{KUEUE.format(self.cli.namespace)}/workloads/{workload['metadata']['name']}/status"
        self.api.merge(path, {"status": {"conditions": [fake_kuberay.condition(*each) for each in conditions]}})

    def running(self, pod: str) -> Callable[[], bool]:
        path = f"/api/v1/namespaces/{self.cli.namespace}/pods/{pod}"
        return lambda: self.api.get(path).get("status", {}).get("phase") == "Running"


@pytest.fixture
def served(cli: LauncherCli, control_plane: ControlPlane, tmp_path: Path) -> Served:
    made = Served(cli, control_plane, tmp_path)
    done = made.install("--timeout", "0")
    assert done.code == 0, done.err
    return made


def test_the_life_of_a_served_model(served: Served) -> None:
    namespace = served.cli.namespace
    # Before KubeRay.
    (new,) = served.json("list", "--models")
    assert (new["name"], new["state"], new["replicas"], new["replicas_max"]) == (NAME, "queued", 0, 1)
    assert new["reason"] == "Kueue has not created its Workload yet."
    assert new["url"] == f"http://llama-serve-svc.{namespace}:8000/v1"

    # Queued: 160 chips are requested, and the queue has 80.
    message = "insufficient quota for google.com/tpu in flavor v5e-2x4, request > maximum capacity (160 > 80)"
    workload = served.put_in_queue(message=message)
    now = served.json("status", NAME)
    assert (now["state"], now["queue"], now["position"]) == ("queued", "multislice", 1)
    assert "insufficient quota" in now["reason"]
    explained = served.json("explain", NAME)
    assert explained["headline"] == (
        f"llama can never start in the queue {namespace}: it requests 160 chips of v5e-2x4, and the queue can have at "
        "most 80 chips."
    )
    assert (explained["state"], explained["position"]) == ("queued", 1)
    done = served("logs", NAME)
    assert (done.code, done.err) == (
        1,
        'Error: The served model "llama" is queued and has no pods yet.\n'
        f"Hint: To find out why: launcher explain llama -n {namespace}\n",
    )

    # Admitted, and loading.
    served.api.merge(served.path, {"spec": {"rayClusterConfig": {"suspend": False}}})
    served.set_conditions(
        workload, ("QuotaReserved", "True", "QuotaReserved", ""), ("Admitted", "True", "Admitted", "")
    )
    served.write(fake_kuberay.LOADING)
    head, _ = add_pods(served.plane, namespace, NAME, "llama-1", ready=1)
    until(served.running(head))
    now = served.json("status", NAME)
    assert (now["state"], now["reason"]) == ("starting", "1 of 2 pods are ready.")
    explained = served.json("explain", NAME)
    assert explained["headline"] == "llama is starting: the model is being loaded, and 1 of 2 pods are ready."

    # It cannot be deployed.
    served.write(fake_kuberay.DEPLOY_FAILED)
    assert served.json("status", NAME)["state"] == "unhealthy"
    explained = served.json("explain", NAME)
    error = "ValueError: /data/exports/llama3.1-8b has no config.json."
    assert explained["headline"] == f"llama does not answer: Ray Serve cannot deploy the model: {error}"
    assert explained["evidence"][-1] == {"kind": "application", "name": "model", "says": f"DEPLOY_FAILED: {error}"}

    # Ready.
    served.write(fake_kuberay.READY)
    done = served("status", NAME)
    assert (done.code, done.err) == (0, "")
    assert f"\nurl       http://llama-serve-svc.{namespace}:8000/v1\n" in done.out
    assert "\nreplicas  1 of 1\n" in done.out
    assert "\nstate     ready\n" in done.out
    explained = served.json("explain", NAME)
    assert explained["headline"] == (
        f"llama is ready: 1 replicas of 1 answer at http://llama-serve-svc.{namespace}:8000/v1."
    )
    listed = served("list")
    assert "SERVED MODEL  STATE  REPLICAS" in listed.out
    assert "\nllama         ready  1 of 1 " in listed.out

    # A replica fails its checks.
    served.write(fake_kuberay.UNHEALTHY)
    assert served.json("status", NAME)["state"] == "unhealthy"
    assert "its replicas fail their health checks" in served.json("explain", NAME)["headline"]

    # No replica answers.
    served.write(fake_kuberay.STOPPED)
    assert served.json("status", NAME)["reason"] == "No replica answers any more."
    assert "no replica is ready." in served.json("explain", NAME)["headline"]

    # An update, whose new version fails.
    served.write(fake_kuberay.UPDATING)
    add_pods(served.plane, namespace, NAME, "llama-2", ready=0)
    assert served.json("status", NAME)["state"] == "updating"
    explained = served.json("explain", NAME)
    assert explained["headline"] == "llama is being updated: the old version answers until the new one is ready."
    assert [(each["name"], each["says"]) for each in explained["evidence"]] == [
        ("llama-1", "is the old version, and answers."),
        ("llama-2", "is the new version; 0 of 2 pods are ready."),
    ]
    served.write(fake_kuberay.UPDATE_FAILED)
    explained = served.json("explain", NAME)
    assert explained["headline"] == f"The new version of llama does not answer, and the old one continues: {error}"


def test_the_models_of_all_namespaces_are_listed(served: Served, control_plane: ControlPlane, tmp_path: Path) -> None:
    namespace = f"{served.cli.namespace}-other"
    control_plane.add_namespace(namespace)
    add_team(control_plane, namespace)
    try:
        folder = tmp_path / "other"
        folder.mkdir()
        theirs = Served(replace(served.cli, namespace=namespace, folder=folder), control_plane, folder)
        assert theirs.install("--timeout", "0").code == 0
        theirs.write(fake_kuberay.READY)
        served.put_in_queue(message="no quota")
        listed = served.cli("list", "--models", "-A", "-o", "json").json
        states = {each["namespace"]: (each["name"], each["state"], each["reason"]) for each in listed}
        assert states[served.cli.namespace] == (NAME, "queued", "no quota")
        assert states[namespace] == (NAME, "ready", "")
        text = served.cli("list", "-A").out
        assert "SERVED MODEL  NAMESPACE" in text
        rows = {row[1]: row for row in map(str.split, text.splitlines()) if row[:1] == [NAME]}
        assert [rows[each][2] for each in (served.cli.namespace, namespace)] == ["queued", "ready"]
        own = served("list", "--models")
        assert (own.out.splitlines()[0].split()[:3], len(own.out.splitlines())) == (["SERVED", "MODEL", "STATE"], 2)
        refused = served.cli("list", "--models", "--local")
        assert (refused.code, "served models are in a cluster" in refused.err) == (2, True)
    finally:
        remove_namespace(control_plane.api, namespace)
        remove_cluster_queue(control_plane.api, namespace)


def test_logs_are_those_of_the_head_or_a_host(served: Served) -> None:
    namespace = served.cli.namespace
    served.write(fake_kuberay.READY)
    head, host = add_pods(served.plane, namespace, NAME, "llama-1", ready=2)
    until(lambda: served.running(head)() and served.running(host)())
    served.plane.write_log(namespace, head, "ray-head", ["deploying", "deployed"])
    served.plane.write_log(namespace, host, "ray-worker", ["loading", "loaded"])
    assert served("logs", NAME).out == "deploying\ndeployed\n"
    assert served("logs", NAME, "--tail", "1").out == "deployed\n"
    assert served("logs", NAME, "--worker", "0").out == "loading\nloaded\n"
    done = served("logs", NAME, "--worker", "1")
    assert done.err.startswith('Error: Host 1 was not found: the served model "llama" has 1, counted from 0.')

    # Followed across an update: the log continues with the new head, and no line is repeated after a cut.
    followed: list[Result] = []
    thread = threading.Thread(target=lambda: followed.append(served("logs", NAME, "-f")))
    thread.start()
    time.sleep(1)
    served.plane.cut_logs()
    served.plane.write_log(namespace, head, "ray-head", ["more"])
    time.sleep(3)
    served.api.delete(served.path)
    until(lambda: served.api.find(served.path) is None)
    served.plane.end_log(namespace, head, "ray-head")
    thread.join(30)
    assert [(each.code, each.out) for each in followed] == [(0, "deploying\ndeployed\nmore\n")]


def test_logs_of_a_model_that_does_not_become_ready(served: Served) -> None:
    """They have the reason: of the host whose replica fails, and of Ray Serve's controller."""
    namespace = served.cli.namespace
    failed = fake_kuberay.part("llama-1", application="DEPLOY_FAILED", message=fake_kuberay.TRACEBACK)
    deployments = failed["applicationStatuses"]["model"]["serveDeploymentStatuses"]
    deployments["Model"]["message"] = "The deployment failed to start 3 times."
    served.write(fake_kuberay.status(pending=failed))
    head, host = add_pods(served.plane, namespace, NAME, "llama-1", ready=2)
    until(lambda: served.running(head)() and served.running(host)())
    served.plane.write_log(namespace, head, "ray-head", ["started", "deploying"])
    served.plane.write_log(namespace, host, "ray-worker", ["loading", "ValueError"])
    serve = [
        "==> Ray Serve <==",
        *f"application model is DEPLOY_FAILED: {fake_kuberay.TRACEBACK}".splitlines(),
        "deployment Model is UNHEALTHY: The deployment failed to start 3 times.",
    ]
    done = served("logs", NAME)
    pods = ["==> head <==", "started", "deploying", "==> worker 0 <==", "loading", "ValueError"]
    assert (done.code, done.out.splitlines()) == (0, [*pods, *serve])
    pods = ["==> head <==", "deploying", "==> worker 0 <==", "ValueError"]
    assert served("logs", NAME, "--tail", "1").out.splitlines() == [*pods, *serve]
    assert served("logs", NAME, "--worker", "0").out == "loading\nValueError\n"


def test_replicas_between_the_limits(served: Served) -> None:
    done = served.install("--set", "serve.replicas.max=4", "--timeout", "0")
    assert done.code == 0, done.err
    active = fake_kuberay.part("llama-1", application="RUNNING")
    served.write(fake_kuberay.status(active=active, endpoints=2))
    now = served.json("status", NAME)
    assert (now["state"], now["replicas"], now["replicas_min"], now["replicas_max"]) == ("ready", 2, 1, 4)
    assert "\nreplicas  2 of 1 to 4\n" in served("status", NAME).out
    assert served.json("explain", NAME)["headline"].startswith("llama is ready: 2 replicas (between 1 and 4) answer at")
    # Fewer than the minimum.
    assert served.install("--set", "serve.replicas.min=3", "--set", "serve.replicas.max=4", "--timeout", "0").code == 0
    served.write(fake_kuberay.status(active=active, endpoints=2))
    assert served.json("status", NAME)["state"] == "unhealthy"
    assert served.json("explain", NAME)["headline"] == "llama answers with 2 replicas of at least 3."


def test_an_incremental_update(served: Served) -> None:
    served.write(fake_kuberay.INCREMENTAL)
    add_pods(served.plane, served.cli.namespace, NAME, "llama-1", ready=0)
    head, host = add_pods(served.plane, served.cli.namespace, NAME, "llama-2", ready=2)
    until(lambda: served.running(head)() and served.running(host)())
    now = served.json("status", NAME)
    assert (now["state"], now["replicas"]) == ("updating", 2)
    explained = served.json("explain", NAME)
    assert [(each["name"], each["says"]) for each in explained["evidence"]] == [
        ("llama-1", "is the old version, and answers."),
        ("llama-2", "is the new version, which receives 25 % of the requests; 2 of 2 pods are ready."),
    ]


def test_before_kueue_0_17_the_ray_cluster_waits_in_the_queue(served: Served) -> None:
    """The Workload belongs to the RayCluster that KubeRay creates, because Kueue does not know RayServices."""
    live = served.api.get(served.path)
    spec = {**live["spec"]["rayClusterConfig"], "suspend": True}
    metadata = {"name": "llama-1", "namespace": served.cli.namespace}
    cluster = served.api.create({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec})
    served.write(fake_kuberay.status(pending=fake_kuberay.part("llama-1", provisioned=False)))
    workload = served.api.create(queued_workload(cluster, "multislice"))
    served.set_conditions(
        workload, ("QuotaReserved", "False", "Pending", "insufficient unused quota for google.com/tpu")
    )
    now = served.json("status", NAME)
    assert (now["state"], now["position"]) == ("queued", 1)
    assert now["reason"] == "insufficient unused quota for google.com/tpu"
    served.set_conditions(
        workload, ("QuotaReserved", "True", "QuotaReserved", ""), ("Admitted", "True", "Admitted", "")
    )
    served.api.merge(f"{RAY}/{served.cli.namespace}/rayclusters/llama-1", {"spec": {"suspend": False}})
    assert served.json("status", NAME)["state"] == "starting"


def test_a_host_whose_image_does_not_exist(served: Served) -> None:
    message = f'failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": {IMAGE}: not found'
    waiting = {"waiting": {"reason": "ErrImagePull", "message": message}}
    explained = explain_host(served, {"restartCount": 0, "state": waiting})
    assert explained["headline"] == (
        f"llama cannot start because the image {IMAGE} cannot be pulled: the registry has no such image."
    )


def test_a_host_that_crashes(served: Served) -> None:
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": "", "finishedAt": fake_kuberay.NOW}}
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"}}
    explained = explain_host(served, {"restartCount": 5, "state": waiting, "lastState": ended})
    assert explained["headline"] == (
        "llama does not start: ray-worker ended with exit code 1 (5 times so far), and is restarted."
    )
    assert explained["suggestions"] == [
        f"launcher logs llama -n {served.cli.namespace} --worker 0 shows its output.",
    ]


def explain_host(served: Served, container: Object) -> Any:
    """Explain a model that starts, whose host has this status of its container, as the kubelet writes it."""
    served.write(fake_kuberay.status(pending=fake_kuberay.part("llama-1", provisioned=False)))
    _, host = add_pods(served.plane, served.cli.namespace, NAME, "llama-1", ready=0)
    scheduled = fake_kuberay.condition("PodScheduled", "True", "", "")
    containers = [{"name": "ray-worker", "image": IMAGE, "imageID": "", "ready": False, **container}]
    path = f"/api/v1/namespaces/{served.cli.namespace}/pods/{host}/status"
    served.api.merge(path, {"status": {"phase": "Pending", "conditions": [scheduled], "containerStatuses": containers}})
    return served.json("explain", NAME)


def test_verbs_that_need_a_run(served: Served) -> None:
    done = served("cancel", NAME)
    assert (done.code, done.err) == (
        1,
        'Error: "llama" is a served model, which ends with its Helm release.\n'
        f"Hint: To release its resources: launcher uninstall llama -n {served.cli.namespace}\n",
    )
    for command in (("cancel", NAME, NAME), ("delete", NAME), ("delete", NAME, "other", "--yes")):
        assert (served(*command).code, served(*command).err) == (done.code, done.err), command
    for verb in ("wait", "attach"):
        ended = served(verb, NAME)
        assert (ended.code, ended.err) == (
            1,
            'Error: "llama" is a served model; this command needs a run.\n'
            f"Hint: To show its state: launcher status llama -n {served.cli.namespace}\n",
        )
    other = served("wait", "other")
    assert (other.code, other.err.splitlines()[0][:32]) == (1, 'Error: The run "other" was not f')
    assert served.api.find(served.path) is not None
    done = served("status", NAME, "--watch")
    assert done.code == 2
    assert "llama is a served model; --watch shows a run or a sweep." in done.err


def test_a_run_with_the_same_name_is_an_error(served: Served) -> None:
    done = served.cli("submit", "-f", served.cli.values("job-set", NAME), "--detach", "--force")
    assert done.code == 0, done.err
    for verb in ("status", "logs", "explain", "cancel"):
        done = served(verb, NAME)
        assert done.code == 1
        assert done.err.startswith('Error: Both a run "llama" and a served model "llama" exist.\n')
    assert served.json("status", f"run/{NAME}")["kind"] == "job-set"


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (fake_kuberay.READY, 0, "The release llama is ready.\n"),
        (
            fake_kuberay.DEPLOY_FAILED,
            1,
            "RayService llama: the model does not answer: ValueError: /data/exports/llama3.1-8b has no config.json.\n",
        ),
        (fake_kuberay.REJECTED, 1, "RayService llama failed: spec.serveConfigV2 is not valid.\n"),
        (fake_kuberay.UPDATING, 1, "The old replicas still answer.\n"),
    ],
    ids=["ready", "deploy-failed", "rejected", "updating"],
)
def test_install_waits_until_the_model_answers(
    cli: LauncherCli, control_plane: ControlPlane, tmp_path: Path, status: Object, code: int, says: str
) -> None:
    served = Served(cli, control_plane, tmp_path)

    def kuberay() -> None:
        until(lambda: served.api.find(served.path))
        served.write(fake_kuberay.LOADING)
        time.sleep(1.5)
        served.write(status)

    controller = threading.Thread(target=kuberay)
    controller.start()
    done = served.install("--timeout", "30" if code == 0 else "5")
    controller.join()
    assert done.code == code, done.err
    assert "Waiting: RayService llama: " in done.err
    assert says in done.err
