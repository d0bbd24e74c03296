"""Alternatives of slice.any that need runs of their own, in front of a real API server."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from launcher import api
from launcher.backends.base import RunStatus, Submission
from launcher.backends.kubernetes import reader
from launcher.backends.kubernetes.backend import KubernetesBackend
from launcher.backends.kubernetes.run_object import RunObject
from launcher.backends.kubernetes.submitter import KubernetesSubmitter
from launcher.cli.follow import follow
from launcher.k8s.client import Cluster
from launcher.k8s.errors import Unreachable
from launcher.k8s.label_keys import RUN_CONFIG
from launcher.k8s.target import Target
from tests.cluster.api import Api, ApiError, Object, path_of
from tests.cluster.control_loop import control_loop
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_controllers import controllers, queued_workload
from tests.cluster.launching import JOB_SETS, KUEUE, LauncherCli, fast_polling, until

QUEUE = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "alternatives"}}
QUOTA = {"v5e-2x4": 8, "v5e-4x4": 16}
SMALL, LARGE = {"topology": "2x4"}, {"topology": "4x4", "train": {"per_device_batch_size": 1}}


def use(admin: Api, **chips: int) -> None:
    """Write into the queue's status how many chips of each flavor its runs hold, as Kueue does."""
    used = [
        {"name": f"v5e-{name}", "resources": [{"name": "google.com/tpu", "total": str(amount)}]}
        for name, amount in ((key.removeprefix("of_"), value) for key, value in chips.items())
    ]
    status = {"flavorsReservation": used, "flavorsUsage": used, "reservingWorkloads": 1, "admittedWorkloads": 1}
    admin.merge(f"{path_of(QUEUE)}/status", {"status": status})


@pytest.fixture
def queue(cli: LauncherCli, admin: Api) -> Iterator[None]:
    """A queue with one slice of 2x4 and one of 4x4, which the team's runs wait in."""
    flavors = [
        {"name": name, "resources": [{"name": "google.com/tpu", "nominalQuota": str(chips)}]}
        for name, chips in QUOTA.items()
    ]
    cpu = [{"name": name, "nominalQuota": amount} for name, amount in (("cpu", "1000"), ("memory", "4000Gi"))]
    groups = [
        {"coveredResources": ["google.com/tpu"], "flavors": flavors},
        {"coveredResources": ["cpu", "memory"], "flavors": [{"name": "cpu", "resources": cpu}]},
    ]
    spec = {"namespaceSelector": {}, "resourceGroups": groups}
    admin.create({**QUEUE, "spec": spec})
    local = {"apiVersion": QUEUE["apiVersion"], "kind": "LocalQueue"}
    metadata = {"name": "alternatives", "namespace": cli.namespace}
    admin.create({**local, "metadata": metadata, "spec": {"clusterQueue": "alternatives"}})
    yield
    admin.delete(path_of(QUEUE))
    until(lambda: admin.find(path_of(QUEUE)) is None)


@contextlib.contextmanager
def kueue_queues_runs(plane: ControlPlane, namespace: str) -> Iterator[None]:
    """While this is open, each JobSet gets its Workload, as from Kueue, which is not available where the tests run."""
    with contextlib.closing(Api(plane.admin)) as client:

        def step() -> None:
            there = {
                owner["uid"]
                for workload in client.items(f"{KUEUE.format(namespace)}/workloads")
                for owner in workload["metadata"]["ownerReferences"]
            }
            for run in client.items(JOB_SETS.format(namespace)):
                if run["metadata"]["uid"] not in there:
                    made = queued_workload(
                        {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", **run}, "alternatives"
                    )
                    made["metadata"]["name"] += f"-{run['metadata']['uid'][:4]}"
                    with contextlib.suppress(ApiError):  # the run has just been deleted
                        client.create(made)

        with controllers(plane, namespace), control_loop(step, revision=plane.revision, name="kueue"):
            yield


def values(cli: LauncherCli, *alternatives: Object) -> str:
    return cli.values("job-set", queue={"name": "alternatives"}, slice={"any": list(alternatives)})


def config_of(run: Object) -> str:
    template = run["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    return str(template["metadata"]["annotations"][RUN_CONFIG])


def hosts(run: Object) -> int:
    return int(run["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"])


@pytest.mark.usefixtures("queue")
def test_the_first_alternative_with_free_quota_is_submitted(cli: LauncherCli, admin: Api) -> None:
    file = values(cli, SMALL, LARGE)
    use(admin, of_2x4=8, of_4x4=0)
    dry = cli("submit", "-f", file, "--dry-run")
    assert (dry.code, dry.err.splitlines()[0]) == (0, "Submitting alternative 2 of 2 (v5e 4x4, on-demand).")
    done = cli("submit", "-f", file, "--detach", "-o", "json")
    assert (done.code, done.json["accelerator"]) == (0, "v5e 4x4"), done.err
    assert "Warning: Only a submit without --detach tries another alternative of slice.any later." in done.err
    (run,) = cli.runs(admin)
    assert hosts(run) == 4
    assert '"per_device_batch_size": 1' in config_of(run).replace('":1', '": 1')
    # The run keeps its alternative, although the first one has room now.
    use(admin, of_2x4=0, of_4x4=16)
    again = cli("submit", "-f", file, "--detach")
    assert (again.code, again.err.splitlines()[1]) == (0, 'The run "demo" is already queued, with the same config.')
    same = cli("diff", "-f", file)
    assert (same.code, same.err.splitlines()[-1]) == (0, "Objects: 1 unchanged.")


@pytest.mark.usefixtures("queue")
def test_alternatives_that_cannot_start_are_dropped(cli: LauncherCli, admin: Api) -> None:
    use(admin, of_2x4=8, of_4x4=16)
    two = {"topology": "2x4", "count": 2}  # the queue has one slice
    checked = cli("check", "-f", values(cli, two, LARGE), "--live", "-o", "json")
    assert checked.code == 0
    [problem] = checked.json
    assert problem["severity"] == "warning"
    assert problem["message"].startswith("alternative 1 of 2 (2 x v5e 2x4, on-demand) is dropped: ")
    done = cli("submit", "-f", values(cli, two, LARGE), "--dry-run")
    lines = done.err.splitlines()
    assert "alternative 1 of 2 (2 x v5e 2x4, on-demand) is dropped: " in lines[0]
    assert "Submitting alternative 2 of 2 (v5e 4x4, on-demand)." in lines
    none = cli("submit", "-f", values(cli, two, {"topology": "8x8"}), "--dry-run")
    assert none.code == 1
    assert "alternative 1 of 2 (2 x v5e 2x4, on-demand): " in none.err
    assert "alternative 2 of 2 (v5e 8x8, on-demand): " in none.err
    assert none.err.endswith(
        "Hint: No alternative of slice.any is possible. To submit the first anyway, use --force.\n"
    )


@pytest.mark.usefixtures("queue")
def test_a_run_that_waits_too_long_tries_the_next_alternative(
    cli: LauncherCli, control_plane: ControlPlane, admin: Api
) -> None:
    use(admin, of_2x4=8, of_4x4=16)
    process = cli.start("submit", "-f", values(cli, SMALL, {**LARGE, "after": "1s"}))
    with kueue_queues_runs(control_plane, cli.namespace):
        try:
            second = until(lambda: [run for run in cli.runs(admin) if hosts(run) == 4], 90)[0]
            assert second["metadata"]["annotations"]["slipway.dev/attempt"] == "2"
            # It keeps its place in the queue until the first alternative has room.
            use(admin, of_2x4=0, of_4x4=16)
            third = until(lambda: [run for run in cli.runs(admin) if hosts(run) == 2], 90)[0]
            assert third["metadata"]["annotations"]["slipway.dev/attempt"] == "3"
            # On a slow machine, submit switches again. Between two attempts, no run is found.
            until(lambda: cli("cancel", "demo", "-n", cli.namespace).code == 0, 90)
            _, err = process.communicate(timeout=90)
        finally:
            process.kill()
    assert process.returncode == 1  # the run was cancelled
    switches = re.findall(r"waited [^;]+ for (alternative \d) [^;]+; it now waits for (alternative \d)", err)
    assert switches[:2] == [("alternative 1", "alternative 2"), ("alternative 2", "alternative 1")]


class Switch:
    """A run that waits for its first alternative, and a submit that is about to switch it to the second."""

    def __init__(self, cli: LauncherCli) -> None:
        self.target = Target(namespace=cli.namespace)
        with fast_polling():
            self.plan = api.plan([values(cli, SMALL, {**LARGE, "after": "0s"})])
            self.backend = api.backend_for(self.plan, self.target)
            self.status = self.backend.submit(self.plan, accept_changes=False).status
        self.alternatives = api.Alternatives(self.plan, self.backend)

    def __call__(self) -> Submission | None:
        return self.alternatives.switch(self.status)

    def cancel(self) -> RunStatus:
        """Cancel the run as another client."""
        with fast_polling():
            return api.cancel("demo", target=self.target)


@pytest.fixture
def switch(
    cli: LauncherCli, control_plane: ControlPlane, admin: Api, queue: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Switch]:
    use(admin, of_2x4=8, of_4x4=0)
    cli.use_environment(monkeypatch)
    with kueue_queues_runs(control_plane, cli.namespace):
        yield Switch(cli)


@pytest.mark.parametrize("moment", ["chosen", "marked", "about to be deleted"])
def test_a_run_that_is_cancelled_during_a_switch_stays_cancelled(
    switch: Switch, cli: LauncherCli, admin: Api, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    cancelled: list[RunStatus] = []

    def cancel_before(owner: Any, method: str) -> None:
        original = getattr(owner, method)

        def cancel_first(*arguments: Any, **named: Any) -> Any:
            monkeypatch.setattr(owner, method, original)
            cancelled.append(switch.cancel())
            return original(*arguments, **named)

        monkeypatch.setattr(owner, method, cancel_first)

    match moment:
        case "chosen":
            cancel_before(KubernetesSubmitter, "switch")
        case "marked":
            cancel_before(KubernetesBackend, "_stop_and_wait")
        case _:
            cancel_before(Cluster, "delete")
    assert switch() is None
    assert [(each.state, each.reason) for each in cancelled] == [("cancelled", "Cancelled.")]
    (run,) = cli.runs(admin)
    assert (hosts(run), "slipway.dev/attempt" in run["metadata"].get("annotations", {})) == (2, False)
    now = api.status("demo", target=switch.target)
    assert (now.state, now.reason, now.attempt) == ("cancelled", "Cancelled.", 1)
    switch.status = now
    assert switch() is None
    assert len(cli.runs(admin)) == 1


def test_a_cancel_while_the_last_attempt_is_deleted_ends_the_next(
    switch: Switch, cli: LauncherCli, admin: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    (first,) = cli.runs(admin)
    # Holds the object, as KubeRay's finalizer holds a RayJob.
    admin.merge(path_of(first), {"metadata": {"finalizers": ["example.com/held"]}})
    results: list[RunStatus] = []
    canceller = threading.Thread(target=lambda: results.append(switch.cancel()))
    waits = threading.Event()
    wait_until_gone = KubernetesBackend._wait_until_gone

    def cancel_first(backend: KubernetesBackend, run: RunObject) -> None:
        if cast(object, backend) is switch.backend:
            canceller.start()
            assert waits.wait(30)
            admin.merge(path_of(first), {"metadata": {"finalizers": None}})
        else:
            waits.set()
        wait_until_gone(backend, run)

    monkeypatch.setattr(KubernetesBackend, "_wait_until_gone", cancel_first)
    switched = switch()
    canceller.join(60)
    assert switched is not None
    assert [(each.state, each.reason, each.attempt) for each in results] == [("cancelled", "Cancelled.", 2)]
    assert api.status("demo", target=switch.target).state == "cancelled"


type InTheGap = Callable[[Callable[[], Any]], Any]


@pytest.fixture
def in_the_gap(switch: Switch, monkeypatch: pytest.MonkeyPatch) -> InTheGap:
    """Switches the run and calls a function of another client, and returns its result.

    The function starts after the first attempt is deleted, or `before` the switch. The next attempt is created only
    after the function has found no run. `after` is called after the switch.
    """

    def run(function: Callable[[], Any], *, before: bool = False, after: Callable[[], Any] = lambda: None) -> Any:
        create, find, results = Cluster.create, reader.find, []
        looked, missed = threading.Event(), threading.Event()
        caller = threading.Thread(target=lambda: results.append(function()))

        def observed(cluster: Cluster, name: str) -> RunObject | None:
            found = find(cluster, name)
            if cluster is not switch.backend.cluster:
                (looked if found else missed).set()
            return found

        def create_later(cluster: Cluster, *arguments: Any, **named: Any) -> Any:
            if not named.get("dry_run"):
                if not before:
                    caller.start()
                assert missed.wait(30)
            return create(cluster, *arguments, **named)

        monkeypatch.setattr(reader, "find", observed)
        monkeypatch.setattr(Cluster, "create", create_later)
        if before:
            caller.start()
            assert looked.wait(30)
        switched = switch()
        assert switched is not None
        after()
        caller.join(60)
        (result,) = results
        return result

    return run


def test_a_cancel_between_two_attempts_ends_the_next(
    switch: Switch, in_the_gap: Any, cli: LauncherCli, admin: Api
) -> None:
    status = in_the_gap(switch.cancel)
    assert (status.state, status.reason, status.attempt) == ("cancelled", "Cancelled.", 2)
    switch.status = api.status("demo", target=switch.target)
    assert switch() is None
    assert len(cli.runs(admin)) == 1


def test_the_command_cancel_between_two_attempts_ends_the_next(
    switch: Switch, in_the_gap: Any, cli: LauncherCli
) -> None:
    done = in_the_gap(lambda: cli("cancel", "demo", "-n", cli.namespace))
    assert (done.code, done.err.splitlines()[-1]) == (0, 'The run "demo" is cancelled.')
    assert api.status("demo", target=switch.target).attempt == 2


@pytest.mark.parametrize("verb", ["wait", "attach"])
def test_wait_and_attach_continue_with_the_next_attempt(
    switch: Switch, in_the_gap: Any, cli: LauncherCli, verb: str
) -> None:
    done = in_the_gap(lambda: cli(verb, "demo", "-n", cli.namespace, "-o", "json"), before=True, after=switch.cancel)
    found = json.loads(done.out)
    assert (done.code, found["attempt"], found["reason"]) == (1, 2, "Cancelled.")


def test_a_run_that_does_not_exist_cannot_be_cancelled(cli: LauncherCli) -> None:
    done = cli("cancel", "demo", "-n", cli.namespace)
    assert done.code == 1
    assert done.err.startswith('Error: The run "demo" was not found')


def test_a_cancel_of_a_pattern_ends_a_run_that_is_switched(
    switch: Switch, cli: LauncherCli, admin: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The submit was killed between the cancel and the delete."""

    def killed(*_: Any, **__: Any) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Cluster, "delete", killed)
        with pytest.raises(KeyboardInterrupt):
            switch()
    status = cli("status", "demo", "-n", cli.namespace)
    assert "launcher submit replaces it with another alternative of slice.any." in status.out
    done = cli("cancel", "dem*", "-n", cli.namespace)
    assert (done.code, done.err.splitlines()[-1]) == (0, 'The run "demo" is cancelled.')
    assert api.status("demo", target=switch.target).reason == "Cancelled."


@pytest.mark.parametrize("method", ["patch", "delete", "create"])
@pytest.mark.parametrize("processed", [False, True], ids=["lost", "processed"])
def test_a_switch_continues_when_the_api_server_answers_again(
    switch: Switch, cli: LauncherCli, admin: Api, monkeypatch: pytest.MonkeyPatch, method: str, processed: bool
) -> None:
    """A request or its answer is lost; the loop that follows the run retries, and is not ended by the cancelled run."""
    original = getattr(Cluster, method)
    lost: list[str] = []

    def lose_first(cluster: Cluster, *arguments: Any, **named: Any) -> Any:
        answer = original(cluster, *arguments, **named) if processed or lost or named.get("dry_run") else None
        if not lost and not named.get("dry_run"):
            lost.append(method)
            raise Unreachable("The API server did not answer.")
        return answer

    monkeypatch.setattr(Cluster, method, lose_first)
    monkeypatch.setattr("launcher.api.alternatives._LOOK_SECONDS", 60.0)
    ended: list[RunStatus] = []
    follower = threading.Thread(
        target=lambda: ended.append(follow(switch.backend, switch.status, alternatives=switch.alternatives))
    )
    follower.start()
    until(lambda: lost and [run for run in cli.runs(admin) if hosts(run) == 4], 60)
    until(lambda: switch.alternatives.plan.alternative and switch.alternatives.plan.alternative.number == 2, 60)
    switch.cancel()
    follower.join(60)
    assert [(each.state, each.reason, each.attempt) for each in ended] == [("cancelled", "Cancelled.", 2)]


@pytest.mark.usefixtures("queue")
def test_the_flavor_that_a_run_got_is_shown(cli: LauncherCli, control_plane: ControlPlane, admin: Api) -> None:
    file = values(cli, {"topology": "2x4"}, {"topology": "2x4", "provisioning": "spot"})
    done = cli("submit", "-f", file, "--detach", "-o", "json")
    assert (done.code, done.json["provisioning"]) == (0, "on-demand or spot"), done.err
    assert "Submitting alternative" not in done.err  # Kueue selects
    (run,) = cli.runs(admin)
    with kueue_queues_runs(control_plane, cli.namespace):
        [workload] = until(lambda: admin.items(f"{KUEUE.format(cli.namespace)}/workloads"))
    path = path_of({"apiVersion": QUEUE["apiVersion"], "kind": "Workload", **workload})
    chips = {"flavors": {"google.com/tpu": "v5e-2x4"}, "resourceUsage": {"google.com/tpu": "8"}, "count": 2}
    admission = {"clusterQueue": "alternatives", "podSetAssignments": [{"name": "slice", **chips}]}
    now = run["metadata"]["creationTimestamp"]
    reserved = {"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "Quota reserved"}
    admin.merge(
        f"{path}/status",
        {"status": {"admission": admission, "conditions": [{**reserved, "lastTransitionTime": now}]}},
    )
    status = cli("status", "demo", "-n", cli.namespace)
    assert "1 x v5e 2x4, flavor v5e-2x4" in status.out
    listed = cli("list", "-n", cli.namespace)
    assert "1 x v5e 2x4, flavor v5e-2x4" in listed.out
    report = cli("report", "demo", "-n", cli.namespace, "--out", str(cli.folder / "demo.html"))
    assert report.code == 0, report.err
    assert "v5e 2x4, flavor v5e-2x4" in (cli.folder / "demo.html").read_text(encoding="utf-8")
