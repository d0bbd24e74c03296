"""Print the text of a model as it arrives."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from launcher.cli.output import neutral


@contextlib.contextmanager
def text_in_pieces() -> Iterator[Callable[[str], None]]:
    """Yield a function that prints a part of a text at once, and end the line after the last part.

    If an error ends the text, the line ends only on a terminal, where the message follows. On a terminal, control
    characters are replaced: the text is a model's.
    """
    begun = False

    def emit_piece(text: str) -> None:
        nonlocal begun
        begun = begun or bool(text)
        sys.stdout.write(neutral(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()

    try:
        yield emit_piece
    except KeyboardInterrupt:
        emit_piece("\n")
        raise
    except Exception:
        if begun and sys.stdout.isatty():
            emit_piece("\n")
        raise
    emit_piece("\n")


def narrate_piece(text: str) -> None:
    """Print a part of a line for the user on stderr, such as a prompt."""
    sys.stderr.write(neutral(text))
    sys.stderr.flush()
