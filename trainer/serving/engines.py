"""The interface between the API and an engine, and the choice of an engine."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from trainer.serving.settings import Settings

type FinishReason = Literal["", "stop", "length"]


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen. A temperature of 0 always takes the most probable one."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Piece:
    """A part of an answer: its text, the number of its tokens and, in the last one, why it ends."""

    text: str
    tokens: int
    finish_reason: FinishReason = ""


class EngineError(RuntimeError):
    """The engine cannot serve any request."""


class Engine(Protocol):
    """A loaded model. `generate` can be called for many requests at the same time, and its iterator can be closed."""

    tokenizer: Any
    context_length: int

    async def start(self) -> None:
        """Load the model. Raises an error with a sentence if that is not possible."""

    def generate(self, prompt: Sequence[int], sampling: Sampling) -> AsyncIterator[Piece]:
        """Yield the parts of the answer to a prompt of tokens. Raises EngineError if the engine has ended."""

    async def stop(self) -> None:
        """End all requests and free the memory."""


def engine_for(settings: Settings) -> Engine:
    """Return the engine of the settings, which is not started. Its module is imported here: it takes many seconds."""
    module = importlib.import_module(f"trainer.serving.{settings.engine}_engine")
    engine: Engine = module.create(settings)
    return engine


async def check(engine: Engine) -> None:
    """Generate a token. Raises EngineError if that is not possible."""
    tokenizer = engine.tokenizer
    token = next((t for t in (tokenizer.bos_token_id, tokenizer.eos_token_id) if t is not None), 0)
    tokens = 0
    async for piece in engine.generate([token], Sampling(max_tokens=1, temperature=0.0)):
        tokens += piece.tokens
    if tokens != 1:
        raise EngineError(f"The engine generated {tokens} tokens instead of one.")
