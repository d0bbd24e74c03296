"""The command's output: data on stdout, progress and warnings on stderr.

No other module writes to the terminal (tests/cli/test_untrusted_text.py checks this), because the text may contain
text of other users: names, reasons, event messages, log lines. Control characters in it could set the terminal's
title, clear its screen, or make one run look like another. So every function here replaces them.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from launcher import distribution
from launcher.cli import colour

if TYPE_CHECKING:
    from rich.console import Console

# C0 without tab and newline, DEL, C1, the marks that reverse the direction of text, and halves of a surrogate pair,
# which cannot be written as UTF-8.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
# In a log, also keep the colours, and the carriage returns of progress bars.
_CONTROL_IN_LOG = re.compile(rf"(\x1b\[[0-9;:]*m|\r)|{_CONTROL.pattern}")
_COLOURS_OFF = "\x1b[0m"


def neutral(text: str) -> str:
    """Return the text with each control character but tab and newline replaced by U+FFFD."""
    return _CONTROL.sub("\ufffd", text)


def as_typed(text: str) -> str:
    """Return the text with commands of the launcher as the user has to type them.

    If `launcher` is not on PATH, they begin with its path, such as .venv/bin/launcher.
    """
    typed = distribution.command()
    if typed == "launcher":
        return text
    from launcher.cli.verbs import verbs

    return re.sub(rf"(?<![Tt]he )(?<![\w./-])launcher(?= (?:{'|'.join(verbs())})\b)", lambda _: typed, text)


def narrate(*lines: str) -> None:
    """Print lines for the user on stderr; never data."""
    for line in map(as_typed, map(neutral, lines)):
        sys.stderr.write((colour.messages(line) if colour.wanted(sys.stderr) else line) + "\n")
    sys.stderr.flush()


def emit(data: Any, form: str, text: str, *, paint: Callable[[str], str] = colour.messages) -> None:
    """Print the result of a verb: `data` as JSON or YAML, or `text` (nothing if it is empty).

    On a terminal with colours, `paint` adds them to `text`; see launcher.cli.colour.
    JSON and YAML have control characters as escapes, so that programs read the exact text.
    """
    if form == "json":
        text = to_json(plain(data), indent=2)
    elif form == "yaml":
        from launcher.config.values.writer import dumps

        text = dumps(plain(data))
    if text:
        text = as_typed(neutral(text)) if form == "text" else neutral(text)
        if form == "text" and colour.wanted(sys.stdout):
            text = paint(text)
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
    sys.stdout.flush()


def emit_exactly(text: str) -> None:
    """Print a text that a file or another program needs unchanged: a manifest, a page, a script.

    Only on a terminal are control characters replaced.
    """
    sys.stdout.write(neutral(text) if sys.stdout.isatty() else text)
    sys.stdout.flush()


def emit_log_line(line: str, *, flush: bool) -> None:
    """Print a line of a log: unchanged to a file or a pipe, as kubectl does; on a terminal, with only its colours."""
    if sys.stdout.isatty():
        line = _CONTROL_IN_LOG.sub(lambda match: match[1] or "\ufffd", line)
        if "\x1b" in line:
            line += _COLOURS_OFF
    sys.stdout.write(line + "\n")
    if flush:
        sys.stdout.flush()


def to_json(data: Any, indent: int | None = None) -> str:
    """Format data as JSON, with control characters as escapes."""
    text = json.dumps(data, indent=indent, ensure_ascii=False)
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def console() -> Console:
    """Return rich's console on stderr for a live display. Control characters in the text of a display are removed.

    They are not replaced, because rich has already calculated the width of the text, in which they have none.
    """

    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Neutral(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                # The console's own control codes are separate segments, and colours are styles.
                yield segment if segment.control else segment._replace(text=_CONTROL.sub("", segment.text))

    return Neutral(stderr=True)


def plain(data: Any) -> Any:
    """Convert `data`, or a dataclass, to JSON types: a number that is not finite becomes null, as in metrics.jsonl."""
    if is_dataclass(data):
        data = {field.name: getattr(data, field.name) for field in fields(data)}
    if isinstance(data, Decimal):
        return int(data) if data == data.to_integral_value() else float(data)
    if isinstance(data, dict):
        return {str(key): plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [plain(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return str(data) if isinstance(data, str) else data  # an enum member becomes its text
