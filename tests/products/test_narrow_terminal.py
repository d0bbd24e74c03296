"""Tables on a real terminal of 40 and of 80 columns: no line is wider, and each command can be read as a whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import LONG, SHORT, Launcher
from tests.cli.test_terminal import on_terminal
from tests.products.planner.cli.test_simulate import QUEUES, TRACE
from tests.products.report import report_runs as runs
from tests.tools import tool

SWEEP = ("--sweep", "train.learning_rate=1e-4,3e-4", "--sweep", "train.per_device_batch_size=2,4")
SIMULATE = ("simulate", "-f", "queues.yaml", "--trace", "runs.csv")


@pytest.fixture
def shown(launcher: Launcher) -> Callable[..., list[str]]:
    """Run the command on a terminal, and return the lines as they are printed."""

    def run(*arguments: str, columns: int) -> list[str]:
        env = {"NO_COLOR": "1", "SLIPWAY_HELM": str(tool("helm"))}
        code, output = on_terminal(launcher, *arguments, columns=columns, env=env)
        assert code == 0, output
        return output.removesuffix("\r\n").split("\r\n")

    return run


@pytest.fixture
def sweep(launcher: Launcher) -> str:
    launcher.write("run.yaml", SHORT)
    assert launcher("submit", "-f", "run.yaml", *SWEEP).code == 0
    return "demo"


def evaluated(folder: Path, **tasks: float) -> None:
    runs.write(folder, metrics=runs.steps(40), config=runs.config(folder.name))
    lines: list[dict[str, Any]] = [
        {"task": task, "step": 39, "metrics": {"acc": value}, "stderr": {"acc": 0.012}, "samples": 2376}
        for task, value in tasks.items()
    ]
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def fits(lines: list[str], columns: int) -> bool:
    return max(map(len, lines)) <= columns


def test_presets(launcher: Launcher, shown: Callable[..., list[str]]) -> None:
    assert shown("presets", "v6e-2x", columns=40) == [
        "NAME:  slices/v6e-2x2",
        "HOSTS: 1",
        "CHIPS: 4",
        "ABOUT: One v6e (Trillium) slice: 4 chips",
        "       with 32 GiB each on 1 host; Cloud",
        "       TPU calls it v6e-4",
        "",
        "NAME:  slices/v6e-2x4",
        "HOSTS: 2",
        "CHIPS: 8",
        "ABOUT: One v6e (Trillium) slice: 8 chips",
        "       with 32 GiB each on 2 hosts;",
        "       Cloud TPU calls it v6e-8",
    ]
    assert shown("presets", "v6e-2x", columns=80) == [
        "NAME            HOSTS  CHIPS  ABOUT",
        "slices/v6e-2x2  1      4      One v6e (Trillium) slice: 4 chips with 32 GiB each",
        "                              on 1 host; Cloud TPU calls it v6e-4",
        "slices/v6e-2x4  2      8      One v6e (Trillium) slice: 8 chips with 32 GiB each",
        "                              on 2 hosts; Cloud TPU calls it v6e-8",
    ]
    piped = launcher("presets").out.splitlines()
    assert shown("presets", columns=300) == piped
    assert len(piped) == 1 + len(launcher("presets", "-o", "json").json)
    every = shown("presets", columns=80)
    assert every[0] == piped[0]
    assert fits(every, 80)


@pytest.mark.usefixtures("sweep")
def test_list_and_the_runs_of_a_sweep(launcher: Launcher, shown: Callable[..., list[str]]) -> None:
    narrow = shown("list", "demo-3", columns=40)
    age = launcher("list", "demo-3", "-o", "json").json[0]
    assert [line for line in narrow if not line.startswith("AGE:")] == [
        "NAME:  demo-3",
        "KIND:  local",
        "STATE: succeeded",
        "SWEPT: train.learning_rate 0.0003,",
        "       train.per_device_batch_size 2",
    ], age
    wide = shown("list", columns=80)
    assert wide[0].split() == ["NAME", "KIND", "STATE", "AGE", "SWEPT"]
    assert len(wide) == 1 + 2 * 4
    assert fits(wide, 80)
    block = [
        "RUN:                   demo-{}",
        "learning_rate:         {}",
        "per_device_batch_size: {}",
        "STATE:                 succeeded",
        "",
    ]
    values = [(1, "0.0001", 2), (2, "0.0001", 4), (3, "0.0003", 2), (4, "0.0003", 4)]
    expected = [line.format(value) for each in values for line, value in zip(block, [*each, "", ""], strict=True)]
    assert shown("status", "demo", columns=40) == [*expected, "sweep demo: 4 succeeded"]
    dry = [each for each in expected if not each.startswith("STATE:")]
    printed = shown("submit", "-f", "run.yaml", "--name", "demo", *SWEEP, "--dry-run", columns=40)
    assert printed[-len(dry) + 1 :] == dry[:-1]


@pytest.mark.usefixtures("sweep")
def test_the_state_in_a_block_has_its_colour(launcher: Launcher) -> None:
    _, output = on_terminal(launcher, "list", "demo-1", columns=40)
    assert "STATE: \x1b[32msucceeded\x1b[0m\r\n" in output


@pytest.mark.usefixtures("sweep")
def test_the_status_of_a_run(launcher: Launcher, shown: Callable[..., list[str]]) -> None:
    lines = shown("status", "demo-4", columns=40)
    assert "swept      train.learning_rate 0.0003," in lines
    assert "           train.per_device_batch_size 4" in lines
    assert [line for line in lines if len(line) > 40] == [f"folder     {launcher.home}/runs/demo-4"]


def test_checkpoints(launcher: Launcher, shown: Callable[..., list[str]]) -> None:
    folder = runs.write(launcher.folder / "demo", metrics=runs.steps(40), config=runs.config("demo"))
    for step in (20, 39):
        saved = folder / "checkpoints" / str(step)
        (saved / "items").mkdir(parents=True)
        for name in ("_CHECKPOINT_METADATA", "items/_METADATA", "items/manifest.ocdbt"):
            (saved / name).write_text("{}")
    assert shown("checkpoints", "./demo", columns=80) == launcher("checkpoints", "./demo").out.splitlines()
    assert shown("checkpoints", "./demo", columns=40) == [
        "STEP  AFTER  SIZE  HELD-OUT LOSS   NOTES",
        "20    21     6 B   9.7015 (after",
        "      steps        20 steps)",
        "39    40     6 B   8.6203          best,",
        "      steps                        last",
    ]


def test_results_of_evaluations(launcher: Launcher, shown: Callable[..., list[str]]) -> None:
    evaluated(launcher.folder / "base", arc_easy=0.25, hellaswag=0.5)
    evaluated(launcher.folder / "learning-rate-3e-4", arc_easy=0.375)
    assert shown("eval", "./base", "--compare", columns=40) == [
        "TASK:    arc_easy",
        "METRIC:  acc",
        "VALUE:   0.25",
        "STDERR:  0.012",
        "SAMPLES: 2,376",
        "",
        "TASK:    hellaswag",
        "METRIC:  acc",
        "VALUE:   0.5",
        "STDERR:  0.012",
        "SAMPLES: 2,376",
    ]
    both = ("eval", "./base", "./learning-rate-3e-4", "--compare")
    assert shown(*both, columns=40) == [
        "TASK:                      arc_easy",
        "METRIC:                    acc",
        "./base (39):               0.25 ± 0.012",
        "./learning-rate-3e-4 (39): 0.375 ± 0.012",
        "",
        "TASK:                      hellaswag",
        "METRIC:                    acc",
        "./base (39):               0.5 ± 0.012",
        "./learning-rate-3e-4 (39): -",
    ]
    assert shown(*both, columns=80) == launcher(*both).out.splitlines()


def test_a_simulation(launcher: Launcher, shown: Callable[..., list[str]]) -> None:
    launcher.write("queues.yaml", QUEUES)
    launcher.write("runs.csv", f"{TRACE}d,research,v6e,4x4,9,normal,2h,1h\n")
    narrow = shown(*SIMULATE, columns=40)
    assert fits(narrow, 40)
    first = narrow.index("RUN:       d")
    assert narrow[first:] == [
        "RUN:       d",
        "TEAM:      research",
        "CHIPS:     144",
        "ARRIVES:   2 h",
        "STARTS:    -",
        "WAIT:      -",
        "ENDS:      -",
        "FLAVOR:    -",
        "PREEMPTED: 0",
        "REASON:    it requests 144 of",
        "           google.com/tpu, and the queue",
        "           research can have at most 64",
        "",
        "product",
        "  FIGURE       VALUE",
        "  median wait  0 s",
        "  95th wait    0 s",
        "  runs         1",
        "",
        "research",
        "  FIGURE                VALUE",
        "  median wait           0 s",
        "  95th wait             0 s",
        "  runs                  3",
        "  runs that do not end  1",
        "  preemptions           1",
        "  lost to restarts      64.0 chip-hours",
        "",
        "v6e-4x4",
        "  FIGURE       VALUE",
        "  quota        64 chips",
        "  utilisation  85.7%",
        "",
        "all",
        "  FIGURE             VALUE",
        "  preemptions        1",
        "  lost to restarts   64.0 chip-hours",
        "  used by runs       384.0 chip-hours",
        "  cost of the runs   $1,036.80",
        "  cost of all quota  $1,209.65",
        "  last event after   7 h",
    ]
    assert shown(*SIMULATE, columns=80)[:6] == [
        "RUN  TEAM      CHIPS  ARRIVES  STARTS  WAIT  ENDS  FLAVOR   PREEMPTED",
        "a    research  64     0 s      0 s     0 s   7 h   v6e-4x4  1",
        "b    product   32     1 h      1 h     0 s   2 h   v6e-4x4  0",
        "c    research  32     2 h      2 h     0 s   3 h   v6e-4x4  0",
        "d    research  144    2 h      -       -     -     -        0",
        "  REASON: it requests 144 of google.com/tpu, and the queue research can have at",
    ]
    change = (*SIMULATE, "--set", "clusterQueues.research.quota.v6e-4x4.slices=+2")
    compared = shown(*change, columns=40)
    assert fits(compared, 40)
    at = compared.index("  FIGURE:     cost of the runs")
    assert compared[at : at + 4] == [
        "  FIGURE:     cost of the runs",
        "  BEFORE:     $1,036.80",
        "  AFTER:      $864.00",
        "  DIFFERENCE: -$172.80",
    ]


def test_tables_without_titles(launcher: Launcher, shown: Callable[..., list[str]]) -> None:
    """The last cell of each row is below the others."""
    launcher.write("run.yaml", LONG)
    assert shown("values", "-f", "run.yaml", "--origins", columns=40)[:2] == ['run.name  "demo"', "      run.yaml:1"]
    assert shown("submit", "-f", "run.yaml", "--detach", columns=40)[-8:] == [
        "  launcher attach demo",
        "      show its progress again",
        "  launcher logs -f demo",
        "      follow its output",
        "  launcher wait demo",
        "      wait until it ends",
        "  launcher cancel demo",
        "      stop it",
    ]
