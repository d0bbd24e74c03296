"""Call a function that may hang, in a thread of its own, for a limited time. Imports only the standard library."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

_MOST = 40
"""Calls of one process that may hang at the same time."""
_free = threading.BoundedSemaphore(_MOST)


def within[Result](seconds: float, function: Callable[..., Result], *arguments: object) -> Result:
    """Return what a function returns, or raise what it raises.

    Raises TimeoutError if it takes longer than `seconds`, or if too many earlier calls hang. Its thread then continues:
    neither the resolution of a name nor a read from a bucket can be interrupted.
    """
    if not _free.acquire(blocking=False):
        raise TimeoutError(f"{_MOST} earlier attempts have not ended")
    outcome: queue.SimpleQueue[tuple[Result | None, BaseException | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            outcome.put((function(*arguments), None))
        except BaseException as error:
            outcome.put((None, error))
        finally:
            _free.release()

    try:
        threading.Thread(target=work, name=f"reporting {function.__name__}", daemon=True).start()
    except RuntimeError:  # no more threads
        _free.release()
        raise TimeoutError("no thread can be started") from None
    try:
        result, error = outcome.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"it did not answer within {seconds:g} s") from None
    if error is not None:
        raise error
    return result  # type: ignore[return-value]
