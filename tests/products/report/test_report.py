"""The content of a report: metrics, the phases of a run, goodput, and the differences between runs."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from bokeh.models import Axis, BasicTickFormatter, ColumnDataSource
from bokeh.models.renderers import GlyphRenderer

from launcher.config.secrets import HIDDEN
from launcher.errors import LauncherError
from launcher.products.models.weights import checkpoints
from launcher.products.report import charts, compare, folders, metrics, summary
from launcher.products.report.build import build
from launcher.products.report.compare import differences
from launcher.products.report.model import LOSS, STEP_SECONDS, Phase, RunData, Span
from launcher.products.report.sampling import sampled, smoothed
from launcher.products.report.timeline import ChipsHeld, PhaseChange, changes_of, spans
from launcher.trainer_output import events_of
from tests.products.report import report_runs as runs
from tests.products.report.report_runs import BEGIN, stamp
from trainer import run_log
from trainer.config import RunConfig
from trainer.telemetry import goodput as trainers
from trainer.telemetry.prometheus import Endpoint
from trainer.weights import card
from trainer.weights.model import FAMILIES, Model

Q, S, T, R, P, X = (
    Phase.QUEUED,
    Phase.STARTING,
    Phase.TRAINING,
    Phase.RESTARTING,
    Phase.PREEMPTED,
    Phase.STOPPED,
)


def phases(found: list[Span]) -> list[tuple[Phase, float]]:
    return [(span.phase, span.seconds) for span in found]


def test_a_report_hides_the_secret() -> None:
    stored = {"worker": {"env": {"HF_TOKEN": "hf_8e1bPq", "A": "1"}}}  # as an older version stored it
    shown = dict(compare.flat(stored))
    assert (shown["worker", "env", "HF_TOKEN"], shown["worker", "env", "A"]) == (HIDDEN, "1")


# --- metrics ---


def test_lines_that_are_cut_are_counted_and_left_out() -> None:
    assert metrics.lines(b'{"step": 1}\n{"step": 2}\n') == ([{"step": 1}, {"step": 2}], 0)
    assert metrics.lines(b'{"step": 1}\n\n[3]\n{"step": 2, "lo') == ([{"step": 1}], 2)
    found = metrics.metrics([{"step": 0, "loss": 1.0}], damaged=1)
    assert found.notes == ["1 line of its metrics cannot be read and is left out."]


def test_damaged_lines_do_not_affect_others() -> None:
    whole = b'{"step": 0, "loss": 2.0}\n'
    damage = [b"\xff\xfe\x00", b"[" * 100_000, b'{"step": -1}', b'{"step": 1' + b"0" * 400 + b"}", b'{"step": true}']
    entries, damaged = metrics.lines(whole + b"\n".join(damage))
    found = metrics.metrics(entries, damaged=damaged)
    assert found.of(LOSS).last == 2.0
    assert found.notes == ["5 lines of its metrics cannot be read and are left out."]
    huge = metrics.metrics([{"step": 0, "loss": 10**400}])
    assert math.isnan(huge.of(LOSS).values[0])


def test_null_is_not_finite_and_the_later_line_of_a_step_counts() -> None:
    found = metrics.metrics([{"step": 1, "loss": None}, {"step": 0, "loss": 3.0}, {"step": 1, "loss": None}])
    assert found.of(LOSS).steps.tolist() == [0, 1]
    assert found.of(LOSS).last == 3.0
    assert found.of(LOSS).not_finite == [1]
    assert found.steps_done == 2
    assert "1 of its steps were done twice" in found.notes[0]


def test_values_that_are_not_numbers_are_none() -> None:
    lines: list[dict[str, object]] = [{"step": 0, "loss": "high"}, {"step": 1, "loss": 2.0}, {"loss": 1.0}]
    found = metrics.metrics(lines)
    assert math.isnan(found.of(LOSS).values[0])
    assert found.of(LOSS).last == 2.0


def test_a_clock_that_goes_back_is_reported() -> None:
    entries = [{"step": step, "loss": 1.0, "time": stamp(BEGIN - 3600 * (step == 2))} for step in range(4)]
    assert "went back by 3,600 s" in metrics.metrics(entries).notes[0]
    again: list[dict[str, object]] = [{"step": 0, "loss": 1.0, "time": stamp(BEGIN + each)} for each in (0, 1)]
    assert metrics.metrics(again).notes == [
        "1 of its steps were done twice because of a restart; the later one counts."
    ]


def test_times_in_other_forms_are_read_one_by_one() -> None:
    entries: list[dict[str, object]] = [
        {"step": 0, "loss": 1.0, "time": "2026-11-21T10:00:00+01:00"},
        {"step": 1, "loss": 1.0, "time": "2026-11-21T09:00:01.500Z"},
        {"step": 2, "loss": 1.0, "time": "yesterday"},
        {"step": 3, "loss": 1.0},
    ]
    times = metrics.metrics(entries).times
    assert len(times) == 2
    assert times[1] - times[0] == 1.5


# --- sampling ---


def test_a_spike_survives_and_so_do_the_ends_and_gaps() -> None:
    values = np.ones(10_007)
    values[5_003], values[7_001], values[9_999] = 50.0, -50.0, math.nan
    x, y = sampled(np.arange(10_007), values, 100)
    assert len(x) <= 302
    assert (50.0 in y, -50.0 in y, np.isnan(y).sum()) == (True, True, 1)
    assert (x[0], x[-1]) == (0, 10_006)
    assert (np.diff(x) > 0).all()


def test_an_average_skips_nan_and_begins_at_the_first_value() -> None:
    found = smoothed([4.0, math.nan, 2.0], 0.5)
    assert found[0] == 4.0
    assert math.isnan(found[1])
    assert found[2] == pytest.approx((0.25 * 4 + 0.5 * 2) / 0.75)


def test_nothing_but_nan_and_few_points() -> None:
    x, y = sampled(np.arange(5_000), np.full(5_000, math.nan), 100)
    assert np.isnan(y).all()
    assert len(x) <= 102
    assert len(sampled([1, 2, 3], [1.0, 2.0, 3.0], 2)[0]) == 3


# --- the phases of a run ---


def test_waiting_starting_training() -> None:
    found = spans(0, [ChipsHeld(10, 100)], [PhaseChange(40, T)], 100)
    assert phases(found) == [(Q, 10), (S, 30), (T, 60)]


def test_preempted_and_back() -> None:
    found = spans(0, [ChipsHeld(10, 50, P), ChipsHeld(80, 100)], [PhaseChange(20, T), PhaseChange(90, T)], 100)
    assert phases(found) == [(Q, 10), (S, 10), (T, 30), (P, 30), (S, 10), (T, 10)]


def test_failed_and_submitted_again_later() -> None:
    found = spans(
        0,
        [ChipsHeld(0, 50), ChipsHeld(1010, 1100)],
        [PhaseChange(5, T), PhaseChange(1020, T)],
        1100,
        resubmitted=[1000],
    )
    assert phases(found) == [(S, 5), (T, 45), (X, 950), (Q, 10), (S, 10), (T, 80)]


def test_one_that_only_waits() -> None:
    assert phases(spans(0, [], [], 100)) == [(Q, 100)]


def test_phases_with_reversed_clocks_have_no_length() -> None:
    found = spans(100, [ChipsHeld(50, 120), ChipsHeld(110, 200)], [PhaseChange(90, T), PhaseChange(500, R)], 200)
    assert all(span.seconds > 0 for span in found)
    assert [(a.end, b.start) for a, b in itertools.pairwise(found) if a.end != b.start] == []
    assert spans(None, [], [], 5) == []


def test_a_killed_trainer_is_known_by_its_last_step() -> None:
    events = [runs.loop(BEGIN), runs.loop(BEGIN + 100)]
    found = changes_of(events_of(events), [BEGIN + 10, BEGIN + 40, BEGIN + 150])
    assert found == [PhaseChange(BEGIN, T), PhaseChange(BEGIN + 40, R), PhaseChange(BEGIN + 100, T)]


def test_goodput() -> None:
    """100 s with chips: 20 s for the start, 4 steps of 10 s, 20 s for the compile in the first step, and 20 s lost."""
    entries = [{"step": step, "loss": 1.0, "step_seconds": 30.0 if step == 0 else 10.0} for step in range(4)]
    run = RunData(
        name="a",
        kind="local",
        state="succeeded",
        source="",
        now=150,
        submitted=0,
        ended=150,
        metrics=metrics.metrics(entries),
        begins=[0],
        spans=spans(0, [ChipsHeld(50, 150)], [PhaseChange(70, T)], 150),
    )
    assert run.goodput is not None
    assert (run.goodput.productive, run.goodput.held, run.goodput.share) == (40, 100, 0.4)
    assert (run.waited, run.wall) == (50, 150)


def test_no_goodput_without_steps_or_chips() -> None:
    run = RunData(name="a", kind="local", state="queued", source="", now=10, submitted=0, spans=[Span(Q, 0, 10)])
    assert run.goodput is None
    assert run.waited == 10


# --- folders ---


def test_a_local_run_with_attempts_before(tmp_path: Path) -> None:
    before = [
        {
            "attempt": 1,
            "submitted": stamp(BEGIN),
            "started": stamp(BEGIN + 10),
            "ended": stamp(BEGIN + 200),
            "state": "failed",
        }
    ]
    record = runs.record("demo", BEGIN + 1000, BEGIN + 1200, attempt=2, history=before)
    events = [runs.loop(BEGIN + 30), runs.loop(BEGIN + 1050, step=10, total=20)]
    lines = [*runs.steps(10, begin=BEGIN + 30), *runs.steps(10, start=10, begin=BEGIN + 1050)]
    path = runs.write(
        tmp_path / "demo", metrics=lines, events=events, record=record, config=runs.config("demo", steps=20)
    )
    run = folders.of_folder(path)
    assert (run.state, run.attempt, run.restarts, run.submitted) == ("succeeded", 2, 0, BEGIN)
    assert [span.phase for span in run.spans] == [Q, S, T, R, X, Q, S, T] or [span.phase for span in run.spans] == [
        Q, S, T, X, Q, S, T,
    ]  # fmt: skip
    assert run.held == pytest.approx(190 + 200)
    assert run.missing == [
        "The origins of its values were not recorded: it was submitted with an older version of Slipway."
    ]


def test_a_folder_of_a_bucket_lists_what_is_missing(tmp_path: Path) -> None:
    path = runs.write(tmp_path / "demo", metrics=runs.steps(20), events=[runs.loop(BEGIN - 9, total=20)])
    run = folders.of_folder(path)
    assert (run.state, run.waited, run.chips, run.steps_wanted) == ("succeeded", None, 16, 20)
    assert any("does not show when it waited for chips" in one for one in run.missing)
    assert any("Its config is not in the folder" in one for one in run.missing)
    assert summary.values(run)["queue_seconds"] is None


def test_no_folder_and_no_run(tmp_path: Path) -> None:
    with pytest.raises(LauncherError, match="There is no folder"):
        folders.of_folder(tmp_path / "not")
    with pytest.raises(LauncherError, match=r"is not the folder of a run: it has no metrics\.jsonl"):
        folders.of_folder(tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(LauncherError, match=r"run\.json is damaged"):
        folders.of_folder(tmp_path)


def test_goodput_and_the_trainers_gauge_differ_as_documented(tmp_path: Path) -> None:
    """The trainer counts the whole first step after a start, and divides by its own run time, pauses included."""
    folder = runs.long_run(tmp_path / "demo", 200)
    run = folders.of_folder(folder)
    assert run.goodput
    seconds = run.metrics.of(STEP_SECONDS)
    compiling = sum(seconds.values[step] - float(np.median(seconds.values)) for step in (0, 100))
    written, _ = metrics.lines((folder / "metrics.jsonl").read_bytes())
    assert trainers.productive_seconds(written) == pytest.approx(run.goodput.productive + compiling)
    assert "slipway_goodput_ratio" in build([str(folder)]).page
    assert "slipway_goodput_ratio" in {each.name for each in Endpoint({"run": "demo"}).registry.collect()}


# --- side by side ---


def test_differences_are_of_what_was_set(tmp_path: Path) -> None:
    created = [
        RunData(name=name, kind="", state="", source="", now=0, config=runs.config(name, learning_rate=rate))
        for name, rate in (("a", 1e-3), ("b", 1e-4), ("c", 1e-4))
    ]
    found = differences(created)
    assert [(one.key, one.values, one.usual) for one in found] == [
        ("train.learning_rate", ["0.001", "0.0001", "0.0001"], "0.0001")
    ]


def test_a_value_that_changed_midway_is_a_difference(tmp_path: Path) -> None:
    """`submit --continue` keeps the config that it replaces, with the time at which it did."""
    earlier = [
        {"until": runs.stamp(BEGIN + 60), "config": runs.config("a", learning_rate=rate)} for rate in (3e-3, 2e-3)
    ]
    events = [runs.loop(BEGIN), {**runs.loop(BEGIN + 90), "step": 10}]
    path = runs.write(
        tmp_path / "a", metrics=runs.steps(14), events=events, config=runs.config("a", learning_rate=1e-3, seed=7)
    )
    (path / "earlier-configs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*earlier, {"until": 3}]))
    (found,) = [one for one in differences([folders.of_folder(path)]) if one.key == "train.learning_rate"]
    assert found.values == ["0.003 until step 10, then 0.001"]  # nothing trained with 0.002
    assert "0.003 until step 10" in build([str(path)]).page


def test_the_page_loads_nothing_and_runs_nothing_else(tmp_path: Path) -> None:
    path = runs.write(tmp_path / "a", metrics=runs.steps(30), config=runs.config("a"))
    page = build([str(path)]).page
    head = page[: page.index("</head>")]
    assert "default-src 'none'" in head
    assert "unsafe-eval" not in head
    assert "script-src 'sha256-" in head
    outside = page[: page.index('<script type="application/json"')]
    assert "http://" not in outside
    assert "https://" not in outside


@pytest.mark.parametrize("count", [0, 1, 2])
def test_runs_of_hardly_any_steps(tmp_path: Path, count: int) -> None:
    path = runs.write(tmp_path / "a", metrics=runs.steps(count), events=[runs.loop(BEGIN)], config=runs.config("a"))
    report = build([str(path)])
    assert report.runs[0]["step"] == (count or None)
    assert STEP_SECONDS in report.runs[0]
    assert json.dumps(report.runs)
    assert "<html" in report.page and "<html" not in repr(report)  # a prompt does not print megabytes


def test_all_of_a_loss_that_is_not_finite(tmp_path: Path) -> None:
    lines = [line | {"loss": math.nan} for line in runs.steps(5) if "loss" in line]
    report = build([str(runs.write(tmp_path / "a", metrics=lines))])
    assert report.runs[0]["loss"] is None
    assert report.runs[0]["loss_not_finite_at"] == [0]


def test_all_texts_of_a_run_count_its_steps_from_1(tmp_path: Path) -> None:
    lines = [line | ({"loss": math.nan} if line["step"] == 3 and "loss" in line else {}) for line in runs.steps(6)]
    events = [runs.loop(BEGIN, step=2, total=6)]
    config = runs.config("a", steps=6)
    folder = runs.write(tmp_path / "a", metrics=lines, events=events, config=config)
    first, *_, last = (line for line in lines if "learning_rate" in line)
    log: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_log, "print_line", log.append)
        printed = run_log.RunLog(RunConfig(folder / "config.json", config), first=True)
        printed.steps = 6
        printed.step(first)
        printed.step(last)
        printed.checkpoint(5, 1.0)
    assert [line.partition("  ")[0] for line in log] == ["step 1/6", "step 6/6", "checkpoint after step 6/6"]
    assert checkpoints.after(5) == "6 steps" and checkpoints.after(0) == "1 step"
    # Bokeh's document has the points of the chart of the loss: the x of the first and the last line.
    ((_, data),) = [one for one in points(folder) if one[0] == "loss"]
    assert (min(data), max(data)) == (1, 6)
    ((_, held_out),) = [one for one in points(folder) if one[0] == "eval_loss"]
    assert max(held_out) == 6  # an evaluation after 6 steps
    page = build([str(folder)]).page
    assert "(not finite at step 4)" in page and "after 2 of 6 steps, on " in page
    card = card_of(folder, config)
    assert "are those after 6 steps," in card and "| steps | 6 of 6 |" in card


def points(folder: Path) -> list[tuple[str, list[int]]]:
    """Return the steps of the first line in each chart over steps, by the chart's key."""
    found = []
    for chart in charts.charts([folders.of_folder(folder)]):
        first = next((each for each in chart.plot.renderers if isinstance(each, GlyphRenderer)), None)
        source = first.data_source if first is not None else None
        if isinstance(source, ColumnDataSource) and "x" in source.data:
            found.append((chart.key, [int(step) for step in cast(Any, source.data["x"])]))
    return found


def card_of(folder: Path, config: dict[str, Any], **data: Any) -> str:
    """Return the card of an export of the last checkpoint. Only the model's family and keys matter to the card."""
    model = SimpleNamespace(family=FAMILIES[0], keys={"max_target_length": 64})
    read = RunConfig(folder / "config.json", {**config, "storage": {"mountPath": str(folder.parent)}, "data": data})
    return card.text(read, cast(Model, model), step=5, dtype="float32", parameters=9, facts={"loss": 1.0})


def test_a_model_card_has_no_local_paths(tmp_path: Path) -> None:
    data = {"files": ["/home/me/text/*.txt", "gs://texts/a.jsonl"], "tokenizer": {"path": "/home/me/sp.model"}}
    text = card_of(tmp_path, runs.config("a"), **data)
    assert "/home/me" not in text
    assert "- '*.txt'" in text and "gs://texts/a.jsonl" in text and "path: sp.model" in text


def test_the_page_explains_only_what_it_shows(tmp_path: Path) -> None:
    with_chips = runs.write(tmp_path / "a", metrics=runs.steps(9), events=[runs.loop(BEGIN)], config=runs.config("a"))
    page = build([str(with_chips)]).page
    assert page.index('id="chart-timeline"') < page.index("How goodput is measured") < page.index("<h2>Runs</h2>")
    assert "<code>slice.<wbr>accelerator</code>" in page  # a narrow screen does not break inside a word
    assert "How goodput is measured" not in build([str(runs.write(tmp_path / "b", metrics=runs.steps(1)))]).page


def test_the_ticks_of_the_learning_rate_differ(tmp_path: Path) -> None:
    path = runs.write(tmp_path / "a", metrics=runs.steps(9, rate=0.01), config=runs.config("a"))
    (chart,) = [one for one in charts.charts([folders.of_folder(path)]) if one.key == "learning_rate"]
    (axis,) = [each for each in chart.plot.left if isinstance(each, Axis)]
    assert isinstance(axis.formatter, BasicTickFormatter)
    assert axis.formatter.precision == "auto"  # 2 digits would show 0.01 three times


def test_two_runs_with_the_same_name_are_distinguished(tmp_path: Path) -> None:
    paths = [str(runs.write(tmp_path / part / "a", metrics=runs.steps(3))) for part in ("x", "y")]
    assert [run["name"] for run in build([*paths, paths[0]]).runs] == ["a (1)", "a (2)"]
