"""Runs the command in this process, and returns what is wrong with its answer."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import io
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from launcher.__main__ import run
from launcher.errors import ExitCode, LauncherError
from tests.fuzz.mutation import MARKER

SECONDS = 1.0
"""The most processor time that one command may take: of all threads, so that a loaded machine does not matter."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_EXACT = ("logs", "values", "render")
"""The verbs whose stdout, if it is not a terminal, has the text of others unchanged."""


def _no_bucket(url: str, _names: object) -> dict[str, bytes]:
    """Replaces the client of buckets, since no case may reach the network."""
    if not re.fullmatch(r"gs://[a-z0-9._-]+/[A-Za-z0-9._-]+", url):
        raise AssertionError(f"it would open {url}")
    raise LauncherError(f"{url} cannot be read: there is no bucket here.")


@dataclass(frozen=True)
class Result:
    """`written` are the files that the command opened to write, created, renamed or removed."""

    code: int
    out: bytes
    err: str
    seconds: float
    written: tuple[str, ...]


def call(arguments: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> Result:
    """Run `launcher ARGUMENTS` in `folder`, with its home at folder/home."""
    out, err = io.BytesIO(), io.StringIO()
    # A terminal's stdout is UTF-8 and strict; its stderr escapes what cannot be encoded.
    stdout = io.TextIOWrapper(out, encoding="utf-8", write_through=True)
    environment = {
        **{key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "SLIPWAY_CACHE", "TMPDIR")},
        **{
            "SLIPWAY_HOME": str(folder / "home"),
            "HOME": str(folder / "home"),
            "COLUMNS": "80",
            "KUBECONFIG": os.devnull,
        },
        **(env or {}),
    }
    with (
        mock.patch.dict(os.environ, environment, clear=True),
        mock.patch.object(sys, "stdin", io.StringIO()),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(err),
        contextlib.ExitStack() as patched,
        _writes() as written,
    ):
        if importlib.util.find_spec("launcher.products.report"):
            for module in ("folders", "sources"):
                patched.enter_context(mock.patch(f"launcher.products.report.{module}.read_bucket", _no_bucket))
        gc.freeze()  # else each collection visits the objects of the tests before this one, too
        before = time.process_time()
        try:
            code = int(run(arguments))
        except SystemExit as error:
            code = int(error.code or 0)
        finally:
            gc.unfreeze()
        seconds = time.process_time() - before
    return Result(code, out.getvalue(), err.getvalue(), seconds, tuple(written))


def faults(arguments: Sequence[str], folder: Path, result: Result, *, seconds: float = SECONDS) -> Iterator[str]:
    """Yield what is wrong: a traceback, slow, an escape sequence, a file outside of the folder, invalid JSON or HTML.

    seconds: the most processor time.
    """
    if result.code == ExitCode.BUG or "Traceback (most recent call last)" in result.err:
        yield f"traceback: {_site(result.err)}"
    if result.seconds > seconds:
        yield f"slow: {result.seconds:.1f} s"
    outside = [path for path in result.written if not Path(path).is_relative_to(folder)]
    if outside:
        yield f"wrote {outside[0]}"
    out = result.out.decode("utf-8", "replace")
    if "json" in arguments and result.code == ExitCode.DONE:
        try:
            for one in out.splitlines() if arguments[0] == "logs" else [out]:  # logs prints an object per line
                json.loads(one)
        except ValueError as error:
            yield f"not JSON: {error}"
    text = result.err + ("" if arguments[0] in _EXACT else out)
    if match := _CONTROL.search(text):
        yield f"control character {match[0]!r} after {text[max(0, match.start() - 30) : match.start()]!r}"
    for page in folder.glob("*.html"):
        if MARKER.encode() in page.read_bytes():
            yield f"HTML of others in {page.name}"


def _site(text: str) -> str:
    """Return the last place of the launcher in a traceback, and the error."""
    places = re.findall(r'File "[^"]*?/((?:launcher|tests)/[^"]+)", line \d+, in (\S+)', text)
    error = [
        line
        for line in text.splitlines()
        if re.match(r"[A-Za-z_.]+(Error|Exception|Operation|Overflow\w*|Zero\w*)?\b", line)
    ]
    last = f"{places[-1][0]}:{places[-1][1]}" if places else "?"
    return f"{last}: {error[-2 if len(error) > 1 else -1][:150] if error else ''}"


_watching: list[str] | None = None
_hooked = False


@contextlib.contextmanager
def _writes() -> Iterator[list[str]]:
    """Record the files that this process writes, creates, renames or removes meanwhile."""
    global _watching, _hooked
    if not _hooked:
        sys.addaudithook(_audit)  # cannot be removed
        _hooked = True
    found: list[str] = []
    _watching = found
    try:
        yield found
    finally:
        _watching = None


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching is None:
        return
    if event == "open":
        path, _, flags = arguments
        if isinstance(path, str | bytes) and isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            _note(path)
    elif event in (
        "os.mkdir",
        "os.remove",
        "os.rmdir",
        "os.rename",
        "os.link",
        "os.symlink",
        "os.truncate",
        "os.chmod",
    ):
        for path in arguments[:2]:
            if isinstance(path, str | bytes):
                _note(path)


def _note(path: str | bytes) -> None:
    found = str(Path.cwd() / os.fsdecode(path))
    # Python writes bytecode wherever it imports from.
    if _watching is not None and "__pycache__" not in found and not found.startswith(("/dev/", "/proc/")):
        _watching.append(found)
