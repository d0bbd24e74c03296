"""Output on a terminal: the progress bar, its width, and Ctrl-C as the terminal sends it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import time
from collections.abc import Callable, Mapping

import pytest

from tests.cli.conftest import LONG, SHORT, TRAINING, Launcher


def on_terminal(
    launcher: Launcher,
    *arguments: str,
    columns: int = 80,
    ctrl_c_at: str = "",
    act_at: tuple[str, Callable[[int], None]] | None = None,
    env: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Return the exit code and the terminal's output. Type Ctrl-C once the output contains `ctrl_c_at`.

    `act_at` is a text, and a function that is called with the process id once the output contains the text.
    """
    pid, terminal = pty.fork()
    if pid == 0:  # pragma: no cover - the child
        os.chdir(launcher.folder)
        variables = {**launcher.env, "TERM": "xterm-256color", **(env or {})}
        variables.pop("COLUMNS")
        time.sleep(0.05)  # until the parent has set the size
        os.execve(sys.executable, [sys.executable, "-m", "launcher", *arguments], variables)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    output = b""
    while True:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:
            break
        if not chunk:
            break
        output += chunk
        if ctrl_c_at and ctrl_c_at.encode() in output:
            os.write(terminal, b"\x03")
            ctrl_c_at = ""
        if act_at and act_at[0].encode() in output:
            act_at[1](pid)
            act_at = None
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), output.decode()


def frames(text: str) -> list[str]:
    """Return each line that the terminal has shown, without control sequences."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    return [frame.rstrip() for line in plain.split("\n") for frame in line.split("\r") if frame.strip()]


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_the_bar_fits(launcher: Launcher, columns: int) -> None:
    program = launcher.write("training.py", TRAINING)
    text = SHORT.replace("[sh, -c, 'echo hello']", f"[{sys.executable}, {program}, '8', '0.25']")
    code, output = on_terminal(launcher, "submit", "-f", launcher.write("run.yaml", text), columns=columns)
    assert code == 0
    bars = [frame for frame in frames(output) if re.search(r"\d/8", frame)]
    assert bars
    assert all(len(frame) < columns for frame in bars)
    assert any("loss" in frame for frame in bars) == (columns > 20)
    assert any("━" in frame for frame in bars)
    assert any("tokens/s" in frame for frame in bars) == (columns > 40)
    assert "steps      8 of 8" in frames(output)


def test_ctrl_c_on_a_terminal(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", LONG)
    code, output = on_terminal(launcher, "submit", "-f", file, columns=80, ctrl_c_at="demo  running")
    assert code == 130
    assert frames(output)[-5:] == [
        'The run "demo" continues.',
        "  launcher attach demo   show its progress again",
        "  launcher logs -f demo  follow its output",
        "  launcher wait demo     wait until it ends",
        "  launcher cancel demo   stop it",
    ]
    assert launcher("status", "demo", "-o", "json").json["state"] == "running"


def test_a_terminal_without_capabilities(launcher: Launcher) -> None:
    launcher.write("run.yaml", SHORT)
    process = launcher.start("submit", "-f", "run.yaml", env={"TERM": "dumb"})
    out, err = process.communicate(timeout=20)
    assert "\x1b" not in out + err
