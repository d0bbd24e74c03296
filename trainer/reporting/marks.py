"""Marks of notifications: notified/ID.json in a run's folder. The process that creates the mark sends the notification.

A mark has the state `sending` until the notification is sent (`sent`) or was not accepted (`failed`). Imports only the
standard library.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOLDER = "notified"


def claim(folder: Path, number: str, mark: Mapping[str, Any]) -> bool | None:
    """Create a mark. Returns whether this process created it; None if the folder cannot be written."""
    path = folder / FOLDER / f"{number}.json"
    try:
        path.parent.mkdir(exist_ok=True)
        # Through gcsfuse, two machines that create one object at the same time: one gets an error when it closes.
        with path.open("x", encoding="utf-8") as file:
            file.write(json.dumps({**mark, "state": "sending"}))
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        return False
    except OSError:
        return None
    return True


def settle(folder: Path, number: str, mark: Mapping[str, Any]) -> None:
    """Replace a mark, after the notification was sent or not accepted. Does nothing if the folder cannot be written."""
    path = folder / FOLDER / f"{number}.json"
    draft = path.with_name(f".{uuid.uuid4().hex[:12]}.tmp")
    with contextlib.suppress(OSError):
        draft.write_text(json.dumps(mark), encoding="utf-8")
        draft.replace(path)
