"""A mixture of texts: the shares of its sources, a kill, and the end token of a tokenizer that pads with it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tests.trainer.runs import Run, TrainingHarness, numbers

STEPS = 20
WORDS = {"letters": "abcdefgh", "digits": "12345678"}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a tokenizer of Hugging Face whose end token is its padding, as that of Qwen's base models."""
    folder = tmp_path_factory.mktemp("tokenizer")
    words = Tokenizer(models.WordLevel(unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = trainers.WordLevelTrainer(special_tokens=["<unk>", "<s>", "</s>"])  # type: ignore[no-untyped-call]
    words.train_from_iterator([" ".join("".join(WORDS.values()))], special)
    PreTrainedTokenizerFast(
        tokenizer_object=words, bos_token="<s>", eos_token="</s>", pad_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)
    return folder


def config(lab: TrainingHarness, name: str, tokenizer: Path) -> Path:
    sources: dict[str, Any] = {}
    for weight, (source, words) in enumerate(WORDS.items(), 1):
        path = lab.root / f"{source}.jsonl"
        texts = [" ".join(random.Random(number).choices(words, k=3)) for number in range(400)]
        path.write_text("".join(json.dumps({source: text}) + "\n" for text in texts))
        sources[source] = {"files": [str(path)], "weight": weight, "field": source}
    data = {
        "mixture": sources,
        "heldOut": {"fraction": 0.1},
        "tokenizer": {"kind": "huggingface", "path": str(tokenizer)},
    }
    keys = {"steps": STEPS, "per_device_batch_size": 3, "max_target_length": 64, "eval_interval": None, "eval_steps": 4}
    return lab.config(name, hosts=1, data=data, **keys, checkpoint_period=5)


@pytest.fixture(scope="module")
def mixed(lab: TrainingHarness, tokenizer: Path) -> Run:
    run = lab.train(config(lab, "mixed", tokenizer), "--no-ray")
    assert run.process.returncode == 0, run.output()[-3000:]
    return run


def test_the_sources_have_their_shares(mixed: Run) -> None:
    lines = [line for line in mixed.metrics() if "loss" in line]
    assert len(lines) == STEPS
    for line in lines:  # two of three sequences
        assert line["mixture"]["digits"]["share"] == pytest.approx(2 / 3, abs=0.05)
        assert line["mixture"]["letters"]["share"] + line["mixture"]["digits"]["share"] == pytest.approx(1, abs=1e-5)
    assert lines[-1]["mixture"]["digits"]["epoch"] > lines[-1]["mixture"]["letters"]["epoch"] > 0
    assert [line["eval_loss"] for line in mixed.metrics() if "eval_loss" in line]


def test_a_kill_changes_no_number(lab: TrainingHarness, mixed: Run, tokenizer: Path) -> None:
    path = config(lab, "mixed-killed", tokenizer)
    run = lab.start(path, "--no-ray")
    run.until(lambda: run.step() >= 8)
    run.process.kill()
    run.wait()
    run = lab.train(path, "--no-ray")
    assert run.process.returncode == 0, run.output()[-3000:]
    assert run.events()[-1]["step"] in (1, 6, 11, 16)  # a checkpoint is written in the background
    assert numbers(run.metrics()) == numbers(mixed.metrics())
    shares = [[line["mixture"] for line in each.metrics() if "loss" in line] for each in (run, mixed)]
    assert shares[0] == shares[1]
