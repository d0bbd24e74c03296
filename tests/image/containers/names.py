"""The cluster's DNS, as far as pods need it: the names of services and of pods with a host name, by address.

A resolver asks even where /etc/hosts knows a name (gRPC's asks for the IPv6 address too), so that an honest answer
"there is none" has to come from somewhere.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

from tests.image.containers.network import inside

_A = 1
_QUERY_HEADER = struct.Struct("!6H")


class Names:
    """A server on the node's address, for A queries of names below cluster.local."""

    def __init__(self, namespace: str, address: str) -> None:
        self.address = address
        self._names: dict[str, str] = {}
        with inside(namespace) as run:
            self._socket = run.submit(self._bound).result()
        self._thread = threading.Thread(target=self._serve, name="names", daemon=True)
        self._thread.start()

    def set(self, name: str, address: str) -> None:
        """Have a full name, such as x.team.svc.cluster.local, stand for an address from now on."""
        self._names[name.lower()] = address

    def close(self) -> None:
        # Ends the thread's wait; Linux says as well that there was nobody to part from.
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
                query, asker = self._socket.recvfrom(512)
            except OSError:
                return
            if not query:
                return
            self._socket.sendto(self._answer(query), asker)

    def _answer(self, query: bytes) -> bytes:
        identity, flags, _, _, _, _ = _QUERY_HEADER.unpack_from(query)
        labels, at = [], _QUERY_HEADER.size
        while length := query[at]:
            labels.append(query[at + 1 : at + 1 + length].decode("ascii", "replace").lower())
            at += 1 + length
        kind, _ = struct.unpack_from("!2H", query, at + 1)
        question = query[_QUERY_HEADER.size : at + 5]
        address = self._names.get(".".join(labels))
        # An answer with authority; to a name that is known, but has no record of that kind, an empty one.
        status = 0x8400 | (flags & 0x0100) | (0 if address else 3)
        answers = b""
        if address and kind == _A:
            answers = struct.pack("!3HIH", 0xC00C, _A, 1, 5, 4) + socket.inet_aton(address)
        return _QUERY_HEADER.pack(identity, status, 1, bool(answers), 0, 0) + question + answers
