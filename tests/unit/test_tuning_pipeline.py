"""Rows become packed batches whose masks keep the examples apart, and a saved position loses and repeats no example."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer import data
from trainer.errors import ConfigError
from trainer.tuning import pipeline
from trainer.tuning.settings import Tuning
from trainer.tuning.template import PLAIN, ChatTemplate

LENGTH, ROWS = 24, 40


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel(unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.train_from_iterator(
        [f"Question: Answer: word number {number}" for number in range(ROWS)],
        trainers.WordLevelTrainer(  # type: ignore[no-untyped-call]
            special_tokens=["<pad>", "<unk>", "</s>"]
        ),
    )
    return ChatTemplate(PreTrainedTokenizerFast(tokenizer_object=words, eos_token="</s>"), PLAIN)


def rows(path: Path, *, longest: int = 6) -> data.Corpus:
    """Write an example per number, whose answer is the number once or several times."""
    lines = [
        json.dumps({"prompt": "number", "completion": " ".join([str(number)] * (1 + number % longest))})
        for number in range(ROWS)
    ]
    path.write_text("\n".join(lines) + "\n")
    return data.open_corpus({"files": [str(path)]}, whole_rows=True)


def batches(corpus: data.Corpus, reader: pipeline.Reader, *, packing: bool = True, epochs: int = 1) -> Any:
    dataset = data.train_dataset(
        corpus, held_out=False, host_index=0, host_count=1, shuffle=True, seed=1, epochs=epochs, read=reader.read
    )
    return pipeline.batches(dataset, length=LENGTH, batch_size=2, packing=packing)


def answers(template: ChatTemplate, batch: dict[str, Any]) -> list[tuple[str, ...]]:
    """Return the tokens that count, by example."""
    found = []
    for targets, segments in zip(batch["targets"], batch["targets_segmentation"], strict=True):
        for segment in range(1, segments.max(initial=0) + 1):
            ids = targets[segments == segment].tolist()
            found.append(tuple(template.tokenizer.convert_ids_to_tokens(ids)))
    return found


def expected(longest: int = 6) -> Counter[tuple[str, ...]]:
    return Counter((str(number),) * (1 + number % longest) + ("</s>",) for number in range(ROWS))


@pytest.mark.parametrize("packing", [True, False])
def test_each_example_is_once_in_an_epoch(tmp_path: Path, template: ChatTemplate, packing: bool) -> None:
    reader = pipeline.Reader(template, Tuning("sft"), LENGTH)
    every = list(batches(rows(tmp_path / "a.jsonl"), reader, packing=packing))
    assert sum((Counter(answers(template, batch)) for batch in every), Counter()) == expected()
    assert sum(int(pipeline.counts(batch)["tuning/examples"]) for batch in every) == ROWS
    tokens = sum(int(pipeline.counts(batch)["tuning/counted_tokens"]) for batch in every)
    assert tokens == sum(map(len, expected().elements()))
    most = max(int(batch["inputs_segmentation"].max()) for batch in every)
    assert most > 1 if packing else most == 1
    assert all(batch["inputs"].shape == (2, LENGTH) and batch["inputs"].dtype == np.int32 for batch in every)


def test_a_target_is_the_next_token_of_the_same_example(tmp_path: Path, template: ChatTemplate) -> None:
    reader = pipeline.Reader(template, Tuning("sft"), LENGTH)
    for batch in batches(rows(tmp_path / "a.jsonl"), reader):
        for row in range(2):
            for at in np.flatnonzero(batch["targets_segmentation"][row]):
                assert batch["targets"][row, at] == batch["inputs"][row, at + 1]
                assert batch["inputs_segmentation"][row, at] == batch["inputs_segmentation"][row, at + 1]
            starts = np.flatnonzero(np.diff(batch["inputs_segmentation"][row], prepend=0) > 0)
            assert (batch["inputs_position"][row, starts] == 0).all()


@pytest.mark.parametrize("after", [1, 3, 7])
def test_a_saved_position_loses_and_repeats_no_example(tmp_path: Path, template: ChatTemplate, after: int) -> None:
    corpus = rows(tmp_path / "a.jsonl")
    whole = [answers(template, batch) for batch in batches(corpus, pipeline.Reader(template, Tuning("sft"), LENGTH))]
    first = iter(batches(corpus, pipeline.Reader(template, Tuning("sft"), LENGTH)))
    before = [answers(template, next(first)) for _ in range(after)]
    state = first.get_state()
    second = iter(batches(corpus, pipeline.Reader(template, Tuning("sft"), LENGTH)))
    second.set_state(state)
    assert before + [answers(template, batch) for batch in second] == whole


def test_the_epoch_is_counted(tmp_path: Path, template: ChatTemplate) -> None:
    reader = pipeline.Reader(template, Tuning("sft"), LENGTH)
    for _ in batches(rows(tmp_path / "a.jsonl"), reader, epochs=3):
        pass
    assert 2 < reader.epoch < 3
    assert reader.counts["examples"] == 3 * ROWS


def test_examples_that_are_too_long(tmp_path: Path, template: ChatTemplate) -> None:
    corpus = rows(tmp_path / "a.jsonl", longest=ROWS)
    cut = pipeline.Reader(template, Tuning("sft"), LENGTH)
    found = [answer for batch in batches(corpus, cut) for answer in answers(template, batch)]
    assert len(found) == ROWS
    assert cut.counts["cut"] == sum(len(answer) + 5 > LENGTH for answer in expected(ROWS).elements()) > 0
    dropping = pipeline.Reader(template, Tuning("sft", long="drop"), LENGTH)
    found = [answer for batch in batches(corpus, dropping) for answer in answers(template, batch)]
    assert len(found) == ROWS - dropping.counts["dropped"] == ROWS - cut.counts["cut"]
    refusing = pipeline.Reader(template, Tuning("sft", long="refuse"), LENGTH)
    with pytest.raises(ConfigError, match=r"a\.jsonl: line \d+ has \d+ tokens, and train.max_target_length is 24"):
        list(batches(corpus, refusing))


def test_a_file_with_other_columns_is_named(tmp_path: Path, template: ChatTemplate) -> None:
    rows(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").write_text('{"question": "number", "answer": "1"}\n')
    corpus = data.open_corpus({"files": [str(tmp_path)]}, whole_rows=True)
    with pytest.raises(
        ConfigError, match=r"b\.jsonl: line 1 has none of .* \(it has question, answer\); set tuning.columns\.$"
    ):
        data.check_corpus(corpus, pipeline.checker(template, Tuning("sft")))


def test_no_example_is_short_enough(tmp_path: Path, template: ChatTemplate) -> None:
    """A stream without end would search for one forever."""
    corpus = rows(tmp_path / "a.jsonl")
    for tuning, length in ((Tuning("sft"), 4), (Tuning("sft", long="drop"), 4)):
        read = pipeline.Reader(template, tuning, length).of_stream()
        dataset = data.train_dataset(
            corpus, held_out=False, host_index=0, host_count=1, shuffle=True, seed=1, epochs=None, read=read
        )
        with pytest.raises(ConfigError, match=r"a\.jsonl: the answers of all examples begin after train.max_target"):
            next(iter(dataset))


def test_a_bad_row_is_named(tmp_path: Path, template: ChatTemplate) -> None:
    path = tmp_path / "a.jsonl"
    corpus = rows(path)
    lines = path.read_text().splitlines()
    for line, reason in (
        ("{", "is not valid JSON"),
        ('{"prompt": "number"}', "has none of the columns"),
        ('{"messages": null, "id": 3}', r"has none of .* \(it has messages \(null\), id\); set tuning.columns"),
        ('{"prompt": "a", "completion": ""}', "has completion, an empty answer"),
    ):
        lines[20] = line.ljust(len(lines[20]))
        path.write_text("\n".join(lines) + "\n")
        with pytest.raises(ConfigError, match=rf"a\.jsonl: line 21 {reason}"):
            list(batches(corpus, pipeline.Reader(template, Tuning("sft"), LENGTH)))


def test_parquet_has_the_same_examples(tmp_path: Path, template: ChatTemplate) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    messages = [
        [{"role": "user", "content": "number"}, {"role": "assistant", "content": " ".join([str(n)] * (1 + n % 6))}]
        for n in range(ROWS)
    ]
    pq.write_table(pa.table({"messages": messages, "id": range(ROWS)}), tmp_path / "a.parquet")
    corpus = data.open_corpus({"files": [str(tmp_path)]}, whole_rows=True)
    reader = pipeline.Reader(template, Tuning("sft"), LENGTH)
    every = list(batches(corpus, reader))
    assert sum((Counter(answers(template, batch)) for batch in every), Counter()) == expected()


def test_text_has_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text\n" * 500)
    corpus = data.open_corpus({"files": [str(tmp_path)]}, whole_rows=True)
    with pytest.raises(ConfigError, match=r"a\.txt is text without fields; write a \.jsonl or \.parquet file"):
        data.check_corpus(corpus)
