"""list, status, logs, wait, cancel, delete: the life of a run after its submit."""

from __future__ import annotations

import os
import pty
import re
import signal
import time
from pathlib import Path

import psutil
import pytest

from tests.cli.conftest import LONG, SHORT, Launcher, eventually


def test_list_is_newest_first(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", SHORT)
    for name in ("first", "second"):
        launcher("submit", "-f", file, "--name", name)
    runs = launcher("list", "-o", "json").json
    assert [(run["name"], run["state"]) for run in runs] == [("second", "succeeded"), ("first", "succeeded")]
    result = launcher("list")
    assert (result.code, result.err) == (0, "")
    # There is a column for each field that one of the runs has.
    assert [re.sub(r"\d+ s", "N s", line) for line in result.out.splitlines()] == [
        "NAME    KIND   STATE      AGE",
        "second  local  succeeded  N s",
        "first   local  succeeded  N s",
    ]


def test_list_of_nothing(launcher: Launcher) -> None:
    result = launcher("list")
    assert (result.code, result.out, result.err) == (0, "", "No runs found. To start a run: launcher submit -f FILE\n")
    assert launcher("list", "-o", "json").out == "[]\n"
    assert launcher("list", "-o", "yaml").out == "[]\n"


def test_status(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", SHORT))
    status = launcher("status", "demo", "-o", "json").json
    assert list(status)[:16] == [
        *("name", "namespace", "kind", "state", "reason", "step", "steps", "loss"),
        *("submitted", "started", "ended", "restarts", "attempt", "folder", "loss_first", "eval_loss_first"),
    ]
    assert status["submitted"] <= status["started"] <= status["ended"]
    lines = dict(line.split(maxsplit=1) for line in launcher("status", "demo").out.splitlines())
    assert list(lines) == ["name", "state", "kind", "submitted", "started", "ended", "attempt", "folder"]
    assert lines["state"] == "succeeded"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S+", lines["ended"])
    assert lines["folder"] == f"{launcher.home}/runs/demo"
    assert "state: succeeded" in launcher("status", "demo", "-o", "yaml").out.splitlines()


@pytest.mark.parametrize("verb", ["status", "logs", "wait", "cancel", "delete"])
def test_an_unknown_name(launcher: Launcher, verb: str) -> None:
    result = launcher(verb, "../demo")
    assert (result.code, result.out) == (1, "")
    if verb == "logs":  # a name with a slash is a run's folder
        assert result.err == "Error: The folder ../demo does not exist.\n"
    else:
        assert result.err == (
            'Error: The run "../demo" was not found on this machine.\nHint: To list all runs: launcher list\n'
        )
    launcher("submit", "-f", launcher.write("run.yaml", SHORT))
    assert (
        launcher(verb, "dmo").err.splitlines()[0]
        == 'Error: The run "dmo" was not found on this machine. Did you mean "demo"?'
    )


def test_logs_end_with_the_run(launcher: Launcher) -> None:
    script = "echo one; echo two >&2; until test -e go; do sleep 0.05; done; printf three"
    launcher("submit", "-f", launcher.write("run.yaml", SHORT.replace("echo hello", script)), "--detach")
    logs = launcher.start("logs", "-f", "demo")
    assert logs.stdout
    assert [logs.stdout.readline(), logs.stdout.readline()] == ["one\n", "two\n"]
    launcher.write("go", "")
    out, err = logs.communicate(timeout=20)
    assert (logs.returncode, out, err) == (0, "three\n", "")


def test_logs_that_are_not_text(launcher: Launcher) -> None:
    script = "printf '\\\\377\\\\n\\\\033[1mbold'"
    launcher("submit", "-f", launcher.write("run.yaml", SHORT.replace("'echo hello'", f'"{script}"')))
    assert launcher("logs", "demo").out == "\ufffd\n\x1b[1mbold\n"


def test_logs_for_scripts(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", SHORT.replace("echo hello", "echo one: 1; echo two")))
    assert launcher("logs", "demo", "-o", "json").out == '{"line": "one: 1"}\n{"line": "two"}\n'
    assert launcher("logs", "demo", "-o", "yaml").out == '- {"line": "one: 1"}\n- {"line": "two"}\n'


def test_lines_for_programs_are_left_out(launcher: Launcher) -> None:
    event, step = 'SLIPWAY_EVENT {"event": "phase"}', 'SLIPWAY_METRICS {"step": 0}'
    lines = [event, "step 1/2  loss 9.8", step, f"(RayTrainWorker pid=7, ip=10.0.0.1) {step}", "the end", step, step]
    printed = launcher.folder / "printed"
    printed.write_text("\n".join(lines) + "\n")
    file = launcher.write("run.yaml", SHORT.replace("echo hello", f"cat {printed}"))
    assert launcher("submit", "-f", file).code == 0
    assert launcher("logs", "demo").out.splitlines() == ["step 1/2  loss 9.8", "the end"]
    assert launcher("logs", "demo", "--tail", "2").out.splitlines() == ["step 1/2  loss 9.8", "the end"]
    for follow in ((), ("-f",)):
        assert launcher("logs", "demo", *follow, "--tail", "1").out.splitlines() == ["the end"]
    assert launcher("logs", "demo", "--raw").out.splitlines() == lines
    assert launcher("logs", "demo", "--raw", "--tail", "1").out.splitlines() == [step]
    assert len(launcher("logs", "demo", "-o", "yaml").out.splitlines()) == len(lines)
    printed.write_text(f"{event}\n")
    assert launcher("submit", "-f", file, "--name", "other").code == 0
    none = launcher("logs", "other", "--tail", "3")
    assert (none.out, none.err) == ("", 'The run "other" has written only lines for programs; --raw prints them.\n')


def test_the_end_of_a_log(launcher: Launcher) -> None:
    script = "seq 9; until test -e go; do sleep 0.05; done; printf ten"
    launcher("submit", "-f", launcher.write("run.yaml", SHORT.replace("echo hello", script)), "--detach")
    eventually(lambda: launcher("logs", "demo", "--tail", "1").out == "9\n")
    assert launcher("logs", "demo", "--tail", "3").out == "7\n8\n9\n"
    assert launcher("logs", "demo", "--tail", "30").out == launcher("logs", "demo").out
    logs = launcher.start("logs", "-f", "demo", "--tail", "2")
    assert logs.stdout
    assert [logs.stdout.readline(), logs.stdout.readline()] == ["8\n", "9\n"]
    launcher.write("go", "")
    out, err = logs.communicate(timeout=20)
    assert (logs.returncode, out, err) == (0, "ten\n", "")
    assert launcher("logs", "demo", "--tail", "2").out == "9\nten\n"
    refused = launcher("logs", "demo", "--since", "10m")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == (
        "Error: The output of run.command has no times, so --since cannot select lines; use --tail.\n"
    )
    as_namespace = launcher("logs", "demo", "-n", "5")
    assert (as_namespace.code, as_namespace.out) == (1, "")
    assert as_namespace.err.splitlines()[-1] == "Hint: -n is the namespace. To print the last 5 lines: --tail 5"


def test_logs_of_a_run_without_output(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", SHORT.replace("echo hello", "true")))
    result = launcher("logs", "demo")
    assert (result.code, result.out, result.err) == (0, "", 'The run "demo" has written nothing yet.\n')


def test_logs_of_a_worker(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", SHORT))
    result = launcher("logs", "demo", "--worker", "0")
    assert result.code == 2
    assert result.err == "Error: A local run has one log for all its workers; leave out --worker.\n"


def test_a_reader_that_closes_the_pipe(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", SHORT.replace("echo hello", "seq 100000")))
    logs = launcher.start("logs", "demo")
    assert logs.stdout and logs.stderr
    assert logs.stdout.readline() == "1\n"
    logs.stdout.close()
    assert logs.stderr.read() == ""
    assert logs.wait(timeout=20) == 1
    logs.stderr.close()


def test_wait(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", SHORT.replace("echo hello", "until test -e go; do sleep 0.05; done; exit 4"))
    launcher("submit", "-f", file, "--detach")
    result = launcher("wait", "demo", "--timeout", "0.2s")
    assert (result.code, result.out) == (124, "")
    assert result.err == 'Error: Timed out after 0.2 s: the run "demo" is running. It continues.\n'
    waiting = launcher.start("wait", "demo", "--timeout", "1m", "-o", "json")
    launcher.write("go", "")
    out, _ = waiting.communicate(timeout=20)
    assert waiting.returncode == 1
    assert '"state": "failed"' in out


def test_wait_and_ctrl_c(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", LONG), "--detach")
    before = os.times()
    launcher.start("status", "demo").communicate()
    start_up = os.times().children_user - before.children_user
    assert start_up > 0
    waiting = launcher.start("wait", "demo")
    # On a loaded machine, its start takes long, but not more time of a processor.
    while psutil.Process(waiting.pid).cpu_times().user < start_up:
        time.sleep(0.05)
    time.sleep(0.6)
    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=20)
    assert (waiting.returncode, out, err.strip()) == (130, "", "")


@pytest.mark.parametrize("text", ["soon", "-1", "5x", "nan", "inf"])
def test_wait_with_an_invalid_duration(launcher: Launcher, text: str) -> None:
    result = launcher("wait", "demo", f"--timeout={text}")
    assert result.code == 2
    assert result.err.splitlines()[-1].startswith(
        f"Error: Invalid value for '--timeout': \"{text}\" is not a valid duration"
    )


def test_list_shows_why_a_run_failed(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", SHORT.replace("echo hello", "exit 3")))
    header, row = launcher("list").out.splitlines()
    reason = launcher("status", "demo", "-o", "json").json["reason"]
    assert header.endswith("REASON") and row[header.index("REASON") :] in reason


def test_verbs_of_a_cluster_for_a_local_run(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", SHORT))
    shell = launcher("shell", "demo", "--", "true")
    assert (shell.code, shell.out) == (1, "")
    assert shell.err == (
        f'Error: The run "demo" is on this machine, so it has no pods. Its folder is {launcher.home}/runs/demo.\n'
    )
    assert launcher("shell", "demo").err == shell.err  # although there is no terminal
    profile = launcher("profile", "demo")
    assert (profile.code, profile.out) == (1, "")


def test_explain_of_runs_that_have_ended(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", SHORT))
    assert launcher("explain", "demo").out.splitlines()[0] == "demo has succeeded."
    launcher("submit", "-f", launcher.write("long.yaml", LONG), "--name", "b", "--detach")
    launcher("cancel", "b")
    assert launcher("explain", "b").out.splitlines()[0] == "b was cancelled."


def test_cancel_frees_every_process(launcher: Launcher) -> None:
    # For each host: a process in the group, one in a new session, one without a parent, and one that ignores SIGTERM.
    script = "trap '' TERM; sleep 601 & setsid sleep 602 & setsid -f sleep 603; wait"
    text = SHORT.replace("'echo hello'", f'"{script}"').replace("accelerator: cpu", "accelerator: cpu, hosts: 2")
    launcher("submit", "-f", launcher.write("run.yaml", text), "--detach", env={"SLIPWAY_GRACE_SECONDS": "0.3"})
    eventually(lambda: len(launcher.processes()) == 8)
    supervisor = launcher.record().pid
    result = launcher("cancel", "demo")
    assert (result.code, result.out) == (0, "")
    assert result.err == 'Cancelling the run "demo"…\nThe run "demo" is cancelled.\n'
    assert launcher.processes() == []
    eventually(lambda: not Path(f"/proc/{supervisor}").exists())
    assert launcher("status", "demo", "-o", "json").json["state"] == "cancelled"
    again = launcher("cancel", "demo")
    assert (again.code, again.err) == (0, 'The run "demo" is cancelled.\n')


def test_cancel_waits_for_a_process_that_handles_sigterm(launcher: Launcher) -> None:
    script = "trap 'sleep 0.3; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    launcher("submit", "-f", launcher.write("run.yaml", SHORT.replace("'echo hello'", f'"{script}"')), "--detach")
    eventually(lambda: "ready" in launcher("logs", "demo").out)
    assert launcher("cancel", "demo", "-o", "json").json["state"] == "cancelled"
    lines = launcher("logs", "demo").out.splitlines()
    assert (lines[0], lines[-1]) == ("ready", "saved")


def test_cancel_after_the_end(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", SHORT))
    result = launcher("cancel", "demo")
    assert (result.code, result.err) == (0, 'The run "demo" has already succeeded.\n')
    assert launcher("status", "demo", "-o", "json").json["state"] == "succeeded"


def test_cancel_of_an_interrupted_run(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", LONG.replace("exec sleep", "setsid -f sleep")), "--detach")
    eventually(lambda: launcher("status", "demo", "-o", "json").json["state"] == "succeeded")
    launcher(
        "submit",
        "-f",
        launcher.write("run.yaml", LONG.replace("exec sleep", "setsid sleep")),
        "--name",
        "b",
        "--detach",
    )
    eventually(lambda: len(launcher.processes("b")) == 2)
    pid = launcher.record("b").pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: len(launcher.processes("b")) == 1)
    result = launcher("cancel", "b", "-o", "json")
    assert (result.code, result.json["state"]) == (0, "cancelled")
    assert launcher.processes("b") == []


def test_cancel_while_it_waits_to_restart(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", SHORT.replace("echo hello", "exit 1"))
    launcher("submit", "-f", file, "--set", "run.maxRestarts=50", "--detach")
    eventually(lambda: launcher("status", "demo", "-o", "json").json["restarts"] >= 2)
    assert launcher("cancel", "demo", "-o", "json").json["state"] == "cancelled"


def test_a_slow_start_of_ray_is_not_a_restart(launcher: Launcher) -> None:
    """A stand-in for the trainer ends as the real one does if Ray starts too slowly, which takes 30 s each time."""
    starts = launcher.folder / "starts"
    launcher.write(
        "sitecustomize.py",
        f"""
import os, pathlib, sys
if "trainer" in sys.orig_argv and "--check" not in sys.orig_argv:
    starts = pathlib.Path({str(starts)!r})
    count = len(starts.read_text()) if starts.exists() else 0
    starts.write_text("x" * (count + 1))
    os.write(int(os.environ["SLIPWAY_EXIT_MESSAGE_FD"]), b"Ray did not start within 30 s.")
    os._exit(0 if count == int(os.environ["LATE"]) else 75)
""",
    )
    file = launcher.write("late.yaml", f"worker: {{env: {{PYTHONPATH: '{launcher.folder}', LATE: '2'}}}}\n")
    done = launcher("submit", "-f", "quickstart", "-f", file, "--name", "late", "--set", "run.maxRestarts=0")
    assert done.code == 0, done.err
    assert launcher("status", "late", "-o", "json").json["restarts"] == 0
    log = launcher("logs", "late").out.splitlines()
    assert (
        log
        == ["[launcher] Ray did not start within 30 s. The trainer starts again; this does not count as a restart."] * 2
    )

    starts.unlink()
    failed = launcher(
        "submit",
        "-f",
        "quickstart",
        "-f",
        file,
        "--name",
        "too-late",
        "--set",
        "worker.env.LATE='9'",
        "--set",
        "run.maxRestarts=0",
    )
    assert (failed.code, starts.read_text()) == (1, "xxxx")
    assert launcher("status", "too-late", "-o", "json").json["reason"] == "Ray did not start within 30 s."


def test_a_crash_that_repeats_is_restarted_once(launcher: Launcher) -> None:
    """A stand-in for the trainer crashes at its start. No input makes the real trainer crash."""
    launcher.write(
        "sitecustomize.py",
        """
import os, signal, sys
if "trainer" in sys.orig_argv and "--check" not in sys.orig_argv:
    os.kill(os.getpid(), signal.SIGSEGV)
""",
    )
    file = launcher.write("crash.yaml", f"worker: {{env: {{PYTHONPATH: '{launcher.folder}'}}}}\n")
    done = launcher("submit", "-f", "quickstart", "-f", file, "--name", "crash", "--set", "run.maxRestarts=9")
    assert done.code == 1
    status = launcher("status", "crash", "-o", "json").json
    assert (status["restarts"], status["state"]) == (1, "failed")
    assert status["reason"] == (
        "The trainer was killed by signal 11 (SIGSEGV). It is the second failure of this kind after the same step."
    )


def test_delete_asks(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", SHORT))
    result = launcher("delete", "demo")
    assert (result.code, result.out) == (2, "")
    assert result.err == "Error: Confirmation needs a terminal; to delete without confirmation, use --yes.\n"
    assert _answer(launcher, "n\n") == 1
    assert launcher.runs == ["demo"]
    assert _answer(launcher, "y\n") == 0
    assert launcher.runs == []


def _answer(launcher: Launcher, text: str) -> int:
    controller_fd, terminal_fd = pty.openpty()
    process = launcher.start("delete", "demo", stdin=terminal_fd)
    os.write(controller_fd, text.encode())
    out, err = process.communicate(timeout=20)
    os.close(terminal_fd)
    os.close(controller_fd)
    assert out == ""
    assert f'Delete the run "demo" and all of {launcher.home}/runs/demo? [y/N]' in err
    return process.returncode


def test_delete_without_asking(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", SHORT))
    result = launcher("delete", "demo", "--yes")
    assert (result.code, result.out, result.err) == (0, "", 'The run "demo" is deleted.\n')
    assert launcher.runs == []


def test_delete_of_a_running_run(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", LONG), "--detach")
    for yes in ([], ["--yes"]):  # the state is checked before the confirmation, which needs a terminal
        result = launcher("delete", "demo", *yes)
        assert result.code == 1
        assert result.err == 'Error: The run "demo" is running.\nHint: Cancel it first: launcher cancel demo\n'
    assert launcher.runs == ["demo"]


def test_delete_of_a_folder_that_slipway_did_not_create(launcher: Launcher) -> None:
    folder = launcher.home / "runs" / "mine"
    folder.mkdir(parents=True)
    (folder / "thesis.tex").touch()
    assert launcher("delete", "mine", "--yes").code == 1
    assert (folder / "thesis.tex").exists()
    assert launcher("list", "-o", "json").json == []
    rejected = launcher("submit", "-f", launcher.write("run.yaml", SHORT), "--name", "mine")
    assert rejected.code == 1
    assert rejected.err == (
        f"Error: {folder} already exists, but Slipway did not create it; move it away, or use another name.\n"
    )
    assert sorted(path.name for path in folder.iterdir()) == ["thesis.tex"]


def test_the_log_of_a_supervisor_that_cannot_start_a_program(launcher: Launcher) -> None:
    program = launcher.folder / "program"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o755)
    file = launcher.write("run.yaml", SHORT.replace("[sh, -c, 'echo hello']", f"[{program}]"))
    result = launcher("submit", "-f", file, "--set", "run.maxRestarts=4")
    assert result.code == 1
    assert f'The program "{program}" cannot be started: No such file or directory.' in result.out


def test_two_deletes_at_once(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", SHORT))
    both = [launcher.start("delete", "demo", "--yes") for _ in range(2)]
    outputs = [process.communicate(timeout=20)[1] for process in both]
    assert 0 in {process.returncode for process in both}
    assert not any("Traceback" in text for text in outputs)
    assert launcher.runs == []


def test_output_that_cannot_be_written(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", SHORT))
    with Path("/dev/full").open("w") as full:
        process = launcher.start("status", "demo", stdout=full)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (1, "Error: The output cannot be written: No space left on device.\n")
