"""`python -m tests.upstream.download` downloads upstream's CRD files into the cache and prints their folder.

releases.toml has the URL and the SHA-256 of each file. A file that the cache has is not downloaded again. The variable
SLIPWAY_UPSTREAM replaces the host of the URLs with a mirror of it, for networks that do not reach GitHub.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from tests.tools.go_tools import cache_dir

RELEASES = Path(__file__).with_name("releases.toml")
TRANSFERS = 4  # at the same time
WAITS = (0.5, 2.0)  # seconds before the second and the third attempt
TIMEOUTS = (10, 30)  # seconds to connect, and between two parts of an answer


@dataclass(frozen=True)
class Download:
    """A file, the URL that has it, and the SHA-256 of its content."""

    file: Path
    url: str
    sha256: str

    @property
    def shown(self) -> str:
        """The URL without a password."""
        parts = urlsplit(self.url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def versions() -> dict[str, list[str]]:
    """Return the supported versions of each project, the oldest first: {"kueue": ["0.16.9", …], …}."""
    return {project: list(table["versions"]) for project, table in _releases()[1].items()}


def files(project: str, version: str) -> list[str]:
    """Return the names of the CRD files of a version."""
    return list(_releases()[1][project]["versions"][version])


def folder() -> Path:
    """Return the folder of the cache that has a folder PROJECT-vVERSION for each version."""
    return cache_dir().parent / "upstream"


def download() -> None:
    """Download each file that the cache lacks or that has another SHA-256 than releases.toml.

    Raises RuntimeError with a message for the user. The files that were downloaded before the error stay.
    """
    try:
        folder().mkdir(parents=True, exist_ok=True)
        with (folder() / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be downloading the same files
            missing = [each for each in _downloads() if not _is_complete(each)]
            if not missing:
                return
            host = urlsplit(missing[0].shown).netloc
            print(f"Downloading {len(missing)} files from {host} into {folder()} …", file=sys.stderr, flush=True)
            with ThreadPoolExecutor(TRANSFERS) as pool:
                transfers = [pool.submit(_transfer, each) for each in missing]
                try:
                    for transfer in transfers:
                        transfer.result()
                finally:
                    pool.shutdown(wait=True, cancel_futures=True)
    except OSError as error:
        raise RuntimeError(
            f"{error.filename or folder()} cannot be written: {error.strerror}. Make the folder writable, free disk "
            "space, or set SLIPWAY_CACHE to another folder."
        ) from error


def _releases() -> tuple[str, dict[str, Any]]:
    """Return the host of the URLs, and the table of each project."""
    tables = tomllib.loads(RELEASES.read_text(encoding="utf-8"))
    return tables.pop("host"), tables


def _downloads() -> list[Download]:
    host, projects = _releases()
    if mirror := os.environ.get("SLIPWAY_UPSTREAM"):
        host = mirror
        parts = urlsplit(host)
        if parts.scheme not in ("http", "https") or not parts.hostname:  # it may have a password, so it is not printed
            raise RuntimeError("SLIPWAY_UPSTREAM is not a URL. Set it to one like https://mirror.example/github.")
    return [
        Download(
            folder() / f"{project}-v{version}" / name,
            f"{host.rstrip('/')}/{table['path'].format(version=version, file=name)}",
            sha256,
        )
        for project, table in projects.items()
        for version, names in table["versions"].items()
        for name, sha256 in names.items()
    ]


def _is_complete(wanted: Download) -> bool:
    return wanted.file.is_file() and hashlib.sha256(wanted.file.read_bytes()).hexdigest() == wanted.sha256


def _transfer(wanted: Download) -> None:
    content = _fetch(wanted)
    found = hashlib.sha256(content).hexdigest()
    if found != wanted.sha256:
        raise RuntimeError(
            f"{wanted.shown} has the SHA-256 {found}, but {RELEASES.name} expects {wanted.sha256}. Check whether a "
            "proxy or a mirror answers in place of GitHub; the file was not kept."
        )
    wanted.file.parent.mkdir(exist_ok=True)
    # A killed download leaves this name, which the next one overwrites.
    part = wanted.file.with_name(f"{wanted.file.name}.part")
    try:
        part.write_bytes(content)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(part)) from error  # that of a write does not name the file
    part.rename(wanted.file)


def _fetch(wanted: Download) -> bytes:
    """Return the content of the URL. The retries of requests do not include a transfer that breaks in the content."""
    mirror = f"or set SLIPWAY_UPSTREAM to a mirror of {_releases()[0]}"
    for wait in (*WAITS, None):
        try:
            answer = requests.get(wanted.url, timeout=TIMEOUTS)
            if answer.ok:
                return answer.content
            reason = f"{wanted.shown}: the server answers HTTP {answer.status_code} {answer.reason}"
            advice = f"Check the path and the version in {RELEASES.name}, {mirror}."
            if answer.status_code not in (429, 500, 502, 503, 504):
                break
        except requests.exceptions.ProxyError as error:
            reason = f"{wanted.shown} cannot be reached through the proxy: {_cause(error)}"
            advice = f"Check HTTPS_PROXY and NO_PROXY, {mirror}."
        except requests.exceptions.SSLError as error:
            reason = f"{wanted.shown} has a certificate that is not trusted: {_cause(error)}"
            advice = "Set REQUESTS_CA_BUNDLE to the file with the certificates of your network."
        except requests.exceptions.ChunkedEncodingError as error:
            reason = f"{wanted.shown}: the transfer broke: {_cause(error)}"
            advice = "Run make upstream again; it continues with the files that are missing."
        except (requests.ConnectionError, requests.Timeout) as error:
            reason = f"{wanted.shown} cannot be reached: {_cause(error)}"
            advice = f"Check the network, {mirror}."
        except requests.RequestException as error:
            reason = f"{wanted.shown} cannot be downloaded: {_cause(error)}"
            advice = "Check SLIPWAY_UPSTREAM and HTTPS_PROXY."
            break
        if wait is not None:
            time.sleep(wait)
    raise RuntimeError(f"{reason}. {advice}")


def _cause(error: BaseException) -> str:
    """Return the innermost reason: the outer errors of requests and urllib3 have the names of Python's objects."""
    inside = (getattr(error, "reason", None), error.__cause__, *error.args)
    inner = next((each for each in inside if isinstance(each, Exception)), None)
    if inner is not None:
        return _cause(inner)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).rpartition(": ")[2].rstrip(".")


def main() -> int | str:
    """Download the files and print their folder. Returns the exit status, or a message for the user."""
    try:
        download()
    except RuntimeError as error:
        return str(error)
    except KeyboardInterrupt:
        return 130
    print(folder())
    return 0


if __name__ == "__main__":
    sys.exit(main())
