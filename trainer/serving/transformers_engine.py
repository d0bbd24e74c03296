"""Hugging Face's transformers as an engine, on CPUs, for small models.

transformers' own continuous batching uses CUDA streams and does not run here.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DynamicCache,
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopPLogitsWarper,
)

from trainer.inference.text import StopTexts, TextStream
from trainer.serving.engines import FinishReason, Piece, Sampling
from trainer.serving.settings import Settings
from trainer.serving.turns import TurnEngine


class TransformersEngine(TurnEngine):
    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self._model: Any = None
        self._ends: frozenset[int] = frozenset()

    def load(self) -> None:
        settings = self._settings
        dtype: Any = "auto" if settings.dtype == "auto" else getattr(torch, settings.dtype)
        self.tokenizer = AutoTokenizer.from_pretrained(settings.model)
        self._model = AutoModelForCausalLM.from_pretrained(settings.model, dtype=dtype)
        self._model.eval()
        longest = int(self._model.config.max_position_embeddings)
        if settings.context_length > longest:
            raise ValueError(
                f"The context length is {settings.context_length}; the model {settings.model} has {longest}."
            )
        self.context_length = settings.context_length or longest
        ends = self._model.generation_config.eos_token_id
        self._ends = frozenset([ends] if isinstance(ends, int) else ends or ())

    def answer(self, prompt: Sequence[int], sampling: Sampling) -> Generator[Piece]:
        cache = DynamicCache(config=self._model.config)
        decoded, stops, choice = TextStream(self.tokenizer, prompt), StopTexts(sampling.stop), _Choice(sampling)
        limit = min(sampling.max_tokens, self.context_length - len(prompt))
        inputs, tokens = list(prompt), 0
        reason: FinishReason = ""
        while not reason:
            # Not around the yield: the mode belongs to the thread, which then computes other requests.
            with torch.inference_mode():
                output = self._model(
                    input_ids=torch.tensor([inputs]), past_key_values=cache, use_cache=True, logits_to_keep=1
                )
                token = choice.of(output.logits[:, -1].float())
            inputs, tokens = [token], tokens + 1
            text = "" if token in self._ends else stops.add(decoded.add(token))
            reason = "stop" if token in self._ends else "length" if tokens >= limit else ""
            if reason:
                text += stops.add(decoded.rest())
            if stops.found:
                reason = "stop"
            elif reason:
                text += stops.rest()
            yield Piece(text, 1, reason)


class _Choice:
    """Chooses the tokens of one request."""

    def __init__(self, sampling: Sampling) -> None:
        self._greedy = sampling.temperature == 0.0
        self._warpers = LogitsProcessorList()
        if sampling.temperature not in (0.0, 1.0):
            self._warpers.append(TemperatureLogitsWarper(sampling.temperature))
        if sampling.top_p < 1.0:
            self._warpers.append(TopPLogitsWarper(sampling.top_p))
        self._random = torch.Generator()
        if sampling.seed is None:
            self._random.seed()
        else:
            self._random.manual_seed(sampling.seed)

    def of(self, logits: Any) -> int:
        if self._greedy:
            return int(logits.argmax())
        likely = torch.softmax(self._warpers(None, logits), dim=-1)
        return int(torch.multinomial(likely, 1, generator=self._random))


def create(settings: Settings) -> TransformersEngine:
    return TransformersEngine(settings)
