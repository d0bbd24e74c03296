"""Requests to Google Cloud: reads through the REST APIs, which is fast, and changes through gcloud.

Both act as the account of gcloud: its access token signs the reads, so no key of a service account is needed.
gcloud's own settings apply: CLOUDSDK_API_ENDPOINT_OVERRIDES_* names other endpoints.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

from launcher.errors import LauncherError
from launcher.json_object import json_object

_ENDPOINTS = {
    "ARTIFACTREGISTRY": "https://artifactregistry.googleapis.com/",
    "CLOUDRESOURCEMANAGER": "https://cloudresourcemanager.googleapis.com/",
    "COMPUTE": "https://compute.googleapis.com/",
    "CONTAINER": "https://container.googleapis.com/",
    "IAM": "https://iam.googleapis.com/",
    "SERVICEUSAGE": "https://serviceusage.googleapis.com/",
    "STORAGE": "https://storage.googleapis.com/",
}
_SECONDS = 30.0
_BAD_REQUEST, _NOT_FOUND = 400, 404
_INSTALL = "Install it: https://cloud.google.com/sdk/docs/install. Then run: gcloud auth login"


class GoogleError(LauncherError):
    """An error of Google Cloud. `status` is the HTTP status, or 0."""

    def __init__(self, message: str, hint: str = "", *, status: int = 0) -> None:
        super().__init__(message, hint)
        self.status = status


def find_gcloud() -> str:
    """Return the path of gcloud: $SLIPWAY_GCLOUD, else `gcloud` on the PATH. Raises LauncherError if it is missing."""
    given = os.environ.get("SLIPWAY_GCLOUD")
    path = shutil.which(given or "gcloud")
    if path is None:
        missing = (
            f"SLIPWAY_GCLOUD is {given}, which is not an executable" if given else "There is no gcloud on the PATH"
        )
        raise LauncherError(f"{missing}; the cluster cannot be read or changed without it.", _INSTALL)
    return path


class Google:
    """Google Cloud as the account of gcloud sees it."""

    def get(self, api: str, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any] | None:
        """Return the resource at `path` of an API, or None if it does not exist. Raises GoogleError."""
        return self._request("GET", api, path, query)

    def post(self, api: str, path: str, body: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the answer of a method that only reads, such as :getIamPolicy."""
        return self._request("POST", api, path, None, body)

    def _request(
        self,
        method: str,
        api: str,
        path: str,
        query: Mapping[str, str] | None,
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any] | None:
        import requests

        base = os.environ.get(f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{api}") or _ENDPOINTS[api]
        url = base + path + (f"?{urlencode(query, doseq=True)}" if query else "")
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        try:
            answer = requests.request(method, url, json=body, headers=headers, timeout=_SECONDS)
        except requests.RequestException as error:
            raise GoogleError(
                f"{_host(base)} does not answer: {type(error).__name__}.",
                "Check the network, and the proxy settings of this machine.",
            ) from error
        content = json_object(answer.content) or {}
        if answer.status_code == _NOT_FOUND:
            return None
        if answer.status_code >= _BAD_REQUEST:
            raise _refused(content, answer.status_code)
        return content

    @cached_property
    def _token(self) -> str:
        """The access token of gcloud's account; "" if gcloud's credentials are turned off."""
        if os.environ.get("CLOUDSDK_AUTH_DISABLE_CREDENTIALS", "").lower() in ("1", "true", "yes"):
            return ""
        done = subprocess.run(
            [find_gcloud(), "auth", "print-access-token", "--quiet"], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise GoogleError(
                f"gcloud has no access token: {last_error(done.stderr)}", "Log in first: gcloud auth login"
            )
        return done.stdout.strip()

    def prepare(self) -> None:
        """Get the access token. Requests that threads make in parallel then share it."""
        _ = self._token


def _refused(content: Mapping[str, Any], status: int) -> GoogleError:
    error = content.get("error")
    message = str(error.get("message") or "") if isinstance(error, dict) else ""
    hint = ""
    if status in (401, 403):
        hint = "Check the account (gcloud auth list), its roles, and that the project exists and has billing."
    return GoogleError(f"Google Cloud refused the request: {message or f'HTTP status {status}'}", hint, status=status)


def last_error(stderr: str) -> str:
    """Return the error that gcloud, kubectl or launcher printed, as one line without hints."""
    lines = [line.strip() for line in stderr.strip().splitlines() if line.strip()]
    errors = [number for number, line in enumerate(lines) if re.match(r"(?i)error:", line)]
    message = lines[errors[-1] :] if errors else lines[-1:]
    kept = list(itertools.takewhile(lambda line: not line.startswith("Hint:"), message))
    return re.sub(r"(?i)^error:\s*", "", " ".join(kept)) or "it printed no error"


def _host(base: str) -> str:
    return base.partition("://")[2].partition("/")[0]
