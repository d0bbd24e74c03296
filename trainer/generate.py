"""python -m trainer.generate: continue a text with a model in a Hugging Face folder, or with a checkpoint of a run.

The prompt comes from stdin, and the text goes to stdout while it is generated.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from trainer.errors import ConfigError
from trainer.inference import generation
from trainer.inference.exported import add_source, model_folder
from trainer.inference.model import load
from trainer.metrics import print_line

TEXT_PREFIX, DONE_PREFIX = "SLIPWAY_TEXT ", "SLIPWAY_GENERATED "
"""With --lines, stdout has a line with each of these prefixes and JSON: a piece of the text, and the numbers."""


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit code. 2: the arguments, the model or the prompt cannot work; stderr has the sentence."""
    arguments = _parser().parse_args(argv)
    try:
        _generate(arguments)
    except ConfigError as error:
        print(f"Error: {' '.join(str(error).split())}", file=sys.stderr, flush=True)  # noqa: T201 - the message
        return 2
    except BrokenPipeError:
        # The reader has enough, such as `head`. Python flushes stdout at its end and must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _write(data: bytes) -> None:
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ConfigError(f"The text cannot be written to stdout: {error.strerror}.") from error


def _generate(arguments: argparse.Namespace) -> None:
    options = _options(arguments)
    prompt = arguments.prompt if arguments.prompt is not None else _read_prompt()
    if not prompt:
        raise ConfigError("The prompt is empty: it has no characters.")
    # The folder has everything: nothing is requested from the Hub. huggingface_hub reads this when it is imported.
    os.environ["HF_HUB_OFFLINE"] = "1"
    begin = time.monotonic()
    model = load(model_folder(arguments))
    load_seconds = time.monotonic() - begin
    running = generation.Generation(model, model.encode(prompt), options)
    for number, piece in enumerate(running):
        if arguments.lines:
            print_line(TEXT_PREFIX + json.dumps({"number": number, "text": piece}))
        else:
            _write(piece.encode(errors="replace"))
    numbers = {
        "prompt_tokens": running.prompt_tokens,
        "tokens": running.tokens,
        "seconds": round(running.seconds, 3),
        "tokens_per_second": round(running.tokens_per_second, 1),
        "first_token_seconds": round(running.first_token_seconds, 3),
        "load_seconds": round(load_seconds, 3),
        "ended": running.ended,
    }
    if arguments.lines:
        print_line(DONE_PREFIX + json.dumps(numbers))
        return
    _write(b"\n")
    print(json.dumps(numbers), file=sys.stderr, flush=True)  # noqa: T201 - the numbers


def _options(arguments: argparse.Namespace) -> generation.Options:
    if arguments.max_tokens < 1:
        raise ConfigError(f"--max-tokens must be at least 1, not {arguments.max_tokens}.")
    if not 0 <= arguments.temperature < float("inf"):
        raise ConfigError(f"--temperature must be 0 or more, not {arguments.temperature:g}.")
    if not 0 < arguments.top_p <= 1:
        raise ConfigError(f"--top-p must be more than 0 and at most 1, not {arguments.top_p:g}.")
    return generation.Options(
        arguments.max_tokens, arguments.temperature, arguments.seed, arguments.top_p, tuple(arguments.stop)
    )


def _read_prompt() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"The prompt is not valid UTF-8: byte {error.start + 1} is not part of a character."
        ) from error


def _parser() -> argparse.ArgumentParser:
    parser: Any = argparse.ArgumentParser(prog="python -m trainer.generate", description=__doc__)
    add_source(parser)
    parser.add_argument("--prompt", metavar="TEXT", help="the prompt (default: stdin)")
    parser.add_argument("--max-tokens", type=int, default=100, metavar="N")
    parser.add_argument("--temperature", type=float, default=0.8, metavar="T", help="0: always the most likely token")
    parser.add_argument("--seed", type=_seed, default=0, metavar="S")
    parser.add_argument("--top-p", type=float, default=1.0, metavar="P")
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="a text at which to stop")
    parser.add_argument(
        "--lines", action="store_true", help=f"print lines of JSON after {TEXT_PREFIX}and {DONE_PREFIX.strip()}"
    )
    found: argparse.ArgumentParser = parser
    return found


def _seed(text: str) -> int:
    number = int(text)
    if not 0 <= number < 1 << 63:
        raise argparse.ArgumentTypeError("a seed is a number from 0 to 2^63 - 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
