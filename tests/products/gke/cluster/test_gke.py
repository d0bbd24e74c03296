"""launcher cluster from an empty project to nothing: gcloud in front of a stub of Google's APIs, and a real API server.

Google Cloud cannot be had in a test, so ../gcloud/stub.py replaces it: it keeps state, and refuses what GKE
refuses. If gcloud is missing, its stand-in sends the requests that the real one was recorded to send.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from launcher.config.values.writer import dumps
from tests.cli.conftest import Launcher
from tests.cli.test_terminal import on_terminal
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_controllers import controllers, queued_workload
from tests.docs.cluster import queues_of_their_own
from tests.docs.pages import page
from tests.products.gke.gcloud import commands, harness
from tests.products.gke.gcloud.stub import Stub
from tests.products.gke.gcloud.world import World
from tests.tools.go_tools import tool

CHECKOUT = Path(__file__).parents[4]
RAYJOB = {"apiVersion": "ray.io/v1", "kind": "RayJob"}
CONTEXT = "gke_demo-project_us-east5-b_slipway"
# The controllers' manifests are on the network. This program applies a Deployment with the same name and image tag
# instead; nothing pulls the image. For the rest, it is kubectl.
KUBECTL = """#!{python} -IS
import os, sys
arguments = sys.argv[1:]
address = next((each for each in arguments if each.startswith("https://")), "")
if address:
    import json, re, subprocess
    name, version = re.search(r"kubernetes-sigs/(\\w+)/releases/download/v([0-9.]+)/", address).groups()
    labels = {{"app": name}}
    pod = {{"metadata": {{"labels": labels}}, "spec": {{"containers": [{{"name": "manager", "image": f"example/{{name}}:v{{version}}"}}]}}}}
    namespace = {{"apiVersion": "v1", "kind": "Namespace", "metadata": {{"name": f"{{name}}-system"}}}}
    deployment = {{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {{"name": f"{{name}}-controller-manager", "namespace": f"{{name}}-system"}}, "spec": {{"selector": {{"matchLabels": labels}}, "template": pod}}}}
    config = {{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {{"name": "kueue-manager-config", "namespace": "kueue-system"}}, "data": {{"controller_manager_config.yaml": f"# The default of {{version}}.\\nintegrations:\\n  frameworks: [batch/job]\\n"}}}}
    text = json.dumps({{"apiVersion": "v1", "kind": "List", "items": [namespace, deployment, *[config] * (name == "kueue")]}})
    sys.exit(subprocess.run(["{kubectl}", *arguments[:2], "apply", "--server-side", "--force-conflicts", "-f", "-"], input=text, text=True).returncode)
if "rollout" in arguments:
    sys.exit(0)
os.execv("{kubectl}", ["{kubectl}", *arguments])
"""  # noqa: E501
# The kubeconfig that gcloud writes has the address of a cluster of Google. This one leads to the test's API server.
GCLOUD = """#!{python} -IS
import os, sys
if sys.argv[1:4] == ["container", "clusters", "get-credentials"]:
    import shutil
    shutil.copy("{kubeconfig}", os.environ["KUBECONFIG"])
    sys.exit(0)
os.execv({program}[0], [*{program}, *sys.argv[1:]])
"""


@dataclass
class Cloud:
    """A project of Google Cloud, and the launcher of a user of it. `folder` has the values files."""

    stub: Stub
    env: dict[str, str]
    folder: Path

    def values(self, **changed: Any) -> Path:
        """Write the values of tests/products/gke/gcloud/commands.py, whose commands are recorded."""
        file = self.folder / "cluster.yaml"
        file.write_text(dumps(commands.values(**changed)), encoding="utf-8")
        return file

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "launcher", "cluster", *arguments]
        return subprocess.Popen(
            command,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Run `launcher cluster …`; return the exit code, stdout and stderr."""
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return process.returncode, out, err

    def doctor(self, file: Path) -> list[dict[str, str]]:
        """Return the findings of `launcher doctor` on the cluster's plan."""
        command = [sys.executable, "-m", "launcher", "doctor", "-f", str(file), "-o", "json"]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=False, timeout=300)
        return [each for each in json.loads(done.stdout) if each["part"] == "plan of the cluster"]

    def steps(self, file: Path) -> list[str]:
        """Return the steps that the plan has left, and the differences that it cannot change."""
        code, out, err = self("plan", "-f", str(file), "-o", "json")
        assert out, err
        plan = json.loads(out)
        assert code == bool(plan["conflicts"])
        return [*(str(step["resource"]) for step in plan["steps"]), *map(str, plan["conflicts"])]


def _kueue(api: Api, stop: threading.Event) -> None:
    """Report the queues as active, as Kueue does, which is not available here."""
    entry = {"type": "Active", "status": "True", "reason": "Ready", "message": "Can admit new workloads"}
    entry["lastTransitionTime"] = "2026-11-01T00:00:00Z"
    queues = ("clusterqueues/gke-all", "namespaces/chip-team/localqueues/chip-team")
    while not stop.wait(0.2):
        for path in (f"/apis/kueue.x-k8s.io/v1beta2/{queue}" for queue in queues):
            found = api.find(path)
            if found is not None and "conditions" not in found.get("status", {}):
                api.merge(f"{path}/status", {"status": {"conditions": [entry]}})


# tests/products/gke/gcloud/test_recorded.py shows that both send the same requests. The real one starts slowly.
@pytest.fixture(params=["stand-in", "gcloud"])
def cloud(request: pytest.FixtureRequest, control_plane: ControlPlane, tmp_path: Path) -> Iterator[Cloud]:
    if request.param == "gcloud" and not harness.has_gcloud():
        pytest.skip(harness.NO_GCLOUD)  # noqa: TID251 - the stand-in sends the same requests
    programs = tmp_path / "bin"
    programs.mkdir()
    home = tmp_path / "home"
    home.mkdir()
    kubectl = tool("kubectl")
    with Stub(World(project="demo-project")) as stub:
        env = harness.environment(stub, home, programs / "gcloud")
        admin = control_plane.kubeconfig_for("admin", ["system:masters"], context=CONTEXT)
        # The first line of the stand-in starts the python3 on the PATH. If pyenv installed it, this takes a second.
        standin = [sys.executable, "-IS", str(harness.STANDIN)]
        program = [shutil.which("gcloud")] if request.param == "gcloud" else standin
        for name, text in (
            ("kubectl", KUBECTL.format(python=sys.executable, kubectl=kubectl)),
            (
                "gcloud",
                GCLOUD.format(python=sys.executable, kubeconfig=admin, program=program),
            ),
        ):
            (programs / name).write_text(text, encoding="utf-8")
            (programs / name).chmod(stat.S_IRWXU)
        stop = threading.Event()
        kueue = threading.Thread(target=_kueue, args=(control_plane.api, stop))
        kueue.start()
        env |= {"PATH": f"{programs}{os.pathsep}{env['PATH']}", "SLIPWAY_HELM": str(tool("helm"))}
        yield Cloud(stub, env, tmp_path)
        stop.set()
        kueue.join()
        subprocess.run(
            [sys.executable, "-m", "launcher", "uninstall", "queues", "-n", "slipway", "--yes", "--context", CONTEXT],
            env=env | {"KUBECONFIG": str(admin)},
            check=False,
            capture_output=True,
        )
        for pool in ("gke-tpu-1", "gke-tpu-2"):
            control_plane.api.delete(f"/api/v1/nodes/{pool}")
        subprocess.run(
            [
                str(kubectl),
                "delete",
                "namespace",
                "kueue-system",
                "jobset-system",
                "slipway",
                "chip-team",
                # The next test must not find objects of a namespace that is still being deleted.
                *("--ignore-not-found", "--timeout=120s"),
            ],
            env=env | {"KUBECONFIG": str(admin)},
            check=False,
            capture_output=True,
        )


def _run_in(api: Api, pool: str, name: str) -> str:
    """Create a node of the pool with a pod of the run `name`, which no kubelet runs. Returns the path of the pod."""
    labels = {"cloud.google.com/gke-nodepool": pool}
    api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": pool, "labels": labels}})
    container = {"name": "a", "image": "a", "resources": {"limits": {"google.com/tpu": "4"}}}
    metadata = {"name": name, "namespace": "chip-team", "labels": {"slipway.dev/run": name}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    api.create({**pod, "spec": {"nodeName": pool, "containers": [container]}})
    return f"/api/v1/namespaces/chip-team/pods/{name}"


def test_kueue_has_its_configuration_and_image(cloud: Cloud, control_plane: ControlPlane) -> None:
    """Edits are kept, also when an upgrade applies the manifests of Kueue, which have its default configuration."""
    path = "/api/v1/namespaces/kueue-system/configmaps/kueue-manager-config"
    key, default = "controller_manager_config.yaml", "integrations:\n  frameworks: [batch/job]\n"

    def up(version: str, images: str = "", **config: Any) -> str:
        file = cloud.values(controllers={"kueue": version}, kueueConfig=config, controllerImages=images)
        code, _, err = cloud("up", "-f", str(file), "--yes")
        assert code == 0, err
        assert cloud.steps(file) == []
        return str(control_plane.api.get(path)["data"][key])

    wait: dict[str, Any] = {"waitForPodsReady": {"timeout": "2h"}}
    assert up("0.19.1", **wait) == f"# The default of 0.19.1.\n{default}waitForPodsReady:\n  timeout: 2h\n"
    deployment = "/apis/apps/v1/namespaces/kueue-system/deployments/kueue-controller-manager"
    read = control_plane.api.get(deployment)["spec"]["template"]["metadata"]["annotations"]
    edited = "# Ours.\nmetrics: {bindAddress: ':8443'}\nwaitForPodsReady: {timeout: 1h} # long\n"
    control_plane.api.merge(path, {"data": {key: edited}})
    assert up("0.19.1", **wait) == edited.replace("1h", "2h")
    assert control_plane.api.get(deployment)["spec"]["template"]["metadata"]["annotations"] != read
    assert up("0.19.2", **wait) == edited.replace("1h", "2h")
    assert up("0.19.1") == edited.replace("1h", "2h")
    for version in ("0.19.1", "0.19.2"):
        up(version, "mirror.example:5000/k8s")
        (container,) = control_plane.api.get(deployment)["spec"]["template"]["spec"]["containers"]
        assert container["image"] == f"mirror.example:5000/k8s/kueue/kueue:v{version}"


def test_from_an_empty_project_to_nothing(cloud: Cloud, control_plane: ControlPlane) -> None:
    def policy(bucket: str) -> Any:
        return cloud.stub.policies.get(f"b/{bucket}")

    file = str(cloud.values())
    code, out, err = cloud("plan", "-f", file)
    assert code == 0, err
    assert "+  cluster slipway" in out
    assert "+  bucket demo-bucket-chip-team" in out
    assert "If all slices run: $86.40 per hour." in out
    assert cloud.stub.changes() == []

    refused = cloud("up", "-f", file)
    assert (refused[0], cloud.stub.changes()) == (1, [])
    assert "To confirm it: --yes." in refused[2]
    code, out, err = cloud("up", "-f", file, "--yes")
    assert code == 0, err
    assert cloud.steps(Path(file)) == []
    code, out, err = cloud("status", "-f", file)
    assert code == 0, out
    assert "gke-tpu-2     RUNNING  ct6e-standard-4t  0 to 4" in out

    # Fewer slices while a run uses the second one. The queues change first, and then an idle pool is deleted.
    api = control_plane.api
    pods = [_run_in(api, "gke-tpu-1", "early"), _run_in(api, "gke-tpu-2", "late")]
    fewer = cloud.values(slices=1)
    assert cloud.steps(fewer) == ["queues"]
    code, out, err = cloud("plan", "-f", str(fewer))
    assert "= node pool gke-tpu-2 is kept: chip-team/late uses it; run up again when it has ended" in out
    api.delete(pods[0], grace=0)
    assert cloud.steps(fewer) == ["queues", "node pool gke-tpu-1"]
    code, out, err = cloud("up", "-f", str(fewer), "--yes")
    assert code == 0, err
    assert err.index("Changing queues") < err.index("Deleting node pool gke-tpu-1")
    assert cloud.steps(fewer) == []
    api.delete(pods[1], grace=0)
    code, out, err = cloud("up", "-f", str(cloud.values()), "--yes")
    assert code == 0, err

    # Fewer slices, one that always runs: a pool is deleted, another has nodes. A team is gone: its bucket is kept.
    former = f"demo-bucket-{commands.FORMER}"
    names = ["demo-bucket-chip-team", former]
    labels = {"slipway-cluster": "slipway", "slipway-team": commands.FORMER}
    cloud.stub.buckets.create({"name": former, "labels": labels})
    (members,) = (binding["members"] for binding in policy(names[0])["bindings"])
    others = [member.replace("chip-team", commands.FORMER) for member in members]
    cloud.stub.policies.set(f"b/{former}", {"bindings": [{"role": "roles/storage.objectUser", "members": others}]})
    _, out, _ = cloud("plan", "-f", file)
    assert f"-  role of team {commands.FORMER}  roles/storage.objectUser on gs://{former}" in out
    smaller = cloud.values(**commands.SMALLER)
    differences = cloud.doctor(smaller)
    assert {each["level"] for each in differences} == {"warning"}
    assert [each["subject"] for each in differences] == cloud.steps(smaller)
    assert "differs (create its nodes)." in [each["says"] for each in differences]
    assert cloud.steps(smaller) == [
        *("node pool gke-tpu-1", "node pool gke-tpu-1"),
        *(f"role of team {commands.FORMER}", "queues", "node pool gke-tpu-2"),
    ]
    code, out, err = cloud("up", "-f", str(smaller), "--yes")
    assert code == 0, err
    assert cloud.steps(smaller) == []
    assert [(each["level"], each["says"]) for each in cloud.doctor(smaller)] == [("ok", "is as in the values.")]

    code, out, err = cloud("down", "-f", str(smaller), "--yes")
    assert code == 0, err
    assert "Kept: the bucket demo-bucket-chip-team with its checkpoints" in err
    assert not any(binding["members"] for name in names for binding in policy(name).get("bindings", []))
    code, out, err = cloud("down", "-f", str(smaller), "--delete-bucket", "--yes")
    assert code == 0, err
    code, out, err = cloud("down", "-f", str(smaller), "--delete-bucket", "--yes")
    assert (code, err) == (0, "There is nothing to delete.\n")


def test_the_tutorial_from_an_empty_project_to_a_run_and_back(cloud: Cloud, control_plane: ControlPlane) -> None:
    """The commands of the page, in its order. The image cannot be pushed, and no machine trains the run."""
    shown = page(CHECKOUT / "docs/tutorial/3-gke.md")
    typed = []
    for block in shown.blocks:
        text = block.text.replace("my-project", "demo-project")
        if block.file:
            (cloud.folder / block.file).write_text(text, encoding="utf-8")
        elif block.language == "sh":
            typed += [shlex.split(line) for line in text.splitlines() if line.startswith("launcher ")]
    (cloud.folder / "image.yaml").write_text("image: {repository: example.invalid/trainer, tag: v1}\n")
    verbs = [" ".join(words[1:3] if words[1] == "cluster" else words[1:2]) for words in typed]
    assert verbs == [
        *("cluster plan", "cluster up", "doctor", "image", "submit", "list", "status", "logs", "explain"),
        *("cancel", "submit", "checkpoints", "export", "cluster up", "install", "status", "chat", "uninstall"),
        "cluster down",
    ]
    # The image cannot be pushed, no machine trains, and nothing is exported that could be served.
    skipped = {"image", "logs", "checkpoints", "export", "chat"}
    seen = {}
    rayjobs = "/apis/ray.io/v1/namespaces/research/rayjobs"
    with queues_of_their_own(control_plane), controllers(control_plane, "research"):
        for verb, words in zip(verbs, typed, strict=True):
            if verb in skipped or "llama-api" in words:
                continue
            more = {"submit": ["--detach"], "cluster up": ["--yes"], "cluster down": ["--yes"]}.get(verb, [])
            done = subprocess.run(
                [sys.executable, "-m", "launcher", *words[1:], *more],
                cwd=cloud.folder,
                env=cloud.env,
                stdin=subprocess.DEVNULL,
                timeout=300,
                capture_output=True,
                text=True,
                check=False,
            )
            seen[verb] = done.stdout + done.stderr
            # The API server's simulated nodes are not those of GKE, and no webhook is installed.
            assert done.returncode == (1 if verb == "doctor" else 0), seen[verb]
            if verb == "submit":
                [run] = control_plane.api.items(rayjobs)
                with contextlib.suppress(ApiError):  # the second submit is of the same run, which has a Workload
                    control_plane.api.create(queued_workload({**RAYJOB, **run}, "research"))
    assert "If all slices run: $43.20 per hour." in seen["cluster plan"]
    assert "The cluster slipway is ready." in seen["cluster up"]
    assert "llama" in seen["list"]
    assert "llama" in seen["explain"]
    assert cloud.stub.gke.clusters == {}


def _runs(group: int) -> bool:
    """Return whether a process of the group runs. A zombie does not: not every machine has an init that reaps it."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            state, _, its_group, *_ = file.read_text().rpartition(")")[2].split()
            if int(its_group) == group and state != "Z":
                return True
    return False


def test_up_that_is_killed_after_every_step_converges(cloud: Cloud) -> None:
    file = cloud.values(slices=1)
    kills = 0
    while True:
        process = cloud.start("up", "-f", str(file), "--yes")
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "] Done in" in line:
                process.send_signal(signal.SIGKILL)
                break
        process.communicate()
        while _runs(process.pid):  # the command of the next step may have begun; it ends by itself
            time.sleep(0.1)
        if not any("] Done in" in line for line in lines):
            assert process.returncode == 0, lines
            break
        kills += 1
        assert kills < 40
    assert kills > 6  # a command that had begun ends by itself, so a run may find two steps done
    assert cloud.steps(file) == []


def test_what_google_refuses_is_an_error_with_the_command(cloud: Cloud) -> None:
    file = str(cloud.values(location="us-east5-a"))
    code, out, _ = cloud("plan", "-f", file)
    assert code == 0
    assert "? not checked, whether the zone has these: machine type ct6e-standard-4t" in out
    assert "(the API compute.googleapis.com is not enabled)" in out
    code, _, err = cloud("up", "-f", file, "--yes")
    assert code == 1
    assert "The command was: gcloud container node-pools create gke-tpu-1" in err
    code, out, _ = cloud("plan", "-f", file)
    assert code == 1
    assert "! flavors.gke-tpu: the zone us-east5-a has no machine type ct6e-standard-4t" in out


def test_a_plan_on_a_narrow_terminal(cloud: Cloud) -> None:
    """Each step has its detail below it, and no line is cut between two words."""
    here = Launcher(cloud.folder, cloud.folder)
    file = str(cloud.values())
    code, output = on_terminal(here, "cluster", "plan", "-f", file, columns=40, env={**cloud.env, "NO_COLOR": "1"})
    assert code == 0, output
    lines = output.split("\r\n")
    first = lines.index("+  node pool gke-tpu-1")
    assert lines[first : first + 3] == [
        "+  node pool gke-tpu-1",
        "      4 x ct6e-standard-4t, topology",
        "      4x4, 0 or 4 nodes",
    ]
    *steps, note = lines[1 : lines.index("")]
    assert note.startswith("? not checked, ")  # a sentence, as those after the table
    assert all(line.startswith(("+  ", "~  ", "      ")) for line in steps)
    assert all(len(line) <= 40 or len(line.split()) == 1 for line in steps)


def test_a_foreign_cluster_is_not_deleted(cloud: Cloud) -> None:
    file = str(cloud.values())
    cloud.stub.gke.clusters["us-east5-b", "slipway"] = {
        **{"name": "slipway", "status": "RUNNING", "resourceLabels": {"team": "other"}, "nodePools": []},
        "currentMasterVersion": "1.36.3-gke.1519000",
    }
    code, _, err = cloud("down", "-f", file, "--yes")
    assert code == 0
    assert "Kept: the cluster slipway was not made by Slipway for the cluster slipway." in err
    code, out, _ = cloud("status", "-f", file)
    assert code == 1
    assert "slipway  RUNNING  1.36.3-gke.1519000" in out
    assert "! the cluster slipway has no Workload Identity" in out
