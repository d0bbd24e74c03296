"""A control loop that runs in a thread during a test, as in a Kubernetes controller."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

_RESYNC_SECONDS = 0.5


@contextlib.contextmanager
def control_loop(
    step: Callable[[], object], *, every: float = 0.1, revision: Callable[[], int] | None = None, name: str
) -> Iterator[None]:
    """While this is open, a thread `name` calls `step` repeatedly, with `every` seconds in between.

    With `revision` (ControlPlane.revision), it calls `step` only after a change of the cluster, if the last call
    returned True, and twice a second: the lists of all loops took half of a core. An exception of `step` ends the loop.
    It is raised at the end, instead of a timeout that it caused in the test.
    """
    stop = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        seen, due = -1, 0.0
        try:
            while not stop.wait(every):
                now = seen if revision is None else revision()
                if revision is None or now != seen or time.monotonic() >= due:
                    again = step() is True
                    seen, due = now, 0.0 if again else time.monotonic() + _RESYNC_SECONDS
        except BaseException as error:  # raised in the test's thread
            failed.append(error)

    thread = threading.Thread(target=run, name=name)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        if failed:
            raise failed[0]
