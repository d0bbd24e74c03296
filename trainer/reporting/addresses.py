"""Addresses of notifications: the lines of a Secret. Imports only the standard library.

Each line is a kind and a URL, such as "slack https://hooks.slack.com/services/…". The line "events failed ended" has
the events of runs without notify.events. A line that begins with # is a comment. A URL is a secret: no error has it.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

EVENTS = (
    "started",
    "first-step",
    "failed",
    "ended",
    "preempted",
    "stalled",
    "checkpoint-too-old",
    "slower-than-forecast",
    "slow-host",
)
DEFAULT_EVENTS = tuple(event for event in EVENTS if event not in ("started", "first-step"))
"""The events without notify.events and without a line `events`."""
HTTP_KINDS = ("slack", "google-chat", "teams", "json")
EMAIL = "email"
_LARGEST = 64 << 10
_MOST = 20


class AddressError(ValueError):
    """An address is not valid. The text has no secret."""


@dataclass(frozen=True)
class Address:
    """The address of a notification. `label` names it without a secret, such as "line 2 (slack)"."""

    kind: str
    label: str
    url: str = field(repr=False)


def parse(text: str) -> tuple[list[Address], list[str]]:
    """Return the valid addresses of a text, and a sentence for each line that is not valid."""
    addresses: list[Address] = []
    problems: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "events":
            unknown = [word for word in words[1:] if word not in EVENTS]
            if unknown:
                known = ", ".join(EVENTS)
                problems.append(f"Line {number} of the addresses of notifications has an event that is not of {known}.")
            continue
        try:
            addresses.append(_address(words, number))
        except AddressError as error:
            problems.append(f"Line {number} of the addresses of notifications is not valid: {error}")
    if len(addresses) > _MOST:
        problems.append(f"Only the first {_MOST} addresses of notifications are used.")
    return addresses[:_MOST], problems


def _address(words: list[str], number: int) -> Address:
    kind, kinds = words[0], ", ".join((*HTTP_KINDS, EMAIL))
    if kind not in (*HTTP_KINDS, EMAIL):
        raise AddressError(f"it must begin with one of {kinds}.")
    if len(words) != 2:
        raise AddressError("it must be a kind and a URL, separated by a space.")
    try:
        parts = urlsplit(words[1])
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise AddressError("its URL cannot be read.") from None
    if not host:
        raise AddressError("its URL has no host.")
    if kind == EMAIL:
        query = parse_qs(parts.query)
        if parts.scheme not in ("smtp", "smtps"):
            raise AddressError("the URL of an e-mail must begin with smtps:// or smtp://.")
        if not query.get("from") or not query.get("to"):
            raise AddressError("the URL of an e-mail must end with ?from=ADDRESS&to=ADDRESS.")
        if any("\r" in unquote(value) or "\n" in unquote(value) for value in (*query["from"], *query["to"])):
            raise AddressError("an address of an e-mail must be one line.")
    elif parts.scheme != "https":
        # In the cluster, a relay may have no certificate.
        plain = parts.scheme == "http" and (kind == "json" or _is_loopback(host))
        if not plain:
            raise AddressError("its URL must begin with https://.")
    return Address(kind, f"line {number} ({kind})", words[1])


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def events_of(text: str) -> tuple[str, ...]:
    """Return the events in the lines `events` of a text; DEFAULT_EVENTS without one."""
    lines = [words[1:] for line in text.splitlines() if (words := line.split())[:1] == ["events"]]
    return tuple(word for words in lines for word in words if word in EVENTS) if lines else DEFAULT_EVENTS


def from_environment(more: str = "") -> tuple[list[Address], tuple[str, ...], list[str]]:
    """Return the addresses in `more` and in the environment, their events, and a sentence for each problem."""
    text, path = os.environ.get("SLIPWAY_NOTIFY", ""), os.environ.get("SLIPWAY_NOTIFY_FILE", "")
    text = "\n".join(filter(None, (more, text)))
    problems = []
    if path:
        try:
            with Path(path).open(encoding="utf-8") as file:
                text = f"{text}\n{file.read(_LARGEST)}" if text else file.read(_LARGEST)
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            problems.append(f"{path} (SLIPWAY_NOTIFY_FILE) cannot be read: {reason}.")
    addresses, invalid = parse(text[:_LARGEST])
    return addresses, events_of(text[:_LARGEST]), [*problems, *invalid]
