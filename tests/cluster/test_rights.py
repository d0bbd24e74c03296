"""Rights with real RBAC: members of a team have exactly the Role that charts/queues creates for them."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from tests.bucket import bucket
from tests.charts.queues_chart import render, tree
from tests.cluster.api import Api, Object, path_of
from tests.cluster.control_plane import ControlPlane, remove_namespace
from tests.cluster.fake_controllers import controllers
from tests.cluster.launching import LauncherCli, kuberay_removes_finalizers, until
from tests.cluster.recorded_cluster import base_cluster
from tests.cluster.replay import follow_as
from tests.tools import tool

SUFFIX = secrets.token_hex(3)
OURS, THEIRS = f"rights-research-{SUFFIX}", f"rights-search-{SUFFIX}"
VALUES = """
flavors:
  rights-v5e: {accelerator: v5e, topology: 2x4}
  rights-cpu: {accelerator: cpu}
clusterQueues:
  OURS: {quota: {rights-v5e: {slices: 4}, rights-cpu: {cpu: "100", memory: 400Gi}}}
  THEIRS: {quota: {rights-v5e: {slices: 4}, rights-cpu: {cpu: "100", memory: 400Gi}}}
teams:
  research: {namespace: OURS, queue: multislice, clusterQueue: OURS, members: {alice: User},
    leads: {lea: User}, viewers: {vera: User}}
  search: {namespace: THEIRS, queue: multislice, clusterQueue: THEIRS, members: {bob: User}}
""".replace("OURS", OURS).replace("THEIRS", THEIRS)
COMPLETED = {"type": "Completed", "status": "True", "reason": "AllJobsCompleted", "message": ""}
ENDED: dict[str, Object] = {
    "ray-job": {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"},
    "job-set": {"conditions": [{**COMPLETED, "lastTransitionTime": "2026-01-02T03:04:05Z"}]},
}


class Teams(NamedTuple):
    plane: ControlPlane
    alice: Path  # their kubeconfigs
    bob: Path


@pytest.fixture(scope="module")
def teams(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Teams]:
    """Two teams with all objects of charts/queues. The rights are in effect."""
    admin = control_plane.api
    base_cluster(control_plane)
    made = render(tool("helm"), tree(VALUES), tmp_path_factory.mktemp("values"))
    for name in (OURS, THEIRS):
        control_plane.add_namespace(name)
    for obj in made:
        admin.ensure(obj)
    found = Teams(
        control_plane,
        control_plane.kubeconfig_for("alice", namespace=OURS),
        control_plane.kubeconfig_for("bob", namespace=THEIRS),
    )
    alice = Api(found.alice)
    until(lambda: alice.open("GET", f"/api/v1/namespaces/{OURS}/pods").status == 200)
    alice.close()
    yield found
    for obj in made:
        admin.delete(path_of(obj))
    for name in (OURS, THEIRS):
        remove_namespace(admin, name)


def test_a_member_does_all_that_a_run_needs(teams: Teams, tmp_path: Path) -> None:
    """Runs of both kinds, without access to Secrets. The kubeconfig is not changed."""
    plane, admin = teams.plane, teams.plane.api
    before = teams.alice.read_bytes(), teams.alice.stat().st_mtime_ns
    cli = LauncherCli(teams.alice, OURS, tmp_path)
    alice = Api(teams.alice)
    assert alice.open("GET", f"/api/v1/namespaces/{OURS}/secrets").status == 403
    alice.close()

    def succeed(*arguments: str) -> Any:
        done = cli(*arguments)
        assert done.code == 0, (arguments, done.err)
        return done

    recorded = {"ray-job": ("rayjob-succeeds", "good"), "job-set": ("three-then-one-and-two", "slices-3")}
    with controllers(plane, OURS), kuberay_removes_finalizers(admin, OURS):
        for kind, (recording, of) in recorded.items():
            file, name = cli.values(kind, name=kind), (kind,)
            succeed("submit", "-f", file, "--dry-run")
            assert "Warning" not in succeed("submit", "-f", file, "--detach").err
            run = next(run for run in cli.runs(admin) if run["metadata"]["name"] == kind)
            replayer = follow_as(plane, recording, run, run=of)
            replayer.step_past("Workload", PodsReady="True")
            pods = admin.items(f"/api/v1/namespaces/{OURS}/pods?labelSelector=slipway.dev/run%3D{kind}")
            for pod in pods:
                for container in pod["spec"]["containers"]:
                    plane.write_log(OURS, pod["metadata"]["name"], container["name"], ["hello"])
            assert succeed("status", *name, "-o", "json").json["state"] in ("starting", "running")
            assert succeed("logs", *name).out == "hello\n"
            refused = cli("shell", *name, "--", "true")  # a right that teams.NAME.shell grants
            assert (refused.code, refused.out) == (1, "")
            assert re.search(r"Error: You \(alice\) may not (get|create) pods/exec in the namespace", refused.err)
            assert "Hint: teams.NAME.shell: true of charts/queues grants it" in refused.err
            assert kind in [run["name"] for run in succeed("list", "-o", "json").json]
            assert succeed("explain", *name).out
            assert succeed("cancel", *name, "-o", "json").json["state"] == "cancelled"
            assert succeed("submit", "-f", file, "--detach", "-o", "json").json["attempt"] == 2
            again = next(run for run in cli.runs(admin) if run["metadata"]["name"] == kind)
            admin.merge(f"{path_of(again)}/status", {"status": ENDED[kind]})
            succeed("delete", *name, "--yes")
            assert kind not in [run["metadata"]["name"] for run in cli.runs(admin)]
    assert (teams.alice.read_bytes(), teams.alice.stat().st_mtime_ns) == before


def test_check_live_has_what_the_api_server_would_refuse(teams: Teams, tmp_path: Path) -> None:
    """As the user: her rights, the admission policy of her team, and the level of Pod Security."""

    def live(cli: LauncherCli, **over: Any) -> str:
        done = cli("check", "-f", cli.values("job-set", **over), "--live")
        assert (done.code == 0) is (done.err == "No problems found.\n"), (done.out, done.err)
        return done.out + done.err if done.code else ""

    ours, theirs = (LauncherCli(teams.alice, space, tmp_path) for space in (OURS, THEIRS))
    assert live(ours) == ""
    hostname = {"nodeSelector": {"example.com/node": "one"}}
    assert "policies.nodeLabels" in until(lambda: live(ours, worker=hostname), 30)
    assert re.search(r"You \(alice\) may not create jobsets of jobset\.x-k8s\.io in the namespace", live(theirs))

    def enforce(level: str | None) -> None:
        labels = {"pod-security.kubernetes.io/enforce": level}
        teams.plane.api.merge(f"/api/v1/namespaces/{OURS}", {"metadata": {"labels": labels}})

    enforce("baseline")
    refused = live(ours, security={"privileged": True})
    enforce(None)
    assert f'The namespace {OURS} has the Pod Security level "baseline", which refuses pods with' in refused


def test_a_viewer_only_reads_and_a_lead_creates_secrets(teams: Teams, tmp_path: Path) -> None:
    """A lead reads no Secret, but can replace one; a token of a service account is refused."""
    space = f"/api/v1/namespaces/{OURS}"
    run = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "x", "namespace": OURS}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hf", "namespace": OURS}}
    token = {"name": "token", "namespace": OURS, "annotations": {"kubernetes.io/service-account.name": "default"}}
    vera, lea = (Api(teams.plane.kubeconfig_for(name, namespace=OURS)) for name in ("vera", "lea"))
    jobsets = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{OURS}/jobsets"
    assert [vera.open("GET", path).status for path in (jobsets, f"{space}/pods", f"{space}/secrets")] == [200, 200, 403]
    assert vera.open("POST", jobsets, {**run, "spec": {}}).status == 403
    assert vera.open("DELETE", f"{jobsets}/x").status == 403
    assert lea.open("POST", f"{space}/secrets", {**secret, "stringData": {"token": "one"}}).status == 201
    assert [lea.open("GET", f"{space}/secrets{name}").status for name in ("", "/hf")] == [403, 403]
    assert lea.open("PATCH", f"{space}/secrets/hf", {}, "application/merge-patch+json").status == 403
    deleted = lea.open("DELETE", f"{space}/secrets/hf")
    assert (deleted.status, json.loads(deleted.data)["kind"]) == (200, "Status")  # not the Secret
    forged = {**secret, "metadata": token, "type": "kubernetes.io/service-account-token"}
    until(lambda: lea.open("POST", f"{space}/secrets?dryRun=All", forged).status == 422)
    cli = LauncherCli(teams.plane.kubeconfig_for("vera", namespace=OURS), OURS, tmp_path)
    assert cli("list").code == cli("queues").code == 0
    vera.close()
    lea.close()


def test_a_member_exports_a_checkpoint_and_imports_weights(
    teams: Teams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the rights for runs. The bucket is readable for the pods alone."""
    cli = LauncherCli(teams.alice, OURS, tmp_path)
    file = cli.values("job-set", "base")
    with bucket(tmp_path, 403) as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        for arguments in (
            ("submit", "-f", file),
            ("export", "base", "--step", "29"),
            ("import", "hf:example/llama", "--to", "/data/weights", "-f", file),
        ):
            done = cli(*arguments, "--detach")
            assert done.code == 0, (arguments, done.err)
            assert "live." not in done.err and "Warning" not in done.err, done.err
    names = {run["metadata"]["name"] for run in cli.runs(teams.plane.api)}
    assert names >= {"base", "base-export", "base-import"}
    bobs = LauncherCli(teams.bob, OURS, tmp_path)("export", "base", "-n", OURS)
    assert (bobs.code, bobs.out) == (1, "")
    assert bobs.err.startswith("Error: You (bob) may not ")


def missing(verb: str, resource: str, group: str, user: str = "bob") -> list[str]:
    """The first lines of the error; test_the_printed_roles_are_sufficient tests the Role's rules."""
    of = f" of {group}" if group else ""
    return [
        f"Error: You ({user}) may not {verb} {resource}{of} in the namespace {OURS} of the context {user}@test.",
        "Hint: Members of that team get all permissions from charts/queues (teams.NAME.members). Or a platform "
        "engineer can apply this, and bind it to you:",
        "  apiVersion: rbac.authorization.k8s.io/v1",
        "  kind: Role",
        "  metadata:",
        "    name: slipway-runs-read",
        f"    namespace: {OURS}",
    ]


def test_another_team_cannot_read_or_cancel_its_runs(teams: Teams, tmp_path: Path) -> None:
    alice, bob = LauncherCli(teams.alice, OURS, tmp_path / "alice"), LauncherCli(teams.bob, OURS, tmp_path / "bob")
    assert alice("submit", "-f", alice.values("job-set"), "--detach").code == 0
    run = next(run for run in alice.runs(teams.plane.api) if run["metadata"]["name"] == "demo")
    listed = bob("list", "-n", OURS)
    assert (listed.code, listed.out) == (1, "")
    assert listed.err[listed.err.index("Error: ") :].splitlines()[:7] in (
        missing("list", "rayjobs", "ray.io"),
        missing("list", "jobsets", "jobset.x-k8s.io"),
    )
    for verb in ("status", "logs", "cancel", "delete", "wait", "explain"):
        refused = bob(verb, "demo", "-n", OURS)
        assert (refused.code, refused.out) == (1, "")
        assert refused.err.splitlines()[:7] in (
            missing("get", "rayjobs", "ray.io"),
            missing("get", "jobsets", "jobset.x-k8s.io"),
        ), verb
    submit = bob("submit", "-f", alice.values("job-set"), "--detach")
    assert submit.code == 1
    assert submit.err.splitlines()[1:8] in (
        missing("get", "rayjobs", "ray.io"),
        missing("get", "jobsets", "jobset.x-k8s.io"),
    )
    assert teams.plane.api.get(path_of(run)) == run
    # Bob's own namespace, which he may read, does not have the run.
    assert "demo" not in bob("list", "-n", THEIRS).out


def test_the_printed_roles_are_sufficient(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    """A user without rights applies only the Role that each error prints, until the command works."""
    admin = control_plane.api
    cli = LauncherCli(control_plane.kubeconfig_for("carol", namespace=namespace), namespace, tmp_path)
    file = cli.values("job-set", queue={"name": ""}, team={"name": ""})
    here = ("demo", "-n", namespace)
    applied: list[str] = []
    for arguments in (
        ("submit", "-f", file, "--detach", "--force"),
        ("list", "-n", namespace),
        ("status", *here),
        ("cancel", *here),
        ("delete", *here, "--yes"),
    ):
        with controllers(control_plane, namespace):
            done = cli(*arguments)
            while done.code != 0:
                role = yaml.safe_load(done.err.partition("bind it to you:\n")[2])
                assert isinstance(role, dict), done.err
                assert role["metadata"]["name"] not in applied, done.err
                applied.append(role["metadata"]["name"])
                bind(admin, role, "carol")
                done = until(lambda: cli.changed_result(done, *arguments))  # noqa: B023 - called at once
    assert applied == ["slipway-runs-read", "slipway-runs"]
    assert not [name for name in applied if "secret" in name]


def bind(admin: Api, role: Object, user: str) -> None:
    name, namespace = role["metadata"]["name"], role["metadata"]["namespace"]
    group = "rbac.authorization.k8s.io"
    admin.create(role)
    admin.create(
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        }
    )


# --- kubeconfigs and contexts ---------------------------------------------------------------------------------------


def test_kubeconfigs_and_contexts_are_those_of_kubectl(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    admin = control_plane.admin
    other = control_plane.kubeconfig_for("dave", namespace=namespace, context="daves")
    none = tmp_path / "none.kubeconfig"
    none.write_text(re.sub(r'"current-context": "[^"]*"', '"current-context": ""', admin.read_text()))
    both = LauncherCli(f"{admin}:{tmp_path / 'missing'}:{other}", namespace, tmp_path)
    file = both.values("job-set", queue={"name": ""}, team={"name": ""})
    preview = both("submit", "-f", file, "--dry-run", "--force")
    assert (preview.code, f"(cluster test, context admin, namespace {namespace})" in preview.err) == (0, True)
    daves = both("status", "demo", "--context", "daves")
    assert daves.code == 1
    assert "You (dave) may not get " in daves.err
    assert f"in the namespace {namespace} of the context daves." in daves.err
    typed = both("list", "--context", "dave")
    assert (typed.code, typed.err) == (
        1,
        f'Error: {admin}:{other} has no context "dave"; did you mean "daves"?\n'
        "Hint: kubectl config get-contexts lists them.\n",
    )
    without = LauncherCli(none, namespace, tmp_path)("list", "-n", namespace)
    assert (without.code, without.err) == (
        1,
        f"Error: {none} has no current context.\n"
        "Hint: Choose one with --context, or set it: kubectl config use-context NAME.\n",
    )
    # Without -n, the context's namespace is used, which is default for the admin.
    nowhere = both("status", "no-such-run")
    assert "context admin, namespace default" in nowhere.err


def test_a_token_is_never_printed(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    token = control_plane.service_account_token(namespace, "default")
    for given in (token, f"{token}x"):
        cli = LauncherCli(control_plane.kubeconfig_for("robot", namespace=namespace, token=given), namespace, tmp_path)
        file = cli.values("job-set", queue={"name": ""}, team={"name": ""})
        for arguments in (
            ("submit", "-f", file, "--detach"),
            ("submit", "-f", file, "--dry-run"),
            ("list", "-n", namespace),
            *((verb, "demo", "-n", namespace) for verb in ("status", "logs", "wait", "cancel", "delete", "explain")),
        ):
            done = cli(*arguments)
            assert done.code == 1
            assert token[:20] not in done.out + done.err
            assert token[-20:] not in done.out + done.err
