"""Colours: on a terminal only, and not with NO_COLOR or on a terminal without capabilities."""

from __future__ import annotations

import re

from launcher.cli import colour
from tests.cli.conftest import SHORT, Launcher
from tests.cli.test_terminal import on_terminal

GREEN, RED, YELLOW, OFF = "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[0m"


def test_colours_on_a_terminal_only(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", SHORT)
    launcher("submit", "-f", file)
    launcher("submit", "-f", file, "--name", "bad", "--set", 'run.command=["false"]')
    _, output = on_terminal(launcher, "list")
    lines = [line.rstrip() for line in output.splitlines()]
    reason = "The command ended with exit code 1."
    assert re.sub(r"\d+ s ", "N s ", lines[1]) == f"bad   local  {RED}failed{OFF}     N s  {reason}"
    assert re.sub(r"\d+ s$", "N s", lines[2]) == f"demo  local  {GREEN}succeeded{OFF}  N s"
    assert f"state      {GREEN}succeeded{OFF}" in on_terminal(launcher, "status", "demo")[1]
    assert on_terminal(launcher, "status", "x")[1].startswith(f"{RED}Error{OFF}: The run")
    assert "\x1b" not in launcher("list").out + launcher("status", "demo").out + launcher("status", "x").err
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in on_terminal(launcher, "status", "demo", env=env)[1]


def test_only_the_words_of_a_column_are_coloured() -> None:
    text = "RUN     STATE    NOTE\nfailed  queued   failed\nb       strange  x\nsweep failed: failed\n\nfailed"
    assert colour.tables(text) == text.replace("queued", "\x1b[36mqueued\x1b[0m")
    assert colour.tables("no table") == "no table"


def test_the_levels_of_findings_and_messages() -> None:
    assert colour.levels("machine\n  ok       disk  ok") == f"machine\n  {GREEN}ok{OFF}       disk  ok"
    assert colour.messages("Warning: Error: x\nError: y") == f"{YELLOW}Warning{OFF}: Error: x\n{RED}Error{OFF}: y"


def test_a_closed_output(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", SHORT))
    for closed in (">&-", "2>&-", "<&-"):
        process = launcher.start("list", prefix=("sh", "-c", f'"$@" {closed}', "sh"))
        out, err = process.communicate(timeout=20)
        assert (process.returncode, err) == (0, "")
        assert ("demo" in out) == (closed != ">&-")
