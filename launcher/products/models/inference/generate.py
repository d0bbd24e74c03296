"""Generate text with the model of a run or of a Hugging Face folder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.errors import LauncherError, UsageError
from launcher.json_object import json_object
from launcher.products.models.inference import child, job
from launcher.products.models.inference.source import ClusterSource, Source, prepare
from launcher.trainer_output import GENERATED_PREFIX, TEXT_PREFIX

_MODULE = "trainer.generate"


@dataclass(frozen=True)
class Options:
    """How to generate.

    A temperature of 0 selects the most likely token each time. With `top_p` below 1, only the most likely tokens that
    together have this probability are drawn. The same seed gives the same text on the same machine. The text ends
    before the first of the texts in `stop`.
    """

    max_tokens: int = 100
    temperature: float = 0.8
    seed: int = 0
    top_p: float = 1.0
    stop: Sequence[str] = ()

    @property
    def arguments(self) -> list[str]:
        numbers = ("--max-tokens", self.max_tokens, "--temperature", self.temperature, "--seed", self.seed)
        return [*map(str, numbers), "--top-p", str(self.top_p), *(f"--stop={text}" for text in self.stop)]


@dataclass(frozen=True)
class Generated:
    """A text and its numbers.

    `tokens` is the number of generated tokens, and `prompt_tokens` of those of the prompt. `seconds` is the time for
    the prompt and the tokens, of which `first_token_seconds` passed until the first token; `load_seconds` came before.
    `ended` is "end" if the model ended the text, "length" (max_tokens), "context" (the model's context is full), or
    "stop" (a stop text). `step` is the number of the checkpoint, None for a Hugging Face folder.
    """

    name: str
    step: int | None
    prompt: str
    text: str
    tokens: int
    prompt_tokens: int
    seconds: float
    tokens_per_second: float
    first_token_seconds: float
    load_seconds: float
    ended: str


def generate(
    source: Source | ClusterSource,
    prompt: str,
    options: Options,
    *,
    submit: job.Submit,
    on_text: Callable[[str], None] = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
) -> Generated:
    """Generate text after the prompt. `on_text` is called with each piece of the text as soon as it exists.

    `submit` submits the job for a run on a cluster.

    Raises LauncherError if the model does not fit this machine, or the prompt does not fit the model.
    """
    if not prompt:
        raise UsageError("The prompt is empty.")
    arguments = [*options.arguments, "--lines"]
    # A token has at least one byte of the prompt, except for the token that starts a text.
    tokens = len(prompt.encode(errors="replace")) + 1 + options.max_tokens
    if isinstance(source, ClusterSource):
        planned = job.plan(source, "generate", _MODULE, [*arguments, f"--prompt={prompt}"], tokens)
        lines = job.lines(planned, submit, say)
    else:
        prepare(source, tokens, extra=child.GENERATE, say=say)
        lines = child.lines(_MODULE, [*source.arguments, *arguments], prompt)
    with contextlib.closing(lines):  # Ctrl-C here ends the process or the job at once
        return read(lines, source.name, source.step, prompt, on_text)


def read(lines: Iterable[str], name: str, step: int | None, prompt: str, on_text: Callable[[str], None]) -> Generated:
    """Return what the lines of trainer.generate contain."""
    pieces: list[str] = []
    numbers: dict[str, Any] | None = None
    for line in lines:
        if (piece := _after(TEXT_PREFIX, line)) is not None:
            # A job that was preempted generates the same text again, from its first piece.
            if piece.get("number") == len(pieces):
                pieces.append(str(piece.get("text", "")))
                on_text(pieces[-1])
        elif (entry := _after(GENERATED_PREFIX, line)) is not None:
            numbers = entry
    if numbers is None:
        raise LauncherError(f"The text of {name} is incomplete: the process that generated it ended early.")
    return Generated(name=name, step=step, prompt=prompt, text="".join(pieces), **numbers)


def _after(prefix: str, line: str) -> dict[str, Any] | None:
    _, separator, text = line.partition(prefix)
    return json_object(text) if separator else None
