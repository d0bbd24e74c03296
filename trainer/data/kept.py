"""Keeps what was read last from the hub and from the disk."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

# The decoded row groups of the hub that are kept. A small data set has many units in each of its row groups.
_KEPT_BYTES = 1 << 30


class _Kept:
    """Keeps what was read last: up to `most` bytes, and at least two entries."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: dict[Any, tuple[Any, int]] = {}
        self._lock = Lock()

    def get(self, key: Any, load: Callable[[], Any]) -> Any:
        with self._lock:
            if found := self._entries.pop(key, None):
                self._entries[key] = found
                return found[0]
        value = load()
        with self._lock:
            self._entries[key] = (value, value.nbytes if hasattr(value, "nbytes") else len(value[0]))
            while len(self._entries) > 2 and sum(size for _, size in self._entries.values()) > self._most:
                del self._entries[next(iter(self._entries))]
        return value


of_hub, of_disk = _Kept(_KEPT_BYTES), _Kept(0)
