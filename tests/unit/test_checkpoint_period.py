"""The choice of train.checkpoint_period: auto (trainer/training/checkpoint_period.py).

tests/trainer/test_without_ray.py trains and resumes with it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainer import maxtext_keys
from trainer.config import RunConfig
from trainer.errors import ConfigError
from trainer.training.checkpoint_period import (
    FIRST_STEPS,
    HOST_HOURS,
    LONGEST_SECONDS,
    AutoPeriod,
    Choice,
    choose,
    failures_of,
    mean_time_between_failures,
)

DAY = 86400.0


@pytest.mark.parametrize(
    ("pause", "step", "mean_time", "choice"),
    [
        # sqrt(2 * 10 * 25,000) = 707 s.
        (10.0, 1.0, 25_000.0, Choice(707, 707.0, "")),
        (10.0, 5.0, 25_000.0, Choice(141, 705.0, "")),
        # Four times the failures, or a quarter of the pause: half of the time.
        (10.0, 1.0, 6_250.0, Choice(354, 354.0, "")),
        (2.5, 1.0, 25_000.0, Choice(354, 354.0, "")),
        # A failure every 15 minutes, and a pause of a minute: sqrt would be 329 s.
        (60.0, 1.0, 900.0, Choice(600, 600.0, "pauses take at most 10% of the time")),
        # One host that fails once in 262 days.
        (5.0, 2.0, HOST_HOURS * 3600, Choice(1800, 3600.0, "the longest time is 1 h")),
        # A step takes longer than the time.
        (10.0, 900.0, 25_000.0, Choice(1, 900.0, "")),
        (0.0, 1.0, 25_000.0, Choice(1, 1.0, "")),
    ],
)
def test_the_period_follows_the_pause_and_the_failures(
    pause: float, step: float, mean_time: float, choice: Choice
) -> None:
    assert choose(pause=pause, step=step, mean_time=mean_time, longest=LONGEST_SECONDS, run_steps=100_000) == choice


def test_a_run_has_a_checkpoint_in_its_middle() -> None:
    choice = choose(pause=10, step=1, mean_time=25_000, longest=3600, run_steps=300)
    assert choice == Choice(150, 150.0, "a run has a checkpoint in its middle")
    assert choose(pause=10, step=1, mean_time=25_000, longest=3600, run_steps=1).steps == 1


def test_the_choice_loses_less_than_its_neighbours() -> None:
    """The lost part of the time is the pauses, and half a period for each failure."""
    pause, mean_time = 8.0, 40_000.0

    def lost(seconds: float) -> float:
        return pause / seconds + seconds / (2 * mean_time)

    seconds = choose(pause=pause, step=0.1, mean_time=mean_time, longest=3600, run_steps=10**6).seconds
    assert lost(seconds) < min(lost(seconds * 0.8), lost(seconds * 1.25))


@pytest.mark.parametrize(
    ("hosts", "failures", "trained", "seconds"),
    [
        (1, 0, 0.0, 6300 * 3600),
        # The published run: 2,048 hosts, which failed every three hours.
        (2048, 0, 0.0, 11_074.2),
        (64, 0, 2 * DAY, 354_375 + 2 * DAY),
        # A failure every two hours in the last two days.
        (64, 24, 2 * DAY, (354_375 + 2 * DAY) / 25),
    ],
)
def test_a_runs_own_failures_count_the_more_the_longer_it_trains(
    hosts: int, failures: int, trained: float, seconds: float
) -> None:
    mean = mean_time_between_failures(host_hours=HOST_HOURS, hosts=hosts, failures=failures, trained=trained)
    assert mean == pytest.approx(seconds, rel=1e-4)


@pytest.mark.parametrize(
    ("kinds", "failures"),
    [
        ([], 0),
        (["loop_started"], 0),
        (["loop_started", "worker_failed", "loop_started", "loop_started"], 2),
        # Without Ray, each host reports the stop.
        (["loop_started", "preempted", "preempted", "loop_started"], 0),
        (["loop_started", "stopped", "error", "loop_started", "worker_failed", "loop_started"], 1),
        # Failed before the training started.
        (["error", "loop_started"], 0),
    ],
)
def test_a_stop_with_a_checkpoint_is_not_a_failure(kinds: list[str], failures: int) -> None:
    assert failures_of({"event": kind} for kind in kinds) == failures


def config_of(folder: Path, **values: Any) -> RunConfig:
    row = {"name": "cpu", "kind": "cpu", "hosts": 2, "chips": 2, "chipsPerHost": 1}
    tree = {
        "run": {"name": "demo", "kind": "local"},
        "slice": {"accelerator": "cpu", "hosts": 2},
        "accelerator": row,
        "storage": {"mountPath": str(folder)},
        "train": {"checkpoint_period": "auto", "dataset_type": "synthetic", "steps": 1000},
        **values,
    }
    return RunConfig(folder / "run.json", tree)


def test_all_hosts_save_after_the_steps_that_the_first_one_chose(tmp_path: Path) -> None:
    shared: dict[str, str] = {}
    reports: list[str] = []
    (tmp_path / "demo").mkdir()
    config = config_of(tmp_path, notify={"checkpointSeconds": 100})
    hosts = [
        AutoPeriod(config, first=True, share=lambda key, value: shared.setdefault(key, value), report=reports.append),
        AutoPeriod(config, first=False, share=lambda key, _: shared[key], report=lambda text: pytest.fail(text)),
    ]
    saved: list[list[int]] = [[], []]
    for host in hosts:
        host.starts(40, 1000)
    for step in range(40, 999):
        for number, host in enumerate(hosts):
            if host.due(step):
                saved[number].append(step)
                host.saved(step, pause=0.5 + number)
    assert saved[0] == saved[1]
    # The first one measures; then half of the run's steps, because these steps take no time.
    assert saved[0] == [40 + FIRST_STEPS - 1, 40 + FIRST_STEPS - 1 + 500]
    (report,) = reports
    assert report.startswith("A checkpoint every 500 steps, ")
    assert report.endswith(
        ": it pauses the training for 0.50 s, and 2 hosts should fail once in 131 days; a run has a checkpoint in its "
        "middle."
    )


def test_a_damaged_history_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "metrics.jsonl").write_text('{"loss": 1.0}\n')
    period = AutoPeriod(config_of(tmp_path), first=True, share=lambda _, value: value, report=print)
    period.starts(0, 8)
    assert next(step for step in range(8) if period.due(step)) == 3  # half of the run


def test_maxtext_is_asked_after_each_step(tmp_path: Path) -> None:
    argv = maxtext_keys.maxtext_argv(config_of(tmp_path))
    assert "checkpoint_period=1" in argv
    tree = json.loads(json.dumps(config_of(tmp_path).tree))
    tree["train"]["enable_emergency_checkpoint"] = True
    with pytest.raises(ConfigError, match=r"train\.checkpoint_period is auto, but train\.enable_emergency_checkpoint"):
        maxtext_keys.maxtext_argv(RunConfig(tmp_path / "run.json", tree))
