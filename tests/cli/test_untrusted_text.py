"""Text of others cannot control the terminal: names, reasons, log lines, values."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml

from launcher.backends.base import RunStatus, State
from launcher.backends.local.record import write_record
from launcher.cli import follow, output
from launcher.formatting import table
from tests.cli.conftest import ROOT, SHORT, Launcher, Result

# Set the title, clear the screen (in seven and in eight bits), ring, overwrite the line, reverse the direction.
HOSTILE = "before\x1b]0;title\x07\x1b[2J\x9b2J\x7f\r\x08\u202etxet\u2066after"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# The supervisor has no terminal: its output is the log of a run.
WRITERS = {
    "launcher/cli/output.py",
    "launcher/products/models/cli/pieces.py",  # the text of a model, neutral as in output.py
    "launcher/backends/local/supervisor.py",  # a log
}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_few_modules_write_to_the_terminal() -> None:
    writers = set()
    for path in sorted((ROOT / "launcher").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            text = ast.unparse(node) if isinstance(node, ast.Attribute | ast.Name) else ""
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            writes = text in (
                "sys.stdout.write",
                "sys.stderr.write",
                "click.echo",
                "click.secho",
                "traceback.print_exc",
            )
            if writes or called in ("print", "rich.print", "Console", "logging.basicConfig"):
                writers.add(name)
    assert writers == WRITERS


def clean(result: Result) -> str:
    """Return all output of a command, after the check that it has no control characters."""
    text = result.out + result.err
    assert not CONTROL.search(text), text
    assert "Traceback" not in text
    return text


@pytest.fixture
def hostile(launcher: Launcher) -> Launcher:
    """A home with a run whose output, reason and sweep are hostile, and a folder with such a name that is not a run."""
    launcher.write("line.txt", HOSTILE)
    launcher.write("run.yaml", SHORT.replace("echo hello", "cat line.txt >&2; exit 3"))
    assert launcher("submit", "-f", "run.yaml").code == 1
    folder = launcher.home / "runs" / "demo"
    swept = replace(launcher.record(), sweep="sweep", sweep_number=1, sweep_values={f"train.{HOSTILE}": HOSTILE})
    write_record(folder, replace(swept, reason=HOSTILE))
    (launcher.home / "runs" / HOSTILE).mkdir()
    (launcher.home / "runs" / HOSTILE / "file").touch()
    return launcher


def test_no_verb_prints_control_characters(hostile: Launcher) -> None:
    hostile.write("bad.yaml", f"run: {{kind: local, {json.dumps(HOSTILE)}: {json.dumps(HOSTILE)}}}")
    for arguments in (
        *(("list",), ("status", "demo"), ("status", "sweep"), ("wait", "demo"), ("wait", "sweep"), ("explain", "demo")),
        *(("logs", "demo", "-o", form) for form in ("json", "yaml")),
        *(("values", "-f", "bad.yaml", *more) for more in ((), ("-o", "json"), ("--origins",))),
        *(("check", "-f", "bad.yaml"), ("render", "-f", "bad.yaml"), ("submit", "-f", "bad.yaml", "--dry-run")),
        *(("status", HOSTILE), ("logs", HOSTILE), (HOSTILE,), ("submit", "-f", HOSTILE)),
        ("doctor", "--context", HOSTILE),
        *(("report", "demo"), ("cancel", "demo"), ("cancel", "sweep"), ("delete", "sweep")),
    ):  # fmt: skip
        result = hostile(*arguments)
        assert clean(result), arguments
        assert (hostile.folder / "line.txt").exists()


def test_json_and_yaml_have_the_exact_text_as_escapes(hostile: Launcher) -> None:
    for arguments in (("list",), ("status", "demo"), ("wait", "demo")):
        for form, load in (("json", json.loads), ("yaml", yaml.safe_load)):
            result = hostile(*arguments, "-o", form)
            clean(result)
            read = load(result.out)
            assert (read[0] if isinstance(read, list) else read)["reason"] == HOSTILE


def test_a_log_is_exact_in_a_pipe_and_keeps_only_colours_on_a_terminal(
    hostile: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = hostile.home / "runs" / "demo" / "log.txt"
    log.write_text(f"{HOSTILE}\n\x1b[36m(pid=1)\x1b[0m step \x1b[1;31m3\n50 %\r100 %\n", encoding="utf-8", newline="")
    assert hostile("logs", "demo").out == log.read_bytes().decode()
    monkeypatch.setattr(sys, "stdout", terminal := Terminal(newline=""))
    for line in log.read_bytes().decode().split("\n")[:3]:
        output.emit_log_line(line, flush=True)
    first, second, third = terminal.getvalue().split("\n")[:3]
    assert not CONTROL.search(first.replace("\r", ""))
    assert second == "\x1b[36m(pid=1)\x1b[0m step \x1b[1;31m3\x1b[0m", "a colour ends with its line"
    assert third == "50 %\r100 %"
    output.emit_exactly(HOSTILE)
    assert "\x1b]" not in terminal.getvalue()


def test_the_live_display_shows_the_text_without_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    view: Any
    with hostile_terminal(monkeypatch), follow.showing(follow._Lines, follow._Bar) as view:
        view.show(HOSTILE_RUN)
        view.print_line(HOSTILE)


@contextlib.contextmanager
def hostile_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Show a display on a terminal, and check what it has sent at the end."""
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "160")
    yield
    assert_harmless(terminal)


HOSTILE_RUN = RunStatus("demo", "default", "local", State.STARTING, reason=HOSTILE, sweep_values={HOSTILE: HOSTILE})


def assert_harmless(terminal: Terminal) -> None:
    """Check that a display that was given HOSTILE twice has sent no control sequence of it."""
    shown = terminal.getvalue()
    assert shown.count("after") >= 2
    for attack in ("\x1b]", "\x07", "\x1b[2J", "\x9b", "\u202e", "\x08"):
        assert attack not in shown
    assert "\x1b[2K" in shown, "the display itself still redraws its lines"


def test_a_cell_of_a_table_is_one_line() -> None:
    assert table([("demo", "failed\ndemo-2  succeeded", "")]) == "demo  failed demo-2  succeeded"
    assert table([("demo", f"a{chr(0x85)}b")]) == "demo  a b"


def test_pages_and_manifests_are_exact_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    output.emit_exactly(HOSTILE)
    assert capsys.readouterr().out == HOSTILE
