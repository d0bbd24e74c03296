"""install, uninstall and diff with a real API server, with Helm 3 and Helm 4."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import shutil
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
import yaml

from launcher.__main__ import run
from launcher.paths import charts_dir
from tests.charts.helm import dump_chart
from tests.charts.queues_cluster import cluster as fake_api_server
from tests.cli.conftest import Result
from tests.cluster.api import Api, ApiError
from tests.cluster.control_plane import ControlPlane, remove_namespace
from tests.tools import tool

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
# NAME is the namespace of a test. It is also in the names of its objects, because those of Kueue are cluster-scoped.
VALUES = """\
flavors:
  NAME-tpu: {accelerator: v6e, topology: 4x4}
  NAME-cpu: {accelerator: cpu}
clusterQueues:
  NAME: {quota: {NAME-tpu: {slices: 2}, NAME-cpu: {cpu: "64", memory: 256Gi}}}
teams:
  NAME: {clusterQueue: NAME, createNamespace: false}
priorities: {low: null, normal: null, high: null}
# The releases of all tests are called queues, and the policy has the name of the release.
policies: {runs: false}
"""
MORE = """\
teams:
  NAME-b: {clusterQueue: NAME}
"""


@dataclass
class ReleaseCli:
    """Runs the launcher's verbs in this process, with one Helm, for releases in the namespace `name`."""

    name: str
    api: Api
    folder: Path
    capture: pytest.CaptureFixture[str]

    def __call__(self, verb: str, *arguments: str) -> Result:
        code = run([verb, *arguments, "-n", self.name])
        return Result(code, *self.capture.readouterr())

    def install(self, *arguments: str) -> Result:
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
        """The quota of chips in the ClusterQueue."""
        (group,) = [g for g in self.api.get(self.queue)["spec"]["resourceGroups"] if "google.com/tpu" in str(g)]
        flavor = next(flavor for flavor in group["flavors"] if flavor["name"].endswith("-tpu"))
        return str({r["name"]: r["nominalQuota"] for r in flavor["resources"]}["google.com/tpu"])

    def revisions(self) -> list[str]:
        """The status of each revision, oldest first."""
        found = self.api.items(f"/api/v1/namespaces/{self.name}/secrets?labelSelector=owner%3Dhelm")
        labels = [secret["metadata"]["labels"] for secret in found]
        return [entry["status"] for entry in sorted(labels, key=lambda entry: int(entry["version"]))]

    def set_status(self, revision: int, status: str, minutes: float) -> None:
        """Set the status of a revision and its time (`minutes` ago), as a killed Helm process leaves it."""
        path = f"/api/v1/namespaces/{self.name}/secrets/sh.helm.release.v1.queues.v{revision}"
        secret = self.api.get(path)
        packed = base64.b64decode(base64.b64decode(secret["data"]["release"]))
        release = json.loads(gzip.decompress(packed))
        then = (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()
        release["info"] |= {"status": status, "last_deployed": then}
        data = base64.b64encode(base64.b64encode(gzip.compress(json.dumps(release).encode()))).decode()
        self.api.merge(path, {"data": {"release": data}, "metadata": {"labels": {"status": status}}})


@pytest.fixture
def cli(
    helm: Path,
    cluster_config: str,
    api: Api,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[ReleaseCli]:
    monkeypatch.setenv("SLIPWAY_HELM", str(helm))
    made = ReleaseCli(cluster_config, api, tmp_path, capfd)
    yield made
    for letter in "bc":
        remove_namespace(api, f"{made.name}-{letter}")
    for kind in ("clusterqueues", "resourceflavors"):
        for name in (made.name, f"{made.name}-tpu", f"{made.name}-cpu"):
            api.delete(f"{KUEUE}/{kind}/{name}")


@pytest.fixture
def cli4(request: pytest.FixtureRequest) -> ReleaseCli:
    """The same with Helm 4 only, for tests in which the version of Helm makes no difference."""
    request.getfixturevalue("monkeypatch").setenv("SLIPWAY_HELM", str(tool("helm")))
    names = ("cluster_config", "api", "tmp_path", "capfd")
    fixtures: list[Any] = [request.getfixturevalue(name) for name in names]
    return ReleaseCli(*fixtures)


def test_install_again_upgrade_and_uninstall(cli: ReleaseCli) -> None:
    file, more = cli.write(VALUES), cli.write(MORE, "more.yaml")
    dry = cli.install("-f", file, "--dry-run", "-o", "json")
    assert (dry.code, cli.revisions()) == (0, [])
    assert {change["action"] for change in dry.json["changes"]} == {"create"}

    done = cli.install("-f", file)
    assert done.code == 0
    lines = done.err.splitlines()
    assert lines[0] == f"queues (queues): cluster test, context admin, namespace {cli.name}"
    assert f"+ ClusterQueue {cli.name}" in lines
    assert lines[-1] == "The release queues is installed."
    assert (cli.chips(), cli.local_queues) == ("32", [cli.name])

    again = cli.install("-f", file)
    assert (again.code, cli.revisions()) == (0, ["deployed"])
    assert "unchanged." in again.err

    # A user changed a quota and labelled a queue by hand. The release sets the quota, but not the label.
    spec = cli.api.get(cli.queue)["spec"]
    spec["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "7"
    cli.api.merge(cli.queue, {"spec": spec, "metadata": {"labels": {"example.com/note": "mine"}}})
    change = ["-f", file, "-f", more]
    shown = cli("diff", "queues", *change)
    assert shown.code == 0
    lines = shown.out.splitlines()
    (field,) = [line for line in lines if ": " in line]
    assert lines[lines.index(field) - 1] == f"~ ClusterQueue {cli.name}"
    assert field.startswith("    spec.resourceGroups[0].flavors[")
    assert ': "7" -> ' in field
    assert f"+ LocalQueue {cli.name}-b/{cli.name}-b" in lines
    assert cli.local_queues == [cli.name]
    upgraded = cli.install(*change)
    assert upgraded.code == 0
    assert "\n".join(lines) in upgraded.err
    assert (cli.chips(), cli.local_queues) == ("32", [cli.name, f"{cli.name}-b"])
    assert cli.api.get(cli.queue)["metadata"]["labels"]["example.com/note"] == "mine"
    assert (cli("diff", "queues", *change).out, cli.revisions()) == ("", ["superseded", "deployed"])

    fewer = cli("diff", "queues", "-f", file, "--set", f"clusterQueues.{cli.name}.quota.{cli.name}-tpu.slices=3")
    assert f"- LocalQueue {cli.name}-b/{cli.name}-b" in fewer.out.splitlines()
    assert 'nominalQuota: "32" -> "48"' in fewer.out

    refused = cli("uninstall", "queues")
    assert (refused.code, cli.revisions()[-1]) == (2, "deployed")
    gone = cli("uninstall", "queues", "-y", "-o", "json")
    assert (gone.code, gone.json["left"]) == (0, [])
    assert f"ClusterQueue {cli.name}" in gone.json["removed"]
    assert gone.json["kept"] == [f"Namespace {cli.name}-b"]
    assert (cli.revisions(), cli.local_queues, cli.api.find(cli.queue)) == ([], [], None)


@pytest.fixture
def policy(cli: ReleaseCli) -> Iterator[Callable[[], None]]:
    """A function that makes the API server reject the LocalQueues NAME-b and NAME-c, but not in a dry run."""
    name, api = f"refuse-{cli.name}", cli.api
    base = "/apis/admissionregistration.k8s.io/v1"
    rule = {
        "apiGroups": ["kueue.x-k8s.io"],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["localqueues"],
    }
    refused = [f"{cli.name}-b", f"{cli.name}-c"]
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
        probe["metadata"] = {"name": f"{cli.name}-b", "namespace": cli.name}
        deadline = time.monotonic() + 20
        while True:  # a policy takes effect with a delay
            try:
                api.create(probe)
            except ApiError as error:
                assert "not today" in str(error)
                return
            api.delete(f"{KUEUE}/namespaces/{cli.name}/localqueues/{cli.name}-b")
            assert time.monotonic() < deadline
            time.sleep(0.1)

    yield make
    api.delete(f"{base}/validatingadmissionpolicybindings/{name}")
    api.delete(f"{base}/validatingadmissionpolicies/{name}")


def test_a_refused_change_is_rolled_back(cli: ReleaseCli, policy: Callable[[], None]) -> None:
    file, more = cli.write(VALUES), cli.write(MORE, "more.yaml")
    policy()
    first = cli.install("-f", file, "-f", more)
    assert first.code == 1
    error = f'Error: Helm failed: localqueues.kueue.x-k8s.io "{cli.name}-b": not today (from the policy refuse-'
    assert error in first.err
    assert "The objects that it created were removed again." in first.err or "Nothing was changed." in first.err
    assert (cli.revisions(), cli.api.find(cli.queue), cli.local_queues) == ([], None, [])
    space = cli.api.find(f"/api/v1/namespaces/{cli.name}-b")
    assert space is None or space["status"]["phase"] == "Terminating"  # it is deleted, too, with a delay

    assert cli.install("-f", file).code == 0
    more_slices = ["--set", f"clusterQueues.{cli.name}.quota.{cli.name}-tpu.slices=5"]
    other = cli.write(MORE.replace("NAME-b", "NAME-c"), "other.yaml")
    upgrade = cli.install("-f", file, "-f", other, *more_slices)
    assert upgrade.code == 1
    assert error.replace(f'{cli.name}-b"', f'{cli.name}-c"') in upgrade.err
    assert "The release queues has its previous state (revision 3)." in upgrade.err
    assert (cli.chips(), cli.local_queues, cli.revisions()[-1]) == ("32", [cli.name], "deployed")
    assert cli("diff", "queues", "-f", file).out == ""


def test_fields_of_a_flavor_cannot_change(cli: ReleaseCli) -> None:
    file = cli.write(VALUES)
    assert cli.install("-f", file).code == 0
    done = cli.install("-f", file, "--set", f"flavors.{cli.name}-tpu.topology=8x8")
    assert done.code == 1
    assert done.err.startswith(f"Error: {file}:2: flavors.{cli.name}-tpu: nodeLabels of the ResourceFlavor")
    assert f"or set flavors.{cli.name}-tpu.versioned: true." in done.err
    assert cli.revisions() == ["deployed"]


def test_a_killed_helm(cli: ReleaseCli) -> None:
    file = cli.write(VALUES)
    slices = f"clusterQueues.{cli.name}.quota.{cli.name}-tpu.slices"
    assert cli.install("-f", file).code == 0

    # Killed during the first install: an object is missing.
    cli.set_status(1, "pending-install", minutes=1)
    cli.api.delete(f"{KUEUE}/namespaces/{cli.name}/localqueues/{cli.name}")
    busy = cli.install("-f", file)
    assert busy.code == 1
    assert "Error: The release queues has been pending-install for 6" in busy.err
    assert "add --recover." in busy.err
    assert (cli.revisions(), cli.local_queues) == (["pending-install"], [])
    cli.set_status(1, "pending-install", minutes=11)
    done = cli.install("-f", file, "--set", f"{slices}=3")
    assert done.code == 0
    assert "An earlier Helm process died while it changed this release (pending-install since" in done.err
    assert "its objects are completed first" in done.err
    assert (cli.chips(), cli.local_queues, cli.revisions()[-1]) == ("48", [cli.name], "deployed")

    # Killed during an upgrade.
    last = len(cli.revisions())
    cli.set_status(last - 1, "deployed", minutes=2)
    cli.set_status(last, "pending-upgrade", minutes=1)
    assert "another Helm process is changing it" in cli("uninstall", "queues", "-y").err
    done = cli.install("-f", file, "--set", f"{slices}=5", "--recover")
    assert done.code == 0
    assert f"revision {last - 1}, the last deployed one, is restored first." in done.err
    assert (cli.chips(), cli.revisions()[-1]) == ("80", "deployed")


def test_objects_of_another_owner(cli: ReleaseCli) -> None:
    file = cli.write(VALUES)
    flavor = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": f"{cli.name}-cpu"},
    }
    cli.api.create(flavor)
    done = cli.install("-f", file)
    assert done.code == 1
    assert (
        f"ResourceFlavor {cli.name}-cpu already exists in the context admin and was not created by a Helm release"
        in done.err
    )
    assert "create: false" in done.err
    assert (cli.revisions(), cli.api.find(cli.queue)) == ([], None)
    cli.api.delete(f"{KUEUE}/resourceflavors/{cli.name}-cpu")
    assert cli.install("-f", file).code == 0
    done = cli("install", "queues", "second", "-f", file)
    assert (
        f"Error: {file}:7: teams.{cli.name}.namespace: the namespace {cli.name} belongs to the team {cli.name} of the "
        f"release queues in the namespace {cli.name}; choose another namespace.\n"
    ) in done.err
    done = cli("install", "queues", "second", "-f", file, "--set", f"teams.{cli.name}=null")
    assert "already exists in the context admin and belongs to the release queues; nothing was changed." in done.err
    assert len(cli.revisions()) == 1


# --- tests in which the version of Helm makes no difference -------------------------------------------------------


def test_queues_that_work_and_queues_that_do_not(cli4: ReleaseCli) -> None:
    file = cli4.write(VALUES)
    conditions = iter([("False", "References missing ResourceFlavor(s): x."), ("True", "Can admit new workloads")])

    def kueue() -> None:
        """Writes the conditions of queues as Kueue does, which is not available here."""
        status, message = next(conditions)
        entry = {"type": "Active", "status": status, "reason": "Ready", "message": message}
        entry["lastTransitionTime"] = "2026-11-01T00:00:00Z"
        paths = (cli4.queue, f"{KUEUE}/namespaces/{cli4.name}/localqueues/{cli4.name}")
        deadline = time.monotonic() + 20
        for path in paths:
            while cli4.api.find(path) is None and time.monotonic() < deadline:
                time.sleep(0.1)
            cli4.api.merge(f"{path}/status", {"status": {"conditions": [entry]}})

    for code, timeout in ((1, "2.5s"), (0, "20s")):
        controller = threading.Thread(target=kueue)
        controller.start()
        done = cli4.install("-f", file, "--timeout", timeout)
        controller.join()
        assert done.code == code, done.err
        if code:
            assert f"ClusterQueue {cli4.name} is not active: References missing ResourceFlavor(s): x.\n" in done.err
            assert "Waiting: ClusterQueue" in done.err
            assert "is installed, but not ready yet" in done.err
        else:
            assert done.err.endswith("The release queues is ready.\n")


def test_a_namespace_that_does_not_exist_is_reported_before_the_changes(cli4: ReleaseCli) -> None:
    file = cli4.write(VALUES.replace("createNamespace: false", "namespace: NAME"))
    for options in ([], ["--dry-run"]):
        code = run(["install", "queues", "-f", file, "-n", f"{cli4.name}-none", *options])
        err = cli4.capture.readouterr().err
        assert code == 1
        assert err.splitlines() == [
            f"Error: The namespace {cli4.name}-none does not exist in the context admin; nothing was changed.",
            f"Hint: kubectl create namespace {cli4.name}-none, or choose another with -n.",
        ]


def test_queues_with_runs_are_not_uninstalled(cli4: ReleaseCli) -> None:
    assert cli4.install("-f", cli4.write(VALUES)).code == 0
    cli4.api.create(workload("one", cli4.name, cli4.name))
    done = cli4("uninstall", "queues", "-y")
    assert done.code == 1
    assert f"Error: Runs use the queues of queues: {cli4.name}/one; nothing was changed." in done.err
    assert cli4.revisions() == ["deployed"]
    # A cancelled run does not need its queue.
    one = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{cli4.name}/workloads/one"
    cli4.api.merge(one, {"spec": {"active": False}})
    done = cli4("uninstall", "queues", "--dry-run")
    assert (done.code, "! " in done.err) == (0, False)
    cli4.api.merge(one, {"spec": {"active": True}})
    assert cli4("uninstall", "queues", "-y", "--force").code == 0
    assert cli4.revisions() == []


def workload(name: str, namespace: str, queue: str) -> dict[str, Any]:
    container = {"name": "a", "resources": {"requests": {"google.com/tpu": "16"}}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "queueName": queue,
            "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}],
        },
    }


def test_a_team_with_runs_is_not_removed(cli4: ReleaseCli) -> None:
    file, more = cli4.write(VALUES), cli4.write(MORE, "more.yaml")
    other, removed = f"{cli4.name}-b", cli4.write("teams: {NAME-b: null}", "removed.yaml")
    assert cli4.install("-f", file, "-f", more).code == 0
    cli4.api.create(workload("one", other, other))
    change = ["-f", file, "-f", more, "-f", removed]
    shown = [f"= Namespace {other} is kept, with everything in it", f"! {other}/one: its queue {other} is removed"]
    diff = cli4("diff", "queues", *change)
    assert (diff.code, [line for line in diff.err.splitlines() if line in shown]) == (0, shown)
    refused = cli4.install(*change, "-y")
    assert refused.code == 1
    assert f"Error: Runs use what this change removes: {other}/one; nothing was changed.\n" in refused.err
    assert cli4.revisions() == ["deployed"]

    # Without its queue, the team cannot start runs, and its pods keep their restrictions until they end.
    policy = f"/apis/networking.k8s.io/v1/namespaces/{other}/networkpolicies/{other}"
    before = cli4.api.get(policy)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "host", "namespace": other}}
    cli4.api.create({**pod, "spec": {"containers": [{"name": "a", "image": "a"}]}})
    forced = cli4.install(*change, "--force", "-o", "json")
    assert (forced.code, forced.json["neededBy"]) == (0, [f"{other}/one"])
    assert cli4.local_queues == [cli4.name]
    assert cli4.api.get(policy)["spec"] == before["spec"]
    assert cli4.api.find(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{other}/roles/{other}-member") is None
    cli4.api.delete(f"/api/v1/namespaces/{other}/pods/host", grace=0)
    assert cli4.install(*change).code == 0
    assert cli4.api.find(policy) is None


def test_a_flavor_that_runs_hold_is_counted_until_they_end(cli4: ReleaseCli) -> None:
    file, tpu = cli4.write(VALUES), f"{cli4.name}-tpu"
    assert cli4.install("-f", file).code == 0
    cli4.api.create(workload("two", cli4.name, cli4.name))
    # Kueue writes this status. It is not available here.
    now = "2026-11-01T00:00:00Z"
    reserved = {"type": "QuotaReserved", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": now}
    usage = {"name": "main", "count": 1, "flavors": {"google.com/tpu": tpu}, "resourceUsage": {"google.com/tpu": "16"}}
    admission = {"clusterQueue": cli4.name, "podSetAssignments": [usage]}
    two = f"{KUEUE}/namespaces/{cli4.name}/workloads/two"
    cli4.api.merge(f"{two}/status", {"status": {"admission": admission, "conditions": [reserved]}})

    def held(chips: str) -> None:
        entry = {"name": tpu, "resources": [{"name": "google.com/tpu", "total": chips, "borrowed": "0"}]}
        cli4.api.merge(f"{cli4.queue}/status", {"status": {"flavorsReservation": [entry], "flavorsUsage": [entry]}})

    def flavors() -> list[str]:
        return [
            flavor["name"]
            for group in cli4.api.get(cli4.queue)["spec"]["resourceGroups"]
            for flavor in group["flavors"]
        ]

    held("16")
    versioned = ["-f", file, "--set", f"flavors.{tpu}.versioned=true", "--set", f"flavors.{tpu}.nodeLabels.a=b"]
    done = cli4.install(*versioned)
    assert done.code == 0, done.err
    assert f"! {cli4.name}/two: it holds the flavor {tpu}, which stays with quota 0 until it ends" in done.err
    assert "hold the queues until then: clusterQueues.NAME.stopPolicy: Hold." in done.err
    assert (tpu in flavors(), cli4.chips()) == (True, "0")
    assert cli4.api.get(f"{KUEUE}/resourceflavors/{tpu}")["metadata"]["labels"]["slipway.dev/retired"] == "true"
    assert "unchanged." in cli4.install(*versioned).err

    # If the queue cannot keep the flavor, no quota would count the run. Here, Kueue has not yet counted it.
    held("0")
    refused = cli4.install(*versioned)
    assert refused.code == 1
    assert f"! {cli4.name}/two: the ClusterQueue {cli4.name} no longer counts its flavor {tpu}\n" in refused.err
    cli4.api.delete(two)
    assert cli4.install(*versioned).code == 0
    assert (tpu in flavors(), cli4.api.find(f"{KUEUE}/resourceflavors/{tpu}")) == (False, None)
    assert cli4("uninstall", "queues", "-y").code == 0


def old_queues_chart(folder: Path) -> Path:
    """Return a copy of charts/queues with the names that the charts had up to 0.4.0."""
    chart = folder / "old"
    shutil.copytree(charts_dir() / "queues", chart)
    for file in (chart / "Chart.yaml", chart / "charts" / "slipway-common" / "Chart.yaml"):
        text = re.sub(r"slipway-(queues|common)\n( +alias: common\n)?", r"\1\n", file.read_text())
        file.write_text(text.replace(f"version: {version_of_queues()}\n", "version: 0.4.0\n"))
    return chart


def version_of_queues() -> str:
    return str(yaml.safe_load((charts_dir() / "queues" / "Chart.yaml").read_text())["version"])


def test_a_release_with_the_charts_old_name_is_upgraded(cli: ReleaseCli, tmp_path: Path) -> None:
    file, helm = cli.write(VALUES), os.environ["SLIPWAY_HELM"]
    command = [helm, "install", "queues", str(old_queues_chart(tmp_path)), "-n", cli.name, "-f", file]
    subprocess.run(command, check=True, capture_output=True)
    before = cli.api.get(cli.queue)
    assert before["metadata"]["labels"]["helm.sh/chart"] == "queues-0.4.0"

    change = f'"helm.sh/chart": "queues-0.4.0" -> "slipway-queues-{version_of_queues()}"'
    assert change in cli("diff", "queues", "-f", file).out
    upgraded = cli.install("-f", file)
    assert upgraded.code == 0, upgraded.err
    after = cli.api.get(cli.queue)
    assert (after["metadata"]["uid"], after["spec"]) == (before["metadata"]["uid"], before["spec"])
    assert after["metadata"]["labels"]["helm.sh/chart"] == f"slipway-queues-{version_of_queues()}"
    assert cli.revisions() == ["superseded", "deployed"]
    assert "unchanged." in cli.install("-f", file).err

    subprocess.run([helm, "rollback", "queues", "1", "-n", cli.name], check=True, capture_output=True)
    unknown = cli("uninstall", "queue", "-y")
    assert "Slipway's releases there: queues." in unknown.err
    gone = cli("uninstall", "queues", "-y", "-o", "json")
    assert (gone.code, gone.json["chart"], gone.json["left"]) == (0, "queues", [])


def test_a_release_of_another_chart(cli4: ReleaseCli, helm4: Path) -> None:
    chart = dump_chart(cli4.folder / "chart")
    (chart / "templates" / "values.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: theirs}\n")
    command = [str(helm4), "install", "theirs", str(chart), "-n", cli4.name]
    subprocess.run(command, check=True, capture_output=True)
    done = cli4("uninstall", "theirs", "-y")
    assert done.code == 1
    assert "was installed from the chart dump-0.1.0, which is not a chart of Slipway; nothing was changed." in done.err
    assert cli4.api.find(f"/api/v1/namespaces/{cli4.name}/configmaps/theirs")
    done = cli4("install", "queues", "theirs", "-f", cli4.write(VALUES))
    assert "was installed from the chart dump-0.1.0, not from queues; nothing was changed." in done.err
    done = cli4("uninstall", "their", "-y")
    assert 'Error: There is no release "their" in the cluster test' in done.err


CLUSTER = """\
run: {cluster: ours}
team: {name: NAME}
slice: {accelerator: v6e, topology: 4x4}
image: {repository: registry.example.com/slipway, tag: "1"}
storage: {kind: gcsfuse, bucket: our-bucket}
"""


def test_a_ray_cluster(cli4: ReleaseCli) -> None:
    file = cli4.write(CLUSTER)
    path = f"/apis/ray.io/v1/namespaces/{cli4.name}/rayclusters/ours"

    def kuberay() -> None:
        """Writes the conditions of a RayCluster as KubeRay does, which is not available here."""
        deadline = time.monotonic() + 20
        while cli4.api.find(path) is None and time.monotonic() < deadline:
            time.sleep(0.1)
        when = {"lastTransitionTime": "2026-11-01T00:00:00Z", "reason": "R", "message": ""}
        both = [{"type": kind, "status": "True", **when} for kind in ("HeadPodReady", "RayClusterProvisioned")]
        cli4.api.merge(f"{path}/status", {"status": {"conditions": both}})

    controller = threading.Thread(target=kuberay)
    controller.start()
    done = cli4("install", "ray-cluster", "-f", file, "--timeout", "20s", "-o", "json")
    controller.join()
    assert (done.code, done.json["release"], done.json["notReady"]) == (0, "ours", [])
    assert done.err.startswith(f"ours (ray-cluster): cluster test, context admin, namespace {cli4.name}\n")
    done = cli4("diff", "ray-cluster", "-f", file, "--set", "slice.count=2")
    assert "    spec.workerGroupSpecs[slice].replicas: 1 -> 2" in done.out.splitlines()
    done = cli4("uninstall", "ours", "-y")
    assert (done.code, cli4.api.find(path)) == (0, None)
    # It has no head with a list of jobs, but it is still uninstalled.
    assert "? The jobs in the Ray cluster ours cannot be listed: " in done.err


def test_diff_of_a_run(cli4: ReleaseCli) -> None:
    file = cli4.write(CLUSTER + "train: {model_name: llama3-8b, steps: 5, dataset_type: synthetic}\n")
    arguments = ["-f", file, "--name", "demo", "--set", "run.kind=ray-job"]
    done = cli4("diff", *arguments)
    assert (done.code, done.out) == (0, f"+ RayJob {cli4.name}/demo\n")
    run(["render", *arguments, "-o", "json"])
    cli4.api.create(json.loads(cli4.capture.readouterr().out))
    assert cli4("diff", *arguments).out == ""
    done = cli4("diff", *arguments, "--set", "train.steps=6")
    assert (done.code, done.out) == (0, f"~ RayJob {cli4.name}/demo\n    train.steps: 5 -> 6\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "flavor.x=1"], "Error: --set flavor: unknown key flavor; did you mean flavors?"),
        (["--set", "teams.a.clusterQueue=b"], "Error: --set teams.a.clusterQueue: "),
        (["--context", "admit"], 'has no context "admit"; did you mean "admin"?'),
    ],
)
def test_invalid_values_and_targets(cli4: ReleaseCli, arguments: list[str], message: str) -> None:
    done = cli4.install("-f", cli4.write(VALUES), *arguments)
    assert (done.code, done.out) == (1, "")
    assert message in done.err
    assert cli4.revisions() == []


def test_what_users_may_not_do(cli4: ReleaseCli, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    user = control_plane.kubeconfig_for("alice", ["research"], namespace=cli4.name)
    monkeypatch.setenv("KUBECONFIG", str(user))
    done = cli4.install("-f", cli4.write(VALUES))
    assert done.code == 1
    assert f"You (alice) may not list secrets in the namespace {cli4.name}" in done.err
    assert "kind: Role\n" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("variable", ["HELM_KUBEAPISERVER", "HELM_KUBEASUSER", "HELM_KUBECAFILE"])
def test_helm_with_another_api_server(variable: str, cli4: ReleaseCli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "https://example.invalid")
    done = cli4.install("-f", cli4.write(VALUES))
    assert done.code == 1
    assert done.err.startswith(f"Error: {variable} is set, so Helm would use another API server")


def test_no_api_server_and_no_kueue(cli4: ReleaseCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = cli4.write(VALUES)
    with fake_api_server([], tmp_path, kueue=False) as kubeconfig:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        done = cli4.install("-f", file)
        assert (done.code, done.out) == (1, "")
        assert "does not serve kueue.x-k8s.io/v1beta2; charts/queues needs Kueue 0.16 to 0.19; nothing" in done.err
    done = cli4.install("-f", file)  # the API server no longer runs
    assert done.code == 1
    assert "does not answer: connection refused." in done.err


def test_ctrl_c(cli4: ReleaseCli) -> None:
    file = cli4.write(VALUES)
    command = [sys.executable, "-m", "launcher", "install", "queues", "-f", file, "-n", cli4.name, "--timeout", "60s"]
    for until, left in (("Installing", "Interrupted. "), ("Waiting", "The release queues is installed; ")):
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
            assert process.stderr is not None
            next(line for line in process.stderr if line.startswith(until))
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does; Helm receives it, too
            err = process.stderr.read()
        assert (process.returncode, left in err) == (130, True), err
        assert not any(status.startswith("pending") for status in cli4.revisions())
    assert cli4.revisions() == ["deployed"]
