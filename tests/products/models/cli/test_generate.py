"""`launcher generate` and `launcher eval` as a user types them, with a real model with random weights."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from launcher.errors import LauncherError
from launcher.products.common import machine
from launcher.products.models.inference import child
from launcher.products.models.inference.evaluate import _written
from tests import huggingface_model
from tests.cli.conftest import Launcher, eventually
from tests.products.report import report_runs as runs
from tests.trainer.test_evaluate import CHOICES, PERPLEXITY, QUESTIONS

_TASK = "dataset_path: json\ndataset_kwargs: {data_files: {test: questions.jsonl}}\ntest_split: test\n"


@pytest.fixture
def model(launcher: Launcher) -> str:
    huggingface_model.write(launcher.folder / "model")
    return "./model"


@pytest.fixture
def run(launcher: Launcher) -> str:
    """A run whose last checkpoint was exported."""
    folder = runs.write(launcher.folder / "demo", metrics=runs.steps(40), config=runs.config("demo"))
    for step in (20, 39):
        saved = folder / "checkpoints" / str(step)
        (saved / "items").mkdir(parents=True)
        for name in ("_CHECKPOINT_METADATA", "items/_METADATA", "items/manifest.ocdbt"):
            (saved / name).write_text("{}")
    huggingface_model.write(folder / "export" / "39")
    (folder / "export" / "39" / "slipway.json").write_text("{}")
    return "./demo"


@pytest.fixture
def tasks(launcher: Launcher) -> str:
    folder = launcher.folder / "tasks"
    folder.mkdir()
    (folder / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in QUESTIONS))
    for name, rest in (("choices", CHOICES), ("perplexity", PERPLEXITY)):
        (folder / f"{name}.yaml").write_text(f"task: {name}\n{_TASK}{rest}")
    return "tasks"


def test_the_text_is_printed_and_its_numbers_are_on_stderr(launcher: Launcher, model: str) -> None:
    done = launcher("generate", model, "def main(", "--max-tokens", "12", "--temperature", "0")
    assert done.code == 0
    assert done.err.startswith("12 tokens in ") and done.err.endswith(" tokens/s).\n")
    data = launcher("generate", model, "def main(", "--max-tokens", "12", "--temperature", "0", "-o", "json").json
    assert done.out == data["text"] + "\n"
    assert (data["tokens"], data["step"], data["ended"], data["prompt"]) == (12, None, "length", "def main(")
    assert data["tokens_per_second"] > 0 and data["seconds"] > 0
    stop = data["text"][4:7]
    cut = launcher("generate", model, "def main(", "--temperature", "0", "--stop", stop)
    assert cut.out == data["text"][: data["text"].index(stop)] + "\n"


def test_the_prompt_comes_from_stdin(launcher: Launcher, model: str) -> None:
    """The newline that `echo` adds is not a part of it."""
    process = launcher.start("generate", model, "-", "--max-tokens", "1000", "-o", "json", stdin=subprocess.PIPE)
    out, err = process.communicate("héllo\n", timeout=60)
    assert process.returncode == 0, err
    assert err.endswith(" tokens/s); the model's context is full.\n")
    found = json.loads(out)
    assert (found["prompt"], found["ended"]) == ("héllo", "context")
    assert found["prompt_tokens"] + found["tokens"] == huggingface_model.CONTEXT


def test_the_text_arrives_while_it_is_generated_and_ctrl_c_ends_it(launcher: Launcher) -> None:
    """The pipe has the first characters long before the end, and no process is left afterwards."""
    huggingface_model.write(
        launcher.folder / "slow", max_position_embeddings=8192, hidden_size=256, intermediate_size=1024
    )
    process = launcher.start("generate", "./slow", "def main(", "--max-tokens", "8000", start_new_session=True)
    assert process.stdout is not None
    chunks: list[bytes] = []
    while len(chunks) < 20:
        chunks.append(os.read(process.stdout.fileno(), 1 << 16))
        assert chunks[-1] and process.poll() is None
    children = psutil.Process(process.pid).children(recursive=True)
    assert children
    process.send_signal(2)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in err
    eventually(lambda: not any(child.is_running() and child.status() != "zombie" for child in children))


def test_a_checkpoint_that_was_exported_is_used_again(launcher: Launcher, run: str) -> None:
    done = launcher("generate", run, "def", "--max-tokens", "5")
    assert done.code == 0, done.err
    assert done.err.endswith("tokens/s), checkpoint 39 of demo.\n")
    assert "Exporting" not in done.err
    missing = launcher("generate", run, "def", "--step", "7")
    assert missing.err.splitlines()[0] == f"Error: demo has no checkpoint 7 in {launcher.folder}/demo/checkpoints."
    other = launcher("generate", run, "def", "--step", "soon")
    assert (other.code, other.err.splitlines()[-1]) == (
        2,
        "Error: Invalid value for '--step': \"soon\" is not a step; give a number, last or best.",
    )


def test_what_cannot_work(launcher: Launcher, model: str, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def error(*arguments: str) -> list[str]:
        done = launcher(*arguments)
        assert (done.code in (1, 2), done.out) == (True, "")
        return done.err.splitlines()

    folder = launcher.folder
    assert error("generate", "./nowhere", "a") == [f"Error: There is no folder {folder}/nowhere."]
    (folder / "empty").mkdir()
    assert error("generate", "./empty", "a") == [
        f"Error: {folder}/empty is neither a Hugging Face folder nor the folder of a run: it has no config.json and no "
        "run.json."
    ]
    (folder / "empty" / "adapter_config.json").write_text("{}")
    assert error("eval", "./empty", "--tasks", "arc_easy")[1] == (
        "Hint: It is an adapter. Use its run, or write a whole model: launcher export RUN --merge --to FOLDER"
    )
    assert error("generate", model, "") == ["Error: The prompt is empty."]
    assert error("generate", model, "a " * 100) == [
        "Error: The prompt has 201 tokens, but the model's context has 64; shorten the prompt."
    ]
    assert error("generate", model, "a", "--step", "3") == [
        f"Error: --step selects a checkpoint of a run, but {folder}/model is a Hugging Face folder."
    ]
    assert error("generate", "model", "a")[1].startswith("Hint: If you mean the folder, write ./model.")
    assert error("generate", "gs://runs/demo", "a")[0] == (
        "Error: gs://runs/demo is in a bucket, where a model cannot run."
    )
    assert error("eval", model)[0] == "Error: --tasks is missing."
    monkeypatch.setattr(machine, "memory_to_spare", lambda: 100 << 20)
    assert error("generate", model, "a")[0].startswith("Error: ./model needs 0.4 GiB of memory (0.")
    # Before the export, the size of the model follows from the config of the run: Llama 3 8B.
    assert error("generate", run, "a", "--step", "20")[0].startswith("Error: demo needs 30.")
    assert not (folder / "demo" / "export" / "20").exists()


@pytest.mark.parametrize(
    ("verb", "arguments", "missing", "message"),
    [
        ("generate", ("a",), "mlx_lm", "mlx-lm, which runs a model on this machine, is not installed"),
        ("eval", ("--tasks", "a"), "lm_eval", "lm-eval, which has the tasks, is not installed"),
    ],
)
def test_an_extra_that_is_not_installed(
    verb: str,
    arguments: tuple[str, ...],
    missing: str,
    message: str,
    launcher: Launcher,
    model: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else found(name))
    done = launcher(verb, model, *arguments)
    assert (done.code, done.err.splitlines()) == (
        1,
        [
            f"Error: {message} in this Python ({sys.executable}).",
            f'Hint: Install it next to the launcher: pip install "slipway-launcher[{verb}]"',
        ],
    )


def test_results_are_a_table_and_in_the_folder_of_the_run(launcher: Launcher, run: str, model: str, tasks: str) -> None:
    """The tasks' folder is relative to the current folder, and their data to the tasks' folder."""
    arguments = ("--tasks", "choices,perplexity", "--tasks-folder", tasks, "--limit", "4")
    both = launcher("eval", run, model, *arguments, "-o", "json").json
    here = launcher("eval", run, "--tasks", "mmlu", "--set", "worker.cpu=3")
    assert (here.code, here.err) == (2, "Error: --set is for a run in a cluster; this one is on this machine.\n")
    done = launcher("eval", run, "--compare")
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0] == ["TASK", "METRIC", "VALUE", "STDERR", "SAMPLES"]
    assert [(line[0], line[1], line[-1]) for line in lines[1:]] == [
        ("choices", "acc", "4"),
        ("perplexity", "bits_per_byte", "4"),
    ]
    stored = [json.loads(line) for line in (launcher.folder / "demo" / "evaluations.jsonl").read_text().splitlines()]
    assert [(each["task"], each["step"]) for each in stored] == [("choices", 39), ("perplexity", 39)]
    assert [each["name"] for each in both] == ["demo", "./model"]
    assert both[0]["results"][0]["metrics"] == both[1]["results"][0]["metrics"] == stored[0]["metrics"]
    assert not (launcher.folder / "model" / "evaluations.jsonl").exists()
    report = launcher("report", run, "-o", "json").json
    assert [each["task"] for each in report["runs"][0]["evaluations"]] == ["choices", "perplexity"]


def test_a_task_that_does_not_exist_is_refused_before_the_export(
    launcher: Launcher, run: str, tasks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Sequence[str]] = []

    def names(module: str, arguments: Sequence[str]) -> None:
        asked.append((module, *arguments))
        raise LauncherError('There is no task "choicez".')

    # lm-eval reads its list for ten seconds; tests/trainer/test_evaluate.py tests the real sentence.
    monkeypatch.setattr(child, "run", names)
    shutil.rmtree(launcher.folder / "demo" / "export")
    refused = launcher("eval", run, "--tasks", "choicez", "--tasks-folder", tasks)
    assert refused.err == 'Reading the list of lm-eval\'s tasks.\nError: There is no task "choicez".\n'
    assert [(each[0], each[-1]) for each in asked] == [("trainer.evaluate", "--only-names")]
    assert {"choices", "arc_easy", "mmlu"} <= _written(str(launcher.folder / tasks))


def _evaluated(folder: Path, **tasks: float) -> None:
    runs.write(folder, metrics=runs.steps(5), config=runs.config(folder.name))
    lines: list[dict[str, Any]] = [
        {"task": task, "step": 4, "metrics": {"acc": value}, "stderr": {"acc": 0.01}} for task, value in tasks.items()
    ]
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_results_of_several_runs_are_compared_without_an_evaluation(launcher: Launcher) -> None:
    _evaluated(launcher.folder / "a", arc=0.25, hella=0.5)
    _evaluated(launcher.folder / "b", arc=0.375)
    done = launcher("eval", "./a", "./b", "--compare")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "TASK   METRIC  ./a (4)      ./b (4)",
        "arc    acc     0.25 ± 0.01  0.375 ± 0.01",
        "hella  acc     0.5 ± 0.01   -",
    ]
    only = launcher("eval", "./a", "./b", "--compare", "--tasks", "hella")
    assert [line.split()[0] for line in only.out.splitlines()] == ["TASK", "hella"]
    none = launcher("eval", "./a", "--compare", "--tasks", "mmlu")
    assert (none.code, none.err) == (
        2,
        'Error: No run has a result of the task "mmlu"; they have results of arc, hella.\n',
    )
    runs.write(launcher.folder / "c", metrics=runs.steps(5))
    missing = launcher("eval", "./c", "--compare")
    assert (missing.code, missing.err.splitlines()) == (
        1,
        [
            f"Error: ./c has no results: {launcher.folder}/c has no evaluations.jsonl.",
            "Hint: To evaluate it: launcher eval ./c --tasks TASK",
        ],
    )
    assert launcher("eval", "./a", "--compare", "--limit", "3").code == 2
