"""A control loop that runs in a thread during a test, as in a Kubernetes controller."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def control_loop(step: Callable[[], object], *, every: float = 0.1, name: str) -> Iterator[None]:
    """While this is open, a thread `name` calls `step` repeatedly, with `every` seconds in between.

    An exception of `step` ends the loop. It is raised at the end, instead of a timeout that it caused in the test.
    """
    stop = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        try:
            while not stop.wait(every):
                step()
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
