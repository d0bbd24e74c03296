"""The connection of a command in a pod, for clusters and users of the table of tests/unit/address_cases.py."""

from __future__ import annotations

import contextlib

import pytest

from launcher.k8s.client import connect
from launcher.products.common import pod_exec
from tests.unit.address_cases import CASES
from tests.unit.test_address_book import Book, book

__all__ = ["book"]


@pytest.mark.parametrize(
    "name",
    [
        "as-groups",
        "certificate files",
        "proxy with a password",
        "proxy with TLS and a password",
        "socks5 with a password",
        "proxy without TLS",
        "socks5 without TLS",
        "tls-server-name",
        "insecure",
    ],
)
def test_a_command_in_a_pod(name: str, book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its websocket is opened by the same connection. Through a proxy without TLS, it needs a tunnel, too."""
    case = CASES[name]
    for variable, value in book.config(case).items():
        monkeypatch.setenv(variable, value)
    book.servers.take()
    started = pod_exec.start(connect(), "demo", "trainer", ["echo"], terminal=False)
    with contextlib.closing(started):
        messages = [*started.messages()]
        if started.exit_code is None:
            messages += started.messages()
    assert (messages, started.exit_code) == ([(pod_exec.STDOUT, b"hello")], 0)
    sent = [line.removesuffix(", uncompressed") for line in book.servers.take()]
    assert sent == [book.fill(line).replace("PROXY GET", "PROXY CONNECT") for line in case.sent]
