"""Requests to an API server, sent with the user's credentials and retried if that is safe.

An HTTP status of 400 or more, or no answer, raises a launcher.k8s.errors.ClusterError with a sentence.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from launcher.json_object import load_json
from launcher.k8s import transport
from launcher.k8s.errors import ClusterError, DeadlineExceeded, Unreachable, from_status

if TYPE_CHECKING:
    import urllib3

    from launcher.k8s.kubeconfig import Access

USER_AGENT = "slipway-launcher"
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 20.0
_BUSY_TRIES, _BUSY_SECONDS = 6, 5.0


@dataclass(frozen=True)
class Response:
    """An answer: `status`, `headers` by lower-case name, and the body as `data`, or for a stream as `parts`."""

    status: int
    headers: Mapping[str, str]
    raw: urllib3.BaseHTTPResponse
    body: bytes | None = None

    @property
    def data(self) -> bytes:
        return (self.raw.data or b"") if self.body is None else self.body

    def json(self) -> Any:
        """Return the JSON value of the body. Raises ClusterError if it is not JSON."""
        try:
            return load_json(self.data)
        except (ValueError, RecursionError) as error:
            raise _not_json("JSON", self.status) from error

    def json_object(self) -> dict[str, Any]:
        """Return the JSON object of the body. Raises ClusterError if it is not one."""
        data = self.json()
        if not isinstance(data, dict):
            raise _not_json("a JSON object", self.status)
        return data

    def parts(self) -> Iterator[bytes]:
        """Yield the body as it arrives. Raises Unreachable if it is cut off or silent for longer than the timeout."""
        import urllib3

        try:
            while part := self.raw.read1():
                yield part
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(f"The stream was cut off: {_cause(error)}.") from error

    def close(self) -> None:
        self.raw.close()

    def cut(self) -> None:
        """End a stream that another thread reads. `close` would block until the next data."""
        with contextlib.suppress(ValueError, RuntimeError):  # the stream has already ended
            self.raw.shutdown()


class Connection:
    """A connection to an API server as the user of the kubeconfig.

    After `deadline`, a time of time.monotonic(), each request raises DeadlineExceeded. None: no deadline.
    """

    deadline: float | None = None

    def __init__(self, access: Access) -> None:
        self.access = access
        _, self._certificate = access.identity.current()
        self._pool = transport.pool_manager(access, self._certificate)

    def open_socket(self) -> socket.socket:
        """Return a new connection to the API server, with its TLS. Raises Unreachable if there is no answer."""
        import urllib3

        try:
            return transport.connect(self._pool, self.access.server, _CONNECT_SECONDS)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._unreachable(error) from error

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        stream: bool = False,
        timeout: float | None = None,
        raw: bool = False,
    ) -> Response:
        """Send one request to the API server. `timeout` (s) applies to each wait; in a stream, to each part.

        Raises ClusterError for a status of 400 or more. With `raw`, returns the answer instead. Raises DeadlineExceeded
        if the answer is not complete at the `deadline`; a stream is only begun before it.
        """
        import urllib3

        in_parts = stream or self.deadline is not None
        url = f"{self.access.server}{path}" + (f"?{urlencode(query)}" if query else "")
        sent = urllib3.HTTPHeaderDict({"User-Agent": USER_AGENT, "Accept": "application/json"})
        if self.access.compress and not stream:  # a thousand runs with their Workloads are 19 MB without compression
            sent["Accept-Encoding"] = "gzip"
        sent.update(headers or {})
        own, certificate = self.access.identity.current()
        for name, value in own:
            sent.add(name, value.encode().decode("latin-1"))  # sent as UTF-8, as by Go
        if certificate != self._certificate:  # the credential plugin renewed it
            self._certificate, self._pool = certificate, transport.pool_manager(self.access, certificate)

        def send() -> urllib3.BaseHTTPResponse:
            return self._pool.request(
                method,
                url,
                body=body,
                headers=sent,
                preload_content=not in_parts,
                timeout=urllib3.Timeout(
                    connect=self._in_time(_CONNECT_SECONDS), read=self._in_time(timeout or _READ_SECONDS)
                ),
                retries=False,
                redirect=False,
            )

        try:
            try:
                answer = send()
            except urllib3.exceptions.ProtocolError:
                # The server may close an idle connection at the moment of use.
                if method not in ("GET", "DELETE"):
                    raise
                answer = send()
            for _ in range(_BUSY_TRIES):
                if answer.status != 429:
                    break
                # The server did nothing: it is overloaded, or a kind is new to it. Retry-After is the time to wait.
                wait = answer.headers.get("Retry-After", "")
                answer.close()
                time.sleep(self._in_time(min(float(wait) if wait.isdigit() else 1.0, _BUSY_SECONDS)))
                answer = send()
            body = self._read(answer) if in_parts and not stream else None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            self._in_time(0.0)  # if the deadline has passed, it is the cause
            raise self._unreachable(error) from error
        if answer.status == 401:
            self.access.identity.rejected()
        names = {key.lower(): value for key, value in answer.headers.items()}
        response = Response(answer.status, names, answer, body)
        if answer.status >= 400 and not raw:
            with contextlib.closing(answer):
                data = response.data
            raise from_status(answer.status, data, where=self.access.name, method=method, path=path)
        return response

    def _in_time(self, seconds: float) -> float:
        """Return `seconds`, or those until the deadline if these are less. Raises DeadlineExceeded after it."""
        if self.deadline is None:
            return seconds
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded
        return min(seconds, left)

    def _read(self, answer: urllib3.BaseHTTPResponse) -> bytes:
        """Return the body. Raises DeadlineExceeded if it is not complete at the deadline: a long one may arrive slowly,
        and the timeout of a request applies only to each part."""
        parts = []
        try:
            while part := answer.read1():
                parts.append(part)
                self._in_time(0.0)
        except DeadlineExceeded:
            answer.close()
            raise
        return b"".join(parts)

    def _json(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """Send a request with a JSON body; return the JSON object of the answer."""
        data = None if body is None else json.dumps(body).encode()
        return self.request(method, path, query=query, body=data, headers={"Content-Type": content_type}).json_object()

    def _unreachable(self, error: Exception) -> Unreachable:
        import urllib3

        name, server, proxy = self.access.name, self.access.server, self.access.proxy
        cause, through = _cause(error), f" through the proxy {proxy.url} ({proxy.source})" if proxy else ""
        inner: Any = _innermost(error)
        if isinstance(inner, ssl.SSLCertVerificationError):
            who = f"{name[:1].upper()}{name[1:]} ({server})"
            if proxy is not None and isinstance(error, urllib3.exceptions.ProxyError):
                who, through = f"The proxy {proxy.url} ({proxy.source}) of {name}", ""
            return Unreachable(
                f"{who} presents a certificate that the kubeconfig does not trust{through}: "
                f"{inner.verify_message.rstrip('.')}.",
                "The cluster may have been created again: get its credentials again. Otherwise another server may "
                "intercept the connection.",
            )
        # With SOCKS, urllib3 reports the errors of the proxy as those of a new connection.
        of_proxy = (urllib3.exceptions.ProxyError, urllib3.exceptions.NewConnectionError)
        if proxy is not None and isinstance(error, of_proxy):
            refused = re.search(r"Tunnel connection failed: (.+)", cause)
            return Unreachable(
                f"The proxy {proxy.url} ({proxy.source}) does not connect to the API server of {name} ({server}): "
                f"{f'it answers {refused[1]}' if refused else cause}.",
                "The credentials of a proxy are a part of its URL: http://USER:PASSWORD@HOST:PORT."
                if "407" in cause or "authentication failed" in cause
                else f"Check that the proxy runs and may connect to the server, or change {proxy.source}.",
            )
        return Unreachable(
            f"The API server of {name} ({server}) does not answer{through}: {cause}.",
            "Check the network or VPN, and that this is the cluster you mean: kubectl config current-context.",
        )


def _not_json(expected: str, status: int) -> ClusterError:
    return ClusterError(
        f"The server returned an answer that is not {expected}.",
        "Check that the kubeconfig has the address of an API server, and that no proxy changes its answers.",
        status=status,
    )


def _innermost(error: BaseException) -> BaseException:
    """Return the error that urllib3 and http.client wrap, at any depth."""
    for inner in (getattr(error, "reason", None), getattr(error, "original_error", None), *error.args):
        if isinstance(inner, BaseException) and inner is not error:
            return _innermost(inner)
    return error


def _cause(error: BaseException) -> str:
    """Return a short description of the error that urllib3 wraps."""
    error = _innermost(error)
    kind = type(error).__name__
    if kind in ("ConnectTimeoutError", "ReadTimeoutError", "TimeoutError"):
        return "no answer in time"
    text = " ".join(str(error).split())
    if kind == "NameResolutionError" or "Name or service not known" in text:
        return "its name cannot be resolved"
    if isinstance(error, ssl.SSLError):
        return f"its certificate is not accepted ({text})"
    for known in (
        "Connection refused",
        "No route to host",
        "Network is unreachable",
        "Connection reset by peer",
        "Host unreachable",
        "Network unreachable",
    ):
        if known in text:
            return known[0].lower() + known[1:]
    if "IncompleteRead" in text or kind == "RemoteDisconnected":
        return "the server closed the connection"
    if "Tunnel connection failed" in text:
        return text
    return text.rpartition(": ")[2] or kind
