"""Check that a local run can send its metrics to Weights & Biases, before it trains for hours without them."""

from __future__ import annotations

import configparser
import netrc
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_SERVER = "https://api.wandb.ai"


def problem(config: Mapping[str, Any]) -> str:
    """Return a sentence if the run of this config needs an API key that this machine does not have; else ""."""
    wandb = (config.get("tracking") or {}).get("wandb") or {}
    if not wandb.get("project") or wandb.get("mode") != "online" or (config.get("run") or {}).get("command"):
        return ""
    env = {**os.environ, **((config.get("worker") or {}).get("env") or {})}
    if env.get("WANDB_API_KEY") or env.get("WANDB_IDENTITY_TOKEN_FILE") or _host(env) in _hosts_with_a_key(env):
        return ""
    return (
        "tracking.wandb.project is set, but this machine has no API key of Weights & Biases. Run wandb login or set "
        "WANDB_API_KEY; or use tracking.wandb.mode: offline, and wandb sync later."
    )


def _host(env: Mapping[str, str]) -> str:
    """Return the host of the server that wandb uses: from WANDB_BASE_URL, from its settings, or the public server."""
    settings = configparser.ConfigParser()
    folder = env.get("WANDB_CONFIG_DIR") or Path("~/.config/wandb").expanduser()
    try:
        settings.read(Path(folder, "settings"), encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError):  # wandb itself reports it
        settings.clear()
    url = env.get("WANDB_BASE_URL") or settings.get("default", "base_url", fallback=_SERVER)
    return urlsplit(str(url)).hostname or ""


def _hosts_with_a_key(env: Mapping[str, str]) -> set[str]:
    """Return the hosts in the file that `wandb login` writes."""
    hosts: set[str] = set()
    for path in filter(None, (env.get("NETRC"), "~/.netrc", "~/_netrc")):
        try:
            hosts |= set(netrc.netrc(Path(path).expanduser()).hosts)
        except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
            continue
    return hosts
