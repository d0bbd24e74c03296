"""Generate text with a model, token by token."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainer.errors import ConfigError
from trainer.inference.model import Model
from trainer.inference.text import StopTexts, TextStream

END, LENGTH, CONTEXT, STOP = "end", "length", "context", "stop"
"""Why a text ends: the model ended it, max_tokens, the model's context is full, or a stop text."""


@dataclass(frozen=True)
class Options:
    """How to generate. A temperature of 0 selects the most likely token each time. With `top_p` below 1, only the most
    likely tokens that together have this probability are drawn. The same seed gives the same text."""

    max_tokens: int = 100
    temperature: float = 0.8
    seed: int = 0
    top_p: float = 1.0
    stop: Sequence[str] = ()


class Generation:
    """The text after a prompt. Iterate over it once for its pieces; the other fields are complete afterwards.

    `tokens` is the number of generated tokens, without the one that ends the text. `seconds` is the time for the prompt
    and the tokens, `first_token_seconds` the part until the first token. `ended` is END, LENGTH, CONTEXT or STOP.
    """

    def __init__(self, model: Model, prompt: Sequence[int], options: Options) -> None:
        """Raises ConfigError if the prompt is empty, or does not fit the model's context."""
        if not prompt:
            raise ConfigError("The prompt is empty: it has no tokens.")
        self._model, self._prompt, self._options = model, list(prompt), options
        self._limit = options.max_tokens
        if model.context is not None:
            left = model.context - len(prompt)
            if left < 1:
                raise ConfigError(
                    f"The prompt has {len(prompt):,} tokens, but the model's context has {model.context:,}; shorten "
                    "the prompt."
                )
            self._limit = min(self._limit, left)
        self.prompt_tokens, self.tokens = len(prompt), 0
        self.seconds, self.first_token_seconds = 0.0, 0.0
        self.ended = ""

    def __iter__(self) -> Iterator[str]:
        import mlx.core as mx
        from mlx_lm.generate import generate_step
        from mlx_lm.sample_utils import make_sampler

        options = self._options
        mx.random.seed(options.seed)
        sampler = make_sampler(temp=options.temperature, top_p=options.top_p if options.top_p < 1 else 0.0)
        decoded, stops = TextStream(self._model.tokenizer, self._prompt), StopTexts(options.stop)
        begin = time.monotonic()
        self.ended = LENGTH if self._limit == options.max_tokens else CONTEXT
        for token, _ in generate_step(
            mx.array(self._prompt), self._model.network, max_tokens=self._limit, sampler=sampler
        ):
            self.seconds = time.monotonic() - begin
            if not self.tokens:
                self.first_token_seconds = self.seconds
            if token in self._model.end_tokens:
                self.ended = END
                break
            self.tokens += 1
            if piece := stops.add(decoded.add(token)):
                yield piece
            if stops.found:
                break
        if not stops.found and (piece := stops.add(decoded.rest())):
            yield piece
        if stops.found:
            self.ended = STOP
        elif piece := stops.rest():
            yield piece

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0
