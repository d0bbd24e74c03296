"""install, uninstall and diff against a real API server, with both real Helms."""

from __future__ import annotations

import base64
import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from launcher.__main__ import run
from tests.charts.helm import dump_chart
from tests.charts.queues_cluster import cluster as stand_in
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import ControlPlane
from tests.tools import tool

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
# NAME is a namespace of the test's own, and names its objects, since those of Kueue have no namespace.
VALUES = """\
flavors:
  NAME-tpu: {accelerator: v6e, topology: 4x4}
  NAME-cpu: {accelerator: cpu}
clusterQueues:
  NAME: {quota: {NAME-tpu: {slices: 2}, NAME-cpu: {cpu: "64", memory: 256Gi}}}
teams:
  NAME: {clusterQueue: NAME, createNamespace: false}
priorities: {low: null, normal: null, high: null}
"""
MORE = """\
teams:
  NAME-b: {clusterQueue: NAME}
"""


@dataclass
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Bench:
    """The verbs in this process, with one Helm, for releases in the namespace `name`."""

    name: str
    api: Api
    folder: Path
    capture: pytest.CaptureFixture[str]

    def __call__(self, verb: str, *arguments: str) -> Said:
        code = run([verb, *arguments, "-n", self.name])
        return Said(code, *self.capture.readouterr())

    def install(self, *arguments: str) -> Said:
        return self("install", "queues", *arguments, *([] if "--timeout" in arguments else ["--timeout", "0"]))

    def write(self, text: str, name: str = "values.yaml") -> str:
        file = self.folder / name
        file.write_text(text.replace("NAME", self.name))
        return str(file)

    @property
    def queue(self) -> str:
        return f"{KUEUE}/clusterqueues/{self.name}"

    @property
    def local_queues(self) -> list[str]:
        found = self.api.items(f"{KUEUE}/localqueues")
        return sorted(obj["metadata"]["name"] for obj in found if obj["spec"]["clusterQueue"] == self.name)

    def chips(self) -> str:
        """The quota of chips in the cluster."""
        (group,) = [g for g in self.api.get(self.queue)["spec"]["resourceGroups"] if "google.com/tpu" in str(g)]
        flavor = next(flavor for flavor in group["flavors"] if flavor["name"].endswith("-tpu"))
        return str({r["name"]: r["nominalQuota"] for r in flavor["resources"]}["google.com/tpu"])

    def revisions(self) -> list[str]:
        """Status of each revision, oldest first."""
        found = self.api.items(f"/api/v1/namespaces/{self.name}/secrets?labelSelector=owner%3Dhelm")
        labels = [secret["metadata"]["labels"] for secret in found]
        return [entry["status"] for entry in sorted(labels, key=lambda entry: int(entry["version"]))]

    def stick(self, revision: int, status: str, minutes: float) -> None:
        """Leave a revision as a helm does that is killed, `minutes` ago."""
        path = f"/api/v1/namespaces/{self.name}/secrets/sh.helm.release.v1.queues.v{revision}"
        secret = self.api.get(path)
        packed = base64.b64decode(base64.b64decode(secret["data"]["release"]))
        release = json.loads(gzip.decompress(packed))
        then = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()
        release["info"] |= {"status": status, "last_deployed": then}
        data = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(release).encode()))).decode()
        self.api.merge(path, {"data": {"release": data}, "metadata": {"labels": {"status": status}}})


@pytest.fixture
def bench(
    helm: Path,
    cluster_config: str,
    api: Api,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[Bench]:
    monkeypatch.setenv("SLIPWAY_HELM", str(helm))
    made = Bench(cluster_config, api, tmp_path, capfd)
    yield made
    for letter in "bc":
        api.delete(f"/api/v1/namespaces/{made.name}-{letter}")
    for kind in ("clusterqueues", "resourceflavors"):
        for name in (made.name, f"{made.name}-tpu", f"{made.name}-cpu"):
            api.delete(f"{KUEUE}/{kind}/{name}")


@pytest.fixture
def bench4(request: pytest.FixtureRequest) -> Bench:
    """The same with Helm 4 alone, where Helm has little part in it."""
    request.getfixturevalue("monkeypatch").setenv("SLIPWAY_HELM", str(tool("helm")))
    names = ("cluster_config", "api", "tmp_path", "capfd")
    fixtures: list[Any] = [request.getfixturevalue(name) for name in names]
    return Bench(*fixtures)


def test_install_again_upgrade_and_uninstall(bench: Bench) -> None:
    file, more = bench.write(VALUES), bench.write(MORE, "more.yaml")
    dry = bench.install("-f", file, "--dry-run", "-o", "json")
    assert (dry.code, bench.revisions()) == (0, [])
    assert {change["action"] for change in dry.json["changes"]} == {"create"}

    said = bench.install("-f", file)
    assert said.code == 0
    lines = said.err.splitlines()
    assert lines[0] == f"queues (queues): cluster test, context admin, namespace {bench.name}"
    assert f"+ ClusterQueue {bench.name}" in lines
    assert lines[-1] == "The release queues is in place."
    assert (bench.chips(), bench.local_queues) == ("32", [bench.name])

    again = bench.install("-f", file)
    assert (again.code, bench.revisions()) == (0, ["deployed"])
    assert "as they are." in again.err

    # Somebody has changed a quota by hand, and labelled a queue; the first is the release's to say, the second not.
    spec = bench.api.get(bench.queue)["spec"]
    spec["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "7"
    bench.api.merge(bench.queue, {"spec": spec, "metadata": {"labels": {"example.com/note": "mine"}}})
    change = ["-f", file, "-f", more]
    shown = bench("diff", "queues", *change)
    assert shown.code == 0
    lines = shown.out.splitlines()
    (field,) = [line for line in lines if ": " in line]
    assert lines[lines.index(field) - 1] == f"~ ClusterQueue {bench.name}"
    assert field.startswith("    spec.resourceGroups[0].flavors[")
    assert ': "7" -> ' in field
    assert f"+ LocalQueue {bench.name}-b/{bench.name}-b" in lines
    assert bench.local_queues == [bench.name]
    upgraded = bench.install(*change)
    assert upgraded.code == 0
    assert "\n".join(lines) in upgraded.err
    assert (bench.chips(), bench.local_queues) == ("32", [bench.name, f"{bench.name}-b"])
    assert bench.api.get(bench.queue)["metadata"]["labels"]["example.com/note"] == "mine"
    assert (bench("diff", "queues", *change).out, bench.revisions()) == ("", ["superseded", "deployed"])

    fewer = bench("diff", "queues", "-f", file, "--set", f"clusterQueues.{bench.name}.quota.{bench.name}-tpu.slices=3")
    assert f"- LocalQueue {bench.name}-b/{bench.name}-b" in fewer.out.splitlines()
    assert "nominalQuota: 32 -> 48" in fewer.out

    refused = bench("uninstall", "queues")
    assert (refused.code, bench.revisions()[-1]) == (2, "deployed")
    gone = bench("uninstall", "queues", "-y", "-o", "json")
    assert (gone.code, gone.json["left"]) == (0, [])
    assert f"ClusterQueue {bench.name}" in gone.json["removed"]
    assert gone.json["kept"] == [f"Namespace {bench.name}-b"]
    assert (bench.revisions(), bench.local_queues, bench.api.find(bench.queue)) == ([], [], None)


@pytest.fixture
def policy(bench: Bench) -> Iterator[Callable[[], None]]:
    """Has the API server refuse the LocalQueues NAME-b and NAME-c, as late as when Helm makes it."""
    name, api = f"refuse-{bench.name}", bench.api
    base = "/apis/admissionregistration.k8s.io/v1"
    rule = {
        "apiGroups": ["kueue.x-k8s.io"],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["localqueues"],
    }
    refused = [f"{bench.name}-b", f"{bench.name}-c"]
    check = {"expression": f"request.dryRun || !(object.metadata.name in {refused})", "message": "not today"}
    spec = {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]}, "validations": [check]}
    binding = {"policyName": name, "validationActions": ["Deny"]}

    def make() -> None:
        head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
        api.request(
            "POST",
            f"{base}/validatingadmissionpolicies",
            {**head, "kind": "ValidatingAdmissionPolicy", "spec": spec},
        )
        api.request(
            "POST",
            f"{base}/validatingadmissionpolicybindings",
            {**head, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding},
        )
        probe = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "spec": {"clusterQueue": "probe"}}
        probe["metadata"] = {"name": f"{bench.name}-b", "namespace": bench.name}
        deadline = time.monotonic() + 20
        while True:  # a policy holds a moment after it is made
            try:
                api.create(probe)
            except ApiError as error:
                assert "not today" in str(error)
                return
            api.delete(f"{KUEUE}/namespaces/{bench.name}/localqueues/{bench.name}-b")
            assert time.monotonic() < deadline
            time.sleep(0.1)

    yield make
    api.delete(f"{base}/validatingadmissionpolicybindings/{name}")
    api.delete(f"{base}/validatingadmissionpolicies/{name}")


def test_what_is_refused_is_taken_back(bench: Bench, policy: Callable[[], None]) -> None:
    file, more = bench.write(VALUES), bench.write(MORE, "more.yaml")
    policy()
    first = bench.install("-f", file, "-f", more)
    assert first.code == 1
    said = f'Error: Helm failed: localqueues.kueue.x-k8s.io "{bench.name}-b": not today (from the policy refuse-'
    assert said in first.err
    assert "The objects that it created were removed again." in first.err or "Nothing was changed." in first.err
    assert (bench.revisions(), bench.api.find(bench.queue), bench.local_queues) == ([], None, [])
    space = bench.api.find(f"/api/v1/namespaces/{bench.name}-b")
    assert space is None or space["status"]["phase"] == "Terminating"  # it goes as well, a little later

    assert bench.install("-f", file).code == 0
    more_slices = ["--set", f"clusterQueues.{bench.name}.quota.{bench.name}-tpu.slices=5"]
    other = bench.write(MORE.replace("NAME-b", "NAME-c"), "other.yaml")
    upgrade = bench.install("-f", file, "-f", other, *more_slices)
    assert upgrade.code == 1
    assert said.replace(f'{bench.name}-b"', f'{bench.name}-c"') in upgrade.err
    assert "The release queues has its previous state (revision 3)." in upgrade.err
    assert (bench.chips(), bench.local_queues, bench.revisions()[-1]) == ("32", [bench.name], "deployed")
    assert bench("diff", "queues", "-f", file).out == ""


def test_a_flavor_s_fields_cannot_change(bench: Bench) -> None:
    file = bench.write(VALUES)
    assert bench.install("-f", file).code == 0
    said = bench.install("-f", file, "--set", f"flavors.{bench.name}-tpu.topology=8x8")
    assert said.code == 1
    assert said.err.startswith(f"Error: {file}:2: flavors.{bench.name}-tpu: nodeLabels of the ResourceFlavor")
    assert f"or set flavors.{bench.name}-tpu.versioned: true." in said.err
    assert bench.revisions() == ["deployed"]


def test_a_killed_helm(bench: Bench) -> None:
    file = bench.write(VALUES)
    slices = f"clusterQueues.{bench.name}.quota.{bench.name}-tpu.slices"
    assert bench.install("-f", file).code == 0

    # At its first install, of which a part is missing.
    bench.stick(1, "pending-install", minutes=1)
    bench.api.delete(f"{KUEUE}/namespaces/{bench.name}/localqueues/{bench.name}")
    busy = bench.install("-f", file)
    assert busy.code == 1
    assert "Error: The release queues is pending-install since 6" in busy.err
    assert "add --recover." in busy.err
    assert (bench.revisions(), bench.local_queues) == (["pending-install"], [])
    bench.stick(1, "pending-install", minutes=11)
    said = bench.install("-f", file, "--set", f"{slices}=3")
    assert said.code == 0
    assert "An earlier Helm process died while it changed this release (pending-install since" in said.err
    assert "what it began is completed first" in said.err
    assert (bench.chips(), bench.local_queues, bench.revisions()[-1]) == ("48", [bench.name], "deployed")

    # At an upgrade.
    last = len(bench.revisions())
    bench.stick(last - 1, "deployed", minutes=2)
    bench.stick(last, "pending-upgrade", minutes=1)
    assert "another helm is at work" in bench("uninstall", "queues", "-y").err
    said = bench.install("-f", file, "--set", f"{slices}=5", "--recover")
    assert said.code == 0
    assert f"revision {last - 1}, the last that was deployed, is brought back first." in said.err
    assert (bench.chips(), bench.revisions()[-1]) == ("80", "deployed")


def test_what_somebody_else_made(bench: Bench) -> None:
    file = bench.write(VALUES)
    flavor = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": f"{bench.name}-cpu"},
    }
    bench.api.create(flavor)
    said = bench.install("-f", file)
    assert said.code == 1
    assert f"ResourceFlavor {bench.name}-cpu is in the context admin already and was not made by a release" in said.err
    assert "create: false" in said.err
    assert (bench.revisions(), bench.api.find(bench.queue)) == ([], None)
    bench.api.delete(f"{KUEUE}/resourceflavors/{bench.name}-cpu")
    assert bench.install("-f", file).code == 0
    said = bench("install", "queues", "second", "-f", file)
    assert "is in the context admin already and belongs to the release queues; nothing was changed." in said.err
    assert len(bench.revisions()) == 1


# --- the rest has little of Helm in it ----------------------------------------------------------------------------


def test_queues_that_work_and_queues_that_do_not(bench4: Bench) -> None:
    file = bench4.write(VALUES)
    conditions = iter([("False", "References missing ResourceFlavor(s): x."), ("True", "Can admit new workloads")])

    def kueue() -> None:
        """Says what Kueue says of queues; that one cannot be had here."""
        status, message = next(conditions)
        entry = {"type": "Active", "status": status, "reason": "Ready", "message": message}
        entry["lastTransitionTime"] = "2026-11-01T00:00:00Z"
        paths = (bench4.queue, f"{KUEUE}/namespaces/{bench4.name}/localqueues/{bench4.name}")
        deadline = time.monotonic() + 20
        for path in paths:
            while bench4.api.find(path) is None and time.monotonic() < deadline:
                time.sleep(0.1)
            bench4.api.merge(f"{path}/status", {"status": {"conditions": [entry]}})

    for code, timeout in ((1, "2.5s"), (0, "20s")):
        beside = threading.Thread(target=kueue)
        beside.start()
        said = bench4.install("-f", file, "--timeout", timeout)
        beside.join()
        assert said.code == code, said.err
        if code:
            assert f"ClusterQueue {bench4.name} is not active: References missing ResourceFlavor(s): x.\n" in said.err
            assert "Waiting: ClusterQueue" in said.err
            assert "is in place, and does not work yet" in said.err
        else:
            assert said.err.endswith("The release queues is ready.\n")


def test_queues_with_runs_stay(bench4: Bench) -> None:
    assert bench4.install("-f", bench4.write(VALUES)).code == 0
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "one", "namespace": bench4.name},
        "spec": {
            "queueName": bench4.name,
            "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "a"}]}}}],
        },
    }
    bench4.api.create(workload)
    said = bench4("uninstall", "queues", "-y")
    assert said.code == 1
    assert f"Error: Runs wait or run in the queues of queues: {bench4.name}/one; nothing was changed." in said.err
    assert bench4.revisions() == ["deployed"]
    # One that was cancelled needs no queue any more.
    one = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{bench4.name}/workloads/one"
    bench4.api.merge(one, {"spec": {"active": False}})
    said = bench4("uninstall", "queues", "--dry-run")
    assert (said.code, "! " in said.err) == (0, False)
    bench4.api.merge(one, {"spec": {"active": True}})
    assert bench4("uninstall", "queues", "-y", "--force").code == 0
    assert bench4.revisions() == []


def test_a_release_that_is_not_slipway_s(bench4: Bench, helm4: Path) -> None:
    chart = dump_chart(bench4.folder / "chart")
    (chart / "templates" / "values.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: theirs}\n")
    command = [str(helm4), "install", "theirs", str(chart), "-n", bench4.name]
    subprocess.run(command, check=True, capture_output=True)
    said = bench4("uninstall", "theirs", "-y")
    assert said.code == 1
    assert "was made from the chart dump-0.1.0, which is none of Slipway's; nothing was changed." in said.err
    assert bench4.api.find(f"/api/v1/namespaces/{bench4.name}/configmaps/theirs")
    said = bench4("install", "queues", "theirs", "-f", bench4.write(VALUES))
    assert "is of the chart dump-0.1.0, not of queues; nothing was changed." in said.err
    said = bench4("uninstall", "their", "-y")
    assert 'Error: There is no release "their" in the cluster test' in said.err


CLUSTER = """\
run: {cluster: ours}
team: {name: NAME}
slice: {accelerator: v6e, topology: 4x4}
image: {repository: registry.example.com/slipway, tag: "1"}
storage: {kind: gcsfuse, bucket: our-bucket}
"""


def test_a_ray_cluster(bench4: Bench) -> None:
    file = bench4.write(CLUSTER)
    path = f"/apis/ray.io/v1/namespaces/{bench4.name}/rayclusters/ours"

    def kuberay() -> None:
        """Says what KubeRay says of a cluster."""
        deadline = time.monotonic() + 20
        while bench4.api.find(path) is None and time.monotonic() < deadline:
            time.sleep(0.1)
        when = {"lastTransitionTime": "2026-11-01T00:00:00Z", "reason": "R", "message": ""}
        both = [{"type": kind, "status": "True", **when} for kind in ("HeadPodReady", "RayClusterProvisioned")]
        bench4.api.merge(f"{path}/status", {"status": {"conditions": both}})

    beside = threading.Thread(target=kuberay)
    beside.start()
    said = bench4("install", "ray-cluster", "-f", file, "--timeout", "20s", "-o", "json")
    beside.join()
    assert (said.code, said.json["release"], said.json["notReady"]) == (0, "ours", [])
    assert said.err.startswith(f"ours (ray-cluster): cluster test, context admin, namespace {bench4.name}\n")
    said = bench4("diff", "ray-cluster", "-f", file, "--set", "slice.count=2")
    assert "    spec.workerGroupSpecs[slice].replicas: 1 -> 2" in said.out.splitlines()
    said = bench4("uninstall", "ours", "-y")
    assert (said.code, bench4.api.find(path)) == (0, None)
    # It has no head that could be asked; that is no reason to keep it.
    assert "? Whether jobs go on in the Ray cluster ours could not be seen: " in said.err


POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "ours-head", "labels": {"ray.io/cluster": "ours"}},
    # On no node, and for a scheduler that is none: only the test says what becomes of it.
    "spec": {"schedulerName": "nobody", "containers": [{"name": "ray-head", "image": "example.invalid/x:1"}]},
}
WHEN = {"lastTransitionTime": "2026-11-01T00:00:00Z", "reason": "R"}
FULL = "0/3 nodes are available: 3 Insufficient google.com/tpu."
PULL = {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}


def test_why_a_ray_cluster_is_not_ready(bench4: Bench) -> None:
    from launcher.k8s.client import connect
    from launcher.releases import readiness

    head = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "ours", "namespace": bench4.name}}
    container = {"containers": [{"name": "ray-head", "image": "example.invalid/x:1"}]}
    head["spec"] = {"headGroupSpec": {"rayStartParams": {}, "template": {"spec": container}}}
    cluster = connect(None, bench4.name)
    path = f"/apis/ray.io/v1/namespaces/{bench4.name}/rayclusters/ours"
    pod = f"/api/v1/namespaces/{bench4.name}/pods/ours-head"

    def says() -> str:
        (sentence,) = readiness.not_ready(cluster, [head])
        return sentence

    assert says() == "The RayCluster of the release is gone."
    bench4.api.create(head)
    assert says() == "RayCluster ours: KubeRay has not looked at it yet."
    bench4.api.merge(path, {"spec": {"suspend": True}, "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "ml"}}})
    assert says() == "RayCluster ours waits in the queue ml for its chips."
    bench4.api.merge(path, {"spec": {"suspend": False}})
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: x", **WHEN}
    bench4.api.merge(f"{path}/status", {"status": {"conditions": [failure]}})
    assert says() == "RayCluster ours: its pods cannot be made: exceeded quota: x."
    bench4.api.merge(f"{path}/status", {"status": {"conditions": [{**failure, "status": "False"}]}})
    assert says() == "RayCluster ours: KubeRay has 0 pods, and does not call it provisioned yet."
    bench4.api.create({**POD, "metadata": {**POD["metadata"], "namespace": bench4.name}})
    for status, why in (
        ({"conditions": [{"type": "PodScheduled", "status": "False", "message": FULL, **WHEN}]}, FULL),
        ({"containerStatuses": [waiting(PULL)]}, "ImagePullBackOff: Back-off pulling image."),
    ):
        bench4.api.merge(f"{pod}/status", {"status": status})
        assert says() == f"RayCluster ours: 0 of 1 pods are ready; ours-head: {why}"


def waiting(state: dict[str, str]) -> dict[str, Any]:
    known = {"name": "ray-head", "image": "x", "imageID": "", "ready": False, "restartCount": 0}
    return {**known, "state": {"waiting": state}}


def test_diff_of_a_run(bench4: Bench) -> None:
    file = bench4.write(CLUSTER + "train: {model_name: llama3-8b, steps: 5, dataset_type: synthetic}\n")
    arguments = ["-f", file, "--name", "demo", "--set", "run.kind=ray-job"]
    said = bench4("diff", *arguments)
    assert (said.code, said.out) == (0, f"+ RayJob {bench4.name}/demo\n")
    run(["render", *arguments, "-o", "json"])
    bench4.api.create(json.loads(bench4.capture.readouterr().out))
    assert bench4("diff", *arguments).out == ""
    said = bench4("diff", *arguments, "--set", "train.steps=6")
    assert (said.code, said.out) == (0, f"~ RayJob {bench4.name}/demo\n    train.steps: 5 -> 6\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "flavor.x=1"], "Error: --set 1: there is no key flavor; did you mean flavors?"),
        (["--set", "teams.a.clusterQueue=b"], "Error: --set 1: teams.a.clusterQueue"),
        (["--context", "admit"], 'has no context "admit"; did you mean "admin"?'),
    ],
)
def test_bad_values_and_places(bench4: Bench, arguments: list[str], message: str) -> None:
    said = bench4.install("-f", bench4.write(VALUES), *arguments)
    assert (said.code, said.out) == (1, "")
    assert message in said.err
    assert bench4.revisions() == []


def test_what_users_may_not_do(bench4: Bench, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    user = control_plane.kubeconfig_for("alice", ["research"], namespace=bench4.name)
    monkeypatch.setenv("KUBECONFIG", str(user))
    said = bench4.install("-f", bench4.write(VALUES))
    assert said.code == 1
    assert f"You (alice) may not list secrets in the namespace {bench4.name}" in said.err
    assert "kind: Role\n" in said.err
    assert "Traceback" not in said.err


def test_helm_would_go_elsewhere(bench4: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELM_KUBEAPISERVER", "https://example.invalid")
    said = bench4.install("-f", bench4.write(VALUES))
    assert said.code == 1
    assert said.err.startswith("Error: HELM_KUBEAPISERVER is set, so Helm would use another API server")


def test_no_api_server_and_no_kueue(bench4: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = bench4.write(VALUES)
    with stand_in([], tmp_path, kueue=False) as kubeconfig:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        said = bench4.install("-f", file)
        assert (said.code, said.out) == (1, "")
        assert "does not serve kueue.x-k8s.io/v1beta2; charts/queues needs Kueue 0.16 to 0.19; nothing" in said.err
    said = bench4.install("-f", file)  # and now it is gone
    assert said.code == 1
    assert "does not answer: connection refused." in said.err


def test_ctrl_c(bench4: Bench) -> None:
    file = bench4.write(VALUES)
    command = [sys.executable, "-m", "launcher", "install", "queues", "-f", file, "-n", bench4.name, "--timeout", "60s"]
    for until, left in (("Installing", "Interrupted. "), ("Waiting", "The release queues is in place; ")):
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
            assert process.stderr is not None
            next(line for line in process.stderr if line.startswith(until))
            os.killpg(process.pid, signal.SIGINT)  # as the terminal does: Helm gets it too
            said = process.stderr.read()
        assert (process.returncode, left in said) == (130, True), said
        assert not any(status.startswith("pending") for status in bench4.revisions())
    assert bench4.revisions() == ["deployed"]
