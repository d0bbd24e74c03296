"""Runs in a long-lived Ray cluster: a real Ray head with tokens, reached through the real API server's proxy."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from launcher import api
from launcher.backends.base import State
from launcher.config.plan import LaunchPlan
from launcher.errors import LauncherError
from launcher.k8s.client import Forbidden, Unreachable
from launcher.products.ray_cluster import clusters as ray_clusters
from launcher.products.ray_cluster import users
from launcher.products.ray_cluster.dashboard import head_of
from launcher.products.ray_cluster.jobs import RayHead, RayJobs, TokenRefused
from launcher.products.ray_cluster.submitter import RayClusterSubmitter
from tests.cluster.control_plane import ControlPlane, add_namespace, remove_namespace
from tests.products.ray_cluster.cluster import long_lived_ray_cluster
from tests.products.ray_cluster.cluster.long_lived_ray_cluster import NAME, TeamRayCluster
from tests.trainer.ray_nodes import RayNodes, own_address

LAUNCHER = str(Path(sys.executable).with_name("launcher"))


@pytest.fixture(scope="module")
def team(
    control_plane: ControlPlane, helm4: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TeamRayCluster]:
    folder = tmp_path_factory.mktemp("standing")
    ray = RayNodes.start(own_address())
    try:
        ray.add()
        namespace = f"research-{secrets.token_hex(3)}"
        add_namespace(control_plane.api, namespace)
        yield from long_lived_ray_cluster.for_team(control_plane, ray, namespace, helm4, folder)
        remove_namespace(control_plane.api, namespace)
    finally:
        ray.stop()


@pytest.fixture(autouse=True)
def as_member(team: TeamRayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(team.kubeconfig))


def plan_of(team: TeamRayCluster, name: str, **over: Any) -> LaunchPlan:
    """The launch plan of the team's values, overridden by `over`."""
    file = team.folder / f"over-{secrets.token_hex(4)}.yaml"
    file.write_text(json.dumps(over))
    return api.plan([str(team.values), str(file)], name=name)


def program(*words: str) -> dict[str, Any]:
    return {"command": list(words)}


def backend(team: TeamRayCluster) -> RayClusterSubmitter:
    return RayClusterSubmitter(team.target.cluster(), poll_seconds=0.3)


def launcher(team: TeamRayCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([LAUNCHER, *arguments], capture_output=True, text=True, timeout=240, check=False)
    assert team.ray.token not in done.stdout + done.stderr
    return done


def ended(runs: RayClusterSubmitter, name: str, seconds: float = 90) -> Any:
    deadline = time.monotonic() + seconds
    while (status := runs.status(name)) is None or not status.state.ended:
        assert time.monotonic() < deadline, "\n".join(runs.logs(name, follow=False, worker=None))
        time.sleep(0.3)
    return status


def test_a_training_from_submit_to_the_last_step(team: TeamRayCluster) -> None:
    """The user has only the Role that charts/queues creates for members."""
    done = launcher(team, "submit", "-f", str(team.values), "--name", "trained")
    assert done.returncode == 0, done.stderr
    assert f'The run "trained" was submitted to the Ray cluster {NAME} (namespace {team.namespace}).' in done.stderr
    assert "trained: running" in done.stderr
    assert "3 of 3" in done.stdout
    assert "pvc://data/trained/checkpoints" in done.stdout

    runs = backend(team)
    status = runs.status("trained")
    assert status is not None
    assert (status.state, status.step, status.steps, status.attempt, status.kind) == (
        "succeeded",
        3,
        3,
        1,
        "ray-cluster",
    )
    assert status.loss is not None
    assert status.loss_first is not None
    assert status.loss < status.loss_first < 10
    assert status.tokens_per_second is not None
    assert status.tokens_per_second > 0
    metrics = (team.folder / "data" / "trained" / "metrics.jsonl").read_text().splitlines()
    assert status.loss == pytest.approx(json.loads(metrics[-1])["loss"])

    whole, first = (list(runs.logs("trained", follow=False, worker=worker)) for worker in (None, 0))
    assert any("SLIPWAY_METRICS" in line for line in first)
    assert set(first) < set(whole)
    with pytest.raises(LauncherError, match="Worker 3 was not found: the run has 1, counted from 0"):
        list(runs.logs("trained", follow=False, worker=3))

    # Submitted again, there is nothing to do. With other values, the error shows the difference. A preview reports the
    # same and changes nothing.
    again = launcher(team, "submit", "-f", str(team.values), "--name", "trained")
    assert again.returncode == 0
    assert 'The run "trained" has already succeeded' in again.stderr
    other = launcher(team, "submit", "-f", str(team.values), "--name", "trained", "--set", "train.steps=4")
    assert other.returncode == 1
    assert "train.steps: 3 -> 4" in other.stderr
    assert "--continue" in other.stderr
    preview = api.preview(plan_of(team, "trained", train={"steps": 4}), accept_changes=True)
    assert preview.message == 'Would resume the run "trained" as attempt 2.'
    assert "trained" in [status.name for status in runs.list(pytest.fail)]


def test_a_command_its_log_its_end_and_its_next_attempt(team: TeamRayCluster) -> None:
    """Ten simultaneous submits create one run. After a cancel, its record is kept and its host is released. It can then
    resume."""
    runs, mark = backend(team), secrets.token_hex(8)
    plan = plan_of(team, "commanded", run=program("sh", "-c", f"echo begun {mark}; sleep 600; echo {mark}"))
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        made = list(
            pool.map(lambda _: RayClusterSubmitter(team.target.cluster()).submit(plan, accept_changes=False), range(10))
        )
    assert [submission.created for submission in made].count(True) == 1
    assert {submission.status.attempt for submission in made} == {1}
    found = runs.submit(plan, accept_changes=False)
    assert "with the same config" in found.message

    followed: list[str] = []
    follower = threading.Thread(
        target=lambda: followed.extend(backend(team).logs("commanded", follow=True, worker=None)), daemon=True
    )
    follower.start()
    deadline = time.monotonic() + 60
    while f"begun {mark}" not in followed:
        assert time.monotonic() < deadline, followed
        time.sleep(0.1)
    assert runs.status("commanded").state is State.RUNNING  # type: ignore[union-attr]
    (shown,) = runs.clusters(NAME)
    assert shown.runs == ("commanded",)
    installed = [team.plane.api.get(team.path("rayclusters", NAME))]  # uninstall checks which runs use the cluster
    assert users.active_jobs(runs.cluster, installed) == ([f"{team.namespace}/commanded"], [])
    with pytest.raises(LauncherError, match="is running with a different config"):
        runs.submit(plan_of(team, "commanded", run=program("true")), accept_changes=True)
    with pytest.raises(LauncherError, match="has not ended"):
        runs.delete("commanded")

    assert runs.cancel("commanded").state is State.CANCELLED
    assert runs.cancel("commanded").state is State.CANCELLED
    deadline = time.monotonic() + 20
    while any(mark in " ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])):
        assert time.monotonic() < deadline, "the command goes on"
        time.sleep(0.2)
    follower.join(20)
    assert not follower.is_alive()
    assert followed == list(runs.logs("commanded", follow=False, worker=None))

    # The next attempt gets the only host. It fails, and its status has the reason.
    resumed = runs.submit(plan_of(team, "commanded", run=program("sh", "-c", "exit 7")), accept_changes=True)
    assert resumed.message == (
        'The run "commanded" was cancelled; it continues from its last checkpoint, if it wrote one, as attempt 2.'
    )
    status = ended(runs, "commanded")
    assert (status.state, status.attempt) == (State.FAILED, 2)
    assert status.reason == "The command on host 0 ended with exit code 7."
    watcher = backend(team)
    assert watcher.status("commanded") is not None
    runs.delete("commanded")
    assert runs.status("commanded") is None
    with pytest.raises(LauncherError, match=r'The run "commanded" was not found any more .* deletes Ray\'s jobs'):
        watcher.status("commanded")


def test_a_lost_answer_does_not_fail_the_submit(team: TeamRayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    real = RayJobs.submit

    def lost(jobs: RayJobs, *arguments: Any) -> bool:
        # The loss is simulated here, because no network can be made to drop exactly this answer.
        real(jobs, *arguments)
        raise Unreachable("The stream was cut off.")

    monkeypatch.setattr(RayJobs, "submit", lost)
    made = backend(team).submit(plan_of(team, "lost", run=program("true")), accept_changes=False)
    assert made.created
    assert (made.status.name, made.status.attempt) == ("lost", 1)
    assert backend(team).cancel("lost").state is State.CANCELLED


def test_a_wrong_token_is_an_error_without_the_token(team: TeamRayCluster) -> None:
    wrong = "another-token-" + secrets.token_hex(16)
    team.set_token(wrong)
    try:
        done = launcher(team, "submit", "-f", str(team.values), "--name", "refused")
        assert done.returncode == 1
        where = f"The Ray cluster {NAME} (namespace {team.namespace})"
        assert f"Error: {where} does not accept the Secret {NAME}." in done.stderr
        assert wrong not in done.stdout + done.stderr
        with pytest.raises(TokenRefused):
            backend(team).preview(plan_of(team, "refused"), accept_changes=False)
        with pytest.raises(Unreachable, match="does not accept the Secret"):  # the cluster could have the run
            backend(team).status("refused")
        warnings: list[str] = []
        assert backend(team).list(warnings.append) == []
        assert warnings == [f"{where} does not accept the Secret {NAME}."]
    finally:
        team.set_token(team.ray.token)


def test_a_user_without_access_to_the_token_gets_a_role_for_its_secret(
    team: TeamRayCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "no-secrets", "namespace": team.namespace},
        "rules": [{"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get", "list"]}],
    }
    team.plane.api.create(role)
    team.plane.api.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": role["metadata"],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "no-secrets"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "carol"}],
        }
    )
    monkeypatch.setenv("KUBECONFIG", str(team.plane.kubeconfig_for("carol", namespace=team.namespace)))
    with pytest.raises(Forbidden) as refused:
        backend(team).submit(plan_of(team, "x"), accept_changes=False)
    assert f"the Secret {NAME} holds the token of the Ray cluster {NAME}" in refused.value.message
    assert f"resourceNames: [{NAME}]" in refused.value.hint
    assert backend(team).status("x") is None  # a run of another backend


@pytest.mark.parametrize(
    ("over", "sentence"),
    [
        ({"run": {"cluster": "standin"}}, 'The Ray cluster "standin" was not found in the .* Did you mean "standing"?'),
        (
            {"slice": {"hosts": 3}},
            "The run requires 3 hosts, but the Ray cluster standing has 1 host without chips, group",
        ),
        (
            {"slice": {"accelerator": "v6e", "topology": "4x4", "hosts": 0}},
            r"requires 1 slice of tpu-v6e-slice 4x4 \(4 hosts with 4 chips\), but the Ray cluster standing has 1 host",
        ),
        (
            {"storage": {"mountPath": "/elsewhere"}},
            "storage.mountPath is /elsewhere, but the head of the Ray cluster",
        ),
        (
            {"worker": {"secretEnv": {"HF_TOKEN": {"name": "hf", "key": "token"}}}},
            "worker.secretEnv.HF_TOKEN: the group .* of the Ray cluster standing was created without it",
        ),
        ({"run": {"cluster": "suspended"}}, "The Ray cluster suspended is suspended, so it does not accept runs yet"),
        ({"train": {"dataset_path": 120_000 * "x"}}, "too large: a Ray job accepts at most 128 KiB"),
    ],
    ids=["name", "hosts", "slice", "storage", "secret", "suspended", "size"],
)
def test_a_run_that_can_never_start_is_refused_before_anything_is_created(
    team: TeamRayCluster, suspended: None, over: dict[str, Any], sentence: str
) -> None:
    plan = plan_of(team, "never", **over)
    for act in (backend(team).preview, backend(team).submit):
        with pytest.raises(LauncherError, match=sentence):
            act(plan, accept_changes=False)
    assert all(job["submission_id"] != "never-1" for job in jobs_of(team).list())


@pytest.fixture
def suspended(team: TeamRayCluster) -> Iterator[None]:
    found = team.plane.api.get(team.path("rayclusters", NAME))
    meta = {"name": "suspended", "namespace": team.namespace}
    spec = {**found["spec"], "suspend": True}
    team.plane.api.create({"apiVersion": found["apiVersion"], "kind": found["kind"], "metadata": meta, "spec": spec})
    yield
    team.plane.api.delete(team.path("rayclusters", "suspended"))


def jobs_of(team: TeamRayCluster) -> RayJobs:
    cluster = team.target.cluster()
    return RayJobs(RayHead(cluster, ray_clusters.named(cluster, NAME), named=True))


def test_a_head_that_does_not_answer_is_named_and_does_not_hide_others(team: TeamRayCluster) -> None:
    found = team.plane.api.get(team.path("rayclusters", NAME))
    found["metadata"] = {"name": "idle", "namespace": team.namespace}
    found["spec"]["authOptions"] = {"mode": "disabled"}
    long_lived_ray_cluster.add_ray_cluster(team.plane, found, team.namespace, "idle", hosts=1)
    long_lived_ray_cluster.add_head_service(team.plane, team.namespace, "idle", 1)  # no process listens on port 1
    try:
        runs = backend(team)
        warnings: list[str] = []
        runs.list(warnings.append)
        (warning,) = warnings
        assert warning.startswith(f"The head of the Ray cluster idle (namespace {team.namespace}) does not answer: ")
        with pytest.raises(Unreachable):
            runs.status("no-such-run")
        shown = {each.name: each for each in runs.clusters()}
        assert shown["idle"].runs is None
        idle = team.plane.api.get(team.path("rayclusters", "idle"))
        running, (unknown,) = users.active_jobs(runs.cluster, [idle])
        assert running == []
        assert unknown.startswith("The jobs in the Ray cluster idle cannot be listed: ")
        assert shown[NAME].runs == ()
    finally:
        team.plane.api.delete(team.path("rayclusters", "idle"))


def test_a_cluster_that_waits_in_its_queue_hides_no_others(team: TeamRayCluster, suspended: None) -> None:
    team.plane.api.merge(team.path("rayclusters", "suspended"), {"spec": {"authOptions": {"mode": "disabled"}}})
    warnings: list[str] = []
    backend(team).list(warnings.append)
    assert warnings == []
    assert backend(team).status("no-such-run") is None


def test_a_long_lived_cluster_is_listed_with_its_nodes(team: TeamRayCluster) -> None:
    labels = {"ray.io/cluster": NAME, "ray.io/node-type": "worker", "ray.io/group": "slice"}
    team.plane.add_local_pod(team.namespace, f"{NAME}-worker", own_address(), labels)
    (shown,) = backend(team).clusters(NAME)
    assert [(host.pod, host.group, host.node, host.ready) for host in shown.pods] == [
        (f"{NAME}-head", "head", "local-0", True),
        (f"{NAME}-worker", "slice", "local-0", True),
    ]
    assert (shown.state, shown.hosts, shown.hosts_wanted, shown.ray_version) == ("ready", 1, 1, "2.60.0")
    assert ray_clusters.details(shown).splitlines()[-1].split() == [f"{NAME}-worker", "slice", "local-0", "yes"]
    assert ray_clusters.listing([shown]).splitlines()[1].split()[:3] == [NAME, "ready", "1/1"]


@pytest.fixture
def dashboard(team: TeamRayCluster) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    process = subprocess.Popen(
        [LAUNCHER, "dashboard", NAME],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "KUBECONFIG": str(team.kubeconfig)},
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip(), process
    finally:
        process.kill()
        process.communicate(timeout=10)


def test_the_dashboard_in_a_browser_and_for_ray(
    dashboard: tuple[str, subprocess.Popen[str]], team: TeamRayCluster
) -> None:
    """Neither needs Ray's token. tests/products/ray_cluster/test_dashboard.py has the attacks."""
    url, process = dashboard
    address, _, token = url.partition("/?token=")
    assert address.startswith("http://127.0.0.1:")
    assert fetch(address, "/api/version", {})[0] == 401
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(url, timeout=30) as opened:
        page = opened.read()
        assert (opened.status, opened.url, b"<!doctype html>" in page.lower()) == (200, f"{address}/", True)
    script = page.split(b'src="./')[1].split(b'"')[0].decode()
    with browser.open(f"{address}/{script}", timeout=30) as opened:
        assert len(opened.read()) > 1_000_000
        assert (opened.headers.get_all("Cache-Control"), opened.headers["ETag"]) == (["no-store"], None)

    own = {"Authorization": f"Bearer {token}"}
    status, version = fetch(address, "/api/version", own | {"Impersonate-User": "system:admin"})
    assert (status, json.loads(version)["ray_version"]) == (200, "2.60.0")
    assert fetch(address, "/api/jobs/none", own)[0] == 404
    # Ray recognizes a browser by the headers that are passed on.
    assert fetch(address, "/api/jobs/", own | {"User-Agent": "Mozilla/5.0"}, b"{}")[0] == 405
    assert fetch(address, "/api/version", own | {"Origin": "http://evil.example"})[0] == 403
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
    with contextlib.closing(http.client.HTTPConnection(address.removeprefix("http://"), timeout=10)) as upgrading:
        upgrading.request("GET", "/api/jobs/x/logs/tail", headers=own | upgrade)
        assert upgrading.getresponse().status == 501

    assert process.stderr is not None
    shown = [process.stderr.readline() for _ in range(3)][-1].split()
    assert shown[:2] == ["RAY_AUTH_MODE=token", f"RAY_AUTH_TOKEN={token}"]
    assert shown[2:] == ["ray", "job", "list", "--address", address]
    environment = {**os.environ, **dict(word.split("=", 1) for word in shown[:2])}
    ray = str(Path(sys.executable).with_name("ray"))
    submit = [ray, "job", "submit", "--no-wait", "--submission-id", "by-ray", "--address", address, "--", "true"]
    done = subprocess.run(submit, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(fetch(address, "/api/jobs/by-ray", own)[1])["entrypoint"] == "true"

    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    assert "is closed" in err
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=5)


def test_the_dashboard_of_a_run_is_that_of_its_cluster(team: TeamRayCluster) -> None:
    cluster = team.target.cluster()
    job = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": "own-cluster", "namespace": team.namespace},
        "spec": {"entrypoint": "true", "rayClusterSpec": team.plane.api.get(team.path("rayclusters", NAME))["spec"]},
    }
    team.plane.api.create(job)
    with pytest.raises(LauncherError, match='The run "own-cluster" has no Ray cluster now'):
        head_of(cluster, "own-cluster")
    team.plane.api.merge(
        f"{team.path('rayjobs', 'own-cluster')}/status", {"status": {"rayClusterName": "own-cluster-x"}}
    )
    made = team.plane.api.get(team.path("rayclusters", NAME))
    meta = {"name": "own-cluster-x", "namespace": team.namespace, "labels": {"ray.io/originated-from-crd": "RayJob"}}
    team.plane.api.create({**job, "kind": "RayCluster", "metadata": meta, "spec": made["spec"]})
    # Members may not read the Secret with its token.
    with pytest.raises(Forbidden, match="have new names in each attempt") as refused:
        head_of(cluster, "own-cluster")
    assert f"launcher logs own-cluster{cluster.cli_args} do not need these rights" in refused.value.hint
    assert [each.name for each in backend(team).clusters()] == [NAME]


def test_the_dashboard_of_an_unknown_name(team: TeamRayCluster) -> None:
    done = launcher(team, "dashboard", "standin")
    assert done.returncode == 1
    assert 'Did you mean "standing"?' in done.stderr


def fetch(url: str, path: str, headers: dict[str, str], data: bytes | None = None) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url + path, data, headers), timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def test_a_sweep_is_a_job_for_each_combination(team: TeamRayCluster) -> None:
    """A member creates a sweep, submits it again, resumes its failed run, and deletes it by the sweep's name."""
    swept = ("submit", "-f", str(team.values), "--name", "swept", "--set", "run.maxRestarts=0")
    commands = ("--sweep", 'run.command=[sh, -c, "exit 0"],[sh, -c, "exit 3"]')
    done = launcher(team, *swept, *commands)
    assert done.returncode == 1, done.stderr
    assert 'The sweep "swept" was submitted: 2 runs' in done.stderr
    assert "sweep swept: 1 succeeded, 1 failed" in done.stdout
    runs = sorted(backend(team).list(pytest.fail, sweep="swept"), key=lambda status: status.name)
    assert [(run.name, run.sweep, run.sweep_values["run.command"][-1]) for run in runs] == [
        ("swept-1", "swept", "exit 0"),
        ("swept-2", "swept", "exit 3"),
    ]
    again = launcher(team, *swept, *commands, "--detach")
    assert again.returncode == 0, again.stderr
    assert "1 resumed, 1 already succeeded." in again.stderr
    waited = launcher(team, "wait", "swept", "-n", team.namespace, "-o", "json")
    assert (waited.returncode, [run["attempt"] for run in json.loads(waited.stdout)]) == (1, [1, 2])
    assert launcher(team, "delete", "swept", "-n", team.namespace, "--yes").returncode == 0
    assert backend(team).list(pytest.fail, sweep="swept") == []
