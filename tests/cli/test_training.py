"""Real training by the command: two hosts under Ray, a tiny model, and whatever may be killed in the middle of it.

Each start costs ten seconds, so the tests share runs. `plain` is the run that nothing disturbs; every disturbed run
must end with its numbers, bit for bit.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from launcher.local.record import ENDED, read_events
from launcher.values import files as values
from tests.cli.conftest import Launcher, Result, end_all, eventually
from tests.trainer.runs import STEPS, TRAIN, Lab, lines, numbers

# The learning rate at a step must not depend on how many steps there are, so that a run can be continued.
SCHEDULE = {"learning_rate_schedule_steps": 40}
Start = Callable[..., tuple[str, ...]]


@dataclass(frozen=True)
class Plain:
    """The undisturbed run as it was right after its end: a later test goes on with it."""

    result: Result
    status: dict[str, Any]
    log: str
    numbers: list[tuple[Any, ...]]
    checkpoints: list[str]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """A home for all runs of this module, which so share their compiled programs."""
    root = tmp_path_factory.mktemp("training")
    (root / "here").mkdir()
    command = Launcher(root / "home", root / "here")
    yield command
    end_all(command)


@pytest.fixture(scope="module")
def submit(trained: Launcher, lab: Lab) -> Start:
    """Writes the values of a run; the arguments that submit it."""

    def arguments(name: str, *, restarts: int = 2, **train: Any) -> tuple[str, ...]:
        tree = {
            "run": {"name": name, "kind": "local", "maxRestarts": restarts},
            "slice": {"accelerator": "cpu", "hosts": 2},
            "storage": {"kind": "local"},
            "data": {"corpus": "python", "tokenizer": {"path": str(lab.tokenizer)}},
            "train": {**TRAIN, **SCHEDULE, **train},
        }
        return ("submit", "-f", trained.write(f"{name}.yaml", values.dumps(tree)))

    return arguments


@pytest.fixture(scope="module")
def plain(trained: Launcher, submit: Start) -> Plain:
    result = trained(*submit("plain"), seconds=240)
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
    """The last finished step, counted from 0; -1 before the first."""
    path = launcher.home / "runs" / name / "metrics.jsonl"
    return max((line["step"] for line in lines(path) if "loss" in line), default=-1)


def until(launcher: Launcher, name: str, condition: Callable[[], object]) -> None:
    """Until the condition holds; the run must not end before."""

    def holds() -> bool:
        if condition():
            return True
        assert launcher.record(name).state not in ENDED, launcher("logs", name).out[-4000:]
        return False

    eventually(holds, 120)


def until_step(launcher: Launcher, name: str, number: int) -> None:
    until(launcher, name, lambda: step(launcher, name) >= number)


def kill(launcher: Launcher, name: str, *patterns: str, count: int | None = None) -> int:
    """SIGKILL for the run's processes that are called so; how many there were."""
    found = []
    for pid in sorted(launcher.processes(name)):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        if any(pattern in command for pattern in patterns):
            found.append(pid)
    for pid in found[:count]:
        os.kill(pid, signal.SIGKILL)
    return len(found[:count])


ALL_OF_RAY = ("gcs_server", "raylet", "ray::")


def finished(launcher: Launcher, name: str) -> list[tuple[Any, ...]]:
    return numbers(lines(launcher.home / "runs" / name / "metrics.jsonl"))


def test_a_training_from_submit_to_its_end(trained: Launcher, plain: Plain) -> None:
    folder = f"{trained.home}/runs/plain"
    told = plain.result.err.splitlines()
    assert told[:3] == [
        'The run "plain" was started on this machine.',
        "plain: starting: starting Ray, then loading and compiling the model",
        "plain: running",
    ]
    shape = rf"plain: step [0-9]+/{STEPS}, loss [0-9.]+, [0-9.,]+ tokens/s(, ([0-9]+ min )?[0-9]+ s left)?"
    assert all(re.fullmatch(shape, line) for line in told[3:])
    assert told[-1].startswith(f"plain: step {STEPS}/{STEPS}, ") and "left" not in told[-1]

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
        "next launcher logs plain its output",
        f" launcher submit -f FILE --name plain --set train.steps={2 * STEPS} --continue trains on",
    ]
    assert plain.checkpoints == ["0", "12", "4", "8"]
    assert [line[0] for line in plain.numbers if line[1] is not None] == list(range(STEPS))
    assert trained.processes("plain") == []


def test_the_status_of_a_training_is_the_contract(trained: Launcher, plain: Plain) -> None:
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


def test_ray_killed_in_the_middle_changes_no_number(trained: Launcher, plain: Plain, submit: Start) -> None:
    detached = trained(*submit("ray"), "--detach", seconds=60)
    assert (detached.code, detached.out) == (0, "")
    assert detached.err.splitlines()[1:] == [
        "  launcher logs -f ray  its output",
        "  launcher wait ray     until it ends",
        "  launcher cancel ray   to stop it",
    ]
    logs = trained.start("logs", "-f", "ray")
    waiting = trained.start("wait", "ray", "-o", "json")
    until_step(trained, "ray", 6)
    assert kill(trained, "ray", *ALL_OF_RAY) >= 4
    out, err = waiting.communicate(timeout=120)
    status = Result(waiting.returncode, out, err).json
    assert (waiting.returncode, err) == (0, "")
    assert (status["state"], status["restarts"], status["attempt"]) == ("succeeded", 1, 1)
    assert finished(trained, "ray") == plain.numbers
    out, err = logs.communicate(timeout=20)
    assert (logs.returncode, err) == (0, "")
    assert out == trained("logs", "ray").out
    assert out.count("[launcher] ") == 1 and "Restart 1 of 2." in out
    # The log shows what was done, so steps that were done twice are there twice.
    assert out.count("SLIPWAY_METRICS ") >= len(plain.numbers)


def test_a_killed_supervisor_interrupts_and_a_submit_resumes(trained: Launcher, plain: Plain, submit: Start) -> None:
    trained(*submit("supervisor"), "--detach", seconds=60)
    until_step(trained, "supervisor", 6)
    pid = trained.record("supervisor").pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    status = trained("status", "supervisor", "-o", "json").json
    assert (status["state"], status["attempt"]) == ("failed", 1)
    assert status["reason"].startswith("Interrupted: ")
    eventually(lambda: not kill(trained, "supervisor", "-m trainer", count=0))

    again = trained(*submit("supervisor"), seconds=120)
    assert again.code == 0, again.err
    assert again.err.splitlines()[0] == (
        'The run "supervisor" was interrupted; it goes on from its last checkpoint as attempt 2.'
    )
    status = trained("status", "supervisor", "-o", "json").json
    assert (status["state"], status["attempt"], status["restarts"]) == ("succeeded", 2, 0)
    assert finished(trained, "supervisor") == plain.numbers
    assert trained.processes("supervisor") == []


def test_cancel_leaves_nothing_alive_and_a_submit_resumes(trained: Launcher, plain: Plain, submit: Start) -> None:
    trained(*submit("cancelled"), "--detach", seconds=60)
    until_step(trained, "cancelled", 6)
    cancelled = trained("cancel", "cancelled", "-o", "json", seconds=60)
    assert (cancelled.code, cancelled.json["state"]) == (0, "cancelled")
    assert cancelled.json["step"] >= 7
    assert trained.processes("cancelled") == []

    again = trained(*submit("cancelled"), seconds=120)
    assert again.code == 0, again.err
    assert again.err.splitlines()[0] == (
        'The run "cancelled" was cancelled; it goes on from its last checkpoint as attempt 2.'
    )
    assert finished(trained, "cancelled") == plain.numbers


def test_more_steps_go_on_from_the_last_checkpoint(trained: Launcher, plain: Plain, submit: Start) -> None:
    again = trained(*submit("plain"))
    assert (again.code, again.err.splitlines()[0]) == (
        0,
        'The run "plain" has succeeded already, with the same config; there is nothing left to do.',
    )
    more = submit("plain", steps=STEPS + 5)
    refused = trained(*more)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.splitlines() == [
        'Error: There is a run "plain" (succeeded) with another config:',
        f"  train.steps: {STEPS} -> {STEPS + 5}",
        "Hint: --continue goes on from its last checkpoint with the new values; --name starts another run.",
    ]
    result = trained(*more, "--continue", seconds=120)
    assert result.code == 0, result.err
    assert "goes on from its last checkpoint as attempt 2" in result.err
    assert f"steps        {STEPS + 5} of {STEPS + 5}" in result.out
    now = finished(trained, "plain")
    assert [line for line in now if line[0] < STEPS] == [line for line in plain.numbers if line[0] < STEPS]
    assert [line[0] for line in now if line[1] is not None] == list(range(STEPS + 5))


def test_what_only_maxtext_can_refuse_is_one_sentence(trained: Launcher, submit: Start) -> None:
    result = trained(*submit("refused", num_moe_token_chunks=2), seconds=120)
    assert result.code == 1
    assert "Traceback" not in result.err
    status = trained("status", "refused", "-o", "json").json
    assert (status["state"], status["restarts"], status["attempt"]) == ("failed", 0, 1)
    reason = status["reason"]
    assert "MaxText refuses the config" in reason and "use_ring_of_experts" in reason
    assert f"reason  {reason}" in re.sub(" +", "  ", result.out.replace(reason, "\0")).replace("\0", reason)
    assert "Restart" not in result.err
    assert trained.processes("refused") == []


def test_the_trainers_restarts_and_the_supervisors_are_one_budget(trained: Launcher, submit: Start) -> None:
    long = {"restarts": 1, "steps": 5000, "checkpoint_period": 4, "eval_interval": 10_000, "eval_steps": 1}
    trained(*submit("worker-first", **long), "--detach", seconds=60)
    until_step(trained, "worker-first", 6)
    assert kill(trained, "worker-first", "ray::RayTrainWorker", count=1)
    until(trained, "worker-first", lambda: _loops(trained, "worker-first") == 2)
    kill(trained, "worker-first", *ALL_OF_RAY)
    result = trained("wait", "worker-first", "-o", "json", seconds=60)
    assert (result.code, result.json["state"], result.json["restarts"]) == (1, "failed", 1)

    trained(*submit("ray-first", **long), "--detach", seconds=60)
    until_step(trained, "ray-first", 6)
    kill(trained, "ray-first", *ALL_OF_RAY)
    until(trained, "ray-first", lambda: _loops(trained, "ray-first") == 2)
    kill(trained, "ray-first", "ray::RayTrainWorker", count=1)
    result = trained("wait", "ray-first", "-o", "json", seconds=60)
    assert (result.code, result.json["state"], result.json["restarts"]) == (1, "failed", 1)
    assert _loops(trained, "ray-first") == 2


def _loops(launcher: Launcher, name: str) -> int:
    return read_events(launcher.home / "runs" / name, 0).loops
