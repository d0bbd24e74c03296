"""The queue and the thread of the engines for CPUs, with answers of letters instead of a model's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import aclosing

import pytest

from trainer.serving.engines import EngineError, Piece, Sampling
from trainer.serving.turns import TurnEngine


class Letters(TurnEngine):
    """Answers the prompt [N] with the letter N, as often as max_tokens. `steps` are the letters in their order."""

    def __init__(self, *, fails: str = "", at_once: int | None = None, on_failure: Callable[[], object] = str) -> None:
        super().__init__(at_once=at_once, on_failure=on_failure)
        self.fails = fails
        self.steps = ""
        self.closed = ""
        self.go = threading.Event()
        self.go.set()

    def load(self) -> None:
        if self.fails == "load":
            raise ValueError("There is no model.")
        self.context_length = 8

    def answer(self, prompt: Sequence[int], sampling: Sampling) -> Generator[Piece]:
        letter = chr(prompt[0])
        try:
            for number in range(1, sampling.max_tokens + 1):
                self.go.wait()
                if letter == self.fails:
                    raise MemoryError("no memory\nis left.")
                self.steps += letter
                yield Piece(letter, 1, "length" if number == sampling.max_tokens else "")
        except GeneratorExit:
            self.closed += letter
            raise


async def text(engine: TurnEngine, letter: str, tokens: int) -> str:
    pieces = [piece.text async for piece in engine.generate([ord(letter)], Sampling(max_tokens=tokens))]
    return "".join(pieces)


async def together(engine: Letters, *asked: tuple[str, int]) -> list[str | BaseException]:
    """Return the answers of requests that all arrive before the first step."""
    engine.go.clear()
    answers = [asyncio.ensure_future(text(engine, *each)) for each in asked]
    await asyncio.sleep(0.1)
    engine.go.set()
    return await asyncio.gather(*answers, return_exceptions=True)


def test_requests_take_turns() -> None:
    async def run() -> None:
        engine = Letters()
        await engine.start()
        assert await together(engine, ("a", 4), ("b", 2), ("c", 3)) == ["aaaa", "bb", "ccc"]
        assert sorted(engine.steps[:4]) == ["a", "a", "b", "c"]  # the first step of a may come before the others arrive
        assert engine.steps.endswith("ca")
        await engine.stop()

    asyncio.run(run())


def test_a_request_waits_while_too_many_are_computed() -> None:
    async def run() -> None:
        engine = Letters(at_once=2)
        await engine.start()
        assert await together(engine, ("a", 3), ("b", 4), ("c", 2), ("d", 1)) == ["aaa", "bbbb", "cc", "d"]
        ended = [engine.steps.rindex(letter) for letter in "abcd"]
        assert engine.steps.index("c") > ended[0]
        assert engine.steps.index("d") > min(ended[1], ended[2])
        await engine.stop()

    asyncio.run(run())


def test_a_request_that_its_client_gives_up_is_not_computed_any_more() -> None:
    async def run() -> None:
        engine = Letters()
        await engine.start()
        async with aclosing(engine.generate([ord("a")], Sampling(max_tokens=10**9))) as pieces:  # type: ignore[type-var]
            await anext(pieces)
        assert await text(engine, "b", 3) == "bbb"
        assert engine.closed == "a"
        steps = len(engine.steps)
        await asyncio.sleep(0.05)
        assert len(engine.steps) == steps
        await engine.stop()

    asyncio.run(run())


# The thread raises the error, so that the log has its traceback.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_ends_the_engine_and_all_its_requests() -> None:
    ended: list[str] = []

    async def run() -> None:
        engine = Letters(fails="b", at_once=2, on_failure=lambda: ended.append("now"))
        await engine.start()
        answers = await together(engine, ("a", 10**9), ("b", 1), ("c", 1))
        assert [str(answer) for answer in answers] == ["The engine has ended: no memory is left."] * 3
        assert all(isinstance(answer, EngineError) for answer in answers)
        assert ended == ["now"]
        assert isinstance(engine.failure, MemoryError)
        with pytest.raises(EngineError, match=r"^The engine has ended: no memory is left\.$"):
            await text(engine, "a", 1)
        await engine.stop()

    asyncio.run(run())


def test_a_stop_ends_the_requests() -> None:
    async def run() -> None:
        engine = Letters(at_once=1)
        await engine.start()
        answers = [asyncio.ensure_future(text(engine, letter, 10**9)) for letter in "ab"]
        await asyncio.sleep(0.05)
        await engine.stop()
        for answer in answers:
            with pytest.raises(EngineError, match=r"^The engine has ended: it was stopped\.$"):
                await answer
        with pytest.raises(EngineError, match="it was stopped"):
            await text(engine, "a", 1)

    asyncio.run(run())


def test_a_model_that_cannot_be_loaded() -> None:
    async def run() -> None:
        engine = Letters(fails="load")
        with pytest.raises(ValueError, match="There is no model"):
            await engine.start()
        with pytest.raises(EngineError, match=r"^The engine has ended: There is no model\.$"):
            await text(engine, "a", 1)
        await engine.stop()

    asyncio.run(run())
