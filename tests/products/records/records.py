"""Records of runs for tests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

BEGIN = 1_790_000_000.0


def stamp(seconds: float) -> str:
    """Return the time `seconds` after BEGIN."""
    return datetime.fromtimestamp(BEGIN + seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def attempt(
    start: float, end: float | None, *, steps: tuple[int, int] = (0, 10), how: str = "", **seconds: float
) -> Any:
    last = stamp(end) if end is not None else None
    return {
        "started": stamp(start),
        "first_step": stamp(start + 5),
        "seen": last or stamp(start + 5),
        "ended": last,
        "end": how,
        "from_step": steps[0],
        "steps": steps[1],
        "seconds": seconds,
    }


def of_cluster(**changes: Any) -> dict[str, Any]:
    """Return a record that `launcher record` has written: of a run that was admitted after 10 s and ended after 100."""
    times = {
        "submitted": stamp(0),
        "queued": stamp(1),
        "admitted": stamp(10),
        "started": stamp(20),
        "ended": stamp(100),
    }
    record = {
        "version": 1,
        "uid": "uid-1",
        "name": "demo",
        "namespace": "research",
        "queue": "research",
        "state": "succeeded",
        "reason": "",
        "times": times,
        "chips": 16,
        "accelerator": "v6e",
        "provisioning": "spot",
        "held": [{"from": stamp(10), "to": stamp(100)}],
        "folder": "gs://lab-runs/demo",
        "sources": ["cluster"],
        "written": stamp(120),
    }
    return {**record, **changes}


def of_trainer(**changes: Any) -> dict[str, Any]:
    """Return the trainer's record of the same run."""
    record = {
        "version": 1,
        "uid": "",
        "name": "demo",
        "namespace": "research",
        "state": "succeeded",
        "reason": "",
        "times": {"started": stamp(21), "first_step": stamp(26), "ended": stamp(99)},
        "attempts": [attempt(21, 99, how="succeeded", training=60.0, starting=3.0, compiling=2.0)],
        "chips": 16,
        "steps": 10,
        "tokens": 1000,
        "seconds": {"total": 78.0, "training": 60.0},
        "goodput": 0.769231,
        "folder": "gs://lab-runs/demo",
        "sources": ["trainer"],
        "written": stamp(99),
    }
    return {**record, **changes}
