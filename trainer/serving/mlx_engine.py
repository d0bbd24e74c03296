"""MLX as an engine, for `launcher serve` on the CPU of one machine.

One thread computes. It takes the next piece of each request in turn, usually one token, so that a long answer does not
hold up a short one. The first piece of a request includes its whole prompt. At most `at_once` requests are computed in
turn, because each has a KV cache; the others wait in the order of their arrival.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
from transformers import AutoTokenizer

from trainer.inference.generation import CONTEXT, END, LENGTH, Generation, Options
from trainer.inference.model import Model, load
from trainer.serving.engines import EngineError, Piece, Sampling

_SEED_BITS = 63


@dataclass(eq=False)
class _Request:
    """A request, and the queue that its pieces are sent to. `seeds` are those of its turns after the first."""

    prompt: Sequence[int]
    sampling: Sampling
    loop: asyncio.AbstractEventLoop
    parts: asyncio.Queue[Piece | EngineError] = field(default_factory=asyncio.Queue)
    cancelled: bool = False
    running: Generation | None = None
    texts: Iterator[str] = field(default_factory=lambda: iter(()))
    seeds: random.Random = field(default_factory=random.Random)
    counted: int = 0

    def send(self, part: Piece | EngineError) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the program ends
            self.loop.call_soon_threadsafe(self.parts.put_nowait, part)


class MlxEngine:
    """A model in a Hugging Face folder. `failure` is the error that ended the engine; then `on_failure` is called."""

    def __init__(
        self, folder: Path, *, context_length: int, at_once: int, on_failure: Callable[[], object] = lambda: None
    ) -> None:
        self.tokenizer: Any = None
        self.context_length = context_length
        self.failure: Exception | None = None
        self._folder, self._at_once, self._on_failure = folder, at_once, on_failure
        self._arrived: deque[_Request] = deque()
        self._running: deque[_Request] = deque()
        self._changed = threading.Condition()
        self._ending = False
        self._loaded: asyncio.Future[int] | None = None
        self._thread = threading.Thread(target=self._run, name="mlx", daemon=True)

    async def start(self) -> None:
        """Load the model. Raises ConfigError if the folder does not contain a whole model that MLX supports."""
        loop = asyncio.get_running_loop()
        self._loaded = loop.create_future()
        self._thread.start()
        self.context_length = await self._loaded
        self.tokenizer = await asyncio.to_thread(AutoTokenizer.from_pretrained, str(self._folder))

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> AsyncIterator[Piece]:
        request = _Request(prompt, sampling, asyncio.get_running_loop())
        with self._changed:
            if self.failure or self._ending or not self._thread.is_alive():
                raise EngineError(f"The engine has ended: {self.failure or 'it was stopped'}.")
            self._arrived.append(request)
            self._changed.notify()
        try:
            while True:
                part = await request.parts.get()
                if isinstance(part, EngineError):
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
        # MLX's streams and random numbers belong to a thread, so the thread that computes also loads.
        try:
            model = load(self._folder)
        except Exception as error:
            self._set_loaded(error)
            return
        length = min(self.context_length, model.context or self.context_length)
        model = replace(model, context=length)
        self._set_loaded(length)
        reason = "it was stopped"
        request: _Request | None = None
        try:
            while (request := self._next()) is not None:
                if not self._step(model, request):
                    self._running.append(request)
        except Exception as error:
            reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            with self._changed:
                self.failure = error
            if request is not None:
                self._running.append(request)
            self._on_failure()
            raise
        finally:
            with self._changed:
                left = [*self._running, *self._arrived]
                self._arrived.clear()
            for each in left:
                each.send(EngineError(f"The engine has ended: {reason}."))

    def _set_loaded(self, result: int | Exception) -> None:
        loaded = self._loaded
        assert loaded is not None  # noqa: S101 - for the type checker; start() sets it
        done = loaded.set_exception if isinstance(result, Exception) else loaded.set_result
        loaded.get_loop().call_soon_threadsafe(done, result)

    def _next(self) -> _Request | None:
        """Return the request whose turn it is; None if the engine ends."""
        with self._changed:
            while not self._ending:
                while self._arrived and len(self._running) < self._at_once:
                    self._running.append(self._arrived.popleft())
                if not self._running:
                    self._changed.wait()
                elif not (request := self._running.popleft()).cancelled:
                    return request
        return None

    def _step(self, model: Model, request: _Request) -> bool:
        """Compute the next piece of a request. Return whether it was the last one."""
        running = request.running
        if running is None:
            sampling = request.sampling
            seed = random.getrandbits(_SEED_BITS) if sampling.seed is None else sampling.seed % (1 << _SEED_BITS)
            options = Options(sampling.max_tokens, sampling.temperature, seed, sampling.top_p, sampling.stop)
            running = request.running = Generation(model, request.prompt, options)
            request.texts, request.seeds = iter(running), random.Random(seed)  # noqa: S311 - they choose a text
        else:
            # The requests share MLX's random numbers. A seed for each turn makes a text independent of the others.
            mx.random.seed(request.seeds.getrandbits(_SEED_BITS))
        text = next(request.texts, None)
        # As in other engines, the token that ends a text counts.
        tokens = running.tokens + (text is None and running.ended == END)
        new, request.counted = tokens - request.counted, tokens
        if text is not None:
            request.send(Piece(text, new))
            return False
        request.send(Piece("", new, "length" if running.ended in (LENGTH, CONTEXT) else "stop"))
        return True
