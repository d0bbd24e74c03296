from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from launcher.cli import output
from launcher.cli.options import WholeNumber, format_option
from launcher.cli.values_command import ValuesCommand
from launcher.cli.values_options import values_options
from launcher.products.tuning import api as tuning

if TYPE_CHECKING:
    from launcher.products.tuning.api import Example, Preview

_COUNTED = re.compile(r"\{\+(.*?)\+\}", re.DOTALL)


@click.group()
def command() -> None:
    """Show the examples of a fine-tuning as the trainer reads them."""


@command.command(cls=ValuesCommand)
@values_options
@click.option(
    "--count", type=WholeNumber(0), default=3, metavar="N", help="The number of examples to show (default: 3)."
)
@format_option
def preview(files: tuple[str, ...], sets: tuple[str, ...], count: int, form: str) -> None:
    """Show the first examples with the chat template, and count the tokens of all.

    The text that the loss counts is green, or between {+ and +} without colours. The numbers are those of the first
    20,000 examples. The files are read on this machine, without a cluster.
    """
    shown = tuning.preview_data(files, sets, count=count)
    text = "\n\n".join([*map(_example, shown.examples), _numbers(shown)])
    output.emit(shown.as_json(), form, text, paint=_painted)


def _example(example: Example) -> str:
    text = "".join(f"{{+{part}+}}" if counts else part for part, counts in example.parts)
    cut = f", {example.cut:,} cut off" if example.cut else ""
    return f"{example.place}: {_tokens(example.tokens)}, {example.counted:,} counted{cut}\n{text.rstrip()}"


def _numbers(shown: Preview) -> str:
    share = f" ({shown.counted / shown.tokens:.0%})" if shown.tokens else ""
    lines = [
        f"{'' if shown.complete else 'The first '}{_number(shown.read, 'example')}: {_tokens(shown.tokens)}, "
        f"{shown.counted:,} counted{share}; the longest example has {_tokens(shown.longest)}.",
        f"They fill about {_number(shown.sequences, 'sequence')} of {_tokens(shown.length)}.",
    ]
    lines += [f"Too long and cut: {shown.cut:,} (tuning.tooLong)."] * bool(shown.cut)
    lines += [f"Too long and dropped: {shown.dropped:,} (tuning.tooLong)."] * bool(shown.dropped)
    return "\n".join([*lines, shown.left_out] if shown.left_out else lines)


def _tokens(count: int) -> str:
    return _number(count, "token")


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _painted(text: str) -> str:
    return _COUNTED.sub(lambda match: click.style(match[1], fg="green"), text)
