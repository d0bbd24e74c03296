"""Check whether a registry has an image, by one request of the OCI distribution protocol and its login.

The build tools cannot do this: three of four cannot report the digest of an image that they have not pulled.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any

from launcher.loopback import is_loopback

_KINDS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_SECONDS = 20.0


class RegistryUnavailable(Exception):
    """The registry does not report whether it has the image. The message has the reason."""


@dataclass(frozen=True)
class Repository:
    """The name of a repository in two parts. `host` is "" if the name has no host."""

    host: str
    path: str

    @classmethod
    def parse(cls, text: str) -> Repository:
        """Parse a name as the tools do: the first part is a host if it cannot be a folder."""
        first, slash, rest = text.partition("/")
        if slash and ("." in first or ":" in first or first == "localhost"):
            return cls(first, rest)
        return cls("", text)

    @property
    def url(self) -> str:
        """The URL of the repository. Only this machine uses plain HTTP, as with the tools."""
        return f"{'http' if self.local else 'https'}://{self.host}/v2/{self.path}"

    @property
    def local(self) -> bool:
        """Whether the registry is on this machine."""
        return is_loopback(urllib.parse.urlsplit(f"//{self.host}").hostname)


def digest_of(repository: Repository, tag: str) -> str | None:
    """Return the digest of the tag, or None if the registry does not have it.

    Raises RegistryUnavailable if the registry does not report it.
    """
    url = f"{repository.url}/manifests/{tag}"
    status, headers = _head(url, None)
    if status == 401:
        login = _login(repository.host)
        status, headers = _head(url, _authorization(headers.get("WWW-Authenticate", ""), login, local=repository.local))
    if status == 404:
        return None
    digest = headers.get("Docker-Content-Digest", "")
    if status == 200 and re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        return digest
    raise RegistryUnavailable(f"it answers {status}" if status != 200 else "its answer has no digest")


def _open(url: str, authorization: str | None, method: str = "GET", **headers: str) -> Any:
    """Return the response of urllib. The authorization is not sent to redirect targets. Raises OSError."""
    request = urllib.request.Request(url, method=method, headers=headers)  # noqa: S310 - http(s) by Repository.url or _authorization
    if authorization:
        request.add_unredirected_header("Authorization", authorization)
    return urllib.request.urlopen(request, timeout=_SECONDS)  # noqa: S310 - http(s) by Repository.url or _authorization


def _head(url: str, authorization: str | None) -> tuple[int, Message]:
    try:
        with _open(url, authorization, "HEAD", Accept=", ".join(_KINDS)) as answer:
            return answer.status, answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.headers
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise RegistryUnavailable(str(getattr(reason, "strerror", None) or reason)) from error


def _authorization(challenge: str, login: str | None, *, local: bool) -> str | None:
    """Return the authorization for the registry's challenge: a token that it issues, or name and password.

    The registry names the URL that issues the token. Name and password are sent to it by HTTPS only, unless both it
    and the registry are on this machine (`local`). Raises RegistryUnavailable.
    """
    basic = f"Basic {login}" if login else None
    scheme, _, rest = challenge.partition(" ")
    if scheme.lower() != "bearer":
        return basic
    fields = dict(re.findall(r'(\w+)="([^"]*)"', rest))
    query = urllib.parse.urlencode({key: fields[key] for key in ("service", "scope") if key in fields})
    realm = fields.get("realm", "")
    if not realm.startswith(("http://", "https://")):
        return basic
    plain = not realm.startswith("https://")
    if basic and plain and not (local and is_loopback(urllib.parse.urlsplit(realm).hostname)):
        raise RegistryUnavailable(f"it asks for the password at {realm}, which is not encrypted")
    try:
        with _open(f"{realm}?{query}", basic) as answer:
            given = json.load(answer)
    except (OSError, ValueError) as error:
        raise RegistryUnavailable(f"it returned no token: {error}") from error
    return f"Bearer {given.get('token') or given.get('access_token')}"


def _login(host: str) -> str | None:
    """Return name and password from `docker login` or `podman login` as base64, or None if there is no login."""
    homes = [Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"]
    if os.environ.get("XDG_RUNTIME_DIR"):
        homes.append(Path(os.environ["XDG_RUNTIME_DIR"]) / "containers" / "auth.json")
    if os.environ.get("REGISTRY_AUTH_FILE"):
        homes.insert(0, Path(os.environ["REGISTRY_AUTH_FILE"]))
    for path in homes:
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            raise RegistryUnavailable(f"{path} cannot be read: {error}") from error
        helper = config.get("credHelpers", {}).get(host)
        kept = config.get("auths", {}).get(host, {}).get("auth")
        if helper is None and kept:
            return str(kept)
        helper = helper or config.get("credsStore")
        if helper and (login := _helped(str(helper), host)):
            return login
    return None


def _helped(helper: str, host: str) -> str | None:
    program = shutil.which(f"docker-credential-{helper}")
    if program is None:
        return None
    done = subprocess.run([program, "get"], input=host, capture_output=True, text=True, check=False)
    if done.returncode != 0:  # it has no credentials for this registry
        return None
    given = json.loads(done.stdout)
    return base64.b64encode(f"{given['Username']}:{given['Secret']}".encode()).decode()
