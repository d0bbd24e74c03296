"""Connect this terminal with a command that runs in a pod."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.products.common.pod_exec import Session

_CHUNK_BYTES = 1 << 14


def run(session: Session, *, interactive: bool) -> int:
    """Print the command's output until it ends, and return its exit code; `interactive` also sends it what is typed."""
    with contextlib.closing(session), _raw_terminal(session) if interactive else contextlib.nullcontext():
        sources = [session.fileno(), *([sys.stdin.fileno()] if interactive else [])]
        while session.exit_code is None:
            ready, _, _ = select.select(sources, [], [])
            if interactive and sys.stdin.fileno() in ready:
                data = os.read(sys.stdin.fileno(), _CHUNK_BYTES)
                session.send(data or b"\x04")  # the end of input is Ctrl-D
            if session.fileno() in ready:
                for channel, data in session.messages():
                    _emit(data, error=channel == 2)
    return session.exit_code


@contextlib.contextmanager
def _raw_terminal(session: Session) -> Iterator[None]:
    """Pass every key to the command, and the size of the terminal whenever it changes."""

    def resize(*_: object) -> None:
        size = shutil.get_terminal_size()
        session.resize(size.columns, size.lines)

    descriptor = sys.stdin.fileno()
    settings = termios.tcgetattr(descriptor)
    previous = signal.signal(signal.SIGWINCH, resize)
    try:
        tty.setraw(descriptor)
        resize()
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, settings)
        signal.signal(signal.SIGWINCH, previous)


def _emit(data: bytes, *, error: bool) -> None:
    """Print output of a command that the user runs in a pod, unchanged: it controls the terminal, as with ssh."""
    stream = sys.stderr if error else sys.stdout
    stream.buffer.write(data)
    stream.buffer.flush()
