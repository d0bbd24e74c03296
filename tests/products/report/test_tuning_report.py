"""A report shows the answers of a fine-tuning to prompts, and the rewards of pairs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from launcher.products.report.build import build
from launcher.trainer_output import events_of, state_after
from tests.products.report import report_runs as runs


def sample(at: float, step: int, answer: str) -> dict[str, Any]:
    return {"event": "sample", "time": runs.stamp(at), "step": step, "prompt": "2 plus <2>?", "message": answer}


def test_the_answers_by_step(tmp_path: Path) -> None:
    rewards = {"counted_tokens": 32_768, "reward_margin": 0.5, "reward_accuracy": 0.75}
    losses = [line for line in runs.steps(20) if "loss" in line]
    metrics: list[dict[str, Any]] = [{**line, **rewards, "epoch": at / 8} for at, line in enumerate(losses)]
    metrics.insert(12, {"step": 12, "eval_loss": 1.25, "time": runs.stamp(40)})
    events = [runs.loop(0), sample(1, 0, "fish"), sample(50, 10, "five"), sample(60, 10, "four & no more")]
    path = runs.write(tmp_path / "a", metrics=metrics, events=events, config=runs.config("a"))
    assert not state_after(events_of(events)).failing
    page = build([str(path)]).page
    table = page[page.index("<h3>Answers</h3>") :].partition("</table>")[0]
    assert table.count("<tr><td") == 2  # a repeated step counts once
    assert "2 plus &lt;2&gt;?</td><td>fish" in table
    assert "four &amp; no more" in table
    assert "five" not in table
    epochs = page[page.index("<h3>Epochs</h3>") :].partition("</table>")[0]
    assert re.findall(r">([^<>]+)</td>", epochs)[3::5] == ["-", "1.2500", "-"]
    assert re.findall(r">([^<>]+)</td>", epochs)[1::5] == ["8", "16", "20"]
    first = losses[0]
    whole = runs.loop(0)["devices"] * first["tokens_per_second_per_device"] * first["step_seconds"]
    assert re.findall(r">([^<>]+)</td>", epochs)[4::5] == [f"{32_768 / whole:.0%}"] * 3
    assert "<h3>Sources</h3>" not in page
    for title in ("Margin between the rewards of a pair", "Pairs with a higher reward", "Tokens of a step that count"):
        assert title in page


def test_the_sources_of_a_mixture(tmp_path: Path) -> None:
    losses = [line for line in runs.steps(10) if "loss" in line]
    metrics: list[dict[str, Any]] = [
        {
            **line,
            "mixture": {"web": {"share": 0.5 + at % 2 / 2, "epoch": at / 100}, "a<b": {"share": 0.25, "epoch": at}},
        }
        for at, line in enumerate(losses)
    ]
    path = runs.write(tmp_path / "a", metrics=metrics, events=[runs.loop(0)], config=runs.config("a"))
    page = build([str(path)]).page
    table = page[page.index("<h3>Sources</h3>") :].partition("</table>")[0]
    assert re.findall(r">([^<>]+)</td>", table) == ["a&lt;b", "25.0%", "9.00", "web", "75.0%", "0.09"]
