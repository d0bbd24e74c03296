"""Sweeps on this machine run one run after another, even if processes are killed, or runs cancelled or resubmitted."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from launcher.backends.local.record import Record
from tests.cli.conftest import SHORT, TRAINING, Launcher, Result, eventually
from tests.cli.test_terminal import on_terminal

# Each run records its start and its end in a file, and lasts as long as its value LASTS.
TURNS = SHORT.replace("echo hello", 'echo "$NAME+" >> turns; sleep $LASTS; echo "$NAME-" >> turns').replace(
    "storage:", "worker: {env: {LASTS: '0'}}\nstorage:"
)
THREE = ("--sweep", 'worker.env.NAME="a","b","c"')


# The last run takes seconds, so the sweep has not ended when the launcher begins to follow it, even on a slow machine.
FOLLOWED = TURNS.replace("sleep $LASTS", 'if [ "$NAME" = c ]; then sleep 4; fi')


def submit(launcher: Launcher, *arguments: str, text: str = TURNS) -> Result:
    return launcher("submit", "-f", launcher.write("run.yaml", text), *THREE, *arguments)


def turns(launcher: Launcher) -> str:
    file = launcher.folder / "turns"
    return " ".join(file.read_text().split()) if file.exists() else ""


def states(launcher: Launcher) -> dict[str, str]:
    return {run["name"]: run["state"] for run in launcher("status", "demo", "-o", "json").json}


def supervisor(record: Record) -> int:
    assert record.pid is not None
    return record.pid


def test_the_runs_of_a_sweep_run_one_after_another(launcher: Launcher) -> None:
    dry = submit(launcher, "--dry-run", text=FOLLOWED)
    assert (dry.code, launcher.runs) == (0, [])
    assert dry.out.splitlines() == ["RUN     NAME", "demo-1  a", "demo-2  b", "demo-3  c"]

    done = submit(launcher, text=FOLLOWED)
    assert done.code == 0
    assert turns(launcher) == "a+ a- b+ b- c+ c-"
    assert done.err.splitlines()[0] == 'The sweep "demo" was submitted: 3 runs on this machine.'
    # The runs are read one after another, so the end of demo-3 may be seen before that of demo-2.
    assert {f"demo-{number}: succeeded" for number in (1, 2, 3)} <= set(done.err.splitlines())
    assert done.out.splitlines() == [
        "RUN     NAME  STATE",
        "demo-1  a     succeeded",
        "demo-2  b     succeeded",
        "demo-3  c     succeeded",
        "sweep demo: 3 succeeded",
    ]
    again = submit(launcher, text=FOLLOWED)
    assert (again.code, turns(launcher)) == (0, "a+ a- b+ b- c+ c-")
    assert again.err == 'The sweep "demo", 3 runs on this machine: 3 already succeeded.\n'
    listed = launcher("list", "--sweep", "demo", "-o", "json").json
    assert [run["sweep_values"] for run in listed] == [{"worker.env.NAME": name} for name in "cba"]
    assert launcher("delete", "demo", "--yes").err == 'The 3 runs of the sweep "demo" are deleted.\n'
    assert launcher.runs == [".turn"]


def test_verbs_for_runs_accept_a_sweep(launcher: Launcher) -> None:
    text = SHORT.replace("'echo hello'", "'cat evaluated > $SLIPWAY_RUN_FOLDER/metrics.jsonl; echo I am $NAME'")
    (launcher.folder / "evaluated").write_text('{"step": 1, "eval_loss": 3.5}\n')
    file = launcher.write("run.yaml", text.replace("storage:", "worker: {env: {NAME: ''}}\nstorage:"))
    assert launcher("submit", "-f", file, *THREE[:1], 'worker.env.NAME="a","b"').code == 0

    assert launcher("logs", "demo").out == "demo-1: I am a\ndemo-2: I am b\n"
    assert sorted(launcher("logs", "sweep/demo", "--follow").out.splitlines()) == ["demo-1: I am a", "demo-2: I am b"]
    lines = launcher("logs", "demo", "--tail", "1", "-o", "json").out.splitlines()
    assert json.loads(lines[1]) == {"run": "demo-2", "line": "I am b"}
    assert [each["name"] for each in launcher("explain", "demo", "-o", "json").json] == ["demo-1", "demo-2"]
    assert launcher("explain", "run/demo-1").out.startswith("demo-1 has succeeded.")
    refused = launcher("profile", "demo")
    assert refused.err == (
        'Error: "demo" is a sweep; this command needs one of its runs: demo-1 to demo-2.\n'
        "Hint: To show them: launcher status demo\n"
    )
    assert launcher("logs", "run/demo").err.startswith('Error: The run "demo" was not found on this machine.')
    assert launcher("logs", "sweep/x").err.startswith('Error: The sweep "x" was not found on this machine.')


def test_a_failed_run_fails_the_sweep_and_the_other_runs_have_their_turns(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", SHORT.replace("echo hello", "exit $CODE"))
    done = launcher("submit", "-f", file, "--sweep", 'worker.env.CODE="0","7","00"')
    assert done.code == 1
    assert done.out.splitlines()[-2:] == [
        "sweep demo: 2 succeeded, 1 failed",
        "demo-2: The command ended with exit code 7.",
    ]
    assert launcher("wait", "demo").code == 1
    again = launcher("submit", "-f", file, "--sweep", 'worker.env.CODE="0","7","00"', "--detach", "-o", "json")
    assert (again.code, [run["attempt"] for run in again.json]) == (0, [1, 2, 1])
    assert "1 resumed, 2 already succeeded" in again.err


def test_queued_runs_are_cancelled_at_once_and_before_the_running_one(launcher: Launcher) -> None:
    assert submit(launcher, "--set", "worker.env.LASTS='600'", "--detach").code == 0
    eventually(lambda: turns(launcher) == "a+")
    eventually(lambda: states(launcher) == {"demo-1": "running", "demo-2": "queued", "demo-3": "queued"})
    reason = launcher("status", "demo-3", "-o", "json").json["reason"]
    assert reason == "It waits for demo-2, an earlier run of the sweep."

    # A single queued run is cancelled and loses its turn.
    assert launcher("cancel", "demo-2").err.endswith('The run "demo-2" is cancelled.\n')
    eventually(lambda: "demo-1" in launcher("status", "demo-3", "-o", "json").json["reason"])
    assert turns(launcher) == "a+"
    rejected = launcher("delete", "demo", "--yes")
    assert (rejected.code, "has not ended: demo-1 and demo-3" in rejected.err) == (1, True)

    done = launcher("cancel", "demo")
    assert (done.code, turns(launcher)) == (0, "a+")
    assert done.err == 'Cancelling 2 of the 3 runs of the sweep "demo"…\nsweep demo: 3 cancelled\n'


@pytest.mark.parametrize("killed", ["demo-1", "demo-2"])
def test_killed_supervisors_do_not_delay_the_other_runs(launcher: Launcher, killed: str) -> None:
    assert submit(launcher, "--set", "worker.env.LASTS='2'", "--detach").code == 0
    eventually(lambda: turns(launcher) == "a+")
    os.kill(supervisor(launcher.record(killed)), signal.SIGKILL)
    assert launcher("wait", "demo").code == 1
    others = [name for name in "abc" if name != {"demo-1": "a", "demo-2": "b"}[killed]]
    # The killed supervisor's run ended with it; the other runs had their turns, in order.
    assert [turn for turn in turns(launcher).split() if turn.endswith("-")] == [f"{name}-" for name in others]

    # After another submit, the interrupted run has its turn.
    assert submit(launcher, "--set", "worker.env.LASTS='2'").code == 0
    assert states(launcher) == {"demo-1": "succeeded", "demo-2": "succeeded", "demo-3": "succeeded"}


def test_the_next_submit_completes_a_killed_one(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", TURNS)
    names = ",".join(f'"{number}"' for number in range(1, 31))
    arguments = ("submit", "-f", file, "--sweep", f"worker.env.NAME={names}", "--detach")
    process = launcher.start(*arguments)
    eventually(lambda: len([name for name in launcher.runs if name.startswith("demo-")]) >= 3)
    process.kill()
    process.communicate()
    assert len(launcher.runs) < 30
    assert launcher(*arguments).code == 0
    assert launcher("wait", "demo").code == 0
    assert turns(launcher).split() == [f"{number}{end}" for number in range(1, 31) for end in "+-"]


def test_ctrl_c_does_not_stop_the_runs(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", TURNS)
    process = launcher.start("submit", "-f", file, *THREE, "--set", "worker.env.LASTS='600'")
    assert process.stderr
    while process.stderr.readline() != "demo-3: queued\n":  # the command now follows the runs
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert 'The runs of the sweep "demo" continue.' in err
    assert "launcher cancel demo" in err
    assert states(launcher)["demo-1"] == "running"


def test_ctrl_c_while_submitting_warns_that_runs_may_be_missing(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", TURNS)
    names = ",".join(f'"{number}"' for number in range(1, 31))
    process = launcher.start("submit", "-f", file, "--sweep", f"worker.env.NAME={names}")
    eventually(lambda: len([name for name in launcher.runs if name.startswith("demo-")]) >= 3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert 3 <= len(states(launcher)) < 30
    assert "some runs may be missing" in err


def test_two_sweeps_take_turns(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", TURNS)
    for name in ("one", "two"):
        sweep = f'worker.env.NAME="{name}1","{name}2"'
        done = launcher(
            "submit", "-f", file, "--name", name, "--sweep", sweep, "--set", "worker.env.LASTS='1'", "--detach"
        )
        assert done.code == 0
    for name in ("one", "two"):
        assert launcher("wait", name).code == 0
    order = turns(launcher).split()
    assert [turn[:-1] for turn in order[::2]] == [turn[:-1] for turn in order[1::2]]  # one at a time
    assert [turn for turn in order if turn.startswith("one")] == ["one1+", "one1-", "one2+", "one2-"]


def test_what_a_sweep_rejects(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", TURNS)
    done = launcher("submit", "-f", file, "--sweep", 'worker.env.NAME="a"', "--sweep", "run.maxRestarts=0,-1,-2")
    assert done.code == 1
    assert [line.partition(" is ")[0] for line in done.err.splitlines()] == [
        "Error: --sweep run.maxRestarts: run.maxRestarts",
        "Error: --sweep run.maxRestarts: run.maxRestarts",
    ]
    many = ",".join(f'"{number}"' for number in range(101))
    assert "the maximum is 100" in launcher("submit", "-f", file, "--sweep", f"worker.env.NAME={many}").err
    assert launcher.runs == []

    assert launcher("submit", "-f", file, "--detach").code == 0
    rejected = launcher("submit", "-f", file, *THREE)
    assert (rejected.code, rejected.err.splitlines()[0]) == (
        1,
        'Error: The run "demo" already exists; a sweep needs its own name.',
    )
    assert launcher("submit", "-f", file, "--name", "other-2", "--detach").code == 0
    rejected = launcher("submit", "-f", file, *THREE, "--name", "other")
    assert (rejected.code, launcher.runs) == (1, ["demo", "other-2"])
    assert rejected.err.startswith('Error: The run "other-2" already exists; it does not belong to a sweep.')
    assert launcher("status", "sweep/demo").err.startswith('Error: The sweep "demo" was not found on this machine.')
    assert launcher("status", "run/demo").code == 0


def test_a_sweep_without_a_cluster_can_be_previewed(launcher: Launcher, tmp_path: Path) -> None:
    text = """\
run: {name: lr, kind: job-set}
team: {name: research}
queue: {name: research}
slice: {accelerator: v6e, topology: 4x4}
image: {repository: example.invalid/slipway, tag: 1.0.0}
storage: {kind: gcsfuse, bucket: example-runs}
data: {files: [/data/text]}
train: {model_name: llama3-8b}
"""
    file = launcher.write("cluster.yaml", text)
    dry = launcher(
        *("submit", "-f", file, "--sweep", "train.learning_rate=1e-4,3e-4", "--dry-run", "-o", "json"),
        env={"KUBECONFIG": str(tmp_path / "none")},
    )
    assert (dry.code, dry.err.count("No kubeconfig was found")) == (0, 1)
    assert [config["train"]["learning_rate"] for config in json.loads(dry.out)] == [1e-4, 3e-4]


def test_a_sweep_over_the_rank_and_the_learning_rate_of_adapters(launcher: Launcher, tmp_path: Path) -> None:
    more = ("image.repository=example.invalid/slipway", "image.tag=1.0.0", "storage.bucket=example-runs")
    dry = launcher(
        *("submit", "-f", "finetune/llama3.1-8b-lora-v6e-1", *(part for text in more for part in ("--set", text))),
        *("--name", "ranks", "--sweep", "tuning.lora.rank=8,16", "--sweep", "train.learning_rate=1e-4,2e-4"),
        *("--dry-run", "-o", "json"),
        env={"KUBECONFIG": str(tmp_path / "none")},
    )
    runs = [(run["tuning"]["lora"]["rank"], run["train"]["learning_rate"]) for run in json.loads(dry.out)]
    assert runs == [(8, 1e-4), (8, 2e-4), (16, 1e-4), (16, 2e-4)]


@pytest.mark.parametrize("columns", [40, 100])
def test_a_terminal_shows_a_table_of_the_runs(launcher: Launcher, columns: int) -> None:
    program = launcher.write("training.py", TRAINING)
    text = SHORT.replace("[sh, -c, 'echo hello']", f"[{sys.executable}, {program}, '4', '0.6']")
    file = launcher.write("run.yaml", text)
    sweep = ("--sweep", 'worker.env.NAME="a","b"')
    code, output = on_terminal(launcher, "submit", "-f", file, *sweep, columns=columns)
    assert code == 0
    lines = [line.rstrip() for line in re.split("[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output))]
    assert any(re.fullmatch(r"demo-1 +a +running +\d/4 .*", line) for line in lines)
    assert any(re.fullmatch(r"demo-2 +b +queued", line) for line in lines)
    live = [line for line in lines if line.startswith("sweep demo: 1 ")]
    assert any(line.startswith("sweep demo: 1 queued, 1 running") for line in live)
    assert max(map(len, live)) < columns
    assert lines[-2] == "sweep demo: 2 succeeded; best held-out loss 7.100 (demo-1: worker.env.NAME a)"


def test_a_cluster_that_does_not_answer_hides_no_sweep_of_this_machine(launcher: Launcher) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "gone", "cluster": {"server": "http://127.0.0.1:9"}}],
        "contexts": [{"name": "gone", "context": {"cluster": "gone", "user": ""}}],
        "current-context": "gone",
    }
    unreachable = {"KUBECONFIG": launcher.write("kubeconfig", json.dumps(config))}
    file = launcher.write("run.yaml", TURNS)
    assert (
        launcher("submit", "-f", file, *THREE, "--set", "worker.env.LASTS='600'", "--detach", env=unreachable).code == 0
    )
    listed = launcher("status", "demo", "-o", "json", env=unreachable)
    assert (listed.code, len(listed.json)) == (0, 3)
    assert launcher("cancel", "demo", env=unreachable).code == 0
    assert "127.0.0.1:9" in launcher("status", "sweep/other", env=unreachable).err
