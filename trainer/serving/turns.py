"""An engine that computes in one thread, for models on CPUs.

The thread computes the next piece of each request in turn, usually one token, so that a long answer does not hold up a
short one. The first piece of a request includes its whole prompt.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainer.serving.engines import EngineError, Piece, Sampling


@dataclass(eq=False)
class _Request:
    """A request: the pieces that are still to be computed, and the queue that they are sent to."""

    pieces: Generator[Piece]
    loop: asyncio.AbstractEventLoop
    sent: asyncio.Queue[Piece | EngineError] = field(default_factory=asyncio.Queue)
    cancelled: bool = False

    def send(self, part: Piece | EngineError) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the program ends
            self.loop.call_soon_threadsafe(self.sent.put_nowait, part)


class TurnEngine(ABC):
    """An engine whose subclass loads a model and computes the pieces of one request.

    At most `at_once` requests are computed in turn, because each has a KV cache; the others wait in the order of their
    arrival. None: there is no limit. `failure` is the error that ended the engine. `on_failure` is called then, except
    for an error of `load`.
    """

    tokenizer: Any = None
    context_length: int = 0

    def __init__(self, *, at_once: int | None = None, on_failure: Callable[[], object] = lambda: None) -> None:
        self.failure: Exception | None = None
        self._at_once, self._on_failure = at_once, on_failure
        self._arrived: deque[_Request] = deque()
        self._running: deque[_Request] = deque()
        self._changed = threading.Condition()
        self._ending = False
        self._reason = "it was stopped"
        self._loaded: asyncio.Future[None] | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @abstractmethod
    def load(self) -> None:
        """Load the model, and set `tokenizer` and `context_length`. Called in the thread that computes.

        Raises an error with a sentence if that is not possible.
        """

    @abstractmethod
    def answer(self, prompt: Sequence[int], sampling: Sampling) -> Generator[Piece]:
        """Compute and yield the pieces of an answer. The last one has a finish reason.

        The generator is used in the thread that computes. An error in it ends the engine.
        """

    async def start(self) -> None:
        self._loaded = asyncio.get_running_loop().create_future()
        self._thread.start()
        await self._loaded

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> AsyncIterator[Piece]:
        request = _Request(self.answer(prompt, sampling), asyncio.get_running_loop())
        with self._changed:
            if self.failure or self._ending or not self._thread.is_alive():
                raise self._ended()
            self._arrived.append(request)
            self._changed.notify()
        try:
            while True:
                part = await request.sent.get()
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
        try:
            self.load()
        except Exception as error:
            self._fail(error)
            self._set_loaded(error)
            return
        self._set_loaded(None)
        try:
            while (request := self._next()) is not None:
                piece = next(request.pieces)
                request.send(piece)
                if piece.finish_reason:
                    self._running.popleft()
                else:
                    self._running.rotate(-1)
        except Exception as error:
            self._fail(error)
            self._on_failure()
            raise
        finally:
            with self._changed:
                left = [*self._running, *self._arrived]
                self._arrived.clear()
            for turn in left:
                turn.send(self._ended())

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self.failure = error
            self._reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__

    def _ended(self) -> EngineError:
        return EngineError(f"The engine has ended: {self._reason}.")

    def _set_loaded(self, error: Exception | None) -> None:
        loaded = self._loaded
        assert loaded is not None  # noqa: S101 - for the type checker; start() sets it
        if error is not None:
            loaded.get_loop().call_soon_threadsafe(loaded.set_exception, error)
        else:
            loaded.get_loop().call_soon_threadsafe(loaded.set_result, None)

    def _next(self) -> _Request | None:
        """Return the request whose turn it is, the first of those that run; None if the engine ends."""
        with self._changed:
            while not self._ending:
                while self._arrived and (self._at_once is None or len(self._running) < self._at_once):
                    self._running.append(self._arrived.popleft())
                if not self._running:
                    self._changed.wait()
                elif self._running[0].cancelled:
                    self._running.popleft().pieces.close()
                else:
                    return self._running[0]
        return None
