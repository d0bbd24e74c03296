"""MLX as an engine, for `launcher serve` on the CPU of one machine."""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
from transformers import AutoTokenizer

from trainer.inference.generation import CONTEXT, END, LENGTH, Generation, Options
from trainer.inference.model import Model, load
from trainer.serving.engines import Piece, Sampling
from trainer.serving.turns import TurnEngine

_SEED_BITS = 63


class MlxEngine(TurnEngine):
    """A model in a Hugging Face folder. `context_length` is the most tokens of a request and its answer, if the model's
    context is longer."""

    def __init__(
        self, folder: Path, *, context_length: int, at_once: int, on_failure: Callable[[], object] = lambda: None
    ) -> None:
        super().__init__(at_once=at_once, on_failure=on_failure)
        self.context_length = context_length
        self._folder = folder
        self._model: Model | None = None

    def load(self) -> None:
        """Raises ConfigError if the folder does not contain a whole model that MLX supports."""
        # MLX's streams and random numbers belong to a thread, so the thread that computes also loads.
        model = load(self._folder)
        self.context_length = min(self.context_length, model.context or self.context_length)
        self._model = replace(model, context=self.context_length)
        self.tokenizer = AutoTokenizer.from_pretrained(str(self._folder))

    def answer(self, prompt: Sequence[int], sampling: Sampling) -> Generator[Piece]:
        assert self._model is not None  # noqa: S101 - for the type checker; load() sets it
        seed = random.getrandbits(_SEED_BITS) if sampling.seed is None else sampling.seed % (1 << _SEED_BITS)
        options = Options(sampling.max_tokens, sampling.temperature, seed, sampling.top_p, sampling.stop)
        generation = Generation(self._model, prompt, options)
        seeds = random.Random(seed)  # noqa: S311 - they choose a text
        counted = 0
        for text in generation:
            yield Piece(text, generation.tokens - counted)
            counted = generation.tokens
            # The requests share MLX's random numbers. A seed for each turn makes a text independent of the others.
            mx.random.seed(seeds.getrandbits(_SEED_BITS))
        # As in other engines, the token that ends a text counts.
        tokens = generation.tokens + (generation.ended == END) - counted
        yield Piece("", tokens, "length" if generation.ended in (LENGTH, CONTEXT) else "stop")
