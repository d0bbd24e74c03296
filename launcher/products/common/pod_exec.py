"""Run a command in a container of a pod, as `kubectl exec` does: over a websocket of the API server.

The first byte of each message is its channel (v4.channel.k8s.io). The end of the command arrives as a Status object.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from launcher.json_object import json_object
from launcher.k8s.client import POD
from launcher.k8s.errors import ClusterError, Unreachable, from_status
from launcher.k8s.http import USER_AGENT

if TYPE_CHECKING:
    from launcher.k8s.client import Cluster

STDIN, STDOUT, STDERR = 0, 1, 2
_STATUS, _RESIZE = 3, 4
_PROTOCOLS = ["v5.channel.k8s.io", "v4.channel.k8s.io"]


class Session:
    """A command that runs in a container. `exit_code` is None until it has ended."""

    def __init__(self, socket: Any, where: str) -> None:
        self._socket = socket
        self._where = where
        self.exit_code: int | None = None

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when a message arrives."""
        return int(self._socket.sock.fileno())

    def send(self, data: bytes) -> None:
        """Send input to the command."""
        self._send(STDIN, data)

    def resize(self, columns: int, lines: int) -> None:
        """Set the size of the command's terminal."""
        self._send(_RESIZE, json.dumps({"Width": columns, "Height": lines}).encode())

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """Yield the messages that have arrived, waiting for the first: STDOUT or STDERR, and the output.

        After the last message, `exit_code` is set. Raises Unreachable if the connection is lost before.
        """
        while True:
            try:
                data = self._socket.recv()
            except (OSError, ValueError) as error:
                raise self._lost(error) from error
            message = data.encode() if isinstance(data, str) else bytes(data)
            if not message:  # closed
                if self.exit_code is None:
                    raise self._lost(None)
                return
            channel, content = message[0], message[1:]
            if channel == _STATUS:
                self.exit_code = _exit_code(content)
                return
            if content:
                yield channel, content
            if not _has_pending(self._socket.sock):  # data that TLS has decrypted, which `select` does not report
                return

    def close(self) -> None:
        # Its `close` does nothing if the server has closed the websocket, and otherwise waits for the server. Its
        # `shutdown` leaves urllib3's SSLTransport open.
        connection = self._socket.sock
        self._socket.shutdown()
        if connection is not None:
            connection.close()

    def _send(self, channel: int, data: bytes) -> None:
        try:
            self._socket.send_binary(bytes([channel]) + data)
        except (OSError, ValueError) as error:
            raise self._lost(error) from error

    def _lost(self, error: Exception | None) -> Unreachable:
        why = f": {error}" if error is not None and str(error) else ""
        return Unreachable(f"The connection to the pod in {self._where} was closed{why}.")


def start(cluster: Cluster, pod: str, container: str, command: Sequence[str], *, terminal: bool) -> Session:
    """Start the command in the container. With `terminal`, it has a terminal and reads input; stderr is in stdout.

    Raises Forbidden if the user may not do this, and other ClusterErrors if the API server refuses or does not answer.
    """
    websocket: Any = import_module("websocket")
    path = f"{POD.path(cluster.namespace)}/{pod}/exec"
    query = [("container", container), ("stdout", "true"), *(("command", part) for part in command)]
    query += [("stdin", "true"), ("tty", "true")] if terminal else [("stderr", "true")]
    server = urlsplit(f"{cluster.access.server}{path}")
    url = urlunsplit(server._replace(scheme={"https": "wss"}.get(server.scheme, "ws"), query=urlencode(query)))
    header = [f"{name}: {value}" for name, value in cluster.access.identity.current()[0]]
    socket = websocket.WebSocket(skip_utf8_validation=False)
    try:
        socket.connect(
            url,
            socket=cluster.open_socket(),
            header=[f"User-Agent: {USER_AGENT}", *header],
            subprotocols=_PROTOCOLS,
            suppress_origin=True,
        )
    except websocket.WebSocketBadStatusException as refused:
        body = refused.resp_body or b""
        raise from_status(
            refused.status_code,
            body if isinstance(body, bytes) else str(body).encode(),
            where=cluster.access.name,
            method="GET",
            path=path,
        ) from refused
    except (websocket.WebSocketException, OSError) as error:
        raise Unreachable(
            f"The API server of {cluster.access.name} does not open a connection to the pod {pod}: {error}."
        ) from error
    return Session(socket, cluster.access.name)


def _exit_code(status: bytes) -> int:
    """Return the exit code in the Status of the end. Raises ClusterError if the command was not started."""
    answer = json_object(status) or {}
    if answer.get("status") == "Success":
        return 0
    causes = (answer.get("details") or {}).get("causes") or []
    for cause in causes:
        if isinstance(cause, dict) and cause.get("reason") == "ExitCode" and str(cause.get("message")).isdigit():
            return int(str(cause["message"]))
    raise ClusterError(
        f"The command cannot be run in the pod: {answer.get('message') or 'the API server gives no cause'}."
    )


def _has_pending(connection: Any) -> bool:
    """Return whether TLS has read more data from the connection, which `select` on its descriptor does not report."""
    if isinstance(connection, ssl.SSLSocket):
        return connection.pending() > 0
    inner = getattr(connection, "sslobj", None)  # TLS in a TLS connection to a proxy
    return inner is not None and (inner.pending() > 0 or connection.incoming.pending > 0)
