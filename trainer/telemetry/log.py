"""Reports telemetry problems in the run's log."""

from __future__ import annotations

import sys


def warn(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)  # noqa: T201 - the log
