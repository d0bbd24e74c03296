from __future__ import annotations

import contextlib
import importlib
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from launcher.cli import output
from launcher.cli.options import WholeNumber
from launcher.errors import UsageError
from launcher.products.common.number_option import Number
from launcher.products.models.api import inference
from launcher.products.models.cli.pieces import narrate_piece, text_in_pieces

if TYPE_CHECKING:
    from launcher.products.models.inference.chat import Chat

with contextlib.suppress(ImportError):  # some builds of Python have no readline
    importlib.import_module("readline")  # input() then has a history and can edit the line

_NEW, _PROMPT = "/new", "> "
_KEYS = f"Ctrl-C stops an answer, {_NEW} begins a new conversation, Ctrl-D ends."


@click.command()
@click.argument("name", required=False, metavar="[NAME]")
@click.option("--url", metavar="URL", help="The URL of a model elsewhere, such as http://127.0.0.1:8000/v1.")
@click.option("--api-key-file", metavar="FILE", help="With --url: a file with the API key (default: SLIPWAY_API_KEY).")
@click.option("--system", default="", metavar="TEXT", help="The system message: how the model shall answer.")
@click.option(
    "--max-tokens",
    type=WholeNumber(1),
    metavar="N",
    help="The longest answer, in tokens (default: the model's context; 100 without a chat template).",
)
@click.option(
    "--temperature",
    type=Number(min=0, max=2),
    default=0.8,
    metavar="T",
    help="How random the answers are; 0 selects the most likely token each time (default: 0.8).",
)
def command(
    name: str | None, url: str | None, api_key_file: str | None, system: str, max_tokens: int | None, temperature: float
) -> None:
    """Talk with a model that launcher serve serves.

    NAME is the name of the model in requests, which is that of the run or the folder. With --url, it is a model of any
    server with OpenAI's API (default: its first one). On a terminal, the command reads your messages; Ctrl-C stops an
    answer, /new begins a new conversation, and Ctrl-D ends. From a pipe, each line is a message.

    A model that was trained from text has no chat template. It does not answer, but continues the text so far.
    """

    talk = inference.chat(
        name,
        url=url,
        key_file=api_key_file,
        system=system,
        max_tokens=max_tokens,
        temperature=temperature,
        on_text=lambda: output.narrate("This model has no chat template: it continues the text so far."),
    )
    if sys.stdin.isatty():
        _on_terminal(talk)
        return
    for message in _lines():
        _say(talk, message)


def _on_terminal(talk: Chat) -> None:
    from launcher.products.models.inference.chat import Refused

    output.narrate(f"{talk.model}: {_KEYS}")
    while (message := _ask()) is not None:
        if not message.strip():
            continue
        if re.fullmatch(r"/\w+", word := message.strip()) and word != _NEW:
            output.narrate(f"There is no command {word}. {_KEYS}")
            continue
        try:
            _say(talk, message)
        except KeyboardInterrupt:
            pass  # the conversation continues
        except Refused as error:
            output.narrate(f"Error: {error.message}", f"Hint: To begin a new conversation, type {_NEW}.")


def _ask() -> str | None:
    """Return what the user types; None at the end of input, and "" after Ctrl-C."""
    try:
        if sys.stdout.isatty():
            return input(_PROMPT)
        # The answers go to a file or a pipe, where a prompt would be a part of them.
        narrate_piece(_PROMPT)
        line = sys.stdin.readline()
        return line.rstrip("\n") if line else None
    except (EOFError, KeyboardInterrupt) as end:
        output.narrate("")
        return "" if isinstance(end, KeyboardInterrupt) else None


def _lines() -> Iterator[str]:
    try:
        for line in sys.stdin:
            if line.strip():
                yield line.rstrip("\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"The messages on stdin are not valid {error.encoding}.") from error


def _say(talk: Chat, message: str) -> None:
    if message.strip() == _NEW:
        talk.restart()
        return
    with text_in_pieces() as emit, contextlib.closing(talk.send(message)) as pieces:
        for piece in pieces:
            emit(piece)
