"""The cluster's DNS, as far as pods need it: addresses of services, and of pods with a host name.

A resolver sends queries even for names in /etc/hosts (gRPC's resolver also asks for the IPv6 address), so a server must
answer that such a record does not exist.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

from tests.image.containers.network import inside

_A = 1
_QUERY_HEADER = struct.Struct("!6H")


class DnsServer:
    """A DNS server on the node's address, for A records of names below cluster.local."""

    def __init__(self, namespace: str, address: str) -> None:
        self.address = address
        self._names: dict[str, str] = {}
        with inside(namespace) as run:
            self._socket = run.submit(self._bound).result()
        self._thread = threading.Thread(target=self._serve, name="dns", daemon=True)
        self._thread.start()

    def set(self, name: str, address: str) -> None:
        """Set the address of a full name, such as x.team.svc.cluster.local."""
        self._names[name.lower()] = address

    def close(self) -> None:
        # This ends the thread's recvfrom. Linux also raises ENOTCONN, because the socket has no peer.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(5)
        self._socket.close()

    def _bound(self) -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((self.address, 53))
        return made

    def _serve(self) -> None:
        while True:
            try:
                query, client = self._socket.recvfrom(512)
            except OSError:
                return
            if not query:
                return
            self._socket.sendto(self._answer(query), client)

    def _answer(self, query: bytes) -> bytes:
        identity, flags, _, _, _, _ = _QUERY_HEADER.unpack_from(query)
        labels, at = [], _QUERY_HEADER.size
        while length := query[at]:
            labels.append(query[at + 1 : at + 1 + length].decode("ascii", "replace").lower())
            at += 1 + length
        kind, _ = struct.unpack_from("!2H", query, at + 1)
        question = query[_QUERY_HEADER.size : at + 5]
        address = self._names.get(".".join(labels))
        # The answer is authoritative. It is empty for a known name without a record of that kind.
        status = 0x8400 | (flags & 0x0100) | (0 if address else 3)
        answers = b""
        if address and kind == _A:
            answers = struct.pack("!3HIH", 0xC00C, _A, 1, 5, 4) + socket.inet_aton(address)
        return _QUERY_HEADER.pack(identity, status, 1, bool(answers), 0, 0) + question + answers
