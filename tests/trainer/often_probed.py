"""Runs the trainer (python -m tests.trainer.often_probed, with its options) with ten times as many probes for slow
hosts, so that a test needs seconds for what takes a minute."""

from __future__ import annotations

import sys

from trainer.__main__ import main
from trainer.training import slow_hosts

if __name__ == "__main__":
    slow_hosts._SECONDS_BETWEEN_PROBES /= 10
    slow_hosts._SECONDS_BETWEEN_REPORTS /= 10
    sys.exit(main())
