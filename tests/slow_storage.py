"""A file system with the faults of a bucket: slow, full, refusing or hung (FUSE, without a library).

It replaces gcsfuse, which needs an account. Its files are in memory. As in gcsfuse, a request that has no answer cannot
be interrupted, and the process that waits for it cannot end.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

# include/uapi/linux/fuse.h
_LOOKUP, _FORGET, _GETATTR, _SETATTR, _MKDIR, _UNLINK = 1, 2, 3, 4, 9, 10
_OPEN, _READ, _WRITE, _RELEASE, _FLUSH, _INIT, _OPENDIR, _READDIR = 14, 15, 16, 18, 25, 26, 27, 28
_RELEASEDIR, _CREATE, _INTERRUPT, _BATCH_FORGET = 29, 35, 36, 42
_OF_STORAGE = {_LOOKUP, _MKDIR, _UNLINK, _OPEN, _CREATE, _FLUSH, _READDIR}
"""The requests for which gcsfuse asks the bucket. It keeps what is written until the file is closed (FLUSH)."""


class SlowStorage:
    """`seconds` before each answer, the errno `error` instead of it, or no answer while `hangs` is set."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds, self.error = 0.0, 0
        self.answers = threading.Event()
        self.answers.set()
        self._nodes: dict[int, bytearray | None] = {1: None}  # None: a folder
        self._names: dict[tuple[int, bytes], int] = {}
        self._device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self._device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"slow", os.fsencode(path), b"fuse.slow", 0, options):
            raise OSError(ctypes.get_errno(), "mount")
        threading.Thread(target=self._serve, daemon=True).start()

    def unmount(self) -> None:
        self.answers.set()
        subprocess.run(["umount", "-l", self.path], check=False, capture_output=True)
        with contextlib.suppress(OSError):
            os.close(self._device)

    def _serve(self) -> None:
        while True:
            try:
                request = os.read(self._device, (1 << 20) + 4096)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue
                return  # unmounted
            threading.Thread(target=self._request, args=(request,), daemon=True).start()

    def _request(self, request: bytes) -> None:
        _, code, unique, node, *_ = struct.unpack_from("<IIQQIIII", request)
        if code in (_FORGET, _BATCH_FORGET, _INTERRUPT):
            return
        status, answer = 0, b""
        if code in _OF_STORAGE:
            time.sleep(self.seconds)
            self.answers.wait()
            status = -self.error
        if not status:
            try:
                answer = self._answer(code, node, request[40:])
            except OSError as error:
                status = -(error.errno or errno.EIO)
        with contextlib.suppress(OSError):
            os.write(self._device, struct.pack("<IiQ", 16 + len(answer), status, unique) + answer)

    def _answer(self, code: int, node: int, body: bytes) -> bytes:
        match code:
            case 26:
                return struct.pack("<IIIIHHIIHHI28x", 7, 31, 1 << 16, 0, 8, 8, 1 << 17, 1, 0, 0, 0)
            case 3 | 4:
                return struct.pack("<QII", 0, 0, 0) + self._attributes(node)
            case 1:
                return self._entry(node, body.rstrip(b"\0"))
            case 9:
                return self._make(node, body[8:].rstrip(b"\0"), None)
            case 35:
                return self._make(node, body[16:].rstrip(b"\0"), bytearray()) + struct.pack("<QII", 0, 0, 0)
            case 10:
                self._names.pop((node, body.rstrip(b"\0")))
                return b""
            case 14 | 27:
                return struct.pack("<QII", 0, 0, 0)
            case 16:
                _, offset, size = struct.unpack_from("<QQI", body)
                content = self._nodes[node]
                assert content is not None
                content[offset : offset + size] = body[40 : 40 + size]
                return struct.pack("<II", size, 0)
            case 15:
                _, offset, size = struct.unpack_from("<QQI", body)
                return bytes((self._nodes[node] or b"")[offset : offset + size])
            case 28:
                _, offset, size = struct.unpack_from("<QQI", body)
                return self._listing(node)[offset : offset + size] if not offset else b""
            case 18 | 25 | 29:
                return b""
        raise OSError(errno.ENOSYS, "")

    def _attributes(self, node: int) -> bytes:
        content = self._nodes[node]
        mode = stat.S_IFDIR | 0o755 if content is None else stat.S_IFREG | 0o644
        return struct.pack(
            "<QQQQQQIIIIIIIIII", node, len(content or b""), 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0
        )

    def _entry(self, parent: int, name: bytes) -> bytes:
        node = self._names.get((parent, name))
        if node is None:
            raise OSError(errno.ENOENT, "")
        return struct.pack("<QQQQII", node, 0, 0, 0, 0, 0) + self._attributes(node)

    def _make(self, parent: int, name: bytes, content: bytearray | None) -> bytes:
        node = len(self._nodes) + 1
        self._nodes[node] = content
        self._names[parent, name] = node
        return self._entry(parent, name)

    def _listing(self, node: int) -> bytes:
        listing = b""
        for number, ((parent, name), child) in enumerate(list(self._names.items()), start=1):
            if parent == node:
                kind = (stat.S_IFDIR if self._nodes[child] is None else stat.S_IFREG) >> 12
                listing += (struct.pack("<QQII", child, number, len(name), kind) + name).ljust(
                    24 + (len(name) + 7) // 8 * 8, b"\0"
                )
        return listing


def can_mount() -> bool:
    return os.getuid() == 0 and os.access("/dev/fuse", os.R_OK | os.W_OK)


@contextlib.contextmanager
def slow_storage(path: Path) -> Iterator[SlowStorage]:
    """Mount it on a new folder. Requires `can_mount`."""
    path.mkdir()
    storage = SlowStorage(path)
    try:
        yield storage
    finally:
        storage.unmount()
