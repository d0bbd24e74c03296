"""The log probabilities of DPO's reference, computed before the first step (tuning.reference: precomputed).

At the first step, the model that trains still is the reference, so no second copy of the weights is in memory. A pair
needs two numbers: the log probability of each answer. They are in a file of the run's folder, by a digest of the tokens
of the pair, so that it does not matter in which order and how often the pairs are read.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from trainer.errors import ConfigError
from trainer.tuning import preferences

KEYS = ("key_high", "key_low")
"""The features of a batch with the two halves of the digest of a pair, at each of its tokens."""
_RECORD = (("key", "<u8"), ("chosen", "<f4"), ("rejected", "<f4"))
_SECONDS = 30.0
"""The time between writes: so much is computed again after a kill, at most."""


class Table:
    """The log probabilities by the digest of a pair, in a file of records."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._values: dict[int, tuple[float, float]] | None = None
        self._unwritten: list[tuple[int, float, float]] = []

    @property
    def values(self) -> dict[int, tuple[float, float]]:
        """The records, which are read at the first use. A kill can cut the last one."""
        import numpy as np

        if self._values is None:
            raw = self.path.read_bytes() if self.path.exists() else b""
            kind = np.dtype(list(_RECORD))
            records = np.frombuffer(raw[: len(raw) // kind.itemsize * kind.itemsize], kind)
            self._values = {int(key): (float(chosen), float(rejected)) for key, chosen, rejected in records}
        return self._values

    def add(self, records: Iterable[tuple[int, float, float]]) -> None:
        """Add records, which `write` writes."""
        for key, chosen, rejected in records:
            if key not in self.values:
                self.values[key] = (chosen, rejected)
                self._unwritten.append((key, chosen, rejected))

    def write(self) -> None:
        """Append the new records to the file."""
        import numpy as np

        kind = np.dtype(list(_RECORD))
        with self.path.open("ab") as file:
            file.truncate(file.tell() // kind.itemsize * kind.itemsize)
            file.write(np.array(self._unwritten, kind).tobytes())
            file.flush()
            os.fsync(file.fileno())
        self._unwritten = []

    def feature(self, arrays: Mapping[str, Any], place: object) -> Any:
        """Return the two numbers of a pair as float32 [tokens]: each at the first token that counts of its answer.

        Raises ConfigError with the place if the file does not have the pair.
        """
        import numpy as np

        numbers = self.values.get(digest(arrays))
        if numbers is None:
            raise ConfigError(
                f"{place}: {self.path} does not have the log probabilities of this pair. They are computed before the "
                "first step, from the data, the template and train.max_target_length of that time; restore these, or "
                "set tuning.reference: memory."
            )
        feature = np.zeros(len(arrays["inputs"]), np.float32)
        counts = (arrays["counted"] != 0) & (arrays["positions"] > 0)
        for worse, number in enumerate(numbers):
            feature[np.argmax(counts & (arrays["worse"] == worse))] = number
        return feature


def digest(arrays: Mapping[str, Any]) -> int:
    """Return a number of 64 bits for the tokens of a pair and which of them count."""
    parts = [arrays[name].tobytes() for name in ("inputs", "counted", "worse")]
    return int.from_bytes(hashlib.blake2b(b"".join(parts), digest_size=8).digest(), "little")


def keyed(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays of a pair with KEYS."""
    import numpy as np

    halves = np.array([digest(arrays)], "<u8").view("<i4")
    length = len(arrays["inputs"])
    return {**arrays, KEYS[0]: np.full(length, halves[1], np.int32), KEYS[1]: np.full(length, halves[0], np.int32)}


def compute(
    table: Table, batches: Iterable[dict[str, Any]], sums: Callable[[Mapping[str, Any]], Any], empty: dict[str, Any]
) -> int:
    """Add the log probabilities of the pairs of `batches`, those of this host, to the table. Return their number.

    All hosts call this with the same table, and get the pairs of all. `sums` is a function from `sums_of`, and `empty`
    is a batch without tokens, for a host that has no more.
    """
    import jax
    import numpy as np
    from jax.experimental import multihost_utils

    written, before, own = time.monotonic(), len(table.values), iter(batches)
    while True:
        batch = next(own, None)
        new = batch is not None and not _keys(batch) <= table.values.keys()
        flags = np.array([batch is not None, new])
        if jax.process_count() > 1:
            flags = np.asarray(multihost_utils.process_allgather(flags)).any(axis=0)
        if not flags[0]:
            break
        if not flags[1]:
            continue
        exists, high, low, values = (np.asarray(part) for part in sums(empty if batch is None else batch))
        keys = np.stack([low[exists], high[exists]], axis=-1).astype("<i4").copy().view("<u8")[:, 0]
        table.add(zip(map(int, keys), *map(np.ndarray.tolist, values[exists].T), strict=True))
        if jax.process_index() == 0 and time.monotonic() - written > _SECONDS:
            table.write()
            written = time.monotonic()
    if jax.process_index() == 0:
        table.write()
    return len(table.values) - before


def _keys(batch: Mapping[str, Any]) -> set[int]:
    import numpy as np

    first = (batch["inputs_position"] == 0) & (batch["inputs_segmentation"] % 2 == 1)
    halves = np.stack([batch[KEYS[1]][first], batch[KEYS[0]][first]], axis=-1).astype("<i4")
    return set(map(int, halves.copy().view("<u8")[:, 0]))


def sums_of(config: Any, mesh: Any, model: Any, state: Any) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function of this host's batch: of the pairs of all hosts, whether a place has one, the halves of its
    key, and the log probabilities of its answers [..., 2].

    `config` is MaxText's, `model` the one that trains, and `state` its state.
    """
    import jax
    import jax.numpy as jnp
    from flax import nnx
    from maxtext.utils import sharding

    graph, _ = nnx.split(model)
    probabilities = preferences.log_probabilities(graph, config.gradient_accumulation_steps)
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    of_batch = sharding.get_input_data_sharding(config, mesh)

    def of(state: Any, batch: Mapping[str, Any]) -> Any:
        segments, targets = batch["inputs_segmentation"], batch["targets_segmentation"]
        begins = batch["inputs_position"] == 0
        high, low = (preferences.by_pair(jnp.where(begins, batch[key], 0), segments)[..., 0] for key in KEYS)
        exists = (preferences.by_pair(jnp.ones_like(targets), targets) > 0).all(axis=2)
        plain = {key: array for key, array in batch.items() if key not in KEYS}
        return exists, high, low, preferences.by_pair(probabilities(state, plain), targets)

    compiled = jax.jit(of, out_shardings=everywhere)

    def of_host(batch: Mapping[str, Any]) -> Any:
        return compiled(
            state, {key: jax.make_array_from_process_local_data(of_batch, array) for key, array in batch.items()}
        )

    return of_host
