"""Starts the Chromium of this machine with Playwright. No browser is downloaded."""

from __future__ import annotations

import os
import shutil

from playwright.sync_api import Browser, Playwright

# Generous, because other tests may use all processors.
TIMEOUT_MS = 120_000
# Without these options, Chromium itself sends requests to the network.
_OPTIONS = (
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
    return playwright.chromium.launch(executable_path=found, args=list(_OPTIONS), timeout=TIMEOUT_MS)
