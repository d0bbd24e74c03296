"""Converts an error of the run's storage to a sentence that names the storage and what to do."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path

from trainer.config import RunConfig
from trainer.errors import StorageError, StorageFullError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_READ_ONLY = {errno.EROFS}
_REFUSED = {errno.EACCES, errno.EPERM}
_AWAY = {errno.ENOTCONN, errno.ESTALE, errno.EIO, errno.ENODEV, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.ENXIO}
_KNOWN = _FULL | _READ_ONLY | _REFUSED | _AWAY
# Orbax and TensorStore report system errors as text: "[OS error 28: ENOSPC No space left on device]".
_NUMBER = re.compile(r"(?:OS error|\[?Errno) (\d+)\b")
_TEXTS = {os.strerror(number): number for number in _KNOWN}


def named(error: BaseException, config: RunConfig) -> StorageError | None:
    """Return a storage error as a sentence for the run's reason, or None if the error is not the storage's."""
    for cause in _chain(error):
        if isinstance(cause, StorageError):
            return cause
        number = _number(cause)
        if number is not None and _is_ours(cause, number, config):
            return (StorageFullError if number in _FULL else StorageError)(_sentence(number, config))
    lost = isinstance(error, OSError) or any("NOT_FOUND" in str(cause) for cause in _chain(error))
    if _moved(config) or (lost and not config.folder.is_dir()):
        return StorageError(
            f"The run's folder {config.folder} is missing: {_what(config)} is not mounted, or the folder was removed. "
            f"{_find_cause(config)}"
        )
    return None


_devices: dict[Path, int] = {}


def remember(config: RunConfig) -> None:
    """Record at the start which file system the run's folder is on. An unmounted file system leaves a folder behind."""
    with contextlib.suppress(OSError):
        _devices[config.folder.parent] = config.folder.parent.stat().st_dev


def _moved(config: RunConfig) -> bool:
    root = config.folder.parent
    try:
        return root in _devices and root.stat().st_dev != _devices[root]
    except OSError:
        return False  # the original error describes it better


def _chain(error: BaseException | None, seen: frozenset[int] = frozenset()) -> Iterator[BaseException]:
    """Yield the error and its causes. Ray stores those of its workers in its own fields."""
    if error is None or id(error) in seen:
        return
    seen |= {id(error)}
    yield error
    inner = [
        error.__cause__,
        error.__context__,
        getattr(error, "cause", None),
        getattr(error, "controller_failure", None),
    ]
    inner += [*(getattr(error, "worker_failures", None) or {}).values(), *getattr(error, "exceptions", ())]
    for cause in inner:
        if isinstance(cause, BaseException):
            yield from _chain(cause, seen)


def _number(error: BaseException) -> int | None:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno if error.errno in _KNOWN else None
    text = str(error)
    for match in _NUMBER.finditer(text):
        if int(match[1]) in _KNOWN:
            return int(match[1])
    return next((number for reason, number in _TEXTS.items() if reason in text), None)


def _is_ours(error: BaseException, number: int, config: RunConfig) -> bool:
    """Return whether the error is about the storage, not another disk: decided by the path, or else by a test."""
    # An unreadable text in the run's folder does not prevent the run from writing.
    root = str(config.folder if number in _REFUSED else config.folder.parent)
    path = getattr(error, "filename", None)
    if isinstance(path, str | os.PathLike):
        return Path(path).is_relative_to(root)
    return root in str(error) or not _writable(config.folder)


def _writable(folder: Path) -> bool:
    probe = folder / f".probe-{os.getpid()}"
    try:
        with probe.open("wb") as file:
            file.write(bytes(1 << 20))
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        return False
    else:
        return True
    finally:
        with contextlib.suppress(OSError):  # as above
            probe.unlink(missing_ok=True)


def _sentence(number: int, config: RunConfig) -> str:
    reason, what = os.strerror(number), _what(config)
    if number in _FULL:
        return (
            f"The run's storage is full ({reason}): {what}. Free space there or enlarge it, and submit the run again: "
            "it resumes from its last checkpoint."
        )
    if number in _READ_ONLY:
        return f"The run's storage has become read-only ({reason}): {what}. {_find_cause(config)}"
    if number in _REFUSED:
        return f"The run may not write to its storage ({reason}): {what}. {_rights(config)}"
    return f"The run's storage does not respond ({reason}): {what}. {_find_cause(config)}"


def _what(config: RunConfig) -> str:
    storage = config.tree["storage"]
    where = f"mounted at {storage['mountPath']}"
    match storage.get("kind"):
        case "gcsfuse":
            return f"the bucket {storage.get('bucket')} (storage.bucket), {where}"
        case "pvc":
            return f"the PersistentVolumeClaim {storage.get('claim')} (storage.claim), {where}"
        case _:
            return f"the file system of {storage['mountPath']}"


def _find_cause(config: RunConfig) -> str:
    match config.tree["storage"].get("kind"):
        case "gcsfuse":
            return "See the log of the pod's container gke-gcsfuse-sidecar."
        case "pvc":
            return "Check its volume (kubectl describe pvc) and the server that provides it."
        case _:
            return "Check that it is mounted and available."


def _rights(config: RunConfig) -> str:
    match config.tree["storage"].get("kind"):
        case "gcsfuse":
            return "Grant the run's service account roles/storage.objectUser on it (with Workload Identity)."
        case "pvc":
            return "Its files must belong to the user of the pods (security.runAsUser), or to its group."
        case _:
            return f"Check its permissions; the run's user is {os.getuid()}."
