"""Whether an address is on this machine, so that plain HTTP to it cannot be read on a network."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str | None) -> bool:
    """Return whether a host without its port is localhost or a loopback address: 127.0.0.1, ::1 or [::1]."""
    try:
        return host == "localhost" or ipaddress.ip_address((host or "").strip("[]")).is_loopback
    except ValueError:  # a name
        return False
