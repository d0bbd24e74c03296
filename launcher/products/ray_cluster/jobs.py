"""Client for the Jobs API of a Ray cluster in Kubernetes, through the API server's proxy to the head's Service.

It needs access to the API server only, and no forwarded port. Ray's token is sent in a separate header,
x-ray-authorization (ray/_private/authentication), because the API server uses Authorization.

Ray's own client, JobSubmissionClient, requires `import ray` (two seconds, and not part of the launcher's base install)
and does not support the API server's proxy.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import quote

from launcher.json_object import json_object
from launcher.k8s import objects
from launcher.k8s.client import RAY_CLUSTER, SERVICE, Cluster, Response, Unreachable
from launcher.k8s.errors import ClusterError, from_status
from launcher.k8s.objects import Object
from launcher.k8s.rbac import Permission, indented_role
from launcher.k8s.shapes import Map, Shape, fault, text
from launcher.products.ray_cluster.tokens import token_of

_AUTHORIZATION = "x-ray-authorization"
DASHBOARD_PORT = 8265
_SECONDS = 60.0
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")


def _milliseconds(value: Any) -> str:
    valid = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 253_000_000_000_000
    return "" if valid else "a time in milliseconds"


_JOB: Shape = {
    "submission_id!": text,
    "status!": text,
    "message": text,
    "driver_node_id": text,
    "start_time": _milliseconds,
    "end_time": _milliseconds,
    "metadata": Map(text),
}

Job = Mapping[str, Any]
"""A job as Ray's API returns it: submission_id, status, message, start_time and end_time (ms), metadata, …"""


class TokenRefused(ClusterError):
    """Ray requires a token, or rejects the token."""


class RayError(ClusterError):
    """Ray's head returned an error."""


def service_of(ray_cluster: Object) -> str:
    """Return the name of the head's Service."""
    known = (objects.status(ray_cluster).get("head") or {}).get("serviceName")
    return str(known or f"{objects.name(ray_cluster)}-head-svc")


class RayHead:
    """The HTTP server of a Ray cluster's head (dashboard and Jobs API), behind the API server."""

    def __init__(self, cluster: Cluster, ray_cluster: Object, *, named: bool) -> None:
        """Read the token. `named` and the errors are those of token_of."""
        self.name, self.namespace = objects.name(ray_cluster), objects.namespace(ray_cluster)
        self._cluster = cluster
        self._service = service_of(ray_cluster)
        self._read_token = partial(token_of, cluster, ray_cluster, named=named)
        self._token = self._read_token()

    @property
    def description(self) -> str:
        return f"the Ray cluster {self.name} (namespace {self.namespace})"

    def request(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = _SECONDS,
        **options: Any,
    ) -> Response:
        """Send one request to the head, with Ray's token. Return Ray's response, even if it is an error.

        `options` are those of Connection.request: query, body and stream.

        Raises ClusterError if the API server refuses the request, or does not reach the head.
        """
        if self._token and self._token.renew_at is not None and time.monotonic() > self._token.renew_at:
            self._token = self._read_token()
        token = {_AUTHORIZATION: f"Bearer {self._token.text}"} if self._token else {}
        service = f"http:{self._service}:{DASHBOARD_PORT}"
        url = f"{SERVICE.path(self.namespace)}/{service}/proxy/{path.lstrip('/')}"
        response = self._cluster.request(
            method,
            url,
            headers={**(headers or {}), **token},
            timeout=timeout,
            raw=True,
            **options,
        )
        if response.status >= 400 and "json" in response.headers.get("content-type", ""):
            data = response.data
            if _is_kubernetes(data):
                raise self._not_reached(response.status, data, method, url)
        return response

    def refusal(self, status: int, text: str) -> ClusterError:
        """Return the error for a response from Ray with a status of 400 or higher."""
        if status == 401:
            return TokenRefused(
                f"{_capital(self.description)} requires a token, but its RayCluster object does not set one "
                "(spec.authOptions).",
                "Set security.tokenAuth: true in the cluster's values and install it again.",
                status=status,
            )
        if status == 403 and self._token is not None and "token" in text.lower():
            return TokenRefused(
                f"{_capital(self.description)} does not accept {self._token.origin}.",
                "If the Secret was created again, the cluster's pods have the old token until they are deleted. "
                "If it is a token of a service account, the account needs the verb ray:write on this RayCluster; a "
                "platform engineer can allow it:\n"
                + indented_role(Permission("ray:write", RAY_CLUSTER.plural, "ray.io"), self.namespace, self.name),
                status=status,
            )
        if status == 500 and ("agent to submit" in text or "head node agent" in text):
            return Unreachable(
                f"{_capital(self.description)} is running, but its job agent is not ready yet.",
                "Try again in a moment.",
                status=status,
            )
        return RayError(f"{_capital(self.description)} returned an error ({status}): {_last_line(text)}", status=status)

    def _not_reached(self, status: int, data: bytes, method: str, url: str) -> ClusterError:
        error = from_status(status, data, where=self._cluster.name, method=method, path=url)
        if status in (404, 502, 503, 504) or isinstance(error, Unreachable):
            why = str((json_object(data) or {}).get("message") or "").rstrip(".")
            return Unreachable(
                f"The head of {self.description} does not answer: {why}.",
                f"To show its pods: launcher status {self.name}{self._cluster.cli_args}",
                status=status,
            )
        return error


class RayJobs:
    """The part of Ray's Jobs API that the launcher needs."""

    def __init__(self, head: RayHead) -> None:
        self.head = head

    def version(self) -> str:
        """Return Ray's version, for example "2.60.0"."""
        answer = self._json("GET", "api/version")
        return str(answer.get("ray_version") or "") if isinstance(answer, dict) else ""

    def list(self) -> list[Job]:
        """Return every submitted job that Ray's head still has."""
        answer = self._json("GET", "api/jobs/")
        if not isinstance(answer, list) or not all(isinstance(job, dict) for job in answer):
            raise self._unreadable("its list of jobs is not a list of objects")
        return [self._job(job) for job in answer if job.get("type") == "SUBMISSION"]

    def get(self, submission: str) -> Job | None:
        """Return the job, or None if the head has no job with that id."""
        response = self.head.request("GET", f"api/jobs/{quote(submission)}")
        if response.status == 404:
            return None
        return self._job(self._checked(response).json())

    def submit(self, submission: str, entrypoint: str, metadata: Mapping[str, str]) -> bool:
        """Start a job. Return False if a job with that id already exists.

        A call is safe to repeat after a lost response: it returns False, and the job's metadata identify its owner.
        """
        body = {"submission_id": submission, "entrypoint": entrypoint, "metadata": dict(metadata)}
        response = self.head.request(
            "POST", "api/jobs/", body=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
        )
        # Ray has no specific status for this error.
        if response.status >= 400 and f"{submission} already exists" in response.data.decode("utf-8", "replace"):
            return False
        self._checked(response)
        return True

    def stop(self, submission: str) -> None:
        """Request a stop of the job, without waiting for it. Has no effect if the job has ended or does not exist."""
        response = self.head.request("POST", f"api/jobs/{quote(submission)}/stop")
        if response.status != 404:
            self._checked(response)

    def delete(self, submission: str) -> None:
        """Remove the record of a job that has ended, if it exists."""
        response = self.head.request("DELETE", f"api/jobs/{quote(submission)}")
        if response.status != 404:
            self._checked(response)

    def log(self, job: Job, *, lines: int = -1) -> Iterator[bytes]:
        """Yield the last `lines` lines of the driver's output (-1: all) as they arrive; nothing before its start."""
        response = self._log(job, "file", lines, _SECONDS)
        if response is None:
            return
        try:
            yield from response.parts()
        finally:
            response.close()

    def follow(self, job: Job, *, silence: float) -> Response | None:
        """Return a stream of the job's log from its first line, or None before the driver has started.

        The stream does not end by itself. Its parts raise Unreachable after `silence` seconds without a byte.
        """
        return self._log(job, "stream", -1, silence)

    def _log(self, job: Job, media: str, lines: int, timeout: float) -> Response | None:
        # The Jobs API itself returns only the whole log in one piece, or a websocket.
        if not job.get("driver_node_id"):
            return None
        query = {
            "node_id": str(job["driver_node_id"]),
            "filename": f"job-driver-{job['submission_id']}.log",
            "lines": str(lines),
        }
        response = self.head.request("GET", f"api/v0/logs/{media}", query=query, stream=True, timeout=timeout)
        if response.status == 500 and b"could not find" in response.data.lower():
            return None
        return self._checked(response)

    def _job(self, job: Any) -> Job:
        """Return the job. Raises RayError if a field has a wrong type: the head runs the code of its users."""
        if problem := fault(job, _JOB):
            raise self._unreadable(f"a job cannot be read: {problem}")
        return dict(job)

    def _unreadable(self, why: str) -> RayError:
        return RayError(
            f"{_capital(self.head.description)} returned an invalid answer: {why}.",
            "Its head may run another version of Ray, or another program.",
        )

    def _json(self, method: str, path: str) -> Any:
        return self._checked(self.head.request(method, path)).json()

    def _checked(self, response: Response) -> Response:
        if response.status >= 400:
            raise self.head.refusal(response.status, response.data.decode("utf-8", "replace"))
        return response


def _is_kubernetes(data: bytes) -> bool:
    """Return whether an error comes from the API server itself, and not from Ray."""
    body = json_object(data) or {}
    return body.get("kind") == "Status" and body.get("apiVersion") == "v1"


def _last_line(text: str) -> str:
    """Return the last line of Ray's traceback, which has the error."""
    lines = text.strip().splitlines()
    return lines[-1].strip()[:500] if lines else "no details"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
