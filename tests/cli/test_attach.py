"""attach and status --watch: follow a run that another command started."""

from __future__ import annotations

import os
import re
import signal
import sys

from tests.cli.conftest import LONG, SHORT, TRAINING, Launcher, eventually
from tests.cli.test_terminal import frames, on_terminal


def test_a_run_that_has_ended(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", SHORT.replace("echo hello", "exit 3")))
    result = launcher("attach", "demo")
    assert (result.code, result.err) == (1, "")
    assert result.out.splitlines()[0].startswith("failed  demo after ")
    assert result.out.splitlines()[1] == "reason  The command ended with exit code 3."
    watched = launcher("status", "demo", "--watch", "-o", "json")
    assert (watched.code, watched.err, watched.json["state"]) == (0, "", "failed")


def test_a_run_is_followed_as_after_its_submit(launcher: Launcher) -> None:
    waiting = 'import os, time\nwhile not os.path.exists("go"):\n    time.sleep(0.02)\n'
    program = launcher.write("training.py", waiting + TRAINING)
    text = SHORT.replace("[sh, -c, 'echo hello']", f"[{sys.executable}, {program}, '4', '0.2']")
    launcher("submit", "-f", launcher.write("run.yaml", text), "--detach")
    eventually(lambda: launcher("status", "demo", "-o", "json").json["state"] == "running", 60)
    attached, watching = launcher.start("attach", "demo"), launcher.start("status", "demo", "--watch")
    for process in (attached, watching):
        assert process.stderr and process.stderr.readline() == "demo: running\n"
    launcher.write("go", "")
    (out, err), (watched, lines) = (process.communicate(timeout=120) for process in (attached, watching))
    assert (attached.returncode, watching.returncode) == (0, 0)
    assert err.splitlines()[-1] == lines.splitlines()[-1] == "demo: step 4/4, loss 9.700, 2,000 tokens/s"
    assert "loss       10.000 -> 9.700" in out.splitlines()
    status = dict(re.split("  +", line) for line in watched.splitlines())
    assert (status["state"], status["step"], status["loss"]) == ("succeeded", "4 of 4", "10.000 -> 9.700")
    assert (status["held-out"], status["speed"]) == ("10.800 -> 7.100", "2,000 tokens/s")


def test_a_sweep(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", SHORT)
    launcher("submit", "-f", file, "--sweep", "run.maxRestarts=0,1", "--detach")
    result = launcher("attach", "demo")
    assert result.code == 0
    assert result.out.splitlines()[-1] == "sweep demo: 2 succeeded"
    assert launcher("status", "demo", "--watch").out.splitlines()[-1] == "sweep demo: 2 succeeded"


def test_ctrl_c_and_sigterm_on_a_terminal(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", LONG), "--detach")
    eventually(lambda: launcher("status", "demo", "-o", "json").json["state"] == "running")
    code, output = on_terminal(launcher, "attach", "demo", columns=80, ctrl_c_at="demo  running")
    assert code == 130
    assert frames(output)[-5:] == [
        'The run "demo" continues.',
        "  launcher attach demo   show its progress again",
        "  launcher logs -f demo  follow its output",
        "  launcher wait demo     wait until it ends",
        "  launcher cancel demo   stop it",
    ]

    def terminate(pid: int) -> None:
        os.kill(pid, signal.SIGTERM)

    code, output = on_terminal(launcher, "status", "demo", "--watch", columns=80, act_at=("running", terminate))
    assert code == 130
    assert output.count("\x1b[?25l") == output.count("\x1b[?25h") == 1  # the cursor is hidden, and shown again
    assert 'The run "demo" continues.' in frames(output)
    assert any(re.fullmatch(r"state +running", line) for line in frames(output))
    assert launcher("status", "demo", "-o", "json").json["state"] == "running"
