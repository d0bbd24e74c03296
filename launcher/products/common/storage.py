"""The client for folders of runs: on this machine's disk, and in buckets by URL (fsspec)."""

from __future__ import annotations

import logging
import queue
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from launcher import distribution
from launcher.errors import LauncherError

_URL = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
# The folder of a run comes from its object, which others wrote. fsspec would open any URL: of a file of this machine,
# of a server in its network, or of several protocols in a chain (gs://x::http://y).
BUCKET_FOLDER = re.compile(r"gs://[a-z0-9][a-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_PATIENCE = 15
"""Timeout in seconds for a bucket that does not answer. gcsfs itself retries six times, for a minute."""

_MAY = {
    "read": ("read", "storage.objects.get and storage.objects.list on the bucket (roles/storage.objectViewer)"),
    "written": ("write", "storage.objects.create and storage.objects.list on the bucket (roles/storage.objectUser)"),
}
"""The verb, and the permissions that it needs."""


def is_url(text: str) -> bool:
    return _URL.match(text) is not None


def is_path(name: str) -> bool:
    """Return whether an argument is a folder: it has a slash (except run/NAME and sweep/NAME), a dot or a tilde."""
    if name.startswith(("run/", "sweep/")):
        return False
    return "/" in name or name.startswith(("~", ".")) or Path(name).is_absolute()


def read_folder(folder: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Return the contents of the files with those names in a folder. Missing files are left out."""
    contents = {}
    for name in names:
        try:
            contents[name] = (folder / name).read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise LauncherError(f"{folder / name} cannot be read: {error.strerror}.") from error
    return contents


def read_bucket(url: str, names: Sequence[str]) -> dict[str, bytes]:
    """Return the same for a folder in a bucket; a name can be a path below it.

    Raises LauncherError with the reason if the bucket cannot be read.
    The last name is requested alone, so it should be a small file. After its answer, also if it does not exist, the
    other files have no timeout.
    """
    open_folder = _opener(url)

    def asked(some: Sequence[str]) -> Mapping[str, Any]:
        system, path = open_folder()
        answers: Mapping[str, Any] = system.cat([f"{path}/{name}" for name in some], on_error="return") if some else {}
        return {key.removeprefix(path).strip("/"): answer for key, answer in answers.items()}

    try:
        answers = {**_answered(url, lambda: asked(names[-1:])), **asked(names[:-1])}
    except LauncherError:
        raise
    except Exception as error:  # fsspec's file systems raise their own libraries' errors, without a common base
        raise _refusal(url, error) from error
    contents = {}
    for key, answer in answers.items():
        if isinstance(answer, bytes):
            contents[key] = answer
        elif not isinstance(answer, FileNotFoundError):
            raise _refusal(url, answer) from answer
    return contents


def list_bucket(url: str) -> dict[str, int]:
    """Return the sizes of all files below a folder in a bucket, by their paths relative to it; {} if there are none.

    Raises LauncherError with the reason if the bucket cannot be read. There is no timeout: call `read_bucket` before.
    """
    open_folder = _opener(url)
    try:
        system, path = open_folder()
        system.invalidate_cache()  # another process may have written since an earlier call
        entries: Mapping[str, Any] = system.find(path, detail=True)
    except FileNotFoundError:
        return {}
    except Exception as error:  # as in read_bucket
        raise _refusal(url, error) from error
    return {key.removeprefix(path).strip("/"): int(about.get("size") or 0) for key, about in entries.items()}


def list_folders(url: str) -> list[str]:
    """Return the names of the folders directly below a folder in a bucket, sorted; [] if it does not exist.

    Raises LauncherError with the reason if the bucket cannot be read.
    """
    open_folder = _opener(url)

    def asked() -> Mapping[str, Any]:
        system, path = open_folder()
        system.invalidate_cache()  # another process may have written since an earlier call
        try:
            return {entry["name"]: None for entry in system.ls(path, detail=True) if entry["type"] == "directory"}
        except FileNotFoundError:
            return {}

    try:
        keys = _answered(url, asked)
    except LauncherError:
        raise
    except Exception as error:  # as in read_bucket
        raise _refusal(url, error) from error
    return sorted(key.rstrip("/").rpartition("/")[2] for key in keys)


def refuse_existing(url: str, last: str) -> None:
    """Raise LauncherError if a folder in a bucket has files, or cannot be written. `last` is what is uploaded last."""
    open_folder = _opener(url, "written")

    def found() -> Mapping[str, Any]:
        system, path = open_folder()
        system.invalidate_cache()
        try:
            return {name: None for key in system.find(path) if (name := key.removeprefix(path).strip("/"))}
        except FileNotFoundError:
            return {}

    try:
        names = _answered(url, found, "written")
    except LauncherError:
        raise
    except Exception as error:  # as in read_bucket
        raise _refusal(url, error, "written") from error
    if names:
        cut = "" if last in names else f" but no {last}, so an upload may have been interrupted"
        raise LauncherError(
            f"{url} already exists, with {len(names)} file{'s' * (len(names) > 1)}{cut}.",
            f"Choose another folder, or remove this one: gcloud storage rm -r {url}",
        )


def write_bucket(url: str, folder: Path, names: Sequence[str], say: Callable[[str], None] = lambda _: None) -> None:
    """Upload the files with those names in a folder, in this order, to a new folder in a bucket.

    `say` is called with a sentence after each. Raises LauncherError if the folder in the bucket exists, or cannot be
    written. After an error, or if this process is killed, the last file is missing there.
    """
    refuse_existing(url, names[-1])
    try:
        system, path = _opener(url, "written")()
        for number, name in enumerate(names, start=1):
            system.put_file(str(folder / name), f"{path}/{name}")
            say(f"Uploaded {name} ({number} of {len(names)}).")
    except Exception as error:  # as in read_bucket
        raise _refusal(url, error, "written") from error


def write_file(url: str, name: str, data: bytes) -> None:
    """Write one file below a folder in a bucket, or replace it. Raises LauncherError if it cannot be written."""
    open_folder = _opener(url, "written")

    def written() -> Mapping[str, Any]:
        system, path = open_folder()
        system.pipe_file(f"{path}/{name}", data)
        return {}

    try:
        _answered(url, written, "written")
    except LauncherError:
        raise
    except Exception as error:  # as in read_bucket
        raise _refusal(url, error, "written") from error


def _opener(url: str, done: str = "read") -> Callable[[], tuple[Any, str]]:
    """Return a function that returns fsspec's file system for the URL, and the path in it."""
    try:
        import fsspec  # type: ignore[import-untyped]  # it ships no types
    except ImportError as error:
        raise LauncherError(
            f"{url} cannot be {done}: fsspec is not installed in this Python.",
            f"Install it next to the launcher: {distribution.install('report')}",
        ) from error
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)  # it prints the traceback of an error that is reported below

    def opened() -> tuple[Any, str]:
        system, path = fsspec.core.url_to_fs(url.rstrip("/"))
        return system, str(path)

    return opened


def _answered(url: str, ask: Callable[[], Mapping[str, Any]], done: str = "read") -> Mapping[str, Any]:
    """Return or raise the result of `ask`. Raises LauncherError after the timeout."""
    answers: queue.SimpleQueue[Mapping[str, Any] | Exception] = queue.SimpleQueue()

    def work() -> None:
        try:
            answers.put(ask())
        except Exception as error:
            answers.put(error)

    # A daemon thread, so that the command can end while the request is still running.
    threading.Thread(target=work, daemon=True).start()
    try:
        answer = answers.get(timeout=_PATIENCE)
    except queue.Empty:
        raise LauncherError(
            f"{url} cannot be {done}: its storage did not answer within {_PATIENCE} s.",
            "Check the network and the proxy of this machine. A local copy of the run's folder works too: ./FOLDER.",
        ) from None
    if isinstance(answer, Exception):
        raise answer
    refused = next((each for each in answer.values() if isinstance(each, Exception)), None)
    if refused is not None and not isinstance(refused, FileNotFoundError):
        raise refused
    return answer


def _refusal(url: str, error: BaseException, done: str = "read") -> LauncherError:
    says = " ".join(str(error).split())[:300] or type(error).__name__
    if isinstance(error, ImportError):
        scheme = url.partition("://")[0]
        library = {"gs": "gcsfs", "gcs": "gcsfs", "s3": "s3fs", "abfs": "adlfs", "az": "adlfs"}.get(scheme, "")
        if library == "gcsfs":
            return LauncherError(
                f"{url} cannot be {done}: gcsfs is not installed in this Python.",
                f"Install it next to the launcher: {distribution.install('report')}",
            )
        how = f"pip install {library}" if library else says
        return LauncherError(f"{url} cannot be {done}: no library for {scheme}:// is installed in this Python.", how)
    if isinstance(error, ValueError) and "rotocol not known" in says:
        return LauncherError(f"{url} is not the URL of a bucket that can be {done}; use a gs:// or s3:// URL.")
    code = getattr(error, "code", None) or getattr(error, "status", None)
    text = says.lower()
    denied = isinstance(error, PermissionError) or str(code) in ("401", "403")
    if denied or any(word in text for word in ("forbidden", "access denied", "does not have", "anonymous caller")):
        return LauncherError(
            f"You may not {_MAY[done][0]} {url}: {says.rstrip('.')}.",
            f"You need {_MAY[done][1]}, and a login: gcloud auth application-default login."
            if url.startswith(("gs:", "gcs:"))
            else f"You need permission to {_MAY[done][0]} and list the objects of the bucket.",
        )
    if "credential" in text or "reauth" in text:
        hint = "gcloud auth application-default login" if url.startswith(("gs:", "gcs:")) else ""
        return LauncherError(f"{url} cannot be {done} because you are not logged in: {says.rstrip('.')}.", hint)
    return LauncherError(f"{url} cannot be {done}: {type(error).__name__}: {says.rstrip('.')}.")
