"""Submitting runs to a real API server: one object for each run, and names that already exist."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from launcher import api as launcher_api
from launcher.k8s.client import Cluster
from launcher.k8s.errors import Unreachable
from tests.cluster.api import Api, Object, path_of
from tests.cluster.control_plane import ControlPlane
from tests.cluster.launching import ROOT, LauncherCli, kuberay_removes_finalizers, until
from tests.cluster.replay import RecordingReplayer, follow_as
from tests.tools import tool

KINDS = ("ray-job", "job-set")


def next_commands(cli: LauncherCli, name: str = "demo") -> str:
    run = f"{name} -n {cli.namespace}"
    width = len(f"launcher explain {run}")
    rows = [
        ("explain", "explain why it waits"),
        ("attach", "show its progress again"),
        ("logs -f", "follow its output"),
        ("wait", "wait until it ends"),
        ("cancel", "stop it"),
    ]
    return "".join(f"  {f'launcher {verb} {run}':<{width}}  {does}\n" for verb, does in rows)


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_that_the_cluster_does_not_know_is_refused(kind: str, cli: LauncherCli, admin: Api) -> None:
    """kubectl refuses it, too. Without a check, the API server leaves it out."""
    refused = cli("submit", "-f", cli.values(kind), "--set", "pods.extra.shareProcessNamespce=true", "--detach")
    assert refused.code == 1
    assert "shareProcessNamespce, and would leave it out.\n" in refused.err
    assert cli.runs(admin) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_submit_makes_one_object_with_all_that_it_needs(kind: str, cli: LauncherCli, admin: Api) -> None:
    file = cli.values(kind)
    dry = cli("submit", "-f", file, "--dry-run")
    assert dry.code == 0
    made = {"ray-job": "RayJob", "job-set": "JobSet"}[kind]
    assert dry.err == (
        f'Would create the {made} "demo" ({cli.target}); the API server accepts it.\n'
        "By a simulation of the queue, it would start now.\n"
    )
    assert cli.runs(admin) == []

    done = cli("submit", "-f", file, "--detach", "-o", "json")
    assert done.code == 0
    assert done.err == (f'Submitting to {cli.target}.\nThe run "demo" was submitted.\n{next_commands(cli)}')
    (run,) = cli.runs(admin)
    assert run["metadata"]["labels"] == {
        **{"slipway.dev/run": "demo", "slipway.dev/team": "research", "kueue.x-k8s.io/queue-name": "multislice"},
        **{key: value for key, value in run["metadata"]["labels"].items() if key.startswith(("app.", "helm."))},
    }
    assert done.json == {
        **done.json,
        **{"name": "demo", "namespace": cli.namespace, "kind": kind, "state": "queued", "attempt": 1, "restarts": 0},
        **{"reason": "Kueue has not created its Workload yet.", "step": None, "steps": 30, "loss": None},
        **{"submitted": run["metadata"]["creationTimestamp"], "started": None, "ended": None},
        **{"folder": "gs://example-runs/demo", "team": "research", "queue": "multislice"},
        **{"accelerator": "v5e 2x4", "slices": 1, "context": "admin"},
    }
    # The pods read the run config of the launch plan.
    template = (
        run["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]
        if kind == "ray-job"
        else run["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    )
    config = json.loads(template["metadata"]["annotations"]["slipway.dev/run-config"])
    assert config == launcher_api.plan([file]).config


@pytest.mark.parametrize("kind", KINDS)
def test_ten_submits_at_once_make_one_run(
    kind: str, cli: LauncherCli, admin: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.use_environment(monkeypatch)
    plans = [launcher_api.plan([cli.values(kind)]) for _ in range(10)]  # each has its own connection
    with ThreadPoolExecutor(10) as pool:
        done = list(pool.map(launcher_api.submit, plans))
    assert sorted(each.created for each in done) == [False] * 9 + [True]
    said = sorted({each.message for each in done})
    assert said == [
        'The run "demo" is already queued, with the same config.',
        'The run "demo" was submitted.',
    ]
    (run,) = cli.runs(admin)
    assert "slipway.dev/attempt" not in (run["metadata"].get("annotations") or {})


# --- a name that already exists -------------------------------------------------------------------------------------

# For each state of the run when its name is submitted again: the recording, and how far it is replayed.
STATES: dict[str, tuple[str, str, str, dict[str, str]]] = {
    "queued": ("job-set", "quota-in-use-by-others", "waiting-2", {}),
    "admitted": ("job-set", "three-then-one-and-two", "slices-3", {"kind": "Workload", "Admitted": "True"}),
    "running": ("job-set", "three-then-one-and-two", "slices-3", {"kind": "Workload", "PodsReady": "True"}),
    "preempted": ("job-set", "preempted-by-priority", "low-3", {"kind": "Workload", "Evicted": "True"}),
    "restarting": ("ray-job", "rayjob-head-killed", "headless", {"kind": "RayJob", "jobStatus": "Failure"}),
    "succeeded": ("ray-job", "rayjob-succeeds", "good", {}),
    "failed": ("job-set", "run-fails-after-restarts", "fails", {}),
    "failed-ray": ("ray-job", "rayjob-fails", "bad", {}),
}


def in_state(name: str, cli: LauncherCli, plane: ControlPlane) -> tuple[Object, str]:
    """Submit a run, and replay a recording until it is in that state. Returns the run and its values file."""
    kind, recording, run, upto = STATES[name]
    file = cli.values(kind)
    assert cli("submit", "-f", file, "--detach").code == 0
    (live,) = cli.runs(plane.api)
    play(follow_as(plane, recording, live, run=run), **upto)
    return plane.api.get(path_of(live)), file


def play(replayer: RecordingReplayer, kind: str = "", **fields: str) -> None:
    if kind:
        replayer.step_past(kind, **fields)
    else:
        replayer.step_to()


@pytest.mark.parametrize("state", ["queued", "admitted", "running", "preempted", "restarting", "succeeded"])
def test_an_existing_run_is_found_again(state: str, cli: LauncherCli, control_plane: ControlPlane, admin: Api) -> None:
    before, file = in_state(state, cli, control_plane)
    again = cli("submit", "-f", file, "--detach", "-o", "json")
    is_ = "has already succeeded, with the same config; there is nothing to do"
    says = is_ if state == "succeeded" else f"is already {state}, with the same config"
    rest = "" if state == "succeeded" else next_commands(cli)
    assert (again.code, again.err) == (0, f'Submitting to {cli.target}.\nThe run "demo" {says}.\n{rest}')
    assert (again.json["state"], again.json["attempt"]) == (state, 1)
    preview = cli("submit", "-f", file, "--dry-run")
    assert (preview.code, preview.err) == (0, f'The run "demo" {says}. Nothing would be started.\n')

    other = cli("submit", "-f", file, "--set", "train.steps=60", "--detach")
    steps = (
        "train.steps: 30 -> 60 (every step's learning rate changes with it, unless train.learning_rate_schedule_steps "
        "is set)"
    )
    hint = f"Cancel it first (launcher cancel demo -n {cli.namespace}), or submit under another name (--name)."
    if state == "succeeded":
        hint = (
            "To continue from its last checkpoint with the new values, use --continue. To start another run, use "
            "--name."
        )
        text = f'The run "demo" already exists (succeeded), with a different config:\n  {steps}'
    else:
        text = f'The run "demo" is {state} with a different config:\n  {steps}'
    assert (other.code, other.err) == (1, f"Submitting to {cli.target}.\nError: {text}\nHint: {hint}\n")
    # If the run has not ended, --continue gives the same error.
    with kuberay_removes_finalizers(admin, cli.namespace):
        more = cli("submit", "-f", file, "--set", "train.steps=60", "--detach", "--continue", "-o", "json")
    now = admin.get(path_of(before))
    if state == "succeeded":
        assert (more.code, more.json["state"], more.json["attempt"]) == (0, "queued", 2)
        assert now["metadata"]["uid"] != before["metadata"]["uid"]
    else:
        assert (more.code, more.err) == (1, other.err)
        assert now["metadata"]["uid"] == before["metadata"]["uid"]
        assert "slipway.dev/attempt" not in (now["metadata"].get("annotations") or {})


@pytest.mark.parametrize("state", ["failed", "failed-ray"])
def test_a_failed_run_resumes_as_the_next_attempt(
    state: str, cli: LauncherCli, control_plane: ControlPlane, admin: Api
) -> None:
    before, file = in_state(state, cli, control_plane)
    other = cli("submit", "-f", file, "--set", "train.learning_rate=1e-4", "--detach")
    assert other.code == 1
    assert other.err.startswith(
        f'Submitting to {cli.target}.\nError: The run "demo" already exists (failed), with a different config:\n'
        "  train.learning_rate: "
    )
    preview = cli("submit", "-f", file, "--dry-run")
    assert (preview.code, preview.err) == (0, 'Would resume the run "demo" as attempt 2.\n')
    assert admin.get(path_of(before))["metadata"]["uid"] == before["metadata"]["uid"]

    # The RayJob is resumed with other values.
    more = ["--set", "train.learning_rate=1e-4", "--continue"] if state == "failed-ray" else []
    with kuberay_removes_finalizers(admin, cli.namespace):
        again = cli("submit", "-f", file, *more, "--detach", "-o", "json")
    assert again.code == 0
    message = 'The run "demo" had failed; it continues from its last checkpoint, if it wrote one, as attempt 2.'
    assert again.err == f"Submitting to {cli.target}.\n{message}\n{next_commands(cli)}"
    assert (again.json["state"], again.json["attempt"]) == ("queued", 2)
    (now,) = cli.runs(admin)
    assert now["metadata"]["annotations"]["slipway.dev/attempt"] == "2"
    assert now["metadata"]["uid"] != before["metadata"]["uid"]
    if not more:  # the pods keep their output under the number of the attempt
        (job,) = now["spec"]["replicatedJobs"]
        pods = job["template"]["spec"]["template"]["metadata"]["annotations"]
        assert pods.pop("slipway.dev/attempt") == "2"
        assert {**now["spec"], "suspend": False} == before["spec"]
    else:
        assert '"learning_rate":0.0001' in json.dumps(now["spec"]).replace("\\", "")


def test_ten_submits_of_a_failed_run_make_one_next_attempt(
    cli: LauncherCli, control_plane: ControlPlane, admin: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, file = in_state("failed", cli, control_plane)
    cli.use_environment(monkeypatch)
    plans = [launcher_api.plan([file]) for _ in range(10)]
    with ThreadPoolExecutor(10) as pool:
        done = list(pool.map(launcher_api.submit, plans))
    assert sorted(each.created for each in done) == [False] * 9 + [True]
    assert {each.status.attempt for each in done} == {2}
    (run,) = cli.runs(admin)
    assert run["metadata"]["annotations"]["slipway.dev/attempt"] == "2"


def test_a_run_that_is_being_deleted_is_waited_for(
    cli: LauncherCli, admin: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = cli.values("job-set")
    cli("submit", "-f", file, "--detach")
    (old,) = cli.runs(admin)
    sweep = {"slipway.dev/sweep": "study"}
    admin.merge(path_of(old), {"metadata": {"finalizers": ["example.com/held"], "labels": sweep}})
    admin.delete(path_of(old))
    monkeypatch.setattr("launcher.backends.kubernetes.backend._GONE_SECONDS", 0.3)
    monkeypatch.setattr("launcher.backends.kubernetes.polling.QUIET_SECONDS", 0.1)
    held = cli("submit", "-f", file, "--detach")
    waits = 'Waiting for the JobSet "demo" to be deleted: it is held by example.com/held…\n'
    assert (held.code, held.err) == (
        1,
        f"Submitting to {cli.target}.\n{waits}"
        'Error: The JobSet "demo" is being deleted, but is held by example.com/held.\n'
        "Hint: The controller that has to release it may be down (see launcher doctor). Try again later.\n",
    )
    status = cli("status", "demo", "-n", cli.namespace, "-o", "json")
    assert (status.json["state"], status.json["reason"]) == ("queued", "It is being deleted.")
    deleted = cli("delete", "demo", "-n", cli.namespace, "--yes")
    assert deleted.code == 1
    # Its config is still known.
    changed = cli("submit", "-f", file, "--set", "train.steps=60", "--detach")
    assert (changed.code, "To continue from its last checkpoint" in changed.err) == (1, True)
    monkeypatch.setattr("launcher.backends.kubernetes.backend._GONE_SECONDS", 30)
    err = io.StringIO()
    with ThreadPoolExecutor(1) as pool:
        later = pool.submit(cli, "submit", "-f", file, "--detach", "-o", "json", err=err)
        until(lambda: waits in err.getvalue(), 60)
        assert not later.done()
        admin.merge(path_of(old), {"metadata": {"finalizers": None}})
        assert (later.result().code, later.result().json["attempt"]) == (0, 2)
    message = 'The run "demo" was deleted; it continues from its last checkpoint, if it wrote one, as attempt 2.'
    assert message in later.result().err.splitlines()
    (new,) = cli.runs(admin)
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert new["metadata"]["labels"]["slipway.dev/sweep"] == "study"


def test_a_failed_create_after_the_record_was_deleted_is_reported(
    cli: LauncherCli, control_plane: ControlPlane, admin: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second request is refused here, because a real API server cannot be stopped exactly between two requests."""
    _, file = in_state("failed", cli, control_plane)
    create = Cluster.create

    def fail(self: Cluster, obj: Object, *, dry_run: bool = False, strict: bool = False) -> Object:
        if not dry_run:
            raise Unreachable("The API server does not answer.", "Try again.")
        return create(self, obj, dry_run=dry_run, strict=strict)

    with monkeypatch.context() as patched:
        patched.setattr(Cluster, "create", fail)
        done = cli("submit", "-f", file, "--detach")
    assert (done.code, done.err.splitlines()[1:]) == (
        1,
        [
            'Error: The record of attempt 1 of the run "demo" was deleted, but attempt 2 was not created. The API '
            "server does not answer.",
            "Hint: Try again. Submit the run again to continue from its last checkpoint; its attempts restart from 1.",
        ],
    )
    assert cli.runs(admin) == []


@pytest.mark.parametrize("kind", KINDS)
def test_objects_that_slipway_did_not_create_are_not_changed(kind: str, cli: LauncherCli, admin: Api) -> None:
    """An object of another user with the same name, of both kinds, and runs of both kinds."""
    file = cli.values("job-set", name="ours")
    cli("submit", "-f", file, "--detach")
    (made,) = cli.runs(admin)
    theirs = {"ray-job": RAY_JOB, "job-set": {**made, "metadata": {}}}[kind]
    theirs = {**theirs, "metadata": {"name": "demo", "namespace": cli.namespace}}
    theirs.pop("status", None)
    theirs = admin.create(theirs)
    says = (
        f'The {theirs["kind"]} "demo" already exists in the namespace {cli.namespace}, but Slipway did not create it.',
        "Use another name (--name).",
    )
    for kind_, option in (("job-set", "--detach"), ("ray-job", "--dry-run")):
        refused = cli("submit", "-f", cli.values(kind_), option)
        assert (refused.code, refused.err.splitlines()[-2:]) == (1, [f"Error: {says[0]}", f"Hint: {says[1]}"])
    for verb in ("status", "logs", "cancel", "delete", "wait"):
        refused = cli(verb, "demo", "-n", cli.namespace)
        assert (refused.code, refused.err.splitlines()[0]) == (
            1,
            f'Error: The run "demo" was not found in the {cli.target}.',
        ), verb
    assert [run["name"] for run in cli("list", "-n", cli.namespace, "-o", "json").json] == ["ours"]
    assert admin.get(path_of(theirs)) == theirs


def test_a_run_of_helm_is_followed_and_not_replaced(cli: LauncherCli, admin: Api) -> None:
    file = cli.values("job-set")
    helm = [str(tool("helm")), "--kubeconfig", str(cli.kubeconfig), "-n", cli.namespace]
    subprocess.run([*helm, "install", "release", "charts/run", "-f", file], check=True, capture_output=True, cwd=ROOT)
    (run,) = cli.runs(admin)
    found = cli("submit", "-f", file, "--detach")
    assert (found.code, 'The run "demo" is already queued, with the same config.' in found.err) == (0, True)
    failed = {"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "It failed."}
    failed["lastTransitionTime"] = "2026-01-02T03:04:05Z"
    admin.merge(f"{path_of(run)}/status", {"status": {"conditions": [failed]}})
    arguments = {"replaced": ["submit", "-f", file], "deleted": ["delete", "demo", "--yes", "-n", cli.namespace]}
    for what, typed in arguments.items():
        refused = cli(*typed)
        assert (refused.code, refused.err.splitlines()[-2:]) == (
            1,
            [
                f'Error: The run "demo" is the Helm release release, and cannot be {what} without it.',
                f"Hint: To remove it: helm uninstall release -n {cli.namespace}",
            ],
        )
    assert admin.get(path_of(run))["metadata"]["uid"] == run["metadata"]["uid"]


def test_a_refused_submit_keeps_the_record(cli: LauncherCli, control_plane: ControlPlane, admin: Api) -> None:
    """A policy and a quota are checked before the record of a failed run is deleted."""
    before, file = in_state("failed", cli, control_plane)
    with policy(admin, cli, "No JobSets on Fridays."):
        refused = cli("submit", "-f", file, "--detach")
    assert (refused.code, refused.err) == (
        1,
        f"Submitting to {cli.target}.\nError: The API server of the context admin rejects the request: No JobSets "
        "on Fridays. "
        f"(from the policy refuse-{cli.namespace})\n",
    )
    assert admin.get(path_of(before))["metadata"]["uid"] == before["metadata"]["uid"]
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "runs", "namespace": cli.namespace},
        "spec": {"hard": {"count/jobsets.jobset.x-k8s.io": "1"}},
    }
    admin.create(quota)
    until(lambda: admin.get(path_of(quota)).get("status", {}).get("used") == {"count/jobsets.jobset.x-k8s.io": "1"})
    refused = cli("submit", "-f", file, "--detach")
    full = "The ResourceQuota runs in the context admin is used up: 1 of 1 jobsets.jobset.x-k8s.io are in use."
    assert (refused.code, refused.err.splitlines()[1:]) == (
        1,
        [
            f"Error: {full}",
            f"Hint: The record of the last attempt counts, too. Delete it (launcher delete demo -n {cli.namespace}) "
            "and submit the run again; it then also continues from its last checkpoint.",
        ],
    )
    assert admin.get(path_of(before))["metadata"]["uid"] == before["metadata"]["uid"]
    another = cli("submit", "-f", cli.values("job-set", name="another"), "--detach")
    assert (another.code, another.err.splitlines()[1:]) == (
        1,
        [f"Error: {full}", "Hint: Delete what is no longer needed, or ask the platform team for more."],
    )
    assert [run["metadata"]["name"] for run in cli.runs(admin)] == ["demo"]


@contextlib.contextmanager
def policy(admin: Api, cli: LauncherCli, message: str) -> Iterator[None]:
    """While this is open, an admission policy of Kubernetes rejects all JobSets of the namespace."""
    group = "admissionregistration.k8s.io/v1"
    name = f"refuse-{cli.namespace}"
    rule = {"apiGroups": ["jobset.x-k8s.io"], "apiVersions": ["*"], "resources": ["jobsets"], "operations": ["CREATE"]}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": cli.namespace}}
    made = [
        {
            "apiVersion": group,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "matchConstraints": {"resourceRules": [rule], "namespaceSelector": selector},
                "validations": [{"expression": "false", "message": message}],
            },
        },
        {
            "apiVersion": group,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]
    for obj in made:
        admin.create(obj)
    probe = cli.values("job-set", name="probe")
    until(lambda: cli("submit", "-f", probe, "--dry-run").code == 1)  # a policy takes effect with a delay
    yield
    for obj in made:
        admin.delete(path_of(obj))
    until(lambda: cli("submit", "-f", probe, "--dry-run").code == 0)


RAY_JOB = {
    "apiVersion": "ray.io/v1",
    "kind": "RayJob",
    "spec": {
        "entrypoint": "python -c 'print(1)'",
        "rayClusterSpec": {
            "headGroupSpec": {
                "rayStartParams": {},
                "template": {"spec": {"containers": [{"name": "head", "image": "example.invalid/ray:1"}]}},
            }
        },
    },
}
