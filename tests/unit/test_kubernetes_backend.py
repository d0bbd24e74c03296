"""Runs on a cluster if another client changes them at the same time, or if a part of the cluster cannot be read.

A recorded cluster with scripted writes replaces the API server: these moments take many requests to cause.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from launcher import api
from launcher.backends.base import State
from launcher.backends.kubernetes import logs as kubernetes_logs
from launcher.backends.kubernetes import submitter as kubernetes
from launcher.backends.kubernetes.submitter import KubernetesSubmitter
from launcher.config.checks.problems import ERROR, Problem
from launcher.config.plan import CheckFailed, LaunchPlan
from launcher.errors import LauncherError
from launcher.k8s.client import AlreadyExists, ClusterError, Conflict, Kind, NoNamespace
from launcher.trainer_output import EVENT_PREFIX, METRICS_PREFIX
from tests.unit import recorded
from tests.unit.recorded import Object, Recorded

RUN = "slipway.dev/run"
STARTED = EVENT_PREFIX + '{"event": "loop_started", "step": 0, "steps": 9, "devices": 4}'


class Cluster(Recorded):
    """`creates`: what each create raises, or None. `deletes`: what a delete raises. `log`: of every pod."""

    description, cli_args, name, context = "cluster x, context lab, namespace research", " -n research", "lab", "lab"
    namespace = "research"

    def __init__(self, of: Recorded) -> None:
        super().__init__(of.objects, of.now)
        self.creates: list[ClusterError | None] = []
        self.deletes: ClusterError | None = None
        self.log: list[str] = []
        self.written: list[str] = []
        for obj in self.objects:
            if obj["kind"] in ("JobSet", "RayJob"):
                obj["metadata"].setdefault("labels", {})[RUN] = obj["metadata"]["name"]
                self.namespace = obj["metadata"]["namespace"]

    def list(self, kind: Kind, namespace: str | None = None, *, labels: str = "", **how: Any) -> Any:
        found = super().list(kind, namespace or self.namespace, labels="" if labels == RUN else labels, **how)
        return [obj for obj in found if labels != RUN or RUN in obj["metadata"].get("labels", {})]

    def create(self, obj: Object, *, dry_run: bool = False, strict: bool = False) -> Object:
        error = self.creates.pop(0) if self.creates else None
        if error is not None:
            raise error
        if not dry_run:
            self.written.append(f"create {obj['metadata']['name']}")
        meta = {**obj["metadata"], "uid": "new", "creationTimestamp": "2026-11-01T10:00:00Z"}
        return {**obj, "metadata": meta}

    def delete(self, kind: Kind, name: str, namespace: str | None = None, *, uid: str | None = None) -> bool:
        if self.deletes is not None:
            raise self.deletes
        self.written.append(f"delete {name}")
        self.objects = [obj for obj in self.objects if obj["metadata"].get("uid") != uid]
        return True

    def logs(self, pod: str, **_: object) -> Iterator[str]:
        yield from self.log


def cluster(recording: str, seconds: float) -> Cluster:
    return Cluster(recorded.at(recording, seconds))


def backend(of: Cluster, *problems: Problem) -> KubernetesSubmitter:
    return KubernetesSubmitter(cast(Any, of), poll_seconds=0.0, preflight=lambda *_: problems)


@pytest.fixture
def plan(tmp_path: Path, helm4: Path, monkeypatch: pytest.MonkeyPatch) -> LaunchPlan:
    monkeypatch.setenv("SLIPWAY_HELM", str(helm4))
    file = tmp_path / "run.yaml"
    file.write_text(
        "run: {name: demo, kind: job-set}\ntrain: {steps: 3}\ndata: {corpus: python}\nstorage: {bucket: runs}\n"
        "slice: {accelerator: v5e, topology: 2x4}\nimage: {repository: example.com/trainer, tag: v1}\n"
        "worker: {cpu: '8', memory: 8Gi}\n"
    )
    return api.plan([str(file)], [])


# --- changes ---


def test_python_deletes_no_run_that_is_active_or_was_submitted_again() -> None:
    here = cluster("three-then-one-and-two", 22)
    with pytest.raises(LauncherError, match='The run "slices-3" is running') as error:
        backend(here).delete("slices-3")
    assert error.value.hint == f"Cancel it first: launcher cancel slices-3{here.cli_args}"
    here = cluster("three-then-one-and-two", 50)
    here.deletes = Conflict("The uid differs.")
    with pytest.raises(LauncherError, match='"slices-3" was submitted again in the meantime; nothing was deleted'):
        backend(here).delete("slices-3")
    here.deletes = None
    backend(here).delete("slices-3")
    assert here.written == ["delete slices-3"]


@pytest.mark.parametrize("verb", ["delete", "cancel", "logs", "metrics"])
def test_a_run_that_another_user_has_just_deleted(verb: str) -> None:
    runs = backend(cluster("three-then-one-and-two", 22))
    options: dict[str, Any] = {"follow": False, "worker": None} if verb == "logs" else {}
    with pytest.raises(LauncherError, match='The run "demo" was not found in the cluster x'):
        getattr(runs, verb)("demo", **options)
    assert runs.config_of("demo") == {}


def test_a_submit_gives_up_if_others_create_and_delete_the_run_all_the_time(plan: LaunchPlan) -> None:
    here = cluster("three-then-one-and-two", 22)
    here.creates = [AlreadyExists("It exists.")] * kubernetes._RACES
    with pytest.raises(LauncherError, match="another user creates and deletes it at the same time") as error:
        backend(here).submit(plan, accept_changes=False)
    assert error.value.hint.startswith("Use another name (--name)")
    assert here.written == []


def test_a_problem_of_the_cluster_stops_a_submit_that_does_not_force_it(plan: LaunchPlan) -> None:
    here = cluster("three-then-one-and-two", 22)
    problem = Problem("live.no_flavor", ERROR, "It can never start.", None, None, "")
    runs = backend(here, problem)
    runs.prepare([plan])
    here.creates = [AlreadyExists("It exists.")]  # other reasons of the cluster are reported later
    with pytest.raises(CheckFailed, match=r"It can never start\.") as error:
        runs.submit(plan, accept_changes=False)
    assert error.value.hint == "To submit it anyway, use --force."
    here.creates = [NoNamespace("There is no namespace.")]
    with pytest.raises(LauncherError, match=r"The namespace .* does not exist in lab"):
        runs.submit(plan, accept_changes=False)
    assert here.written == []
    forced = runs.submit(replace(plan, force=True), accept_changes=False)
    assert "\nWarning: It can never start." in forced.message
    assert here.written == ["create demo"]
    assert runs.problems(plan) == (problem,)


# --- reading ---


def test_a_list_without_the_right_to_read_pods() -> None:
    here = cluster("rayjob-succeeds", 20)
    states = [run.state for run in backend(here).list(print)]
    here.hidden = {("pods", here.namespace)}
    assert [run.state for run in backend(here).list(print)] == states == [State.STARTING]


def test_a_status_without_the_right_to_read_events() -> None:
    here = cluster("three-then-one-and-two", 3)
    seen = backend(here).status("slices-3")
    assert any(request.startswith("events") for request in here.requests)
    here.hidden = {("events", here.namespace)}
    assert backend(here).status("slices-3") == seen


def with_log(*lines: str, recording: str = "rayjob-succeeds", run: str = "good", seconds: float = 25) -> Any:
    here = cluster(recording, seconds)
    here.log = list(lines)
    return backend(here).status(run)


def test_the_reason_of_a_failed_run_is_the_sentence_of_its_trainer() -> None:
    lines = ("Traceback", "Error: The run's storage is full.")
    status = with_log(*lines, recording="rayjob-fails", run="bad", seconds=20)
    assert (status.state, status.reason) == (State.FAILED, "The run's storage is full.")


def test_a_running_run_whose_worker_failed_is_restarting() -> None:
    failed = EVENT_PREFIX + '{"event": "worker_failed", "message": "Host 1 was lost."}'
    status = with_log(STARTED, METRICS_PREFIX + '{"step": 3, "loss": 2.0}', failed)
    assert (status.state, status.reason, status.step) == (State.RESTARTING, "Host 1 was lost.", 4)
    status = with_log(STARTED, failed, STARTED.replace('"step": 0', '"step": 4'))
    assert (status.state, status.restarts) == (State.RUNNING, 1)


def test_the_first_loss_of_a_long_log_is_unknown() -> None:
    steps = [f'{METRICS_PREFIX}{{"step": {step}, "loss": {500 - step}}}' for step in range(kubernetes_logs.TAIL_LINES)]
    status = with_log(*steps[:-1])
    assert (status.loss_first, status.loss) == (500.0, 102.0)
    status = with_log(*steps)
    assert (status.loss_first, status.loss) == (None, 101.0)
