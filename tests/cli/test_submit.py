"""submit: what it does, prints and returns for each state of an existing run with the same name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.conftest import LONG, SHORT, TRAINING, Launcher, eventually


def test_a_run_is_followed_to_its_end(launcher: Launcher) -> None:
    result = launcher("submit", "-f", launcher.write("run.yaml", SHORT))
    assert result.code == 0
    assert result.out.splitlines()[0].startswith("succeeded  demo after ")
    assert result.out.splitlines()[1:] == ["next       launcher logs demo  show its output"]
    assert result.err.splitlines()[0] == 'The run "demo" was started on this machine.'
    assert launcher("logs", "demo").out == "hello\n"
    assert not launcher.processes()


def test_progress_and_summary_of_a_training(launcher: Launcher) -> None:
    program = launcher.write("training.py", TRAINING)
    text = SHORT.replace("[sh, -c, 'echo hello']", f"[{sys.executable}, {program}, '4', '0.6']")
    result = launcher("submit", "-f", launcher.write("run.yaml", text))
    assert result.code == 0
    lines = dict(line.split(maxsplit=1) for line in result.out.splitlines())
    assert lines["steps"] == "4 of 4"
    assert lines["loss"] == "10.000 -> 9.700"
    assert lines["held-out"] == "10.800 -> 7.100"
    assert lines["speed"] == "2,000 tokens/s"
    assert lines["metrics"] == f"{launcher.home}/runs/demo/metrics.jsonl"
    assert "\x1b" not in result.err and "\r" not in result.err
    assert "demo: running" in result.err.splitlines()
    assert result.err.splitlines()[-1] == "demo: step 4/4, loss 9.700, 2,000 tokens/s"


def test_the_exit_code_is_the_runs(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", SHORT.replace("echo hello", "echo no >&2; exit 7"))
    result = launcher("submit", "-f", file)
    assert result.code == 1
    assert result.out.splitlines()[0].startswith("failed  demo after ")
    assert result.out.splitlines()[1:] == [
        "reason  The command ended with exit code 7.",
        "next    launcher logs demo  show its output; to submit changed values, add --continue",
    ]
    assert launcher("logs", "demo").out == "no\n[launcher] The command ended with exit code 7.\n"


def test_every_host_runs_the_command(launcher: Launcher) -> None:
    text = SHORT.replace("echo hello", "echo host $SLIPWAY_HOST_INDEX of $SLIPWAY_HOSTS sees $COLOUR")
    file = launcher.write("run.yaml", text.replace("{accelerator: cpu}", "{accelerator: cpu, hosts: 2}"))
    assert launcher("submit", "-f", file, "--set", "worker.env.COLOUR=blue").code == 0
    assert sorted(launcher("logs", "demo").out.splitlines()) == ["host 0 of 2 sees blue", "host 1 of 2 sees blue"]


def test_a_failed_host_ends_the_others(launcher: Launcher) -> None:
    text = SHORT.replace("echo hello", "test $SLIPWAY_HOST_INDEX = 1 && exit 9; sleep 600")
    file = launcher.write("run.yaml", text.replace("{accelerator: cpu}", "{accelerator: cpu, hosts: 2}"))
    result = launcher("submit", "-f", file)
    assert (result.code, launcher.processes()) == (1, [])
    assert "The command on host 1 ended with exit code 9." in result.out


def test_a_failure_is_restarted_within_max_restarts(launcher: Launcher) -> None:
    script = 'echo try >> tries; test "$(wc -l < tries)" = 3'
    file = launcher.write("run.yaml", SHORT.replace("'echo hello'", f"'{script}'"))
    result = launcher("submit", "-f", file, "--set", "run.maxRestarts=2")
    assert result.code == 0
    assert "restarts   2" in result.out.splitlines()
    assert launcher("status", "demo", "-o", "json").json["restarts"] == 2
    assert (launcher.folder / "tries").read_text() == "try\n" * 3


def test_max_restarts_is_the_limit(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", SHORT.replace("echo hello", "echo try >> tries; exit 1"))
    assert launcher("submit", "-f", file, "--set", "run.maxRestarts=1").code == 1
    assert (launcher.folder / "tries").read_text() == "try\n" * 2


def test_no_process_of_a_run_outlives_it(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", SHORT.replace("echo hello", "setsid sleep 600 & setsid -f sleep 600"))
    assert launcher("submit", "-f", file).code == 0
    assert launcher.processes() == []


def test_a_detached_run_continues(launcher: Launcher) -> None:
    result = launcher("submit", "-f", launcher.write("run.yaml", LONG), "--detach")
    assert (result.code, result.out) == (0, "")
    assert result.err.splitlines() == [
        'The run "demo" was started on this machine.',
        "  launcher attach demo   show its progress again",
        "  launcher logs -f demo  follow its output",
        "  launcher wait demo     wait until it ends",
        "  launcher cancel demo   stop it",
    ]
    assert launcher("status", "demo", "-o", "json").json["state"] == "running"


def test_detached_as_json(launcher: Launcher) -> None:
    status = launcher("submit", "-f", launcher.write("run.yaml", LONG), "--detach", "-o", "json").json
    assert status.items() >= {"name": "demo", "kind": "local", "state": "running", "attempt": 1}.items()
    assert status["folder"] == str(launcher.home / "runs" / "demo")


def test_a_dry_run_creates_nothing(launcher: Launcher) -> None:
    result = launcher("submit", "-f", launcher.write("run.yaml", SHORT), "--dry-run", "-o", "json")
    assert result.code == 0
    assert result.json["run"]["name"] == "demo"
    assert result.json["storage"]["mountPath"] == str(launcher.home / "runs")
    assert result.err.splitlines()[-1] == (f'Would start the run "demo" on this machine, in {launcher.home}/runs/demo.')
    assert not launcher.home.exists()


def test_the_working_folder_is_the_users(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", SHORT.replace("echo hello", "pwd"))
    assert launcher("submit", "-f", file).code == 0
    assert launcher("logs", "demo").out == f"{launcher.folder}\n"


# --- a run with the same name exists ---


def test_again_while_it_runs(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", LONG)
    launcher("submit", "-f", file, "--detach")
    pid = launcher.record().pid
    again = launcher("submit", "-f", file, "--detach")
    assert again.code == 0
    assert again.err.splitlines()[0] == 'The run "demo" is already running, with the same config.'
    assert (launcher.record().attempt, launcher.record().pid) == (1, pid)
    follower = launcher.start("submit", "-f", file)
    assert follower.stderr
    assert follower.stderr.readline() == 'The run "demo" is already running, with the same config.\n'
    assert launcher("cancel", "demo").code == 0
    out, _ = follower.communicate(timeout=20)
    assert follower.returncode == 1
    assert out.startswith("cancelled  demo after ")


def test_again_after_success(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", SHORT)
    launcher("submit", "-f", file)
    again = launcher("submit", "-f", file)
    assert again.code == 0
    assert again.err == ('The run "demo" has already succeeded, with the same config; there is nothing to do.\n')
    assert launcher.record().attempt == 1


def test_again_after_a_failure(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", SHORT.replace("echo hello", "echo $$; test -e mended"))
    assert launcher("submit", "-f", file).code == 1
    launcher.write("mended", "")
    again = launcher("submit", "-f", file)
    assert again.code == 0
    assert again.err.splitlines()[0] == 'The run "demo" had failed; it starts again as attempt 2.'
    assert launcher("status", "demo", "-o", "json").json["attempt"] == 2
    assert (launcher.home / "runs/demo/log.1.txt").read_text().endswith("exit code 1.\n")
    assert len(launcher("logs", "demo").out.splitlines()) == 1


def test_again_after_cancel(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", LONG)
    launcher("submit", "-f", file, "--detach")
    launcher("cancel", "demo")
    again = launcher("submit", "-f", file, "--detach")
    assert again.err.splitlines()[0] == 'The run "demo" was cancelled; it starts again as attempt 2.'
    assert launcher("status", "demo", "-o", "json").json["state"] == "running"


def test_another_config_under_a_used_name(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", SHORT)
    launcher("submit", "-f", file)
    other = launcher("submit", "-f", file, "--set", "run.maxRestarts=3")
    assert (other.code, other.out) == (1, "")
    error, difference, hint = other.err.splitlines()
    assert error == 'Error: The run "demo" already exists (succeeded), with a different config:'
    assert "run.maxRestarts" in difference and "0" in difference and "3" in difference
    assert hint.startswith("Hint: To continue from its last checkpoint with the new values, use --continue.")
    assert launcher.record().attempt == 1
    accepted = launcher("submit", "-f", file, "--set", "run.maxRestarts=3", "--continue")
    assert accepted.code == 0
    assert accepted.err.splitlines()[0] == 'The run "demo" had succeeded; it starts again as attempt 2.'


def test_submit_resumes_from_a_checkpoint(launcher: Launcher) -> None:
    file = launcher.write(
        "run.yaml", SHORT.replace("echo hello", "mkdir -p $SLIPWAY_RUN_FOLDER/checkpoints/20; exit 1")
    )
    launcher("submit", "-f", file)
    again = launcher("submit", "-f", file, "--dry-run")
    assert {*again.out.splitlines()} >= {"run:", "  kind: local", "slice:", "  accelerator: cpu", "accelerator:"}
    assert not {*again.out.splitlines()} & {'  cluster: ""', "image:", "security:"}  # defaults
    assert again.err.splitlines()[-1] == 'Would resume the run "demo" as attempt 2.'
    again = launcher("submit", "-f", file)
    assert again.err.splitlines()[0] == 'The run "demo" had failed; it continues from its last checkpoint as attempt 2.'


def test_another_config_while_it_runs(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", LONG)
    launcher("submit", "-f", file, "--detach")
    other = launcher("submit", "-f", file, "--set", "run.maxRestarts=3", "--continue")
    assert other.code == 1
    assert other.err.splitlines()[0] == 'Error: The run "demo" is running with a different config:'
    assert "launcher cancel demo" in other.err


# --- races and killed processes ---


def test_ten_submits_at_once_create_one_run(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", LONG.replace("echo hello", "echo $$ >> started"))
    started = [launcher.start("submit", "-f", file, "--detach") for _ in range(10)]
    results = [(process.communicate(), process.returncode) for process in started]
    assert [code for _, code in results] == [0] * 10
    messages = sorted(err.splitlines()[0] for (_, err), _ in results)
    assert messages.count('The run "demo" was started on this machine.') == 1
    assert len([line for line in messages if line.endswith(", with the same config.")]) == 9
    assert launcher.runs == ["demo"]
    assert len((launcher.folder / "started").read_text().splitlines()) == 1


def test_ten_submits_at_once_resume_once(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", LONG.replace("echo hello", "echo $$ >> started"))
    launcher("submit", "-f", file, "--detach")
    launcher("cancel", "demo")
    started = [launcher.start("submit", "-f", file, "--detach") for _ in range(10)]
    for process in started:
        process.communicate()
    assert [process.returncode for process in started] == [0] * 10
    assert launcher.record().attempt == 2
    assert len((launcher.folder / "started").read_text().splitlines()) == 2


def test_a_killed_supervisor_is_an_interrupted_run(launcher: Launcher) -> None:
    # The grandchild survives the supervisor: the signal that ends the processes of a dead supervisor does not reach it.
    file = launcher.write("run.yaml", LONG.replace("exec sleep 600", "setsid -f sleep 601; sleep 602"))
    launcher("submit", "-f", file, "--detach")
    eventually(lambda: len(launcher.processes()) == 3)
    pid = launcher.record().pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: launcher("status", "demo", "-o", "json").json["state"] == "failed")
    status = launcher("status", "demo", "-o", "json").json
    assert status["reason"].startswith("Interrupted: its supervisor was killed, or the machine restarted; submit")
    assert status["ended"] is not None
    survivors = set(launcher.processes())
    assert survivors
    again = launcher("submit", "-f", file, "--detach")
    assert again.code == 0
    assert again.err.splitlines()[0] == 'The run "demo" was interrupted; it starts again as attempt 2.'
    assert not survivors & set(launcher.processes())
    assert launcher("status", "demo", "-o", "json").json["state"] == "running"


def test_the_process_itself_dies_with_its_supervisor(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", LONG), "--detach")
    assert launcher.processes()
    pid = launcher.record().pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not launcher.processes())


@pytest.mark.parametrize("delay", [0.05, 0.1, 0.15, 0.2, 0.3])
def test_a_killed_submit_leaves_a_complete_run_or_none(launcher: Launcher, delay: float) -> None:
    file = launcher.write("run.yaml", LONG)
    process = launcher.start("submit", "-f", file)
    time.sleep(delay)
    process.kill()
    process.communicate()
    listed = launcher("list", "-o", "json")
    assert (listed.code, listed.err.replace("No runs found. To start a run: launcher submit -f FILE\n", "")) == (0, "")
    again = launcher("submit", "-f", file, "--detach", "-o", "json")
    # If the killed submit has created the run, the second finds it, possibly before it runs.
    assert (again.code, again.json["state"] in ("queued", "running")) == (0, True)
    eventually(lambda: launcher("status", "demo", "-o", "json").json["state"] == "running")


def test_ctrl_c_detaches(launcher: Launcher) -> None:
    process = launcher.start("submit", "-f", launcher.write("run.yaml", LONG), stderr=subprocess.PIPE)
    assert process.stderr
    lines = [process.stderr.readline(), process.stderr.readline()]
    assert lines == ['The run "demo" was started on this machine.\n', "demo: running\n"]
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines() == [
        'The run "demo" continues.',
        "  launcher attach demo   show its progress again",
        "  launcher logs -f demo  follow its output",
        "  launcher wait demo     wait until it ends",
        "  launcher cancel demo   stop it",
    ]
    assert launcher("status", "demo", "-o", "json").json["state"] == "running"


def test_leftovers_of_a_killed_command_are_removed(launcher: Launcher) -> None:
    draft = launcher.home / "runs" / ".new-0123"
    draft.mkdir(parents=True)
    for folder in (launcher.home, draft.parent):
        folder.chmod(0o700)
    os.utime(draft, (0, 0))
    assert launcher("list").err == "No runs found. To start a run: launcher submit -f FILE\n"
    launcher("submit", "-f", launcher.write("run.yaml", SHORT))
    assert launcher.runs == ["demo"]


def test_relative_paths_are_those_of_the_submit(launcher: Launcher) -> None:
    text = (
        SHORT + "data: {files: [a, /b/../c, 'gs://bucket/d', '~/e'], heldOut: {files: [../f]},"
        " tokenizer: {path: ./g}}\n"
    )
    data = launcher("submit", "-f", launcher.write("run.yaml", text), "--dry-run", "-o", "json").json["data"]
    here = launcher.folder
    assert data["files"] == [f"{here}/a", "/c", "gs://bucket/d", str(Path.home() / "e")]
    assert data["heldOut"]["files"] == [f"{here.parent}/f"]
    assert data["tokenizer"]["path"] == f"{here}/g"


def test_a_tokenizer_of_maxtexts_package_is_not_a_path(launcher: Launcher) -> None:
    text = SHORT + "data: {tokenizer: {kind: tiktoken, path: tokenizer_llama3.tiktoken}}\n"
    data = launcher("submit", "-f", launcher.write("run.yaml", text), "--dry-run", "-o", "json").json["data"]
    assert data["tokenizer"]["path"] == "tokenizer_llama3.tiktoken"
