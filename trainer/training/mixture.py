"""Mixtures: batches whose sequences come from several sources (data.mixture), each in proportion to its weight.

Each source is read, shuffled, repeated and packed on its own, so a sequence has text of one source. grain mixes the
sequences in a fixed order, and its iterator has the position in each source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_SOURCE = "source"
"""The key of a sequence with the number of its source. It does not reach the step."""


class Shares:
    """Measures the sources of the batches that this host reads.

    The `share` of a source is its part of the tokens of the last batch. Its `epoch` is the number of passes over it
    that were begun, with the part of the current one that is read.
    """

    def __init__(self, names: list[str]) -> None:
        self._names = names
        self._epochs = dict.fromkeys(names, 0.0)
        self._shares = dict.fromkeys(names, 0.0)

    def reading(self, name: str, read: Callable[[Any, float], Any]) -> Callable[[Any, float], Any]:
        """Return `read`, which gets a unit and the epoch of the source; the epoch is recorded."""

        def of_source(unit: Any, epoch: float) -> Any:
            self._epochs[name] = epoch
            return read(unit, epoch)

        return of_source

    def measured(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Record the sources of a batch [sequences, length], and return it without them."""
        import numpy as np

        numbers = batch.pop(_SOURCE)
        tokens = np.count_nonzero(batch["inputs_segmentation"], axis=1)
        total = max(int(tokens.sum()), 1)
        self._shares = {name: float(tokens[numbers == number].sum()) / total for number, name in enumerate(self._names)}
        return batch

    def scalars(self) -> dict[str, float]:
        """Return the numbers of the last batch, for MaxText's metrics of its step."""
        shares = {f"mixture/{name}/share": round(value, 6) for name, value in self._shares.items()}
        return shares | {f"mixture/{name}/epoch": round(value, 4) for name, value in self._epochs.items()}

    def of(self, scalars: Mapping[str, Any]) -> dict[str, dict[str, float]]:
        """Return the share and the epoch of each source, from MaxText's metrics of a step."""
        return {name: {key: scalars[f"mixture/{name}/{key}"] for key in ("share", "epoch")} for name in self._names}


@dataclass(frozen=True)
class Mixture:
    """The datasets of a mixture, and their weights, by name. `shares` measures them; its names have the same order."""

    sources: Mapping[str, Any]
    weights: Mapping[str, float]
    shares: Shares | None = None

    def batches(self, of_source: Callable[[Any], Any], batch_size: int) -> Any:
        """Return a grain IterDataset of batches of `batch_size` sequences. It ends with the first source that ends.

        `of_source` returns the batches of the dataset of a source.
        """
        import grain.python as grain

        rows = {
            name: grain.experimental.FlatMapIterDataset(of_source(dataset), _rows(number))
            for number, (name, dataset) in enumerate(self.sources.items())
        }
        mixed = grain.IterDataset.mix(rows, {name: self.weights[name] for name in rows})
        measured = self.shares.measured if self.shares is not None else _without_sources
        return mixed.batch(batch_size, drop_remainder=True).map(measured)


def _without_sources(batch: dict[str, Any]) -> dict[str, Any]:
    del batch[_SOURCE]
    return batch


def _rows(number: int) -> Any:
    """Return the grain transform from a batch to its sequences. The last batch of a source may have empty ones."""
    import grain.python as grain

    class Rows(grain.experimental.FlatMapTransform):  # type: ignore[misc]
        max_fan_out = 1 << 20

        def flat_map(self, batch: Mapping[str, Any]) -> list[dict[str, Any]]:
            import numpy as np

            used = batch["targets_segmentation"].any(axis=1)
            return [
                {**{key: array[row] for key, array in batch.items()}, _SOURCE: np.int32(number)}
                for row in range(len(used))
                if used[row]
            ]

    return Rows()
