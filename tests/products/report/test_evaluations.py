"""The results of checkpoints on tasks: lines of evaluations.jsonl, and what a report shows of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from launcher.products.report import folders
from launcher.products.report.build import build
from launcher.products.report.compare import scores
from launcher.products.report.evaluations import Evaluation, latest, number, parse, parse_all
from tests.products.report import report_runs as runs


def line(task: str, step: int | None, value: float, **more: Any) -> dict[str, Any]:
    return {
        "task": task,
        "step": step,
        "metrics": {"acc": value, "acc_norm": value / 2},
        "stderr": {"acc": 0.01},
        "higher_is_better": {"acc": True},
        "samples": 50,
        "harness": "lm-eval 0.4.13",
        "version": 1.0,
        **more,
    }


PERPLEXITY = {"task": "wiki", "step": 9, "metrics": {"perplexity": 30.0}, "higher_is_better": {"perplexity": False}}


def test_the_later_line_of_a_checkpoint_and_a_task_counts() -> None:
    found, other = parse_all([line("a", 9, 0.1), line("a", 19, 0.3), line("b", 9, 0.5), line("a", 9, 0.2), {}])
    assert [(one.step, one.task, one.metrics["acc"]) for one in found] == [(9, "a", 0.2), (9, "b", 0.5), (19, "a", 0.3)]
    assert other == 1
    assert {task: one.metrics["acc"] for task, one in latest(found).items()} == {"a": 0.3, "b": 0.5}


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"task": 3, "metrics": {"a": 1}},
        {"task": "", "metrics": {"a": 1}},
        {"task": "a", "metrics": {}},
        {"task": "a", "metrics": {"a": "1", "b": True, "c": None}},
        {"task": "a", "metrics": [1]},
        {"task": "a", "metrics": {"a": 1}, "step": "9"},
        {"task": "a", "metrics": {"a": 1}, "step": -1},
    ],
)
def test_a_line_that_is_not_a_result(wrong: dict[str, Any]) -> None:
    assert parse(wrong) is None


def test_parts_of_a_line_that_are_wrong_are_left_out() -> None:
    found = parse({"task": "a", "metrics": {"m": 1, "n": 1e400}, "stderr": 3, "higher_is_better": [], "samples": "9"})
    assert found == Evaluation("a", metrics={"m": 1.0})
    assert found.better("m")


def test_numbers_as_text() -> None:
    one = parse(line("a", 9, 0.123456))
    assert one is not None
    assert (one.text("acc"), one.text("acc_norm"), one.text("f1")) == ("0.1235 ± 0.01", "0.06173", "-")
    assert number(47_516_891.06) == "47,516,891"


def write(folder: Path, *lines: dict[str, Any], tail: str = "") -> str:
    path = runs.write(folder, metrics=runs.steps(20), config=runs.config(folder.name))
    (path / "evaluations.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines) + tail)
    return str(path)


def test_a_report_shows_the_results_beside_the_losses(tmp_path: Path) -> None:
    first = write(tmp_path / "a", line("arc", 9, 0.3), line("arc", 19, 0.5), PERPLEXITY, tail='{"task": "arc", "st')
    second = write(tmp_path / "b", line("arc", 19, 0.25), {**PERPLEXITY, "metrics": {"perplexity": 20.0}})
    report = build([first, second, str(runs.write(tmp_path / "c", metrics=runs.steps(5)))])
    assert [len(row["evaluations"]) for row in report.runs] == [3, 2, 0]
    assert json.dumps(report.runs)
    head = report.page[report.page.index("<thead>") : report.page.index("</thead>")]
    titles = [part.partition(">")[2].partition("<")[0] for part in head.split("<th")[1:] if ">" in part]
    assert titles[titles.index("Best held-out loss") + 1 :][:2] == ["arc", "wiki"]
    assert '<section id="evaluations">' in report.page
    assert 'data-key="task:arc" data-label="arc" class="number best">0.5</td>' in report.page
    assert 'data-key="task:wiki" data-label="wiki" class="number best">20</td>' in report.page
    assert '<td class="best">0.5 ± 0.01 (checkpoint 19)</td>' in report.page


def test_the_best_value_of_a_metric(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / "a", line("arc", 9, 0.3), PERPLEXITY),
        write(tmp_path / "b", line("arc", 9, 0.4), {**PERPLEXITY, "metrics": {"perplexity": 40.0}}),
        write(tmp_path / "c", line("arc", 9, 0.4)),
    ]
    found = scores([folders.of_folder(Path(path)) for path in paths])
    assert [(one.task, one.metric, one.best) for one in found] == [
        ("arc", "acc", frozenset({1, 2})),
        ("arc", "acc_norm", frozenset({1, 2})),
        ("wiki", "perplexity", frozenset({0})),
    ]
    assert found[2].values == ["30 (checkpoint 9)", "40 (checkpoint 9)", "-"]


def test_a_report_without_results_has_no_section(tmp_path: Path) -> None:
    page = build([str(runs.write(tmp_path / "a", metrics=runs.steps(5)))]).page
    assert "Evaluations" not in page


def test_a_name_of_a_task_is_text(tmp_path: Path) -> None:
    page = build([write(tmp_path / "a", line("<script>alert(1)</script>", 9, 0.3))]).page
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)" in page
