"""Supervised fine-tuning: the step of an independent implementation, answers to questions, and a kill.

The reference is mlx-lm with its own gradients, from the exported weights, and the mask that transformers computes from
a template with generation tags. tests/image/test_peft.py compares with transformers, which needs PyTorch.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import mlx_lm
import numpy as np
import pytest
from mlx.utils import tree_flatten
from mlx_lm.utils import load_model

from tests.tiny_model import TINY_MODEL
from tests.trainer.runs import CHECKOUT, Run, TrainingHarness, numbers, steps
from trainer.tuning.template import PLAIN

STEPS = 400
KILLED = 130
"""The steps of the run that is killed after 70, on the schedule of STEPS."""
KEYS: dict[str, Any] = {
    "steps": STEPS,
    "learning_rate_schedule_steps": STEPS,
    "learning_rate": 3e-3,
    "per_device_batch_size": 8,
    "checkpoint_period": 30,
    "eval_interval": None,
    "dtype": "float32",
}
SAMPLES = ["Is it even or odd: 3 5 8", "Is it even or odd: 4 1 7"]
WITH_GENERATION = (
    "{% for message in messages %}{% if message.role == 'assistant' %}Answer:{% generation %}"
    "{{ ' ' + message.content | trim + eos_token }}{% endgeneration %}{{ '\n' }}"
    "{% else %}{{ 'Question: ' + message.content | trim + '\n' }}{% endif %}{% endfor %}"
)
"""The template PLAIN, with the tags that mark what the model generates."""


def question(number: int) -> dict[str, Any]:
    return {
        "messages": [
            {"role": "user", "content": f"Is it even or odd: {' '.join(str(number))}"},
            {"role": "assistant", "content": ("even", "odd")[number % 2]},
        ]
    }


def write(path: Path, numbers_: list[int]) -> Path:
    path.write_text("".join(json.dumps(question(number)) + "\n" for number in numbers_))
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write questions about different numbers: train.jsonl, few.jsonl and held-out.jsonl."""
    folder = tmp_path_factory.mktemp("questions")
    numbers_ = random.Random(1).sample(range(100, 1000), 640)
    write(folder / "train.jsonl", numbers_[:560])
    write(folder / "few.jsonl", numbers_[560:600])
    write(folder / "held-out.jsonl", numbers_[600:])
    return folder


def config(lab: TrainingHarness, name: str, base: Run, data: dict[str, Any], **train: Any) -> Path:
    tokenizer = {"kind": "sentencepiece", "path": str(lab.tokenizer)}
    weights = str(base.folder / "checkpoints" / "3" / "items")
    # At 3e-3, a model on some processors ends with 80 % of the answers.
    keys = {**KEYS, "learning_rate": 2e-3, "load_parameters_path": weights, **train}
    path = lab.config(name, hosts=1, data={**data, "tokenizer": tokenizer}, **keys)
    tree = json.loads(path.read_text())
    tree |= {"tuning": {"method": "sft", "template": PLAIN, "samples": SAMPLES}, "from": "base@3"}
    path.write_text(json.dumps(tree))
    return path


def questions(files: Path) -> dict[str, Any]:
    """Return a mixture of two sources, the second of which is small and often repeated."""
    sources = {"most": {"files": [str(files / "train.jsonl")], "weight": 3}}
    sources["few"] = {"files": [str(files / "few.jsonl")], "weight": 1}
    return {"mixture": sources, "heldOut": {"files": [str(files / "held-out.jsonl")]}}


@pytest.fixture(scope="module")
def tuned(lab: TrainingHarness, base: Run, files: Path) -> Run:
    run = lab.train(config(lab, "tuned", base, questions(files)), "--no-ray")
    assert run.process.returncode == 0, run.output()[-3000:]
    return run


def exported(lab: TrainingHarness, run: Run) -> Path:
    folder = lab.root / f"{run.folder.name}-exported"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "trainer.weights", "export", "--config", str(run.folder / "run.json")),
            *("--to", str(folder), "--dtype", "float32"),
        ],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def correct(folder: Path, files: Path) -> float:
    """Return the share of held-out questions with exactly the right answer."""
    mx.set_default_device(mx.cpu)
    model, tokenizer = mlx_lm.load(str(folder))
    right = 0
    rows = [json.loads(line)["messages"] for line in (files / "held-out.jsonl").read_text().splitlines()]
    for asked, answer in rows:
        prompt = tokenizer.apply_chat_template([asked], add_generation_prompt=True)
        right += mlx_lm.generate(model, tokenizer, prompt, max_tokens=12).strip() == answer["content"]
    return right / len(rows)


def test_a_tuned_model_answers_held_out_questions(lab: TrainingHarness, tuned: Run, base: Run, files: Path) -> None:
    folder = exported(lab, tuned)
    assert correct(folder, files) > 0.8
    before = exported(lab, base)
    (before / "chat_template.jinja").write_text((folder / "chat_template.jinja").read_text())
    assert correct(before, files) == 0
    answers = [(event["step"], event["message"]) for event in tuned.events("sample")]
    assert [step for step, _ in answers] == [0, 0, STEPS, STEPS]
    assert [answer for _, answer in answers[2:]] == ["even", "odd"]
    lines = [line for line in tuned.metrics() if "loss" in line]
    sources = {name: [line["mixture"][name] for line in lines] for name in ("few", "most")}
    assert np.mean([each["share"] for each in sources["most"]]) == pytest.approx(0.75, abs=0.02)
    assert all(line["mixture"]["few"]["share"] + line["mixture"]["most"]["share"] == pytest.approx(1) for line in lines)
    assert lines[-1]["epoch"] == sources["most"][-1]["epoch"] > 1
    assert sources["few"][-1]["epoch"] > 3
    assert all(line["examples"] >= 8 and line["counted_tokens"] > line["examples"] for line in lines)
    assert tuned.metrics()[-1]["eval_loss"] < tuned.metrics()[0]["eval_loss"] / 5


def test_a_kill_in_an_epoch_changes_no_number(lab: TrainingHarness, tuned: Run, base: Run, files: Path) -> None:
    path = config(lab, "tuned-killed", base, questions(files), steps=KILLED)
    run = lab.start(path, "--no-ray")
    run.until(lambda: run.step() >= 70)
    run.process.kill()
    run.wait()
    run = lab.train(path, "--no-ray")
    assert run.process.returncode == 0, run.output()[-3000:]
    assert run.events()[-1]["step"] in (1, 31, 61, 91)  # a checkpoint is written in the background
    assert numbers(run.metrics())[:-1] == numbers(tuned.metrics())[: KILLED + 1]  # and the first evaluation
    for key in ("examples", "counted_tokens", "epoch", "mixture"):
        resumed, whole = ([line[key] for line in each.metrics() if "loss" in line] for each in (run, tuned))
        assert resumed == whole[:KILLED]


def one_step(lab: TrainingHarness, base: Run, rows: Path) -> tuple[Run, dict[str, Any], list[list[dict[str, Any]]]]:
    """Train a step on packed examples with SGD. Write them to `rows`; return the run, the step's metrics, and the
    conversations."""
    examples = [
        question(128),
        {"prompt": "What is 2 plus 2?", "completion": "4"},
        {"instruction": "Say yes.", "input": "Now.", "output": "yes, of course"},
        {"messages": [*question(7)["messages"], *question(12)["messages"]]},
    ]
    rows.write_text("".join(json.dumps(row) + "\n" for row in examples))
    path = config(
        lab,
        "one-step",
        base,
        {"files": [str(rows)], "heldOut": {"fraction": 0}},
        steps=1,
        per_device_batch_size=2,
        enable_data_shuffling=False,
        num_epoch=1,
        opt_type="sgd",
        learning_rate=0.5,
        warmup_steps_fraction=0,
        gradient_clipping_threshold=0,
        max_target_length=128,
    )
    run = lab.train(path, "--no-ray")
    assert run.process.returncode == 0, run.output()[-3000:]
    (line,) = [line for line in run.metrics() if "loss" in line]
    assert line["examples"] == len(examples)
    conversations = [
        examples[0]["messages"],
        [{"role": "user", "content": "What is 2 plus 2?"}, {"role": "assistant", "content": "4"}],
        [{"role": "user", "content": "Say yes.\n\nNow."}, {"role": "assistant", "content": "yes, of course"}],
        examples[3]["messages"],
    ]
    return run, line, conversations


def test_a_step_is_that_of_another_implementation(lab: TrainingHarness, base: Run, tmp_path: Path) -> None:
    """Packed examples give the loss and the weights that mlx computes for each example alone."""
    run, line, conversations = one_step(lab, base, tmp_path / "rows.jsonl")
    mx.set_default_device(mx.cpu)
    folder = exported(lab, base)
    model, _ = load_model(folder)
    tokenizer = mlx_lm.load(str(folder))[1]._tokenizer
    encoded = [
        tokenizer.apply_chat_template(
            each,
            chat_template=WITH_GENERATION,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        for each in conversations
    ]
    masks = [each["assistant_masks"] for each in encoded]
    total = sum(sum(mask[1:]) for mask in masks)
    assert line["counted_tokens"] == total

    def loss(network: Any) -> Any:
        summed = mx.array(0.0)
        for each, mask in zip(encoded, masks, strict=True):
            ids = mx.array([each["input_ids"]])
            losses = nn.losses.cross_entropy(network(ids[:, :-1]).astype(mx.float32), ids[:, 1:])
            summed = summed + (losses * mx.array([mask[1:]])).sum()
        return summed / total

    value, gradients = nn.value_and_grad(model, loss)(model)
    assert line["loss"] == pytest.approx(float(value), abs=1e-5)
    after, _ = load_model(exported(lab, run))
    new = dict(tree_flatten(after.parameters()))
    old, slopes = dict(tree_flatten(model.parameters())), dict(tree_flatten(gradients))
    assert new.keys() == old.keys() == slopes.keys()
    for name in new:
        # MaxText's query weights are those of Hugging Face divided by the root of head_dim, so their step is larger.
        scale = TINY_MODEL["head_dim"] if name.endswith("q_proj.weight") else 1
        expected = np.array(old[name] - scale * line["learning_rate"] * slopes[name])
        np.testing.assert_allclose(np.array(new[name]), expected, atol=1e-4, err_msg=name)
    moved = max(float(mx.abs(new[name] - old[name]).max()) for name in new)
    assert moved > 1e-2


def test_a_run_without_a_model_to_start_from_is_refused(lab: TrainingHarness, files: Path) -> None:
    data = {**questions(files), "tokenizer": {"kind": "sentencepiece", "path": str(lab.tokenizer)}}
    path = lab.config("from-nothing", hosts=1, data=data, eval_interval=None)
    tree = json.loads(path.read_text()) | {"tuning": {"method": "sft", "template": PLAIN}}
    path.write_text(json.dumps(tree))
    run = lab.train(path, "--no-ray")
    assert run.process.returncode == 2
    assert "tuning.method: sft changes a model that exists; set from to a run" in run.output().splitlines()[-1]
    assert steps(run) == []
