"""Notify of the end of runs whose trainer could not: they never started, or died without a word.

The addresses are those of this process (SLIPWAY_NOTIFY), and those in a Secret of the run's namespace, which go to a
child (trainer.reporting) on its stdin: not on a command line, and not into a log.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher.errors import LauncherError
from launcher.json_object import json_object
from launcher.k8s.client import SECRET, Cluster
from launcher.products.common import child
from launcher.products.common.storage import BUCKET_FOLDER, read_bucket
from launcher.products.records.form import TRAINER, Record, ended
from launcher.products.report.metrics import time_of

_KEY = "addresses"
_SECONDS = 180.0
_OLD = 24 * 3600.0
"""A run that ended longer ago is not notified of: it ended before anything recorded it."""
ENDED = "ended"
_WORDS = {"succeeded": "has succeeded", "cancelled": "was cancelled", "failed": "has failed"}


def is_due(record: Record, storage: Path | None, now: float) -> bool:
    """Return whether the end of a run has no notification yet, as far as that can be known.

    The trainer leaves a mark in the run's folder. If it started, and that folder cannot be read, it has probably
    notified: a notification is lost rather than sent twice.
    """
    at = time_of(record["times"].get("ended"))
    if not ended(record) or ENDED in (record.get("notified") or ()) or at is None or now - at > _OLD:
        return False
    if not record["times"].get("started"):
        return True
    submitted = time_of(record["times"].get("submitted")) or 0.0
    marks = _marks(record, storage)
    return marks is not None and not any((time_of(mark.get("time")) or 0.0) >= submitted for mark in marks)


def _marks(record: Record, storage: Path | None) -> list[Mapping[str, Any]] | None:
    """Return the trainer's marks of an end; None if its folder cannot be read."""
    if TRAINER not in (record.get("sources") or ()):
        return None
    names = [f"notified/ended-{number}.json" for number in range(1, len(record.get("attempts") or ()) + 2)]
    try:
        if BUCKET_FOLDER.fullmatch(str(record.get("folder") or "")):
            files = read_bucket(record["folder"], names)
        elif storage is not None:
            paths = [storage / record["name"] / name for name in names]
            files = {str(path): path.read_bytes() for path in paths if path.is_file()}
        else:
            return None
    except (LauncherError, OSError):
        return None
    return [mark for data in files.values() if (mark := json_object(data)) is not None]


def message(record: Record) -> dict[str, Any]:
    """Return the notification of the end of a run, in the form that the trainer sends."""
    team = f" (team {record['team']})" if record.get("team") else ""
    state = record["state"]
    text = f"Run {record['name']}{team} {_WORDS[state]}. {record.get('reason') or ''}".strip()
    fields = {key: record.get(key) for key in ("team", "namespace", "folder", "steps")}
    known = {key: value for key, value in fields.items() if value}
    return {"event": ENDED, "run": record["name"], "state": state, "text": text, "time": record["written"], **known}


def addresses(cluster: Cluster, namespace: str, secret: str) -> tuple[str, str]:
    """Return the addresses in a Secret of a namespace, and why they cannot be read; both "" if it does not exist."""
    try:
        obj = cluster.get(SECRET, secret, namespace)
        data = ((obj or {}).get("data") or {}).get(_KEY) or ""
        if obj is not None and not data:
            return "", f"The Secret {secret} of the namespace {namespace} has no key {_KEY}; add it, with addresses."
        return base64.b64decode(data, validate=True).decode(), ""
    except LauncherError as error:
        return "", f"The Secret {secret} of the namespace {namespace} cannot be read: {error.message}"
    except (binascii.Error, UnicodeDecodeError, AttributeError, TypeError):
        return "", f"The key {_KEY} of the Secret {secret} of the namespace {namespace} is not text."


def has_own_addresses() -> bool:
    """Return whether the environment of this process has addresses."""
    return any(map(os.environ.get, ("SLIPWAY_NOTIFY", "SLIPWAY_NOTIFY_FILE")))


def send(text: str, messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Send messages to the addresses in `text`, and to those of this process. Returns a sentence for each problem."""
    if not messages or not (text.strip() or has_own_addresses()):
        return []
    request = json.dumps({"addresses": text, "messages": list(messages)}).encode()
    with child.running(child.module("trainer.reporting"), stdin=subprocess.PIPE) as process:
        try:
            answer, _ = process.communicate(request, timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            return ["The notifications were not sent in time."]
    problems = (json_object(answer) or {}).get("problems")
    return [str(each) for each in problems] if isinstance(problems, list) else ["The notifications were not sent."]
