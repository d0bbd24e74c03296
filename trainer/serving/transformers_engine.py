"""Hugging Face's transformers as an engine, on CPUs, for small models.

One thread computes. It takes one step of each request in turn, so that a long request does not hold up a short one.
A step is the whole prompt or one token. transformers' own continuous batching uses CUDA streams and does not run here.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from tokenizers.decoders import DecodeStream
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DynamicCache,
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopPLogitsWarper,
)

from trainer.serving.engines import EngineError, FinishReason, Piece, Sampling
from trainer.serving.settings import Settings


@dataclass
class _Request:
    """A request that is computed, and the queue that its parts are sent to. None ends it."""

    prompt: Sequence[int]
    sampling: Sampling
    loop: asyncio.AbstractEventLoop
    parts: asyncio.Queue[Piece | Exception] = field(default_factory=asyncio.Queue)
    cancelled: bool = False
    cache: Any = None
    last: Any = None
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    sent: int = 0
    stream: Any = None
    chooses: Any = None
    random: Any = None

    def send(self, part: Piece | Exception) -> None:
        self.loop.call_soon_threadsafe(self.parts.put_nowait, part)


class TransformersEngine:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._waiting: deque[_Request] = deque()
        self._changed = threading.Condition()
        self._ending = False
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="transformers", daemon=True)
        self._model: Any = None
        self._ends: frozenset[int] = frozenset()
        self.tokenizer: Any = AutoTokenizer.from_pretrained(settings.model)
        self.context_length = settings.context_length

    async def start(self) -> None:
        dtype: Any = "auto" if self._settings.dtype == "auto" else getattr(torch, self._settings.dtype)
        self._model = await asyncio.to_thread(AutoModelForCausalLM.from_pretrained, self._settings.model, dtype=dtype)
        self._model.eval()
        longest = int(self._model.config.max_position_embeddings)
        if self.context_length > longest:
            raise ValueError(
                f"The context length is {self.context_length}; the model {self._settings.model} has {longest}."
            )
        self.context_length = self.context_length or longest
        ends = self._model.generation_config.eos_token_id
        self._ends = frozenset([ends] if isinstance(ends, int) else ends or ())
        self._thread.start()

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> AsyncIterator[Piece]:
        request = _Request(prompt, sampling, asyncio.get_running_loop())
        with self._changed:
            if self._failure or self._ending or not self._thread.is_alive():
                raise EngineError(f"The engine has ended: {self._failure or 'it was stopped'}.")
            self._waiting.append(request)
            self._changed.notify()
        try:
            while True:
                part = await request.parts.get()
                if isinstance(part, Exception):
                    raise part
                yield part
                if part.finish_reason:
                    return
        finally:
            request.cancelled = True

    async def stop(self) -> None:
        with self._changed:
            self._ending = True
            self._changed.notify()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with torch.inference_mode():
                while (request := self._next()) is not None:
                    if not self._step(request):
                        with self._changed:
                            self._waiting.append(request)
        except Exception as error:
            with self._changed:
                self._failure = error
                left = [request, *self._waiting] if request is not None else list(self._waiting)
                self._waiting.clear()
            for each in left:
                each.send(EngineError(f"The engine has ended: {error}."))
            raise
        for each in self._waiting:
            each.send(EngineError("The engine has ended: it was stopped."))

    def _next(self) -> _Request | None:
        """Return the request whose turn it is; None if the engine ends."""
        with self._changed:
            while True:
                while self._waiting:
                    if self._ending:
                        return None
                    request = self._waiting.popleft()
                    if not request.cancelled:
                        return request
                if self._ending:
                    return None
                self._changed.wait()

    def _step(self, request: _Request) -> bool:
        """Compute the next token of a request. Return whether it was the last one."""
        if request.cache is None:
            self._prepare(request)
            inputs = torch.tensor([list(request.prompt)])
        else:
            inputs = request.last
        output = self._model(input_ids=inputs, past_key_values=request.cache, use_cache=True, logits_to_keep=1)
        token = self._choose(request, output.logits[:, -1].float())
        request.last = torch.tensor([[token]])
        request.tokens.append(token)
        reason: FinishReason = ""
        if token in self._ends:
            reason = "stop"
        else:
            request.text += request.stream.step(self.tokenizer.backend_tokenizer, token) or ""
            count = len(request.tokens)
            if count >= min(request.sampling.max_tokens, self.context_length - len(request.prompt)):
                reason = "length"
        if reason:
            # The stream holds the last bytes back if they are only a part of a character.
            whole = self.tokenizer.decode(request.tokens, skip_special_tokens=True)
            request.text = whole if whole.startswith(request.text) else request.text
        ready, stopped = _until_stop(request.text, request.sampling.stop, last=bool(reason))
        reason = "stop" if stopped else reason
        request.send(Piece(request.text[request.sent : ready], 1, reason))
        request.sent = max(request.sent, ready)
        return bool(reason)

    def _prepare(self, request: _Request) -> None:
        sampling = request.sampling
        request.cache = DynamicCache(config=self._model.config)
        request.stream = DecodeStream(skip_special_tokens=True)
        request.chooses = LogitsProcessorList()
        if sampling.temperature not in (0.0, 1.0):
            request.chooses.append(TemperatureLogitsWarper(sampling.temperature))
        if sampling.top_p < 1.0:
            request.chooses.append(TopPLogitsWarper(sampling.top_p))
        request.random = torch.Generator()
        if sampling.seed is None:
            request.random.seed()
        else:
            request.random.manual_seed(sampling.seed)

    def _choose(self, request: _Request, logits: Any) -> int:
        if request.sampling.temperature == 0.0:
            return int(logits.argmax())
        likely = torch.softmax(request.chooses(None, logits), dim=-1)
        return int(torch.multinomial(likely, 1, generator=request.random))


def _until_stop(text: str, stops: Sequence[str], *, last: bool) -> tuple[int, bool]:
    """Return how much of the text can be sent, and whether it has a stop text, at which it ends.

    The end of a text that is not the last part can be the start of a stop text, and waits.
    """
    found = [text.index(stop) for stop in stops if stop in text]
    if found:
        return min(found), True
    if last:
        return len(text), False
    held = max(
        (length for stop in stops for length in range(1, len(stop)) if text.endswith(stop[:length])),
        default=0,
    )
    return len(text) - held, False


def create(settings: Settings) -> TransformersEngine:
    return TransformersEngine(settings)
