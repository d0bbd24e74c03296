"""The batches of fine-tuning, in MaxText's form: from rows of files to packed sequences with masks.

A packed sequence has several examples. MaxText's attention sees only tokens of the same segment, and the loss counts
the positions whose `targets_segmentation` is not 0.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from trainer import data
from trainer.errors import ConfigError
from trainer.tuning.examples import BadRowError, example
from trainer.tuning.settings import DROP, REFUSE, Tuning
from trainer.tuning.template import ChatTemplate, Tokens
from trainer.weights import tokenizer

_RENDERED = 200
"""The examples that `check` renders and tokenizes: a tokenizer reads a few thousand per second."""


@contextlib.contextmanager
def placed(place: data.Place) -> Iterator[None]:
    """Raise the error of a row with its place."""
    try:
        yield
    except BadRowError as error:
        raise ConfigError(f"{place} {error}.") from error


class Reader:
    """Reads units of files as tokenized examples.

    `counts` has the examples that were read, cut and dropped. `epoch` is the number of passes over the data that were
    begun, with the part of the current one that is read.
    """

    def __init__(self, template: ChatTemplate, tuning: Tuning, length: int) -> None:
        """`length` is the number of tokens of a sequence."""
        self._template = template
        self.tokenizer = template.tokenizer
        self._tuning = tuning
        self._length = length
        self.counts: Counter[str] = Counter()
        self.epoch = 0.0

    def for_held_out(self) -> Reader:
        """Return a reader with counts of its own."""
        return Reader(self._template, self._tuning, self._length)

    def read(self, unit: data.Unit, epoch: float) -> list[dict[str, Any]]:
        """Return the examples of a unit as arrays of ids, and of 1 for each token that counts.

        Raises ConfigError with the place of a row that is not an example.
        """
        import numpy as np

        self.epoch = epoch
        tokens = (self.fitted(self.whole(row, place), place) for row, place in data.rows(unit))
        return [
            {
                "inputs": np.asarray(kept.ids, np.int32),
                "targets": np.asarray(kept.ids, np.int32),
                "counted": np.asarray(kept.counted, np.int32),
            }
            for kept in tokens
            if kept is not None
        ]

    def whole(self, row: Mapping[str, Any], place: data.Place) -> Tokens:
        """Return all tokens of a row. Raises ConfigError with the place if it is not an example."""
        with placed(place):
            tokens = self._template.tokens(example(row, self._tuning.columns))
        self.counts["examples"] += 1
        return tokens

    def fitted(self, tokens: Tokens, place: data.Place) -> Tokens | None:
        """Return at most as many tokens as a sequence has; None if the example is dropped.

        The first token of a sequence is not a target, so it does not count.
        """
        if len(tokens.ids) > self._length:
            if self._tuning.long == REFUSE:
                raise ConfigError(
                    f"{place} has {len(tokens.ids):,} tokens, and train.max_target_length is {self._length:,}; raise "
                    "it, or set tuning.tooLong to cut or drop."
                )
            tokens = Tokens(tokens.ids[: self._length], tokens.counted[: self._length])
            if self._tuning.long == DROP or not any(tokens.counted[1:]):
                self.counts["dropped"] += 1
                return None
            self.counts["cut"] += 1
        elif not any(tokens.counted[1:]):
            raise ConfigError(f"{place} has no token that counts; remove the row.")
        return tokens

    def measured(self, scalars: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a line of metrics: the epoch, the examples of the step and their tokens that count.

        The examples that were cut or dropped are those of this host since its start.
        """
        return {
            "epoch": round(self.epoch, 4),
            **{name: int(scalars[f"tuning/{name}"]) for name in _COUNTS},
            **{f"examples_{name}": self.counts[name] for name in ("cut", "dropped") if self.counts[name]},
        }


_COUNTS = ("examples", "counted_tokens")


def counts(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the examples of a batch, and the tokens that count, as scalars on the devices."""
    examples, tokens = _counter()(batch["inputs_segmentation"], batch["targets_segmentation"])
    return {"tuning/examples": examples, "tuning/counted_tokens": tokens}


@functools.cache
def _counter() -> Any:
    import jax
    import jax.numpy as jnp

    return jax.jit(lambda inputs, targets: (jnp.sum(jnp.max(inputs, axis=1)), jnp.sum(targets != 0)))


def batches(dataset: Any, *, length: int, batch_size: int, packing: bool) -> Any:
    """Return MaxText's batches of int32 arrays [batch_size, length] of the elements of Reader.read."""
    import grain.python as grain
    from grain import experimental

    dataset = experimental.FirstFitPackIterDataset(
        dataset,
        length_struct=dict.fromkeys(("inputs", "targets", "counted"), length),
        num_packing_bins=batch_size,
        max_sequences_per_bin=None if packing else 1,
    )
    dataset = dataset.batch(
        batch_size, batch_fn=functools.partial(experimental.batch_and_pad, batch_size=batch_size, pad_value=0)
    )
    dataset = dataset.map(_shifted)
    # As in MaxText's pipelines: the iterator of the prefetch is what MaxText saves in its checkpoints.
    return dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers=0))


def _shifted(packed: Mapping[str, Any]) -> dict[str, Any]:
    """Return MaxText's arrays: the target of a position is the next token of the same example, if that counts."""
    import numpy as np

    def following(array: Any) -> Any:
        return np.concatenate((array[:, 1:], np.zeros_like(array[:, :1])), axis=1)

    segments = packed["inputs_segment_ids"]
    counts = (following(packed["counted"]) != 0) & (following(segments) == segments)
    return {
        "inputs": packed["inputs"],
        "inputs_position": packed["inputs_positions"],
        "inputs_segmentation": segments,
        "targets": following(packed["targets"]),
        "targets_position": packed["inputs_positions"],
        "targets_segmentation": np.where(counts, segments, 0),
    }


def checker(template: ChatTemplate, tuning: Tuning) -> Callable[[data.Unit], Iterator[str]]:
    """Return a function that yields the texts of a unit's examples: the first as the template renders them.

    The function raises ConfigError with the place of a row that is not an example.
    """
    numbers = itertools.count()

    def texts(unit: data.Unit) -> Iterator[str]:
        for row, place in data.rows(unit):
            with placed(place):
                conversation = example(row, tuning.columns)
                if next(numbers) < _RENDERED:
                    template.tokens(conversation)
            yield conversation.messages[-1].get("content") or "-"

    return texts


def chat_template(tuning: Tuning, path: str, kind: str) -> ChatTemplate:
    """Return the template of a run with its tokenizer; one of sentencepiece or tiktoken is converted, as for an export.

    Raises ConfigError if there is none.
    """
    from transformers import AutoTokenizer

    with TemporaryDirectory() as folder:
        tokenizer.write(path, kind, Path(folder))
        return ChatTemplate(AutoTokenizer.from_pretrained(folder), tuning.template, tuning.turns)
