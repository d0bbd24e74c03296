"""The conversion between checkpoints and Hugging Face's format, in a child process: python -m trainer.weights."""

from __future__ import annotations

import importlib.util
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

from launcher import distribution
from launcher.errors import LauncherError
from launcher.json_object import json_object
from launcher.products.common import child

MODULE = "trainer.weights"
_USER_ERROR = 2
_ERROR = "Error: "
# The time to remove a folder that is not finished.
_GRACE_SECONDS = 20.0


def convert(arguments: Sequence[str], say: Callable[[str], None], argv: Sequence[str] = ()) -> dict[str, Any]:
    """Run the conversion with these arguments and return its summary. `say` is called with each line of progress.

    `argv` replaces the command before the arguments. Raises LauncherError with the sentence of the conversion if it
    fails, and if the trainer is not installed in this Python.
    """
    if importlib.util.find_spec("maxtext") is None:
        raise LauncherError(
            f"The Python package maxtext is not installed ({sys.executable}), but the conversion of weights requires "
            "it.",
            f"Install it next to the launcher: {distribution.install('train')}",
        )
    words = [*(argv or child.module(MODULE)), *arguments]
    error, last = "", ""
    with tempfile.TemporaryFile() as out:
        with child.running(words, stdout=out, grace=_GRACE_SECONDS) as process:
            for raw in child.pipe(process.stderr):
                line = raw.decode(errors="replace").rstrip()
                if line.startswith(_ERROR):
                    error = line.removeprefix(_ERROR)
                elif line:
                    last = line
                    say(line)
            code = process.wait()
        out.seek(0)
        printed = out.read().decode(errors="replace").splitlines()
    summary = json_object(printed[-1]) if printed else None
    if code == 0 and summary is not None:
        return summary
    if code == _USER_ERROR and error:
        raise LauncherError(error)
    raise LauncherError(f"The conversion failed: {(error or _exit_reason(code) or last).rstrip('.')}.")


def _exit_reason(code: int) -> str:
    if code == -signal.SIGKILL:
        return "it was killed, most likely because this machine ran out of memory"
    return f"it was killed by {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"
