"""The user of a kubeconfig: credentials and impersonation, sent as kubectl sends them.

Without TLS, no credentials are sent: only the impersonation, which a `kubectl proxy` on this machine passes on.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from launcher.json_object import json_object
from launcher.k8s.errors import LoginFailed

Certificate = tuple[bytes, bytes]
"""A client certificate and its key, as PEM."""
Headers = list[tuple[str, str]]

# Characters of a header's name, apart from letters, digits and the four that `quote` never escapes.
_IN_HEADER_NAMES = "!#$&'*+^`|"


@dataclass(frozen=True)
class Identity:
    """The user. The credentials are `token_of`, which returns a bearer token, or `basic`, or the `plugin`, or none."""

    impersonation: Headers = field(default_factory=list)
    token_of: Callable[[], str] | None = None
    basic: tuple[str, str] | None = None
    client_certificate: Certificate | None = None
    plugin: Plugin | None = None

    def current(self) -> tuple[Headers, Certificate | None]:
        """Return the headers that authenticate a request and those of the impersonation, and the client certificate.

        Raises LoginFailed if the credential plugin fails, or if there is no valid token.
        """
        token, certificate = self.plugin.credential() if self.plugin else ("", self.client_certificate)
        if self.token_of is not None:
            token = self.token_of()
        authorization = f"Bearer {token}" if token else ""
        if self.basic is not None:
            authorization = f"Basic {base64.b64encode(':'.join(self.basic).encode()).decode()}"
        return [*([("Authorization", authorization)] if authorization else []), *self.impersonation], certificate

    def rejected(self) -> None:
        """Note that the API server rejects the credentials: the plugin runs again before the next request."""
        if self.plugin is not None:
            self.plugin.forget()


def impersonation(user: str, uid: str, groups: list[str], extra: Mapping[str, list[str]]) -> Headers:
    """Return the headers of an impersonation."""
    headers = [("Impersonate-User", user), *([("Impersonate-Uid", uid)] if uid else [])]
    headers += [("Impersonate-Group", group) for group in groups]
    for key, values in extra.items():
        headers += [(f"Impersonate-Extra-{quote(key, safe=_IN_HEADER_NAMES)}", value) for value in values]
    return headers


def file_token(file: Path, otherwise: str, where: str) -> Callable[[], str]:
    """Return a function that reads the token file. It returns `otherwise` if the file is empty or cannot be read.

    A file is read for each request, because service accounts' tokens are renewed in place.
    """

    def read() -> str:
        try:
            token = file.read_text(encoding="utf-8").strip()
            why = "is empty"
        except (OSError, ValueError) as error:
            token, why = "", f"cannot be read: {getattr(error, 'strerror', None) or error}"
        if not (token or otherwise):
            raise LoginFailed(f"{where}: the token file {file} {why}.")
        return token or otherwise

    return read


def oidc_token(stored: Callable[[], str], user: str, where: str) -> Callable[[], str]:
    """Return a function that returns the ID token of an auth-provider. `stored` reads it from the kubeconfig.

    kubectl renews it and writes it to the kubeconfig. The launcher does not write to it, and the provider may accept
    a refresh token only once.
    """
    token = stored()

    def read() -> str:
        nonlocal token
        if _expired(token):
            token = stored()  # kubectl may have renewed it
        if _expired(token):
            raise LoginFailed(
                f"{where}: the ID token of the user {user} (auth-provider oidc) "
                f"{'has expired' if token else 'is not set'}.",
                "kubectl get pods renews it and writes it to the kubeconfig; then try again. A credential plugin "
                "(exec) needs no such step.",
            )
        return token

    return read


def _expired(token: str) -> bool:
    """Return whether there is no token, or its time has passed. A token without a time does not expire."""
    try:
        body = token.split(".")[1]
        claims = json_object(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))) or {}
    except (IndexError, ValueError):
        claims = {}
    expires = claims.get("exp")
    return not token or (isinstance(expires, int | float) and expires - 10 < datetime.now(UTC).timestamp())


@dataclass
class Plugin:
    """A credential plugin: a program that prints an ExecCredential. It runs again when the credential has expired.

    `interactive` is IfAvailable, Never or Always. `cluster` is its information on the cluster, or None.
    `where` names the kubeconfig in messages.
    """

    command: list[str]
    env: Mapping[str, str]
    api_version: str
    interactive: str
    install_hint: str
    cluster: Mapping[str, Any] | None
    where: str
    _found: tuple[str, Certificate | None] | None = None
    _expires: datetime | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def credential(self) -> tuple[str, Certificate | None]:
        """Return the token or "", and the client certificate. Raises LoginFailed if the plugin fails."""
        with self._lock:
            if self._found is None or (self._expires is not None and self._expires < datetime.now(UTC)):
                self._found, self._expires = self._run()
            return self._found

    def forget(self) -> None:
        """Run the plugin again at the next request."""
        with self._lock:
            self._found = None

    def _run(self) -> tuple[tuple[str, Certificate | None], datetime | None]:
        terminal = sys.__stdin__ is not None and sys.__stdin__.isatty()
        if self.interactive == "Always" and not terminal:
            raise self._failed("it must ask a question (interactiveMode: Always), and standard input is not a terminal")
        interactive = terminal and self.interactive != "Never"
        spec = {"interactive": interactive, **({"cluster": self.cluster} if self.cluster is not None else {})}
        info = json.dumps({"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec})
        # On a terminal, the user sees the plugin's messages at once, such as the code for a login. Otherwise they are a
        # part of the error.
        shown = interactive or sys.stderr.isatty()
        try:
            done = subprocess.run(
                self.command,
                env={**os.environ, **self.env, "KUBERNETES_EXEC_INFO": info},
                stdin=None if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if shown else subprocess.PIPE,
                check=False,
            )
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError):
                raise self._failed(f"{self.command[0]} is not installed", missing=True) from error
            why = getattr(error, "strerror", None) or error
            raise self._failed(f"{self.command[0]} cannot be run: {why}") from error
        if done.returncode != 0:
            printed = _printed((done.stderr or b"").decode("utf-8", "replace"))
            raise self._failed(f"{self.command[0]} ended with the exit code {done.returncode}. {printed}".rstrip(" ."))
        return self._read(done.stdout)

    def _read(self, output: bytes) -> tuple[tuple[str, Certificate | None], datetime | None]:
        credential = json_object(output)
        if credential is None or credential.get("kind") != "ExecCredential":
            raise self._failed("it did not print an ExecCredential as JSON")
        if credential.get("apiVersion") != self.api_version:
            raise self._failed(f"it printed the version {credential.get('apiVersion')}, not {self.api_version}")
        status = credential.get("status")
        status = status if isinstance(status, dict) else {}
        token, certificate, key = (
            str(status.get(name) or "") for name in ("token", "clientCertificateData", "clientKeyData")
        )
        if bool(certificate) != bool(key):
            raise self._failed("it printed only one of clientCertificateData and clientKeyData")
        if not token and not certificate:
            raise self._failed("it printed neither a token nor a certificate")
        if re.search(r"[\x00-\x1f\x7f]", token):
            raise self._failed("the token that it printed contains a line break or another control character")
        try:
            expires = (
                datetime.fromisoformat(str(status["expirationTimestamp"])) if "expirationTimestamp" in status else None
            )
        except ValueError as error:
            raise self._failed("the expirationTimestamp that it printed is not a time") from error
        if expires is not None and expires.tzinfo is None:
            expires = expires.replace(tzinfo=UTC)
        return (token, (certificate.encode(), key.encode()) if certificate else None), expires

    def _failed(self, why: str, *, missing: bool = False) -> LoginFailed:
        hint = "On GKE: gcloud auth login."
        if missing and self.install_hint.strip():
            hint = self.install_hint.strip()
        elif missing and Path(self.command[0]).name == "gke-gcloud-auth-plugin":
            hint = "gcloud components install gke-gcloud-auth-plugin, then gcloud auth login."
        elif missing:
            hint = "Install it, or correct its path in the kubeconfig (users: user.exec.command)."
        return LoginFailed(f"The credential plugin of {self.where} failed: {why}.", hint)


def _printed(text: str) -> str:
    """Return the plugin's output on one line, without the prefixes of Go's logger, such as "F1123 … cred.go:145]"."""
    return " ".join(re.sub(r"\b[IWEF]\d{4} [\d:.]+ +\d+ \S+:\d+\] ", "", text).split()).rstrip(".")
