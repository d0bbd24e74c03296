"""Notify of the end of a run that `submit` or `attach` follows, if its trainer did not."""

from __future__ import annotations

import time
from pathlib import Path

from launcher.backends.base import RunStatus
from launcher.products.records import form, notify


def ended(status: RunStatus) -> list[str]:
    """Send to the addresses of this process. Returns a sentence for each problem.

    A run that was never admitted, or whose supervisor was killed, has no trainer that notifies.
    """
    if not status.state.ended or not notify.has_own_addresses():
        return []
    now = time.time()
    record = {
        **{key: getattr(status, key) for key in ("name", "namespace", "team", "folder", "reason", "steps")},
        "state": status.state.value,
        "written": form.timestamp(now),
        "times": {
            "submitted": status.submitted,
            "started": status.started,
            "ended": status.ended or form.timestamp(now),
        },
        "sources": [form.TRAINER],
        "attempts": [{}] * (status.attempt + status.restarts),
    }
    if not notify.is_due(record, None if status.in_cluster else Path(status.folder).parent, now):
        return []
    return notify.send("", [notify.message(record)])
