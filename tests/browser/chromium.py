"""The Chromium of this machine, for Playwright: none is downloaded."""

from __future__ import annotations

import os
import shutil

from playwright.sync_api import Browser, Playwright

# Other work may fill the machine.
SECONDS = 120_000
# Nothing of its own accord goes to the network.
_QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def launch(playwright: Playwright) -> Browser:
    found = os.environ.get("SLIPWAY_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    assert found, "this needs Chromium (Debian: apt-get install chromium), or SLIPWAY_CHROMIUM with its path"
    return playwright.chromium.launch(executable_path=found, args=list(_QUIET), timeout=SECONDS)
