"""Real trainings that the command starts: a tiny model, on one host and with Ray, and a kill of each of its processes.

Each start costs tens of seconds of processor time, so the tests share runs. `plain` is the undisturbed run; the
disturbed run of one host must have the same numbers, bit for bit.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest

from launcher.backends.local.record import ENDED, read_events
from launcher.backends.local.submitter import LocalSubmitter
from launcher.config.values.writer import dumps
from tests import compiled_programs
from tests.cli.conftest import Launcher, Result, end_all, eventually
from tests.trainer.runs import PATIENCE, STEPS, TRAIN, TrainingHarness, lines, numbers

# The steps of a run that must not end before it was killed five times; its first steps are those of `plain`.
LONG = 5000
# The learning rate of a step must not depend on the number of steps, so that a run can be continued.
SCHEDULE = {"learning_rate_schedule_steps": LONG, "warmup_steps_fraction": 4 / LONG}
Start = Callable[..., tuple[str, ...]]


@dataclass(frozen=True)
class Plain:
    """The undisturbed run right after its end. It is recorded, because a later test submits the run again."""

    result: Result
    status: dict[str, Any]
    log: str
    numbers: list[tuple[Any, ...]]
    checkpoints: list[str]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """The launcher with one home for all runs of this module, so that they share their compiled programs."""
    root = tmp_path_factory.mktemp("training")
    (root / "here").mkdir()
    for private in (root / "home", root / "home" / "runs"):
        private.mkdir(mode=0o700)
    command = Launcher(root / "home", root / "here", measured=False)
    with compiled_programs.kept(command.home / "runs"):
        yield command
        end_all(command)


@pytest.fixture(scope="module")
def submit(trained: Launcher, lab: TrainingHarness) -> Start:
    """A function that writes the values of a run and returns the arguments that submit it."""

    def arguments(name: str, *, hosts: int = 1, **train: Any) -> tuple[str, ...]:
        tree = {
            "run": {"name": name, "kind": "local", "maxRestarts": 2},
            "slice": {"accelerator": "cpu", "hosts": hosts},
            "storage": {"kind": "local"},
            "data": {"corpus": "python", "tokenizer": {"path": str(lab.tokenizer)}},
            "train": {**TRAIN, **SCHEDULE, **train},
        }
        return ("submit", "-f", trained.write(f"{name}.yaml", dumps(tree)))

    return arguments


# A shell behind a proxy, with another Ray cluster and other devices. None of it reaches the run.
SHELL = {
    **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9"),
    "RAY_ADDRESS": "http://127.0.0.1:8265",
    "JAX_PLATFORMS": "tpu",
    "XLA_FLAGS": "--xla_force_host_platform_device_count=3",
}


@pytest.fixture(scope="module")
def plain(trained: Launcher, submit: Start) -> Plain:
    result = trained(*submit("plain"), seconds=PATIENCE, env=SHELL)
    assert result.code == 0, result.err + trained("logs", "plain").out[-4000:]
    folder = trained.home / "runs" / "plain"
    return Plain(
        result,
        trained("status", "plain", "-o", "json").json,
        trained("logs", "plain").out,
        numbers(lines(folder / "metrics.jsonl")),
        sorted(path.name for path in (folder / "checkpoints").iterdir()),
    )


def step(launcher: Launcher, name: str) -> int:
    """Return the last finished step, counted from 0; -1 before the first."""
    path = launcher.home / "runs" / name / "metrics.jsonl"
    return max((line["step"] for line in lines(path) if "loss" in line), default=-1)


def until(launcher: Launcher, name: str, condition: Callable[[], object]) -> None:
    """Wait until the condition holds; fail if the run ends before."""

    def holds() -> bool:
        if condition():
            return True
        assert launcher.record(name).state not in ENDED, launcher("logs", name).out[-4000:]
        return False

    eventually(holds, PATIENCE)


def until_step(launcher: Launcher, name: str, number: int) -> None:
    until(launcher, name, lambda: step(launcher, name) >= number)


def pids(launcher: Launcher, name: str, *patterns: str) -> list[int]:
    """Return the run's processes whose command line contains a pattern."""
    found = []
    for pid in sorted(launcher.processes(name)):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        if any(pattern in command for pattern in patterns):
            found.append(pid)
    return found


def kill(launcher: Launcher, name: str, *patterns: str, count: int | None = None) -> int:
    """Send SIGKILL to the run's processes whose command line contains a pattern, and return their number."""
    found = pids(launcher, name, *patterns)[:count]
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return len(found)


# Sends requests to Ray with and without its token, and then reads files as another user, if it can become one.
ATTACK = """
import http.client, json, os, sys
import grpc
gcs, agent, folder, pid, token = sys.argv[1:]
found = {}
call = grpc.insecure_channel(f"127.0.0.1:{gcs}", options=[("grpc.enable_http_proxy", 0)]).unary_unary(
    "/ray.rpc.InternalKVGcsService/InternalKVKeys"
)
tokens = {"thief": {}, "guess": {"authorization": "Bearer " + 64 * "0"}, "owner": {"authorization": f"Bearer {token}"}}
for user, header in tokens.items():
    try:
        call(b"", metadata=list(header.items()), timeout=20)
        found[f"{user} gcs"] = "ok"
    except grpc.RpcError as error:
        found[f"{user} gcs"] = error.code().name
    if agent == "-1":
        continue
    request = http.client.HTTPConnection("127.0.0.1", int(agent), timeout=20)
    body = json.dumps({"entrypoint": "true"}) if user != "owner" else "not JSON, so that no job starts"
    request.request("POST", "/api/job_agent/jobs/", body, {"content-type": "application/json", **header})
    found[f"{user} job"] = request.getresponse().status
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
for path in (folder, f"/proc/{pid}/environ"):
    try:
        found[path] = bool(os.listdir(path) if os.path.isdir(path) else open(path).read())
    except OSError:
        found[path] = False
print(json.dumps(found))
"""


def ray_port(session: Path, what: str) -> str:
    """Return a port from the session folder of Ray, in which Ray's processes write it: "-1" if it serves nothing."""
    deadline = time.monotonic() + 60
    while True:
        text = next((file.read_text() for file in session.glob(f"{what}_port_*")), "")
        if text:
            return text
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def check_that_its_ray_is_private(launcher: Launcher, name: str) -> None:
    """Check that another user of this machine can neither use the run's Ray nor read its token, sockets and logs."""
    server = next(each for each in map(psutil.Process, launcher.processes(name)) if each.name() == "gcs_server")
    [folder] = [each.partition("=")[2] for each in server.cmdline() if each.startswith("--session-dir=")]
    ports = {what: ray_port(Path(folder), what) for what in ("gcs_server", "dashboard_agent_listen")}
    token = server.environ()["RAY_AUTH_TOKEN"]
    assert not any(token in " ".join(psutil.Process(pid).cmdline()) for pid in launcher.processes(name))
    done = subprocess.run(
        [sys.executable, "-c", ATTACK, *ports.values(), folder, str(server.pid), token],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    if os.geteuid() == 0:  # otherwise the attack has the rights of this user
        assert not found[folder]
        assert not found[f"/proc/{server.pid}/environ"]
    answers = {key: found[key] for key in found if " " in key}
    gcs = {"thief gcs": "UNAUTHENTICATED", "guess gcs": "UNAUTHENTICATED", "owner gcs": "ok"}
    if ports["dashboard_agent_listen"] == "-1":
        # All agents of a machine use one port. If another Ray has it, this agent logs that and serves nothing.
        assert any("failed to bind" in log.read_text() for log in (Path(folder) / "logs").glob("dashboard_agent*"))
        assert answers == gcs
    else:  # Ray answers 500 if the request is not JSON
        assert answers == gcs | {"thief job": 401, "guess job": 403, "owner job": 500}


def check_a_profile(launcher: Launcher, name: str) -> None:
    """Record two steps of the run, which continues."""
    result = launcher("profile", name, "--steps", "2", "-o", "json")
    assert result.code == 0, result.err + launcher("logs", name, "--tail", "30").out
    profile = result.json
    assert profile["steps"] == 2
    folder = Path(profile["folder"])
    assert folder.parent == launcher.home / "runs" / name / "tensorboard" / "plugins" / "profile"
    [recorded] = folder.glob("*.xplane.pb")
    assert b"train_step" in recorded.read_bytes()
    assert not (launcher.home / "runs" / name / "profile-request.json").exists()
    first = profile["first_step"] + 1
    assert f"Recorded 2 steps (steps {first} to {first + 1})." in result.err


TRAINER = "-m trainer"
ALL_OF_RAY = ("gcs_server", "raylet", "ray::")


def finished(launcher: Launcher, name: str) -> list[tuple[Any, ...]]:
    return numbers(lines(launcher.home / "runs" / name / "metrics.jsonl"))


def test_a_training_from_submit_to_its_end(trained: Launcher, plain: Plain) -> None:
    folder = f"{trained.home}/runs/plain"
    messages = plain.result.err.splitlines()
    assert messages[0] == 'The run "plain" was started on this machine.'
    running = next(number for number, line in enumerate(messages) if line.startswith("plain: running"))
    starting = messages[1:running]
    assert starting[0] == "plain: starting: loading and compiling the model"
    for words in ("importing JAX and MaxText", r"compiling the model \(imports [0-9]+ s, data [0-9]+ s\)"):
        assert any(re.fullmatch(f"plain: starting: {words}", line) for line in starting), starting
    step = rf"step [0-9]+/{STEPS}, loss [0-9.]+, [0-9.,]+ tokens/s(, ([0-9]+ min )?[0-9]+ s left)?"
    before_the_first = "running: (evaluating the held-out text|writing a checkpoint)"
    assert [
        line for line in messages[running + 1 :] if not re.fullmatch(f"plain: ({step}|{before_the_first})", line)
    ] == []
    assert messages[-1].startswith(f"plain: step {STEPS}/{STEPS}, ") and "left" not in messages[-1]

    first, last = plain.numbers[1][1], plain.numbers[-2][1]
    held_out = [line[2] for line in plain.numbers if line[2] is not None]
    summary = plain.result.out.splitlines()
    assert re.fullmatch(r"succeeded    plain after ([0-9]+ min )?[0-9]+ s", summary[0])
    assert summary[1:4] == [
        f"steps        {STEPS} of {STEPS}",
        f"loss         {first:.3f} -> {last:.3f}",
        f"held-out     {held_out[0]:.3f} -> {held_out[-1]:.3f}",
    ]
    assert re.fullmatch(r"speed        [0-9,]+ tokens/s", summary[4])
    assert summary[5:7] == [f"checkpoints  {folder}/checkpoints", f"metrics      {folder}/metrics.jsonl"]
    assert [re.sub(" +", " ", line) for line in summary[7:]] == [
        "next launcher logs plain show its output",
        " launcher report plain write a report with charts",
        ' launcher generate plain "The" generate text with its model',
        f" launcher submit -f plain.yaml --name plain --set train.steps={2 * STEPS} --continue continue training",
    ]
    assert plain.checkpoints == ["0", "12", "16", "4", "8"]
    assert [line[0] for line in plain.numbers if line[1] is not None] == list(range(STEPS))
    assert trained.processes("plain") == []


def test_the_status_of_a_training(trained: Launcher, plain: Plain) -> None:
    status = plain.status
    assert {key: status[key] for key in ("name", "namespace", "kind", "state", "reason", "step", "steps")} == {
        "name": "plain",
        "namespace": "default",
        "kind": "local",
        "state": "succeeded",
        "reason": "",
        "step": STEPS,
        "steps": STEPS,
    }
    assert (status["restarts"], status["attempt"], status["folder"]) == (0, 1, f"{trained.home}/runs/plain")
    assert status["loss"] == plain.numbers[-2][1]
    assert status["submitted"] <= status["started"] < status["ended"]


def test_a_run_survives_every_kill_and_no_number_changes(trained: Launcher, plain: Plain, submit: Start) -> None:
    """One run is killed in every way; each time it resumes from its last checkpoint.

    The test kills the trainer three times, with a budget of 2 restarts. Then it submits the run again and kills the
    supervisor, submits it again and cancels it, and submits it with another number of steps, to the end.
    """
    detached = trained(*submit("killed", steps=LONG), "--detach")
    assert (detached.code, detached.out) == (0, "")
    assert detached.err.splitlines()[1:] == [
        "  launcher attach killed   show its progress again",
        "  launcher logs -f killed  follow its output",
        "  launcher wait killed     wait until it ends",
        "  launcher cancel killed   stop it",
    ]
    logs = trained.start("logs", "-f", "killed")
    waiting = trained.start("wait", "killed", "-o", "json")
    until_step(trained, "killed", 6)
    check_a_profile(trained, "killed")
    both = map(psutil.Process, pids(trained, "killed", TRAINER))
    parent, child = sorted(both, key=psutil.Process.create_time)
    for restarts in (1, 2):
        # The first time only the process that trains. Its parent has done the imports, and forks again.
        if restarts == 1:
            child.kill()
        else:
            assert parent.is_running()
            assert kill(trained, "killed", TRAINER)
        until_loops(trained, "killed", restarts + 1)
        assert trained("status", "killed", "-o", "json").json["restarts"] == restarts
        until_step(trained, "killed", step(trained, "killed") + 1)
    assert kill(trained, "killed", TRAINER)
    out, err = waiting.communicate(timeout=120)
    status = Result(waiting.returncode, out, err).json
    assert (waiting.returncode, err) == (1, "")
    assert (status["state"], status["restarts"], status["attempt"]) == ("failed", 2, 1)
    assert status["reason"] == "The trainer was killed by signal 9 (SIGKILL)."
    out, err = logs.communicate(timeout=20)
    assert (logs.returncode, err) == (0, "")
    assert out == trained("logs", "killed").out
    assert out.count("[launcher] ") == 2 and "Restart 2 of 2." in out
    [failed] = [
        event for event in lines(trained.home / "runs/killed/events.jsonl") if event["event"] == "worker_failed"
    ]
    assert failed["message"].startswith("worker 0 was killed by signal 9 (SIGKILL); resuming from step ")
    assert failed["message"].endswith(" repeated, restart 1 of 2")

    again = trained(*submit("killed", steps=LONG), "--detach")
    assert again.code == 0, again.err
    assert again.err.splitlines()[0] == (
        'The run "killed" had failed; it continues from its last checkpoint as attempt 2.'
    )
    until(trained, "killed", lambda: pids(trained, "killed", TRAINER))
    pid = trained.record("killed").pid
    assert pid
    children = psutil.Process(pid).children(recursive=True)
    os.kill(pid, signal.SIGKILL)
    _, alive = psutil.wait_procs(children, timeout=30)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []
    status = trained("status", "killed", "-o", "json").json
    assert (status["state"], status["attempt"]) == ("failed", 2)
    assert status["reason"].startswith("Interrupted: ")

    patient = {"SLIPWAY_GRACE_SECONDS": "60"}  # a checkpoint takes longer than the 5 s of the other tests
    again = trained(*submit("killed", steps=LONG), "--detach", env=patient)
    assert again.code == 0, again.err
    assert again.err.splitlines()[0] == (
        'The run "killed" was interrupted; it continues from its last checkpoint as attempt 3.'
    )
    until_loops(trained, "killed", 4)
    start_step = step(trained, "killed")
    until_step(trained, "killed", start_step + 1)
    cancelled = trained("cancel", "killed", "-o", "json", env=patient)
    assert (cancelled.code, cancelled.json["state"], cancelled.json["attempt"]) == (0, "cancelled", 3)
    assert cancelled.json["preemptions"] == 0
    assert trained.processes("killed") == []
    # It wrote a checkpoint of its last step before it ended.
    done = cancelled.json["step"]
    assert done > start_step + 1
    assert (trained.home / "runs" / "killed" / "checkpoints" / str(done - 1)).is_dir()
    log = trained("logs", "killed").out.splitlines()
    assert f"Error: The run received a stop signal: training stopped after {done} steps." in log

    more = submit("killed", steps=done + 5)
    rejected = trained(*more)
    assert (rejected.code, rejected.out) == (1, "")
    assert rejected.err.splitlines() == [
        'Error: The run "killed" already exists (cancelled), with a different config:',
        f"  train.steps: {LONG} -> {done + 5}",
        "Hint: To continue from its last checkpoint with the new values, use --continue. To start another run, use "
        "--name.",
    ]
    last = trained(*more, "--continue")
    assert last.code == 0, last.err
    assert last.err.splitlines()[0] == (
        'The run "killed" was cancelled; it continues from its last checkpoint as attempt 4.'
    )
    assert f"steps        {done + 5} of {done + 5}" in last.out
    status = trained("status", "killed", "-o", "json").json
    assert (status["state"], status["attempt"], status["restarts"]) == ("succeeded", 4, 0)
    # The report counts the restarts alike, shows the value that changed, and does not call the cancel a failure.
    from launcher.products.report.compare import differences
    from launcher.products.report.folders import of_folder

    run = of_folder(trained.home / "runs" / "killed")
    assert run.restarts == 0
    assert [one.values for one in differences([run]) if one.key == "train.steps"] == [
        [f"{LONG} until step {done}, then {done + 5}"]
    ]
    assert not [mark for mark in run.marks if mark.bad and "stop signal" in mark.says]
    now = finished(trained, "killed")
    # The last step of a run has an evaluation of its own.
    alike = min(STEPS, done + 5)
    assert [line for line in now if line[0] < alike] == [line for line in plain.numbers if line[0] < alike]
    assert [line[0] for line in now if line[1] is not None] == list(range(done + 5))
    assert trained.processes("killed") == []


def test_a_run_of_two_hosts_survives_kills_of_a_worker_and_of_ray(trained: Launcher, submit: Start) -> None:
    """Restarts by the trainer and by the supervisor share one budget of 2."""
    assert trained(*submit("two", hosts=2, steps=LONG), "--detach").code == 0
    until_step(trained, "two", 4)
    check_that_its_ray_is_private(trained, "two")
    until(trained, "two", lambda: len(pids(trained, "two", "ray::SPARE")) >= 2)
    assert kill(trained, "two", "ray::RayTrainWorker", count=1)
    until_loops(trained, "two", 2)
    assert trained("status", "two", "-o", "json").json["restarts"] == 1
    [failed] = [event for event in lines(trained.home / "runs/two/events.jsonl") if event["event"] == "worker_failed"]
    assert re.fullmatch(
        r"worker [01] was killed.*; resuming from step [0-9]+, [0-9]+ steps? repeated, restart 1 of 2",
        failed["message"],
    )
    assert trained("logs", "two").out.count("start: in a spare process") == 2
    assert kill(trained, "two", *ALL_OF_RAY) >= 5
    since = time.monotonic()
    until(trained, "two", lambda: trained.record("two").restarts == 2)
    assert time.monotonic() - since < 30  # the driver does not wait for a Ray that was killed
    until_loops(trained, "two", 3)
    assert kill(trained, "two", "ray::RayTrainWorker", count=1)
    waited = trained("wait", "two", "-o", "json", seconds=120)
    assert (waited.code, waited.json["state"], waited.json["restarts"]) == (1, "failed", 2)
    assert re.match(r"Workers failed and no restart was left \(worker [01] was killed", waited.json["reason"])
    assert "Restart 2 of 2." in trained("logs", "two").out
    assert trained.processes("two") == []


def test_a_training_that_has_succeeded_is_not_started_again(trained: Launcher, plain: Plain, submit: Start) -> None:
    again = trained(*submit("plain"))
    assert (again.code, again.err.splitlines()[0]) == (
        0,
        'The run "plain" has already succeeded, with the same config; there is nothing to do.',
    )
    more = trained(*submit("plain", steps=STEPS + 5), "--dry-run")
    assert more.code == 1
    assert more.err.splitlines()[0] == 'Error: The run "plain" already exists (succeeded), with a different config:'
    assert trained.record("plain").attempt == 1


def test_tensorboard_shows_a_run(trained: Launcher, plain: Plain) -> None:
    serving = trained.start("tensorboard", "plain")
    assert serving.stdout
    url = serving.stdout.readline().strip()
    assert url.startswith("http://127.0.0.1:"), serving.communicate(timeout=20)
    tags = json.loads(urllib.request.urlopen(f"{url}data/plugin/scalars/tags", timeout=60).read())
    assert any("learning/loss" in found for found in tags.values())
    serving.send_signal(signal.SIGINT)
    _, err = serving.communicate(timeout=60)
    assert serving.returncode == 0
    assert err.splitlines()[-1] == "TensorBoard for plain is closed. Nothing is changed."


def test_a_run_that_has_ended_cannot_be_profiled(trained: Launcher, plain: Plain) -> None:
    result = trained("profile", "plain")
    assert result.code == 1
    assert 'Error: The run "plain" has succeeded; only a run that trains can be profiled.' in result.err.splitlines()


def test_a_config_that_only_maxtext_rejects_is_one_sentence_and_is_not_restarted(
    trained: Launcher, submit: Start
) -> None:
    """submit traces the step first, so nothing starts. A pod has no such check: its trainer is the first to notice."""
    values = submit("refused", hosts=2, num_moe_token_chunks=2)
    early = trained(*values)
    assert (early.code, "use_ring_of_experts" in early.err, "refused" in trained.runs) == (1, True, False), early.err
    original = LocalSubmitter._preflight
    with mock.patch.object(LocalSubmitter, "_preflight", lambda *given, **_: original(*given, step=False)):
        result = trained(*values)
    assert result.code == 1
    assert "Traceback" not in result.err
    status = trained("status", "refused", "-o", "json").json
    assert (status["state"], status["restarts"], status["attempt"]) == ("failed", 0, 1)
    reason = status["reason"]
    assert "MaxText rejects the config" in reason and "use_ring_of_experts" in reason
    assert f"reason  {reason}" in re.sub(" +", "  ", result.out.replace(reason, "\0")).replace("\0", reason)
    assert "Restart" not in result.err
    assert trained.processes("refused") == []
    assert read_events(trained.home / "runs" / "refused", 0).loops == 0
    log = trained("logs", "refused").out
    assert log.count("Initialized JAX distributed on CPU") == 2  # once for each worker
    assert "Traceback" not in log.split("Error: ")[-1]


def until_loops(launcher: Launcher, name: str, count: int) -> None:
    """Wait until the training loop has been entered `count` times in all attempts."""
    until(launcher, name, lambda: read_events(launcher.home / "runs" / name, 0).loops == count)
