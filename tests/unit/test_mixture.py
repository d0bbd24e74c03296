"""A mixture reads each source by its weight, and a saved position loses and repeats no document."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer import data
from trainer.config import RunConfig
from trainer.errors import ConfigError
from trainer.training import mixture
from trainer.tuning import pipeline

LENGTH, BATCH = 16, 4
WEIGHTS = {"code": 1, "web": 3}


def write(folder: Path, name: str, first: int, count: int) -> str:
    path = folder / f"{name}.jsonl"
    path.write_text(
        "".join(json.dumps({"text": f"{number}", "note": "-" * 20}) + "\n" for number in range(first, first + count))
    )
    return str(path)


def values(folder: Path, **more: Any) -> dict[str, Any]:
    sources = {"web": write(folder, "web", 1000, 4000), "code": write(folder, "code", 5000, 60)}
    return {
        "mixture": {name: {"files": [path], "weight": WEIGHTS[name]} for name, path in sources.items()},
        "heldOut": {"fraction": 0},
        **more,
    }


def elements(unit: data.Unit, field: str) -> list[dict[str, Any]]:
    """Return a short example for each number of a unit, as the reader of fine-tuning does."""
    numbers = [int(text) for text in data.documents(unit, field)]
    return [
        {
            "inputs": np.full(2 + number % 5, number, np.int32),
            "counted": np.ones(2 + number % 5, np.int32),
            "positions": np.arange(2 + number % 5, dtype=np.int32),
            "worse": np.zeros(2 + number % 5, np.int32),
        }
        for number in numbers
    ]


def mixed(corpus: data.Corpus, *, host: int = 0, hosts: int = 1, epochs: int | None = None) -> tuple[Any, Any]:
    """Return the dataset of a host's batches, and its shares."""
    shares = mixture.Shares(list(corpus.sources))

    def read(field: str) -> Callable[[data.Unit, float], Any]:
        return lambda unit, _: elements(unit, field)

    streams = {
        name: data.train_dataset(
            source,
            held_out=False,
            host_index=host,
            host_count=hosts,
            shuffle=True,
            seed=7,
            epochs=epochs,
            read=shares.reading(name, read(source.field)),
        )
        for name, source in corpus.sources.items()
    }
    weights = {name: source.weight for name, source in corpus.sources.items()}
    mix = mixture.Mixture(streams, weights, shares)
    return mix.batches(
        lambda each: pipeline.batches(each, length=LENGTH, batch_size=BATCH, packing=True), BATCH
    ), shares


def numbers(batch: dict[str, Any]) -> Counter[int]:
    """Return how often each example is in a batch."""
    return Counter(batch["inputs"][batch["inputs_position"] == 0].tolist()) - Counter({0: 10_000})


def test_sequences_follow_the_weights_and_have_one_source_each(tmp_path: Path) -> None:
    corpus = data.open_corpus(values(tmp_path))
    assert {name: source.weight for name, source in corpus.sources.items()} == WEIGHTS
    dataset, shares = mixed(corpus)
    batches = iter(dataset)
    read: Counter[str] = Counter()
    for _ in range(50):
        batch = next(batches)
        assert "source" not in batch
        for row in batch["inputs"]:
            (source,) = {"code" if number >= 5000 else "web" for number in row[row > 0]}
            read[source] += 1
        measured = shares.of(shares.scalars())
        assert sum(source["share"] for source in measured.values()) == pytest.approx(1, abs=1e-5)
    assert read == {"web": 150, "code": 50}
    assert measured["code"]["share"] == pytest.approx(0.25, abs=0.05)
    assert measured["code"]["epoch"] > 1 > measured["web"]["epoch"]


def test_a_resumed_mixture_repeats_and_loses_no_example(tmp_path: Path) -> None:
    corpus = data.open_corpus(values(tmp_path))
    batches = iter(mixed(corpus)[0])
    states, expected = [], []
    for _ in range(40):
        states.append(json.loads(json.dumps(batches.get_state())))
        expected.append(next(batches))
    for at in (0, 1, 17, 39):
        resumed = iter(mixed(corpus)[0])
        resumed.set_state(states[at])
        for want, have in zip(expected[at:], resumed, strict=False):
            for key, array in want.items():
                np.testing.assert_array_equal(have[key], array)
    total: Counter[int] = sum(map(numbers, expected), Counter())
    assert max(total[number] for number in range(1000, 5000)) == 1
    code = [total[number] for number in range(5000, 5060)]
    assert min(code) >= max(code) - 1 >= 1  # whole passes


def test_hosts_read_disjoint_parts_of_each_source(tmp_path: Path) -> None:
    corpus = data.open_corpus(values(tmp_path), 2)
    read = []
    for host in range(2):
        batches = iter(mixed(corpus, host=host, hosts=2, epochs=1)[0])
        read.append(set().union(*(numbers(batch) for batch in batches)))
    assert read[0]
    assert read[1]
    assert not read[0] & read[1]


def test_a_mixture_with_epochs_ends_with_the_first_source_that_ends(tmp_path: Path) -> None:
    corpus = data.open_corpus(values(tmp_path))
    total: Counter[int] = sum(map(numbers, mixed(corpus, epochs=2)[0]), Counter())
    code = [total[number] for number in range(5000, 5060)]
    assert max(code) == 2
    assert sum(code) >= 2 * 60 - BATCH * LENGTH // 2
    web = [total[number] for number in range(1000, 5000)]
    assert max(web) == 1
    assert 0 < sum(web) < 400


def test_a_source_has_its_own_field_and_its_own_held_out_part(tmp_path: Path) -> None:
    sources = values(tmp_path, heldOut={"fraction": 0.1})
    other = tmp_path / "code.jsonl"
    other.write_text(other.read_text().replace('"text"', '"content"'))
    sources["mixture"]["code"]["field"] = "content"
    corpus = data.open_corpus(sources)
    data.check_corpus(corpus)
    assert {source.field for source in corpus.sources.values()} == {"text", "content"}
    assert all(source.held_out for source in corpus.sources.values())
    assert len(corpus.held_out) == sum(len(source.held_out) for source in corpus.sources.values())
    assert not data.is_separate(corpus)


def test_held_out_files_are_read_for_the_whole_mixture(tmp_path: Path) -> None:
    corpus = data.open_corpus(values(tmp_path, heldOut={"files": [write(tmp_path, "test", 9000, 20)]}))
    data.check_corpus(corpus)
    assert not any(source.held_out for source in corpus.sources.values())
    assert {Path(unit.path).name for unit in corpus.held_out} == {"test.jsonl"}
    assert data.is_separate(corpus)
    assert corpus.files == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"web": {"files": ["missing.jsonl"], "weight": 1}}, "data.mixture.web.files: missing.jsonl does not exist"),
        ({"again": {"files": ["web.jsonl"], "weight": 1}}, "is in both data.mixture.again.files and data.mixture.web"),
    ],
)
def test_a_wrong_source_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    sources = values(tmp_path)
    sources["mixture"] |= change
    with pytest.raises(ConfigError, match=message):
        data.open_corpus(sources)


def test_a_removed_source_is_not_read(tmp_path: Path) -> None:
    sources = values(tmp_path)
    sources["mixture"]["code"] = None
    assert list(data.open_corpus(sources).sources) == ["web"]


def test_the_run_config_opens_a_mixture(tmp_path: Path) -> None:
    tree = {"run": {"name": "r"}, "storage": {"mountPath": str(tmp_path)}, "slice": {}, "accelerator": {"hosts": 1}}
    config = RunConfig(tmp_path / "run.json", {**tree, "data": values(tmp_path)})
    assert config.corpus is not None
    assert list(config.corpus.sources) == ["code", "web"]
