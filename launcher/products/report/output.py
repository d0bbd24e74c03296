"""Write a report atomically, and never over a file that is not a report."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.errors import LauncherError

if TYPE_CHECKING:
    from launcher.products.report.model import RunData

_SUFFIX = ".report.html"
_MARK = b'<meta name="generator" content="Slipway report">'
# The mark is in the page's head.
_HEAD = 4096


def default_name(names: Sequence[str], runs: Sequence[RunData]) -> str:
    """Return the name of a file in the current folder: A.report.html, A-and-B.report.html, A-and-2-others.report.html.

    A name that is given twice counts once.
    """
    names = list(dict.fromkeys(names))
    if len(names) == 1:
        parts = [names[0].rstrip("/").rpartition("/")[2]]
    elif len(names) == 2 and len(runs) == 2:
        parts = [run.name for run in runs]
    else:
        parts = [runs[0].name, f"{len(names) - 1}-others"]
    return "-and-".join(_safe(part) for part in parts) + _SUFFIX


def _safe(name: str) -> str:
    """Return the name as a part of a file name."""
    return ("".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in name).strip(".") or "run")[
        :100
    ]


def check(path: Path, *, force: bool) -> None:
    """Raise LauncherError if a report cannot be written to `path`, before any data is read for it."""
    if path.is_dir():
        raise LauncherError(f"{path} is a folder; --out takes a file.")
    if not path.parent.is_dir():
        raise LauncherError(f"There is no folder {path.parent} to write {path.name} to.")
    if force or not path.exists():
        return
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise LauncherError(f"{path} already exists and cannot be read: {error.strerror}.") from error
    if _MARK not in head:
        raise LauncherError(
            f"{path} already exists and is not a Slipway report.",
            "Choose another name with --out FILE, or overwrite the file with --force.",
        )


def write(path: Path, page: str) -> None:
    """Replace the file atomically. Raises LauncherError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            draft.write_text(page, encoding="utf-8", errors="replace")
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise LauncherError(
            f"The report cannot be written to {path.absolute()}: {error.strerror}.",
            "Choose another place with --out FILE; --out - prints the report.",
        ) from error
