"""Asks a registry whether it has an image: one request of the OCI distribution protocol, and logging in for it.

The tools that build and push cannot be asked: three of four know no digest of what they have not pulled.
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

_KINDS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_SECONDS = 20.0


class RegistryUnavailable(Exception):
    """The registry does not say whether it has the image; the text says why."""


@dataclass(frozen=True)
class Repository:
    """A repository's name in its two parts; `host` is "" where none is named."""

    host: str
    path: str

    @classmethod
    def parse(cls, text: str) -> Repository:
        """As the tools read it: the first part is a host if it could not be a folder."""
        first, slash, rest = text.partition("/")
        if slash and ("." in first or ":" in first or first == "localhost"):
            return cls(first, rest)
        return cls("", text)

    @property
    def url(self) -> str:
        """Plain HTTP on this machine alone, as the tools have it."""
        name = self.host.partition(":")[0]
        plain = name == "localhost" or name.startswith("127.")
        return f"{'http' if plain else 'https'}://{self.host}/v2/{self.path}"


def digest_of(repository: Repository, tag: str) -> str | None:
    """The digest under which the registry has the tag; None where it has not. Raises RegistryUnavailable."""
    url = f"{repository.url}/manifests/{tag}"
    status, headers = _head(url, None)
    if status == 401:
        login = _login(repository.host)
        status, headers = _head(url, _authorization(headers.get("WWW-Authenticate", ""), login))
    if status == 404:
        return None
    digest = headers.get("Docker-Content-Digest", "")
    if status == 200 and re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        return digest
    raise RegistryUnavailable(f"it answers {status}" if status != 200 else "its answer has no digest")


def _open(url: str, authorization: str | None, method: str = "GET", **headers: str) -> Any:
    """What urllib answers with; the authorization goes to no host that it is sent on to. Raises OSError."""
    # http(s) alone comes here: Repository.url makes nothing else, and _authorization looks at a realm before it asks.
    request = urllib.request.Request(url, method=method, headers=headers)  # noqa: S310 - http(s), see above
    if authorization:
        request.add_unredirected_header("Authorization", authorization)
    return urllib.request.urlopen(request, timeout=_SECONDS)  # noqa: S310 - http(s), see above


def _head(url: str, authorization: str | None) -> tuple[int, Message]:
    try:
        with _open(url, authorization, "HEAD", Accept=", ".join(_KINDS)) as answer:
            return answer.status, answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.headers
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise RegistryUnavailable(str(getattr(reason, "strerror", None) or reason)) from error


def _authorization(challenge: str, login: str | None) -> str | None:
    """What to answer to the registry's challenge: a token that it gives out, or name and password themselves."""
    basic = f"Basic {login}" if login else None
    scheme, _, rest = challenge.partition(" ")
    if scheme.lower() != "bearer":
        return basic
    fields = dict(re.findall(r'(\w+)="([^"]*)"', rest))
    query = urllib.parse.urlencode({key: fields[key] for key in ("service", "scope") if key in fields})
    realm = fields.get("realm", "")
    if not realm.startswith(("http://", "https://")):
        return basic
    try:
        with _open(f"{realm}?{query}", basic) as answer:
            given = json.load(answer)
    except (OSError, ValueError) as error:
        raise RegistryUnavailable(f"it gives no token: {error}") from error
    return f"Bearer {given.get('token') or given.get('access_token')}"


def _login(host: str) -> str | None:
    """Name and password for the registry, as `docker login` or `podman login` has left them; base64, None without."""
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
        if helper and (found := _helped(str(helper), host)):
            return found
    return None


def _helped(helper: str, host: str) -> str | None:
    program = shutil.which(f"docker-credential-{helper}")
    if program is None:
        return None
    done = subprocess.run([program, "get"], input=host, capture_output=True, text=True, check=False)
    if done.returncode != 0:  # it knows nothing of this registry
        return None
    given = json.loads(done.stdout)
    return base64.b64encode(f"{given['Username']}:{given['Secret']}".encode()).decode()
