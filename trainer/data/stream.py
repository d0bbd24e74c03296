"""The stream of documents of one host, as a dataset of grain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainer import hub
from trainer.data import parquet, text
from trainer.data.corpus import Corpus
from trainer.data.reading import documents
from trainer.data.units import Unit

# Threads that read ahead from the hub, and that read the footers of its Parquet files.
_READERS = 2


def train_dataset(
    corpus: Corpus,
    *,
    held_out: bool,
    host_index: int,
    host_count: int,
    shuffle: bool,
    seed: int,
    epochs: int | None,
    read: Callable[[Unit, float], list[dict[str, Any]]] | None = None,
) -> Any:
    """Return a grain IterDataset for one host of what `read` returns for each unit; by default {"text": document}.

    `read` gets the unit, and the epochs that the units before it make. The units are shuffled and repeated, without end
    if `epochs` is None; a host has every host_count-th. The stream of a host depends only on the arguments. Its
    iterator's state is the position in the list of units and in the current unit.
    """
    import grain.python as grain

    units = corpus.held_out if held_out else corpus.train
    read = read or reader(corpus)
    dataset = grain.MapDataset.source(units)
    if shuffle:
        dataset = dataset.shuffle(seed=seed)
    dataset = dataset.repeat(epochs)[host_index::host_count]
    dataset = dataset.map_with_index(lambda index, unit: (unit, index * host_count / len(units)))
    # No read-ahead threads: reading text is far faster than tokenizing and training on it. The hub is slower.
    threads = _READERS if any(hub.is_hub(unit.path) for unit in units) else 0
    if threads:
        dataset = dataset.map(lambda element: (_fetched(element[0], corpus.field), element[1]))
    stream = dataset.to_iter_dataset(grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads))
    return grain.experimental.FlatMapIterDataset(stream, _transform(read))


def reader(corpus: Corpus) -> Callable[[Unit, float], list[dict[str, Any]]]:
    """Return the function that reads the documents of a unit as {"text": document}."""
    return lambda unit, _: [{"text": document} for document in documents(unit, corpus.field)]


def _fetched(unit: Unit, field: str) -> Unit:
    """Return the unit. If it is on the hub, its bytes are kept for the next who reads it."""
    if not hub.is_hub(unit.path):
        return unit
    if unit.row_group >= 0:
        parquet.group(unit.path, unit.row_group, field)
    else:
        text.read(unit)
    return unit


def _transform(read: Callable[[Unit, float], list[dict[str, Any]]]) -> Any:
    """Return the grain transform from a unit to its elements. Defined lazily to keep this module's import light."""
    import grain.python as grain

    class Elements(grain.experimental.FlatMapTransform):  # type: ignore[misc]
        max_fan_out = 1 << 20

        def flat_map(self, element: tuple[Unit, float]) -> list[dict[str, Any]]:
            return read(*element)

    return Elements()
