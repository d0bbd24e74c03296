"""`launcher report` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import SHORT, TRAINING, Launcher
from tests.products.report import report_runs as runs

RUN = f"""\
run: {{name: demo, kind: local, maxRestarts: 0, command: [python3, -c, {json.dumps(TRAINING)}, "5", "0"]}}
slice: {{accelerator: cpu}}
storage: {{kind: local}}
"""


def test_a_run_of_this_machine(launcher: Launcher) -> None:
    assert launcher("submit", "-f", launcher.write("mine.yaml", RUN)).code == 0
    done = launcher("report", "demo", "-o", "json")
    assert (done.code, done.err) == (0, "")
    assert done.json["file"] == "demo.report.html"
    (row,) = done.json["runs"]
    assert (row["state"], row["step"], row["eval_loss"], row["loss"], row["missing"]) == ("succeeded", 5, 7.1, 9.6, [])
    page = (launcher.folder / "demo.report.html").read_text()
    assert "mine.yaml:1" in page  # the origin of run.command
    assert "charts/run/values.yaml:" in page
    # A report replaces an older report, but no other file.
    assert launcher("report", "demo").out == "demo.report.html\n"
    launcher.write("notes.html", "mine")
    rejected = launcher("report", "demo", "--out", "notes.html")
    assert (rejected.code, rejected.out) == (1, "")
    assert rejected.err.startswith("Error: notes.html already exists and is not a Slipway report.")
    assert (launcher.folder / "notes.html").read_text() == "mine"
    assert launcher("report", "demo", "--out", "notes.html", "--force").code == 0


def test_folders_side_by_side_and_a_missing_one(launcher: Launcher) -> None:
    for name in ("a", "b"):
        runs.write(launcher.folder / name, metrics=runs.steps(20), config=runs.config(name))
    done = launcher("report", "./a", "./b", "./c")
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines() == [
        f"Error: ./c: There is no folder {launcher.folder / 'c'}.",
        "Hint: --skip creates the report of the others.",
    ]
    hint = launcher("report", "./a", "nope").err.splitlines()[1]
    assert hint == "Hint: --skip creates the report of the others. To list all runs: launcher list"
    assert list(launcher.folder.glob("*.html")) == []
    skipped = launcher("report", "./a", "./b", "./c", "--skip", "--out", "-")
    assert skipped.code == 0
    assert skipped.err.startswith("Left out: ./c: There is no folder")
    assert skipped.out.startswith("<!doctype html>")
    assert launcher("report", "./a", "./b").out == "a-and-b.report.html\n"


def test_missing_runs_and_folders(launcher: Launcher) -> None:
    runs.write(launcher.folder / "a", metrics=runs.steps(2))
    done = launcher("report", "a")
    assert done.code == 1
    assert done.err.startswith('Error: The run "a" was not found on this machine.')
    assert "If you mean the folder, write ./a." in done.err
    (launcher.folder / "empty").mkdir()
    done = launcher("report", "./empty")
    assert done.code == 1
    assert "is not the folder of a run: it has no metrics.jsonl" in done.err
    done = launcher("report", "./a/metrics.jsonl")
    assert done.err.splitlines() == [
        f"Error: ./a/metrics.jsonl: {launcher.folder / 'a' / 'metrics.jsonl'} is a file.",
        f"Hint: Give the folder of the run, such as {launcher.folder / 'a'}.",
    ]
    long = "a" * 250 + ".html"  # the name of the temporary file is longer, and too long
    done = launcher("report", "./a", "--out", long)
    assert done.err.splitlines() == [
        f"Error: The report cannot be written to {launcher.folder / long}: File name too long.",
        "Hint: Choose another place with --out FILE; --out - prints the report.",
    ]
    done = launcher("report", "./a", "--out", "nowhere/a.html")
    assert done.err == "Error: There is no folder nowhere to write a.html to.\n"
    assert launcher("report").code == 2
    assert launcher("report", "./a", "--out", "-", "-o", "json").code == 2


def test_without_bokeh(launcher: Launcher, tmp_path: Path) -> None:
    """The test hides Bokeh, because an environment without it takes a minute to create."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules.update(dict.fromkeys(('bokeh', 'numpy')))\n"  # an import of None is an error
    )
    runs.write(launcher.folder / "a", metrics=runs.steps(2))
    done = launcher("report", "./a", env={"PYTHONPATH": f"{tmp_path}:{launcher.env['PYTHONPATH']}"})
    assert done.code == 1
    assert done.err.splitlines() == [
        "Error: Bokeh, which draws the charts of a report, is not installed in this Python.",
        'Hint: Install it next to the launcher: pip install "slipway-launcher[report]".',
    ]


def test_a_secret_of_an_old_run_is_not_shown(launcher: Launcher) -> None:
    launcher.write("run.yaml", SHORT)
    assert launcher("submit", "-f", "run.yaml").code == 0
    path = launcher.home / "runs" / "demo" / "run.json"
    config = json.loads(path.read_text())
    config["worker"]["env"] = {"HF_TOKEN": "hf_8e1bPq"}  # as an older version stored it
    path.write_text(json.dumps(config))
    for result in (launcher("report", "demo", "--out", "-"), launcher("submit", "-f", "run.yaml")):
        assert "(hidden)" in result.out + result.err
        assert "hf_8e1bPq" not in result.out + result.err


def test_tensorboard_of_a_run_that_wrote_nothing_for_it(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", SHORT))
    board = launcher("tensorboard", "demo")
    assert (board.code, board.out) == (1, "")
    assert "has written nothing for TensorBoard" in board.err
