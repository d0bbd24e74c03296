"""Colours on a terminal. Only words of the launcher's own are coloured: states, levels, and the start of a message.

Each function adds colours to text without control characters, at the places where it knows the words: the column STATE
of a table, or the start of a line.
"""

from __future__ import annotations

import os
import re
from typing import TextIO

_COLOURS = {
    **dict.fromkeys(("succeeded", "running", "ready", "ok"), "green"),
    **dict.fromkeys(("failed", "unhealthy", "problem", "error", "Error"), "red"),
    **dict.fromkeys(("queued", "admitted", "starting", "preempted", "restarting", "updating"), "cyan"),
    **dict.fromkeys(("cancelled", "warning", "Warning", "Hint", "unknown"), "yellow"),
}
_PREFIX = re.compile(r"^()(Error|Warning|Hint|error|warning)(?=: )", re.MULTILINE)
_STATUS = re.compile(r"^(state +|)([a-z]+)(?= |$)", re.MULTILINE)
_STATE = re.compile(r"^(STATE: +)([a-z]+)$", re.MULTILINE)
_LEVEL = re.compile(r"^(  )(ok|warning|problem|unknown)(?= )", re.MULTILINE)


def wanted(stream: TextIO) -> bool:
    """Return whether the stream is a terminal with colours, and the user has not set NO_COLOR (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def messages(text: str) -> str:
    """Colour the first word of each message: "Error: …"."""
    return _at(_PREFIX, text)


def levels(text: str) -> str:
    """Colour the level of each finding of doctor."""
    return _at(_LEVEL, text)


def status(text: str) -> str:
    """Colour the state in the status or the summary of a run."""
    return _at(_STATUS, text)


def tables(text: str) -> str:
    """Colour the column STATE of tables, and the lines "STATE: …" of those that a narrow terminal shows as blocks.

    An empty line separates two tables.
    """
    lines, column = [], -1
    for line in _at(_STATE, text).split("\n"):
        if not line or column < 0:
            column = line.find(" STATE") + 1 or -1
        elif line[column - 1 : column] == " " and (word := re.match("[a-z]+", line[column:])):
            line = line[:column] + _painted(word[0]) + line[column + word.end() :]
        lines.append(line)
    return "\n".join(lines)


def _at(places: re.Pattern[str], text: str) -> str:
    return places.sub(lambda match: match[1] + _painted(match[2]), text)


def _painted(word: str) -> str:
    import click  # only on a terminal

    return click.style(word, fg=_COLOURS[word]) if word in _COLOURS else word
