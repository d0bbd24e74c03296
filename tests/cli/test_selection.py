"""list, delete and cancel with several names, patterns, states and ages."""

from __future__ import annotations

import json
import os
import pty
import signal
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from launcher.backends.base import RunStatus, State
from launcher.backends.local.record import Record, write_record
from launcher.backends.selection import RunFilter, matches
from tests.cli.conftest import LONG, SHORT, Launcher, eventually


@pytest.fixture
def runs(launcher: Launcher) -> Launcher:
    """A home with the records of five runs that have ended."""
    now = datetime.now(UTC)
    for private in (launcher.home, launcher.home / "runs"):
        private.mkdir(mode=0o700)
    for name, state, days in (
        ("demo-1", "succeeded", 1),
        ("demo-2", "failed", 8),
        ("demo-10", "cancelled", 9),
        ("other", "failed", 0),
        ("rates-1", "succeeded", 8),
    ):
        folder = launcher.home / "runs" / name
        folder.mkdir()
        ended = (now - timedelta(days=days)).isoformat()
        record = Record(name, "default", name, 1, state, ended, ended, ended)
        write_record(folder, replace(record, sweep="rates", sweep_number=1) if name == "rates-1" else record)
        config = {"run": {"name": name, "command": ["true"]}, "slice": {"hosts": 1}}
        (folder / "run.json").write_text(json.dumps(config))
    return launcher


def listed(launcher: Launcher, *arguments: str) -> set[str]:
    result = launcher("list", "-o", "json", *arguments)
    assert result.code == 0, result.err
    return {run["name"] for run in result.json}


def test_list_selects(runs: Launcher) -> None:
    assert len(listed(runs)) == 5
    assert listed(runs, "demo-*") == {"demo-1", "demo-2", "demo-10"}
    assert listed(runs, "demo-?", "rates") == {"demo-1", "demo-2", "rates-1"}
    assert listed(runs, "--state", "failed,cancelled") == {"demo-2", "demo-10", "other"}
    assert listed(runs, "--older-than", "7d") == {"demo-2", "demo-10", "rates-1"}
    assert listed(runs, "demo-*", "--older-than", "7d", "--state", "failed") == {"demo-2"}
    nothing = runs("list", "x-*")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", 'No run matches "x-*".\n')
    invalid = runs("list", "--state", "failed,dead")
    assert invalid.code == 2
    assert '"dead" is not a valid state; the states are queued, admitted,' in invalid.err
    assert runs("list", "--clusters", "demo").code == 2


def test_delete_selects(runs: Launcher) -> None:
    nothing = runs("delete")
    assert (nothing.code, nothing.err) == (
        2,
        "Error: Name the runs to delete, or select them with --state or --older-than.\n",
    )
    dry = runs("delete", "demo-*", "--older-than", "7d", "--dry-run")
    assert (dry.code, dry.err) == (0, "Would delete 2 runs (this machine, with their folders):\n")
    assert [line.split()[0] for line in dry.out.splitlines()] == ["NAME", "demo-2", "demo-10"]
    assert len(runs.runs) == 5
    refused = runs("delete", "demo-*")
    assert (refused.code, refused.err) == (
        2,
        "Error: Confirmation needs a terminal; to delete without confirmation, use --yes.\n",
    )
    missing = runs("delete", "demo-1", "demo-3", "--yes")
    assert missing.code == 1 and 'The run "demo-3" was not found' in missing.err
    unmatched = runs("delete", "demo-1", "x-*", "--yes")
    assert (unmatched.code, unmatched.err.splitlines()[0]) == (1, 'Error: No run matches "x-*".')
    assert len(runs.runs) == 5
    dry = runs("delete", "demo-*", "--dry-run", "-o", "json")
    assert {run["name"] for run in dry.json} == {"demo-1", "demo-2", "demo-10"}
    done = runs("delete", "demo-1*", "--yes")
    assert (done.code, done.out, done.err) == (0, "", "Deleted 2 runs.\n")
    assert [run["name"] for run in runs("delete", "rates", "--yes", "-o", "json").json] == ["rates-1"]
    assert runs("delete", "--state", "failed", "--older-than", "7d", "-y").err == 'Deleted the run "demo-2".\n'
    assert runs.runs == ["other"]
    none = runs("delete", "--state", "cancelled", "-y")
    assert (none.code, none.err) == (0, "There are no such runs to delete.\n")


def test_active_runs_are_not_deleted(runs: Launcher) -> None:
    runs("submit", "-f", runs.write("run.yaml", LONG), "--detach")
    eventually(lambda: runs("status", "demo", "-o", "json").json["state"] == "running")
    named = runs("delete", "demo", "demo-1", "--yes")
    assert (named.code, named.err.splitlines()[0]) == (1, 'Error: The run "demo" is running.')
    assert "demo-1" in runs.runs
    matched = runs("delete", "demo*", "--yes")
    assert matched.code == 0
    assert matched.err == "Left out, because they have not ended: demo.\nDeleted 3 runs.\n"
    assert runs.runs == ["demo", "other", "rates-1"]


def test_cancel_of_several_runs(launcher: Launcher) -> None:
    file = launcher.write("run.yaml", LONG)
    for name in ("demo-1", "demo-2"):
        launcher("submit", "-f", file, "--name", name, "--detach")
    launcher("submit", "-f", launcher.write("short.yaml", SHORT), "--name", "demo-3")
    result = launcher("cancel", "demo-*", "-o", "json")
    assert result.code == 0, result.err
    assert {run["name"]: run["state"] for run in result.json} == {"demo-1": "cancelled", "demo-2": "cancelled"}
    assert result.err.splitlines()[-1] == "Cancelled 2 runs."
    again = launcher("cancel", "demo-*", "-o", "json")
    assert (again.code, again.json, again.err) == (0, [], "All these runs have already ended.\n")


def ask(launcher: Launcher, *arguments: str, answer: str) -> tuple[int, str]:
    """Return the exit code and stderr of a command whose question is answered; with "^C", by Ctrl-C."""
    controller_fd, terminal_fd = pty.openpty()
    process = launcher.start(*arguments, stdin=terminal_fd)
    if answer == "^C":
        assert process.stderr
        asked = ""
        while "[y/N]" not in asked:
            asked += process.stderr.read(1)
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
    else:
        os.write(controller_fd, answer.encode())
    _, err = process.communicate(timeout=20)
    os.close(terminal_fd)
    os.close(controller_fd)
    return process.returncode, err


def test_one_question_for_all(runs: Launcher) -> None:
    code, err = ask(runs, "delete", "demo-*", answer="n\n")
    lines = err.splitlines()
    assert (code, lines[-1]) == (1, "Delete 3 runs (this machine, with their folders)? [y/N]: Nothing was deleted.")
    assert [line.split()[0] for line in lines[:4]] == ["NAME", "demo-1", "demo-2", "demo-10"]
    for names in (["demo-*"], ["demo-1"], ["sweep/rates"]):
        code, err = ask(runs, "delete", *names, answer="^C")
        assert (code, err.splitlines()[-1]) == (130, "Nothing was deleted.")
    assert len(runs.runs) == 5
    assert ask(runs, "delete", "demo-*", answer="y\n")[0] == 0
    assert runs.runs == ["other", "rates-1"]


RUN = RunStatus("demo-1", "default", "local", State.RUNNING, sweep="demo", submitted="2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("names", "expected"),
    [((), True), (("demo",), True), (("demo-1",), True), (("d*", "x"), True), (("demo-?",), True), (("dem",), False)],
)
def test_the_names_of_a_run(names: tuple[str, ...], expected: bool) -> None:
    assert matches(RUN, names) == expected


def test_the_age_of_an_active_run_counts_from_its_submit() -> None:
    assert RunFilter(older_than=60).accepts(RUN)
    assert not RunFilter(older_than=60).accepts(replace(RUN, ended=datetime.now(UTC).isoformat()))
    assert not RunFilter(older_than=60).accepts(replace(RUN, submitted=None))
