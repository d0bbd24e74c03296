"""Rows with a better and a worse answer become pairs of segments that do not see each other."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.unit.test_tuning_pipeline import LENGTH, ROWS, template
from trainer import data
from trainer.errors import ConfigError
from trainer.tuning import pipeline, preferences
from trainer.tuning.examples import BadRowError, pair
from trainer.tuning.settings import Tuning
from trainer.tuning.template import ChatTemplate

__all__ = ["template"]  # the fixture

QUESTION = {"role": "user", "content": "What is 1 plus 1?"}
GOOD, BAD = ({"role": "assistant", "content": text} for text in ("2", "3"))


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": QUESTION["content"], "chosen": "2", "rejected": "3"},
        {"prompt": [QUESTION], "chosen": [GOOD], "rejected": "3"},
        {"prompt": [QUESTION], "chosen": [GOOD], "rejected": [BAD]},
        {"chosen": [QUESTION, GOOD], "rejected": [QUESTION, BAD]},
        {"prompt": QUESTION["content"], "chosen": [QUESTION, GOOD], "rejected": [QUESTION, BAD]},  # as UltraFeedback
        {"chosen": json.dumps([QUESTION, GOOD]), "rejected": json.dumps([QUESTION, BAD])},
    ],
    ids=str,
)
def test_rows_with_the_same_pair(row: dict[str, Any]) -> None:
    two = pair(row, {})
    assert (two.chosen.messages, two.rejected.messages) == ([QUESTION, GOOD], [QUESTION, BAD])
    assert two.chosen.first == two.rejected.first == 1


def test_turns_that_both_share_do_not_count() -> None:
    two = pair({"chosen": [QUESTION, GOOD, QUESTION, GOOD], "rejected": [QUESTION, GOOD, QUESTION, BAD]}, {})
    assert two.chosen.first == 3


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"messages": [QUESTION, GOOD]}, r"has no column chosen and rejected \(it has messages\); set tuning.columns"),
        ({"prompt": "a", "chosen": "b"}, r"has no column rejected \(it has prompt, chosen\)"),
        ({"chosen": "b", "rejected": "c"}, "has a column chosen that is text, and no column prompt with the question"),
        ({"prompt": "a", "chosen": "b", "rejected": "b"}, "has the same chosen and rejected; remove the row"),
        ({"prompt": "a", "chosen": "b", "rejected": " "}, "has rejected, an empty answer; remove the row"),
        ({"chosen": [QUESTION, GOOD], "rejected": [QUESTION]}, "has no answer in rejected after the messages"),
        (
            {"prompt": "a", "chosen": 1, "rejected": "b"},
            'has a column "chosen" that is neither a text nor a list of messages',
        ),
    ],
    ids=str,
)
def test_other_rows_are_refused(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRowError, match=reason):
        pair(row, {})


def corpus(path: Path, *, longest: int = 3) -> data.Corpus:
    """Write a pair per number: the better answer is the number, and the worse answer repeats it."""
    lines = [
        {"prompt": "number", "chosen": str(number), "rejected": " ".join([str(number)] * (2 + number % longest))}
        for number in range(ROWS)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return data.open_corpus({"files": [str(path)]}, whole_rows=True)


def batches(corpus: data.Corpus, reader: pipeline.Reader, *, packing: bool = True) -> list[dict[str, Any]]:
    dataset = data.train_dataset(
        corpus, held_out=False, host_index=0, host_count=1, shuffle=True, seed=1, epochs=1, read=reader.read
    )
    return list(pipeline.batches(dataset, length=LENGTH, batch_size=2, packing=packing, pairs=True))


def pairs(template: ChatTemplate, batch: dict[str, Any]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Return the tokens that count of both answers of each pair."""
    found = []
    for targets, segments in zip(batch["targets"], batch["targets_segmentation"], strict=True):
        for better in range(1, segments.max(initial=0) + 1, 2):
            one, other = (
                tuple(template.tokenizer.convert_ids_to_tokens(targets[segments == segment].tolist()))
                for segment in (better, better + 1)
            )
            found.append((one, other))
    return found


@pytest.mark.parametrize("packing", [True, False])
def test_each_pair_is_once_in_an_epoch(tmp_path: Path, template: ChatTemplate, packing: bool) -> None:
    reader = pipeline.Reader(template, Tuning("dpo"), LENGTH)
    every = batches(corpus(tmp_path / "a.jsonl"), reader, packing=packing)
    expected = Counter(((str(number), "</s>"), (*[str(number)] * (2 + number % 3), "</s>")) for number in range(ROWS))
    assert sum((Counter(pairs(template, batch)) for batch in every), Counter()) == expected
    assert sum(int(pipeline.counts(batch, pairs=True)["tuning/examples"]) for batch in every) == ROWS
    for batch in every:
        starts = np.diff(batch["inputs_segmentation"], prepend=0, axis=1) > 0
        assert (batch["inputs_position"][starts] == 0).all()


def test_the_longer_conversation_is_cut_first(tmp_path: Path, template: ChatTemplate) -> None:
    reader = pipeline.Reader(template, Tuning("dpo"), LENGTH)
    every = batches(corpus(tmp_path / "a.jsonl", longest=ROWS), reader)
    found = [two for batch in every for two in pairs(template, batch)]
    assert len(found) == ROWS
    assert reader.counts["cut"] > 0
    assert all(better[-1] == "</s>" for better, _ in found)
    refusing = pipeline.Reader(template, Tuning("dpo", long="refuse"), LENGTH)
    with pytest.raises(ConfigError, match=r"line \d+ has \d+ tokens, and train.max_target_length is 24"):
        batches(corpus(tmp_path / "a.jsonl", longest=ROWS), refusing)


def test_keys_that_change_the_loss_of_tokens() -> None:
    preferences.require_simple_loss({"num_vocab_tiling": 1, "z_loss_multiplier": 0.0})
    with pytest.raises(ConfigError, match=r"train.num_vocab_tiling is 4, .*; set it to 1\."):
        preferences.require_simple_loss({"num_vocab_tiling": 4})
