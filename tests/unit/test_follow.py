"""The output of following a run, for scripted statuses."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launcher import formatting
from launcher.backends import progress
from launcher.backends.base import Preview, RunStatus, State, Submission
from launcher.backends.log_excerpt import WHOLE, Excerpt
from launcher.cli import follow, output
from launcher.config.checks.problems import Problem
from launcher.errors import Detached, LauncherError
from launcher.k8s.errors import Unreachable
from launcher.k8s.pods import Pod

RUN = RunStatus("llama", "default", "local", State.STARTING, reason="starting Ray", folder="/runs/llama")
AT_3 = replace(
    RUN, state=State.RUNNING, reason="", step=3, steps=40, loss=9.5, tokens_per_second=1234.5, seconds_left=88.2
)
DONE = replace(
    AT_3,
    state=State.SUCCEEDED,
    step=40,
    loss=7.0,
    loss_first=10.9,
    eval_loss_first=10.8,
    eval_loss=7.1,
    started="2026-11-01T10:00:00.000Z",
    ended="2026-11-01T10:01:28.200Z",
    seconds_left=None,
)


ONLY_STATUS = "following a run asks for its status and for nothing else"


class ScriptedBackend:
    """A backend that returns the next of these statuses at each request."""

    poll_seconds = 0.0
    description = cli_args = ""
    max_parallel = 1
    cluster = None
    stuck_seconds: float | None = None

    def prepare(self, plans: Any) -> None:
        raise AssertionError(ONLY_STATUS)

    def __init__(self, *statuses: RunStatus | BaseException | None) -> None:
        self._statuses = iter(statuses)
        self.report_progress: Callable[[str], None] = lambda _: None

    def status(self, name: str) -> RunStatus | None:
        status = next(self._statuses)
        if isinstance(status, BaseException):
            raise status
        return status

    def problems(self, plan: Any) -> Sequence[Problem]:
        raise AssertionError(ONLY_STATUS)

    def preview(self, plan: Any, *, accept_changes: bool) -> Preview:
        raise AssertionError(ONLY_STATUS)

    def submit(self, plan: Any, *, accept_changes: bool) -> Submission:
        raise AssertionError(ONLY_STATUS)

    def list(self, warn: Callable[[str], None], *, sweep: str = "", everything: bool = False) -> Sequence[RunStatus]:
        raise AssertionError(ONLY_STATUS)

    def summary(self, name: str) -> RunStatus | None:
        raise AssertionError(ONLY_STATUS)

    def config_of(self, name: str) -> Mapping[str, Any]:
        raise AssertionError(ONLY_STATUS)

    def hosts(self, name: str) -> Sequence[Pod]:
        raise AssertionError(ONLY_STATUS)

    def metrics(self, name: str) -> Sequence[dict[str, Any]]:
        raise AssertionError(ONLY_STATUS)

    def logs(self, name: str, *, follow: bool, worker: int | None, excerpt: Excerpt = WHOLE) -> Iterator[str]:
        raise AssertionError(ONLY_STATUS)

    def cancel(self, name: str, *, reason: str = "") -> RunStatus:
        raise AssertionError(ONLY_STATUS)

    def delete(self, name: str) -> None:
        raise AssertionError(ONLY_STATUS)


def test_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    failed = replace(AT_3, state=State.RESTARTING, reason="A worker died.", restarts=1)
    backend = ScriptedBackend(RUN, AT_3, replace(AT_3, step=4), failed, replace(AT_3, step=5, restarts=1), DONE)
    assert follow.follow(backend, RUN) == DONE
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == [
        "llama: starting: starting Ray",
        "llama: running",
        "llama: step 3/40, loss 9.500, 1,234 tokens/s, 1 min 28 s left",
        "Restart 1: A worker died.",
        "llama: restarting",
        "llama: running",
        "llama: step 40/40, loss 7.000, 1,234 tokens/s",
    ]


def test_ctrl_c_prints_how_to_follow_again() -> None:
    with pytest.raises(Detached) as caught:
        follow.follow(ScriptedBackend(AT_3, KeyboardInterrupt()), RUN)
    assert caught.value.message.splitlines()[0] == 'The run "llama" continues.'
    assert caught.value.exit_code == 130


def test_a_run_that_is_deleted_while_it_is_followed() -> None:
    with pytest.raises(LauncherError, match='The run "llama" was deleted in the meantime'):
        follow.follow(ScriptedBackend(None), AT_3)


def test_the_summary_of_a_success() -> None:
    assert follow.summary(DONE).splitlines() == [
        "succeeded  llama after 1 min 28 s",
        "steps      40 of 40",
        "loss       10.900 -> 7.000",
        "held-out   10.800 -> 7.100",
        "speed      1,234 tokens/s",
        "metrics    /runs/llama/metrics.jsonl",
        "next       launcher logs llama                                                   show its output",
        "           launcher report llama                                                 write a report with charts",
        "           launcher submit -f FILE --name llama --set train.steps=80 --continue  continue training",
    ]
    assert follow.exit_code(DONE) == 0


def test_the_commands_after_the_end_give_each_value_once() -> None:
    lines = follow.summary(DONE, values="-f team/run.yaml --set=train.steps=40 --set=run.kind=local").splitlines()
    more = "launcher submit -f team/run.yaml --set=run.kind=local --name llama --set train.steps=80 --continue"
    assert lines[-2].endswith(more)
    assert lines[-1].strip() == "continue training"  # below the long command, also without a terminal
    assert max(map(len, lines)) < 120


@pytest.mark.parametrize(
    ("typed", "shown"), [(".venv/bin/launcher", ".venv/bin/launcher"), ("{cwd}/my env/launcher", "'my env/launcher'")]
)
def test_the_commands_after_the_end_are_as_the_user_has_to_type_them(
    typed: str, shown: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [typed.format(cwd=tmp_path), "submit"])
    text = "To list: launcher list. The launcher logs it, /opt/launcher list, a launcher of runs."
    monkeypatch.setenv("PATH", str(tmp_path))
    output.narrate(text)
    output.emit({"hint": text}, "text", text)
    assert capsys.readouterr() == ((text.replace("To list: launcher", f"To list: {shown}") + "\n",) * 2)
    output.emit({"hint": text}, "json", text)
    assert json.loads(capsys.readouterr().out) == {"hint": text}  # programs read the same text everywhere


def test_a_loss_that_is_not_a_number_keeps_the_last_one() -> None:
    entries = [{"step": step, "loss": loss} for step, loss in enumerate([9.0, 8.0, math.nan])]
    found = progress.of_metrics(entries, devices=1)
    assert (found.step, found.loss_first, found.loss) == (3, 9.0, 8.0)


def test_the_summary_of_a_failure() -> None:
    failed = replace(DONE, state=State.FAILED, reason="The disk is full.", folder="gs://bucket/llama", restarts=2)
    lines = follow.summary(failed).splitlines()
    assert lines[:2] == ["failed       llama after 1 min 28 s", "reason       The disk is full."]
    assert "restarts     2" in lines
    assert "checkpoints  gs://bucket/llama/checkpoints" in lines
    assert lines[-2:] == [
        "next         launcher logs llama                   show its output",
        "             launcher submit -f FILE --name llama  resume it; with other values: --continue",
    ]
    assert [follow.exit_code(replace(DONE, state=state)) for state in (State.FAILED, State.CANCELLED)] == [1, 1]


@pytest.mark.parametrize("width", range(1, 160))
def test_the_bars_line_fits_any_width(width: int) -> None:
    text, bar = follow.fit(AT_3, width)
    assert "3/40" in text
    assert bar == 0 or (bar >= 8 and len(text) + 2 + bar <= width)


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (18, ("3/40", 12)),
        (30, ("3/40  loss 9.500", 12)),
        (39, ("3/40  loss 9.500  1:28 left", 10)),
        (54, ("3/40  loss 9.500  1,234 tokens/s  1:28 left", 9)),
        (99, ("3/40  loss 9.500  1,234 tokens/s  1:28 left  llama", 40)),
    ],
)
def test_what_matters_least_is_left_out_first(width: int, expected: tuple[str, int]) -> None:
    assert follow.fit(AT_3, width) == expected


def test_the_bar_names_an_evaluation_instead_of_the_speed() -> None:
    evaluating = replace(AT_3, reason="evaluating the held-out text")
    assert follow.fit(evaluating, 99) == ("3/40  loss 9.500  evaluating the held-out text  llama", 40)
    assert follow.fit(evaluating, 30) == ("3/40  loss 9.500", 12)


def test_a_run_without_a_known_end_has_no_bar() -> None:
    assert follow.fit(replace(AT_3, steps=None, seconds_left=None), 60)[1] == 0


@pytest.mark.parametrize(
    ("seconds", "text", "clock"),
    [
        *((0, "0 s", "0:00"), (59.6, "1 min", "1:00"), (88.2, "1 min 28 s", "1:28"), (3600, "1 h", "1:00:00")),
        *((3725, "1 h 2 min", "1:02:05"), (90061, "1 d 1 h", "25:01:01"), (86405, "1 d", "24:00:05")),
    ],
)
def test_spans_of_time(seconds: float, text: str, clock: str) -> None:
    assert (formatting.duration(seconds), formatting.clock(seconds)) == (text, clock)


def test_plain_data_is_what_json_can_hold() -> None:
    data = {"a": float("nan"), 1: (State.FAILED, float("inf")), "b": 2.5}
    assert output.plain(data) == {"a": None, "1": ["failed", None], "b": 2.5}
    assert type(output.plain(State.FAILED)) is str


@pytest.mark.parametrize(
    ("number", "text"), [(1234.5, "1,234"), (99.94, "99.9"), (0.1234, "0.123"), (1e7, "10,000,000")]
)
def test_counts(number: float, text: str) -> None:
    assert formatting.count(number) == text


def test_a_stuck_run_is_cancelled_after_the_waiting_time_and_not_before(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "narrate", lambda *printed: lines.extend(printed))
    lines: list[str] = []
    stuck = replace(RUN, kind="ray-job", reason="The image x cannot be pulled. Push it.", stuck=True)
    cancelled: list[tuple[str, str]] = []

    class StuckRun(ScriptedBackend):
        stuck_seconds: float | None = 0.05

        def cancel(self, name: str, *, reason: str = "") -> RunStatus:
            cancelled.append((name, reason))
            return replace(stuck, state=State.CANCELLED, stuck=False)

    recovered = StuckRun(stuck, replace(stuck, stuck=False, reason=""), replace(DONE, kind="ray-job"))
    recovered.stuck_seconds = 60
    assert follow.follow(recovered, stuck).state is State.SUCCEEDED
    assert cancelled == []
    # While the API server does not answer, the state of the run is unknown, so it is not cancelled.
    unreachable = StuckRun(*[Unreachable("No answer.")] * 2, replace(DONE, kind="ray-job"))
    unreachable.poll_seconds, unreachable.stuck_seconds = 0.05, 0.01
    assert follow.follow(unreachable, stuck).state is State.SUCCEEDED
    assert cancelled == []
    ended = follow.follow(StuckRun(*[stuck] * 100_000), stuck)
    assert cancelled == [("llama", stuck.reason)]
    assert follow.exit_code(ended) == 1
    assert lines[-1] == (
        f'{stuck.reason} Waiting does not fix this, so the run "llama" is cancelled and its chips are released.'
    )
    assert ("reason", stuck.reason) in [tuple(line.split(None, 1)) for line in follow.summary(ended).splitlines()]
