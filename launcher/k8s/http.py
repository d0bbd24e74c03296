"""Requests to an API server, sent with the user's credentials and retried if that is safe.

An HTTP status of 400 or more, or no answer, raises a launcher.k8s.errors.ClusterError with a sentence.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from launcher.json_object import load_json
from launcher.k8s.errors import ClusterError, DeadlineExceeded, Unreachable, from_status

if TYPE_CHECKING:
    import urllib3

    from launcher.k8s.kubeconfig import Access

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
        found = self.json()
        if not isinstance(found, dict):
            raise _not_json("a JSON object", self.status)
        return found

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
        from kubernetes.client.rest import RESTClientObject

        self.access = access
        # The kubernetes package sets up TLS, proxies and client certificates; requests use its connection pool.
        self._pool: urllib3.PoolManager = RESTClientObject(access.configuration).pool_manager

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
        sent = {
            "User-Agent": "slipway-launcher",
            "Accept": "application/json",
            # A thousand runs with their Workloads are 19 MB without compression.
            **({} if stream else {"Accept-Encoding": "gzip"}),
            **self.access.credentials(),
            **(headers or {}),
        }

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
        name, server = self.access.name, self.access.server
        known = re.search(r"certificate verify failed: ([^(]+)", str(error))
        if known:
            return Unreachable(
                f"{name[:1].upper()}{name[1:]} ({server}) presents a certificate that the kubeconfig does not trust: "
                f"{known[1].strip().rstrip('.')}.",
                "The cluster may have been created again: get its credentials again. Otherwise another server may "
                "intercept the connection.",
            )
        return Unreachable(
            f"The API server of {name} ({server}) does not answer: {_cause(error)}.",
            "Check the network or VPN, and that this is the cluster you mean: kubectl config current-context.",
        )


def _not_json(expected: str, status: int) -> ClusterError:
    return ClusterError(
        f"The server returned an answer that is not {expected}.",
        "Check that the kubeconfig has the address of an API server, and that no proxy changes its answers.",
        status=status,
    )


def _cause(error: BaseException) -> str:
    """Return a short description of the error that urllib3 wraps."""
    inner: BaseException | None = getattr(error, "reason", None) if not isinstance(error, OSError) else error
    if isinstance(inner, BaseException) and inner is not error:
        return _cause(inner)
    kind = type(error).__name__
    if kind in ("ConnectTimeoutError", "ReadTimeoutError", "TimeoutError"):
        return "no answer in time"
    if kind == "NameResolutionError":
        return "its name cannot be resolved"
    if kind == "SSLError":
        return f"its certificate is not accepted ({' '.join(str(error).split())})"
    text = " ".join(str(error).split())
    for known in ("Connection refused", "No route to host", "Network is unreachable", "Connection reset by peer"):
        if known in text:
            return known[0].lower() + known[1:]
    if "IncompleteRead" in text:
        return "the server closed the connection"
    return text.rpartition(": ")[2] or kind
