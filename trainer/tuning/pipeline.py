"""The batches of fine-tuning, in MaxText's form: from rows of files to packed sequences with masks.

A packed sequence has several examples. MaxText's attention sees only tokens of the same segment, and the loss counts
the positions whose `targets_segmentation` is not 0.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from trainer import data
from trainer.errors import ConfigError
from trainer.tuning import precomputed
from trainer.tuning.examples import BadRowError, Example, example, pair
from trainer.tuning.preferences import MEASURES, REFERENCE
from trainer.tuning.settings import DROP, REFUSE, Tuning
from trainer.tuning.template import ChatTemplate, LostText, Tokens
from trainer.weights import tokenizer

_RENDERED = 200
"""The examples that `check` renders and tokenizes: a tokenizer reads a few thousand per second."""
_EMPTY_PASSES = 2
"""The passes over its part of the data after which a host without an example ends the run. Each has another part."""


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

    def __init__(
        self, template: ChatTemplate, tuning: Tuning, length: int, reference: precomputed.Table | None = None
    ) -> None:
        """`length` is the number of tokens of a sequence. `reference` is added to the elements as REFERENCE."""
        self.template = template
        self.tokenizer = template.tokenizer
        self._tuning = tuning
        self._length = length
        self._reference = reference
        self.counts: Counter[str] = Counter()
        self.epoch = 0.0

    def for_held_out(self) -> Reader:
        """Return a reader with counts of its own."""
        return Reader(self.template, self._tuning, self._length, self._reference)

    def keyed(self) -> Callable[[data.Unit, float], list[dict[str, Any]]]:
        """Return a function as `read`, whose elements have precomputed.KEYS."""
        plain = Reader(self.template, self._tuning, self._length)
        return lambda unit, epoch: [precomputed.keyed(arrays) for arrays in plain.read(unit, epoch)]

    def of_stream(self) -> Callable[[data.Unit, float], list[dict[str, Any]]]:
        """Return a function as `read` for one stream of units, which may be without end.

        The function raises ConfigError if two passes over the units have no example, because none is short enough.
        """
        last: float | None = None

        def read(unit: data.Unit, epoch: float) -> list[dict[str, Any]]:
            nonlocal last
            elements = self.read(unit, epoch)
            last = epoch if elements or last is None else last
            if epoch - last >= _EMPTY_PASSES:
                raise ConfigError(
                    f"{unit.path}: the answers of all examples begin after train.max_target_length ({self._length:,} "
                    "tokens), or the examples are longer and tuning.tooLong is drop; raise train.max_target_length."
                )
            return elements

        return read

    def read(self, unit: data.Unit, epoch: float) -> list[dict[str, Any]]:
        """Return the examples of a unit: arrays of ids, of 1 for each token that counts, and of their positions.

        A pair is one element: the tokens of its better answer, and then those of its worse answer, with 1 in `worse`.
        Raises ConfigError with the place of a row that is not an example.
        """
        self.epoch = epoch
        elements = []
        for row, place in data.rows(unit):
            if (kept := self.fitted(self.whole(row, place), place)) is not None:
                arrays = _arrays(kept)
                if self._reference is not None:
                    arrays[REFERENCE] = self._reference.feature(arrays, place)
                elements.append(arrays)
        return elements

    def whole(self, row: Mapping[str, Any], place: data.Place) -> list[Tokens]:
        """Return all tokens of a row: one conversation, or the two of a pair. Raises ConfigError with the place if it
        is not an example."""
        with placed(place):
            tokens = [self.template.tokens(one) for one in conversations(row, self._tuning)]
        self.counts["examples"] += 1
        return tokens

    def fitted(self, tokens: list[Tokens], place: data.Place) -> list[Tokens] | None:
        """Return at most as many tokens as a sequence has, which both conversations of a pair share; None if the
        example is dropped.

        The first token of a sequence is not a target, so it does not count.
        """
        lengths = [len(each.ids) for each in tokens]
        if sum(lengths) > self._length:
            if self._tuning.long == REFUSE:
                raise ConfigError(
                    f"{place} has {sum(lengths):,} tokens, and train.max_target_length is {self._length:,}; raise "
                    "it, or set tuning.tooLong to cut or drop."
                )
            # The longer conversation of a pair is cut first.
            room = [max(self._length // len(tokens), self._length - (sum(lengths) - own)) for own in lengths]
            tokens = [Tokens(each.ids[:most], each.counted[:most]) for each, most in zip(tokens, room, strict=True)]
            if self._tuning.long == DROP or not all(any(each.counted[1:]) for each in tokens):
                self.counts["dropped"] += 1
                return None
            self.counts["cut"] += 1
        elif not all(any(each.counted[1:]) for each in tokens):
            raise ConfigError(f"{place} has no token that counts; remove the row.")
        return tokens

    def measured(self, scalars: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a line of metrics: the epoch, the examples of the step and their tokens that count.

        The examples that were cut or dropped are those of this host since its start.
        """
        return {
            "epoch": round(self.epoch, 4),
            **{name: int(scalars[f"tuning/{name}"]) for name in _COUNTS},
            **{name: round(float(scalars[name]), 6) for name in MEASURES if name in scalars},
            **{f"examples_{name}": self.counts[name] for name in ("cut", "dropped") if self.counts[name]},
        }


_COUNTS = ("examples", "counted_tokens")
ARRAYS = tuple(f"{name}{what}" for name in ("inputs", "targets") for what in ("", "_position", "_segmentation"))
"""The names of the arrays of a batch."""
_FEATURES = ("inputs", "counted", "positions", "worse")


def conversations(row: Mapping[str, Any], tuning: Tuning) -> list[Example]:
    """Return the conversation of a row, or the two of a pair. Raises BadRowError."""
    if not tuning.reads_pairs:
        return [example(row, tuning.columns)]
    two = pair(row, tuning.columns)
    return [two.chosen, two.rejected]


def _arrays(tokens: Sequence[Tokens]) -> dict[str, Any]:
    import numpy as np

    joined: dict[str, list[Sequence[int]]] = {
        "inputs": [each.ids for each in tokens],
        "counted": [each.counted for each in tokens],
        "positions": [range(len(each.ids)) for each in tokens],
        "worse": [[number] * len(each.ids) for number, each in enumerate(tokens)],
    }
    return {name: np.concatenate([np.asarray(part, np.int32) for part in parts]) for name, parts in joined.items()}


def counts(batch: Mapping[str, Any], *, pairs: bool = False) -> dict[str, Any]:
    """Return the examples of a batch, and the tokens that count, as scalars on the devices."""
    segments, tokens = _counter()(batch["inputs_segmentation"], batch["targets_segmentation"])
    return {"tuning/examples": segments // 2 if pairs else segments, "tuning/counted_tokens": tokens}


@functools.cache
def _counter() -> Any:
    import jax
    import jax.numpy as jnp

    return jax.jit(lambda inputs, targets: (jnp.sum(jnp.max(inputs, axis=1)), jnp.sum(targets != 0)))


def batches(
    dataset: Any, *, length: int, batch_size: int, packing: bool, pairs: bool = False, further: Sequence[str] = ()
) -> Any:
    """Return MaxText's batches of int32 arrays [batch_size, length] of the elements of Reader.read.

    `further` are other arrays of the elements that the batches have, too. REFERENCE is float32.
    """
    from grain import experimental

    dataset = experimental.FirstFitPackIterDataset(
        dataset,
        length_struct=dict.fromkeys((*_FEATURES, *further), length),
        num_packing_bins=batch_size,
        max_sequences_per_bin=None if packing else 1,
    )
    dataset = dataset.batch(
        batch_size, batch_fn=functools.partial(experimental.batch_and_pad, batch_size=batch_size, pad_value=0)
    )
    return dataset.map(functools.partial(_shifted, pairs=pairs, further=further))


def _shifted(packed: Mapping[str, Any], *, pairs: bool, further: Sequence[str] = ()) -> dict[str, Any]:
    """Return MaxText's arrays: the target of a position is the next token of the same segment, if that counts.

    An example is a segment. The better answer of a pair has an odd segment, and the worse answer has the next one.
    """
    import numpy as np

    def following(array: Any) -> Any:
        return np.concatenate((array[:, 1:], np.zeros_like(array[:, :1])), axis=1)

    segments = packed["inputs_segment_ids"]
    if pairs:
        segments = np.where(segments > 0, 2 * segments - 1 + packed["worse"], 0)
    counts = (following(packed["counted"]) != 0) & (following(segments) == segments)
    return {
        "inputs": packed["inputs"],
        "inputs_position": packed["positions"],
        "inputs_segmentation": segments,
        "targets": following(packed["inputs"]),
        "targets_position": packed["positions"],
        "targets_segmentation": np.where(counts, segments, 0),
        # The numbers of REFERENCE are at tokens, and the step reads them at the targets.
        **{name: following(packed[name]) if name == REFERENCE else packed[name] for name in further},
    }


def checker(lost: LostText, tuning: Tuning) -> Callable[[data.Unit], Iterator[str]]:
    """Return a function that yields the texts of a unit's examples: the first as the template renders them.

    The function adds the examples to `lost`. It raises ConfigError with the place of a row that is not an example.
    """
    numbers = itertools.count()

    def texts(unit: data.Unit) -> Iterator[str]:
        for row, place in data.rows(unit):
            with placed(place):
                found = conversations(row, tuning)
                check = lost.template.tokens if next(numbers) < _RENDERED else lost.template.check
                for one in found:
                    check(one)
                lost.add(found, place)
            yield found[0].messages[-1].get("content") or "-"

    return texts


def chat_template(tuning: Tuning, path: str, kind: str) -> ChatTemplate:
    """Return the template of a run with its tokenizer; one of sentencepiece or tiktoken is converted, as for an export.

    Raises ConfigError if there is none.
    """
    from transformers import AutoTokenizer

    with TemporaryDirectory() as folder:
        tokenizer.write(path, kind, Path(folder))
        return ChatTemplate(AutoTokenizer.from_pretrained(folder), tuning.template, tuning.turns)
