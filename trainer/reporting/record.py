"""The record of a run, run.record.json in its folder: attempts, times, steps, tokens and what the seconds were for.

docs/reference/record.md describes it; launcher/products/records/form.py reads it. The process that trains writes it at
its start, at each checkpoint, once a minute and at its end, so that a killed run has a record that is nearly current.
"""

from __future__ import annotations

import getpass
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainer.config import RunConfig, replace_file
from trainer.metrics import now

FILE = "run.record.json"
_CAUSES = {
    "ray": "starting",
    "imports": "starting",
    "data": "starting",
    "compile": "compiling",
    "training": "training",
    "evaluation": "evaluation",
    "checkpoint": "checkpoints",
}
"""The cause that the seconds of a phase count for."""
SLOWER = 1.1
"""Times the forecast: an attempt with a longer step has `slower_since`. Forecasts of published runs are within 10 %."""


def read(folder: Path) -> dict[str, Any]:
    """Return the record in a run's folder; {} if there is none, or it is damaged. Raises OSError."""
    try:
        record = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    usable = isinstance(record, dict) and record.get("version") == 1 and isinstance(record.get("attempts"), list)
    return record if usable and all(isinstance(part, dict) and "started" in part for part in record["attempts"]) else {}


def started(config: RunConfig, kept: Mapping[str, Any], at: str = "") -> dict[str, Any]:
    """Return the record of a run with a new attempt that started at `at`, after the record `kept` of its folder."""
    attempts = [dict(part) for part in kept.get("attempts") or ()]
    if attempts and not attempts[-1].get("ended"):  # it was killed
        attempts[-1]["ended"] = attempts[-1].get("seen") or attempts[-1]["started"]
    at = at or now()
    attempt = {"started": at, "first_step": None, "seen": at, "ended": None, "end": "", "from_step": None}
    attempts.append({**attempt, "steps": None, "seconds": {}})
    tree, row = config.tree, config.accelerator
    team = tree.get("team") or {}
    record = {
        "version": 1,
        "uid": kept.get("uid") or (os.environ.get("SLIPWAY_RUN_ID") or uuid.uuid4().hex if config.is_local else ""),
        "name": config.name,
        "namespace": "" if config.is_local else str(team.get("namespace") or team.get("name") or ""),
        "kind": str(tree["run"].get("kind") or ""),
        "team": config.team,
        "user": _user() if config.is_local else "",
        "queue": str((tree.get("queue") or {}).get("name") or config.team),
        "state": "starting",
        "reason": "",
        "times": {"started": attempts[0]["started"], "first_step": None, "ended": None},
        "attempts": attempts,
        "accelerator": str(row.get("name") or ""),
        "topology": str(row.get("topology") or ""),
        "provisioning": str(tree["slice"].get("provisioning") or ""),
        "slices": config.slices,
        "chips": config.chips,
        "steps": kept.get("steps"),
        "steps_wanted": config.train.get("steps") if isinstance(config.train.get("steps"), int) else None,
        "tokens": kept.get("tokens"),
        "config": config.digest,
        "image": _image(tree.get("image") or {}),
        "folder": folder_of(config),
        "sources": ["trainer"],
    }
    return _complete(record)


def ended(record: Mapping[str, Any], end: str, reason: str, *, final: bool) -> dict[str, Any]:
    """Return the record after the end of its last attempt. `final`: the run is over, too."""
    at = now()
    attempts = [dict(part) for part in record["attempts"]]
    attempts[-1] |= {"ended": attempts[-1].get("ended") or at, "seen": at, "end": end}
    state = {"succeeded": "succeeded", "stopped": "cancelled", "preempted": "restarting"}.get(end, "failed")
    if not final:
        state = "restarting"
    times = {**record["times"], "ended": at if final else None}
    return _complete({**record, "attempts": attempts, "state": state, "reason": reason, "times": times})


def write(folder: Path, record: Mapping[str, Any]) -> None:
    """Replace the record in a run's folder atomically. Raises OSError."""
    replace_file(folder / FILE, _complete(record))


def add_seconds(spent: dict[str, float], phase: str, seconds: float) -> None:
    """Add the seconds of a phase to those of its cause."""
    if cause := _CAUSES.get(phase):
        spent[cause] = spent.get(cause, 0.0) + max(0.0, seconds)


def _complete(record: Mapping[str, Any]) -> dict[str, Any]:
    at = now()
    attempts = record["attempts"]
    end = record["times"].get("ended") or at
    chips = record.get("chips")
    alive = [_seconds(part.get("ended") or part.get("seen")) - _seconds(part["started"]) for part in attempts]
    return {
        **record,
        **totals(attempts, _seconds(end)),
        "restarts": sum(part.get("end") == "failed" for part in attempts[:-1]),
        "preemptions": sum(part.get("end") == "preempted" for part in attempts),
        "chip_seconds": round(chips * sum(max(0.0, each) for each in alive), 3) if chips else None,
        "written": at,
    }


def totals(attempts: Sequence[Mapping[str, Any]], end: float) -> dict[str, Any]:
    """Return the run's seconds by cause, and its goodput, up to `end`. They add up to the seconds since its start.

    The steps that the next attempt repeats count for the failure, or the preemption, and so does the time between.
    """
    seconds = dict.fromkeys(("training", "starting", "compiling", "checkpoints", "evaluation", "data"), 0.0)
    seconds |= {"failures": 0.0, "preemptions": 0.0}
    for number, attempt in enumerate(attempts):
        for cause, amount in attempt["seconds"].items():
            seconds[cause] += amount
        if number + 1 == len(attempts):
            continue
        later, lost = attempts[number + 1], 0.0
        done, begun, resumed = attempt.get("steps"), attempt.get("from_step"), later.get("from_step")
        if done is not None and begun is not None and resumed is not None and done > begun:
            lost = attempt["seconds"].get("training", 0.0) * max(0, done - max(resumed, begun)) / (done - begun)
        gap = _seconds(later["started"]) - _seconds(attempt.get("ended") or attempt.get("seen"))
        cause = "preemptions" if attempt.get("end") in ("preempted", "stopped") else "failures"
        seconds["training"] -= lost
        seconds[cause] += lost + max(0.0, gap)
    known = sum(seconds.values())
    total = max(known, end - _seconds(attempts[0]["started"]))
    seconds = {"total": total, **seconds, "other": total - known}
    ratio = round(min(1.0, max(0.0, seconds["training"] / total)), 6) if total else 0.0
    return {"seconds": {cause: round(max(0.0, amount), 3) for cause, amount in seconds.items()}, "goodput": ratio}


def _seconds(text: str | None) -> float:
    return datetime.fromisoformat(text).timestamp() if text else datetime.now(UTC).timestamp()


def folder_of(config: RunConfig) -> str:
    """Return the run's folder as launcher status prints it."""
    storage = config.tree["storage"]
    if storage.get("kind") == "gcsfuse":
        return f"gs://{storage.get('bucket')}/{config.name}"
    return f"pvc://{storage.get('claim')}/{config.name}" if storage.get("kind") == "pvc" else str(config.folder)


def _image(image: Mapping[str, Any]) -> str:
    repository = "/".join(str(part) for part in (image.get("registry"), image.get("repository")) if part)
    digest, tag = image.get("digest"), image.get("tag")
    return f"{repository}{f'@{digest}' if digest else f':{tag}' if tag else ''}" if repository else ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name
        return ""
