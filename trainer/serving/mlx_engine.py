"""MLX as an engine on CPUs: for `launcher serve` on one machine, and for charts/serve."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
from huggingface_hub import snapshot_download
from transformers import AutoTokenizer

from trainer.errors import ConfigError
from trainer.inference.generation import CONTEXT, END, LENGTH, Generation, Options
from trainer.inference.model import Model, load
from trainer.serving.engines import Piece, Sampling
from trainer.serving.settings import Settings
from trainer.serving.turns import TurnEngine

_SEED_BITS = 63
_FILES = ["*.json", "*.safetensors", "*.model", "*.jinja"]


class MlxEngine(TurnEngine):
    """A model of Hugging Face: a folder, or ORG/NAME, which is downloaded.

    `context_length` is the number of tokens of a request and its answer; 0: that of the model, but at most `limit`.
    `dtype` is float32, bfloat16 or float16; auto: that of the files.
    """

    def __init__(
        self,
        model: str,
        *,
        at_once: int,
        context_length: int = 0,
        limit: int = sys.maxsize,
        dtype: str = "auto",
        on_failure: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(at_once=at_once, on_failure=on_failure)
        self._source, self._asked, self._limit, self._dtype = model, context_length, limit, dtype
        self._model: Model | None = None

    def load(self) -> None:
        """Load the model. Raises ConfigError if files are missing, MLX cannot read it, or its context is too short."""
        source = self._source
        folder = Path(source if source.startswith("/") else snapshot_download(source, allow_patterns=_FILES))
        # MLX's streams and random numbers belong to a thread, so the thread that computes also loads.
        model = load(folder)
        if model.context is not None and self._asked > model.context:
            raise ConfigError(f"The context length is {self._asked}; the model {source} has {model.context}.")
        self.context_length = self._asked or min(self._limit, model.context or self._limit)
        if self.context_length == sys.maxsize:
            raise ConfigError(f"{folder} does not contain the context length of the model; set serve.contextLength.")
        if self._dtype != "auto":
            model.network.set_dtype(getattr(mx, self._dtype))
        self._model = replace(model, context=self.context_length)
        self.tokenizer = AutoTokenizer.from_pretrained(str(folder))

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


def create(settings: Settings) -> MlxEngine:
    return MlxEngine(
        settings.model, at_once=settings.max_requests, context_length=settings.context_length, dtype=settings.dtype
    )
