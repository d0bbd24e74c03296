"""python -m trainer.evaluate: lm-eval with tasks in a local folder, and results that a second computation confirms."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from launcher import trainer_output
from launcher.products.report import evaluations
from tests import huggingface_model
from trainer import evaluate
from trainer.errors import ConfigError
from trainer.inference.generation import Generation, Options
from trainer.inference.harness import Harness
from trainer.inference.model import Model, load

QUESTIONS = [
    {"question": "def main(", "choices": ["arguments)", "x", "import os, sys"], "answer": 1},
    {"question": "for line in", "choices": [" lines", " ☃", " white snow"], "answer": 0},
    {"question": "snow is", "choices": [" white", "\n"], "answer": 1},
    {"question": "import ", "choices": ["os", "sys", "arguments"], "answer": 0},
    # Context and answer together are longer than the model's context.
    {"question": "print(line) " * 20, "choices": ["return", "def main"], "answer": 1},
]
_TASK = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: questions.jsonl}}}}
test_split: test
metadata: {{version: 2.0}}
"""
CHOICES = """\
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: answer
target_delimiter: ""
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
PERPLEXITY = """\
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{question}}"
metric_list: [{metric: bits_per_byte, aggregation: bits_per_byte, higher_is_better: false}]
"""
GENERATION = """\
output_type: generate_until
doc_to_text: "def main("
doc_to_target: "TARGET"
generation_kwargs: {until: ["\\0"], max_gen_toks: 8, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return load(huggingface_model.write(tmp_path_factory.mktemp("models") / "tiny"))


@pytest.fixture
def tasks(tmp_path: Path, model: Model) -> Path:
    """A folder of tasks, with data that they name relative to the folder."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in QUESTIONS))
    text = "".join(Generation(model, model.encode("def main("), Options(max_tokens=8, temperature=0)))
    for name, rest in {
        "choices": CHOICES,
        "perplexity": PERPLEXITY,
        "generation": GENERATION.replace('"TARGET"', json.dumps(text)),
        "other": GENERATION.replace("TARGET", "something else"),
    }.items():
        (folder / f"{name}.yaml").write_text(_TASK.format(name=name) + rest)
    return folder


def log_likelihood(model: Model, tokens: Sequence[int], count: int) -> float:
    """The log-likelihood of the last tokens, by a forward pass of all tokens and a softmax in float64."""
    logits = np.array(model.network(mx.array([tokens[:-1]]))[0]).astype(np.float64)
    total = 0.0
    for position in range(len(tokens) - 1 - count, len(tokens) - 1):
        row = logits[position] - logits[position].max()
        total += row[tokens[position + 1]] - math.log(np.exp(row).sum())
    return total


def accuracy(model: Model) -> float:
    """The share of the questions whose answer is the most likely of the choices."""
    right = 0
    for one in QUESTIONS:
        scores = []
        for choice in one["choices"]:  # type: ignore[attr-defined]
            context = model.encode(str(one["question"]).rstrip())
            whole = model.encode(f"{one['question']}{choice}")
            tokens = whole[-(huggingface_model.CONTEXT + 1) :]
            scores.append(log_likelihood(model, tokens, len(whole) - len(context)))
        right += int(np.argmax(scores)) == one["answer"]
    return right / len(QUESTIONS)


def test_the_accuracy_is_that_of_the_likelihoods(model: Model, tasks: Path) -> None:
    (result,) = evaluate.evaluate(model, ["choices"], tasks, None)
    expected = accuracy(model)
    assert expected == 3 / 5
    assert result["metrics"] == {"acc": pytest.approx(expected)}
    # The standard error of a mean of zeros and ones.
    count = len(QUESTIONS)
    assert result["stderr"] == {"acc": pytest.approx(math.sqrt(expected * (1 - expected) / (count - 1)))}
    assert (result["samples"], result["samples_total"], result["limit"], result["shots"]) == (count, count, None, 0)
    assert (result["higher_is_better"], result["version"]) == ({"acc": True}, 2.0)


def test_a_long_text_is_scored_in_windows(model: Model, tasks: Path) -> None:
    """Each token counts once, after the token that starts a text, or after the tokens of its window."""
    (result,) = evaluate.evaluate(model, ["perplexity"], tasks, None)
    total, size, longest = 0.0, 0, huggingface_model.CONTEXT
    for one in QUESTIONS:
        text = str(one["question"])
        tokens = [0, *model.tokenizer.encode(text, add_special_tokens=False)]
        for start in range(0, len(tokens) - 1, longest):
            count = len(tokens[start + 1 : start + 1 + longest])
            # lm-eval fills the last window with tokens before it.
            first = max(0, start + 1 + count - longest - 1)
            total += log_likelihood(model, tokens[first : start + 1 + count], count)
        size += len(text.encode())
    assert result["metrics"] == {"bits_per_byte": pytest.approx(-total / size / math.log(2), rel=1e-5)}
    assert result["higher_is_better"] == {"bits_per_byte": False}


@pytest.mark.parametrize("chunk", [1, 3, 7, 1000])
def test_batches_and_parts_do_not_change_a_score(chunk: int, model: Model) -> None:
    """Texts of several lengths are padded to one length, and long ones are computed in parts with a KV cache."""
    texts = [model.encode(text)[:60] for text in ("a", "snow is white", "import os, sys " * 5, "def main(x): return x")]
    harness = Harness(model)
    harness._chunk = chunk
    found = harness._loglikelihood_tokens([(("", ""), tokens[:1], tokens[1:]) for tokens in texts])
    for tokens, (score, greedy) in zip(texts, found, strict=True):
        assert score == pytest.approx(log_likelihood(model, tokens, len(tokens) - 1), rel=1e-5)
        assert not greedy
    best = Generation(model, model.encode("snow"), Options(max_tokens=4, temperature=0))
    text = "".join(best)
    tokens = model.encode("snow" + text)
    ((_, greedy),) = harness._loglikelihood_tokens([(("", ""), tokens[:-1], tokens[-1:])])
    assert greedy == (int(np.array(model.network(mx.array([tokens[:-1]]))[0, -1]).argmax()) == tokens[-1])


def test_generated_texts_are_compared(model: Model, tasks: Path) -> None:
    results = {each["task"]: each for each in evaluate.evaluate(model, ["generation", "other"], tasks, 2)}
    assert results["generation"]["metrics"] == {"exact_match": 1.0}
    assert results["other"]["metrics"] == {"exact_match": 0.0}
    assert {(each["samples"], each["samples_total"], each["limit"]) for each in results.values()} == {(2, 5, 2)}


def test_the_results_of_a_run_are_in_its_folder(
    model: Model, tasks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An exported checkpoint is used again. A line that a kill has cut does not damage the next one."""
    run = tmp_path / "run"
    exported = huggingface_model.write(run / "export" / "40")
    (exported / "slipway.json").write_text("{}")
    file = run / evaluate.FILE
    file.write_text('{"task": "choices", "st')
    arguments = ["--config", "unused.json", "--folder", str(run), "--step", "40"]
    arguments += ["--tasks", "choices,perplexity", "--tasks-folder", str(tasks), "--limit", "3"]
    assert evaluate.main(arguments) == 0
    printed = capsys.readouterr().out
    lines = file.read_text().splitlines()
    assert len(lines) == 3
    results, other = evaluations.parse_all(map(json.loads, lines[1:]))
    assert other == 0
    assert [(one.task, one.step, one.samples) for one in results] == [("choices", 40, 3), ("perplexity", 40, 3)]
    assert results[0].time.endswith("Z")
    assert results[0].harness.startswith("lm-eval 0.")
    shown = [line for line in printed.splitlines() if line.startswith(trainer_output.EVALUATION_PREFIX)]
    assert [line.removeprefix(trainer_output.EVALUATION_PREFIX) for line in shown] == lines[1:]
    assert '{"done": 3, "total": 3}' in printed


@pytest.mark.parametrize(
    ("names", "change", "sentence"),
    [
        (["choicez"], None, r'There is no task "choicez", neither in .* lm-eval.s own\. Did you mean choices.*\?$'),
        (["choices"], lambda path: (path / "questions.jsonl").unlink(), "choices cannot be evaluated: "),
        (["choices"], lambda path: (path / "questions.jsonl").write_text("{"), "choices cannot be evaluated: "),
    ],
    ids=["unknown", "no-data", "damaged-data"],
)
def test_a_task_that_cannot_work(
    names: list[str], change: Any, sentence: str, model: Model, tasks: Path, tmp_path: Path
) -> None:
    if change is not None:
        change(tasks)
    with pytest.raises(ConfigError) as error:
        evaluate.evaluate(model, names, tasks, None)
    assert re.match(sentence, str(error.value))
    assert "\n" not in str(error.value)


def test_arguments_that_cannot_work(model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing"
    for arguments, sentence in (
        (["--tasks", ","], "--tasks names no task."),
        (["--tasks", "a", "--limit", "0"], "--limit must be at least 1, not 0."),
        (["--tasks", "a", "--tasks-folder", str(missing)], f"There is no folder {missing} (--tasks-folder)."),
    ):
        assert evaluate.main(["--model", str(model.folder), *arguments]) == 2
        assert capsys.readouterr().err == f"Error: {sentence}\n"
    folder = tmp_path / "run"
    folder.mkdir()
    assert evaluate.main(["--config", "a.json", "--folder", str(folder), "--step", "3", "--tasks", "a"]) == 2
    assert capsys.readouterr().err == f"Error: There is no checkpoint 3 in {folder}/checkpoints.\n"
    assert evaluate.main(["--config", "a.json", "--folder", str(folder), "--tasks", "a"]) == 2
    assert capsys.readouterr().err == f"Error: There are no checkpoints in {folder}/checkpoints.\n"


def test_results_that_cannot_be_written(model: Model, tasks: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (huggingface_model.write(run / "export" / "1") / "slipway.json").write_text("{}")
    (run / evaluate.FILE).symlink_to("/dev/full")
    with pytest.raises(ConfigError, match=r"The results cannot be written to .*: No space left on device\."):
        evaluate._append(run / evaluate.FILE, "{}")


def test_both_know_the_same_lines_and_files() -> None:
    assert (evaluate.PREFIX, evaluate.PROGRESS_PREFIX, evaluate.FILE) == (
        trainer_output.EVALUATION_PREFIX,
        trainer_output.EVALUATION_PROGRESS_PREFIX,
        trainer_output.EVALUATIONS_FILE,
    )


def test_an_export_that_fails_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "checkpoints" / "3").mkdir(parents=True)
    (tmp_path / "run.json").write_text("{}")
    arguments = ["--config", str(tmp_path / "run.json"), "--folder", str(tmp_path), "--tasks", "a"]
    assert evaluate.main(arguments) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("Error: ") and printed.count("\n") == 1 and "run.json" in printed
    killed = tmp_path / "python"  # instead of Python: a program that is killed, as by the kernel without memory
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(killed))
    assert evaluate.main(arguments) == 2
    assert capsys.readouterr().err == (
        "Error: The export was killed, most likely because this machine ran out of memory.\n"
    )
    assert not (tmp_path / "export" / "3").exists()
