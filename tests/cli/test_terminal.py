"""On a terminal: the bar, its width, and Ctrl-C as the terminal sends it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import time

import pytest

from tests.cli.conftest import LONG, SHORT, TRAINING, Launcher


def on_terminal(launcher: Launcher, *arguments: str, columns: int, ctrl_c_at: str = "") -> tuple[int, str]:
    """The exit code and all that the terminal got; types Ctrl-C once it shows `ctrl_c_at`."""
    pid, terminal = pty.fork()
    if pid == 0:  # pragma: no cover - the child
        os.chdir(launcher.folder)
        env = {**launcher.env, "TERM": "xterm-256color"}
        env.pop("COLUMNS")
        time.sleep(0.05)  # until the size is set
        os.execve(sys.executable, [sys.executable, "-m", "launcher", *arguments], env)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    got = b""
    while True:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:
            break
        if not chunk:
            break
        got += chunk
        if ctrl_c_at and ctrl_c_at.encode() in got:
            os.write(terminal, b"\x03")
            ctrl_c_at = ""
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), got.decode()


def _frames(text: str) -> list[str]:
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    return [frame.rstrip() for line in plain.split("\n") for frame in line.split("\r") if frame.strip()]


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_the_bar_fits(launcher: Launcher, columns: int) -> None:
    program = launcher.write("training.py", TRAINING)
    text = SHORT.replace("[sh, -c, 'echo hello']", f"[{sys.executable}, {program}, '8', '0.25']")
    code, got = on_terminal(launcher, "submit", "-f", launcher.write("run.yaml", text), columns=columns)
    assert code == 0
    bars = [frame for frame in _frames(got) if re.search(r"\d/8", frame)]
    assert bars
    assert all(len(frame) < columns for frame in bars)
    assert any("loss" in frame for frame in bars) == (columns > 20)
    assert any("━" in frame for frame in bars)
    assert any("tokens/s" in frame for frame in bars) == (columns > 40)
    assert "steps      8 of 8" in _frames(got)


def test_ctrl_c_on_a_terminal(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", LONG)
    code, got = on_terminal(launcher, "submit", "-f", file, columns=80, ctrl_c_at="demo  running")
    assert code == 130
    frames = _frames(got)
    assert frames[-4:] == [
        'The run "demo" goes on.',
        "  launcher logs -f demo  its output",
        "  launcher wait demo     until it ends",
        "  launcher cancel demo   to stop it",
    ]
    assert launcher("status", "demo", "-o", "json").json["state"] == "running"


def test_a_terminal_that_can_do_nothing(launcher: Launcher) -> None:
    launcher.write("run.yaml", SHORT)
    process = launcher.start("submit", "-f", "run.yaml", env={"TERM": "dumb"})
    out, err = process.communicate(timeout=20)
    assert "\x1b" not in out + err
