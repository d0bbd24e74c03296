"""A control loop, as a controller of Kubernetes has one, beside a test."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def control_loop(step: Callable[[], object], *, every: float = 0.1, name: str) -> Iterator[None]:
    """While this is open, a thread of that name does the step again and again, with `every` seconds in between.

    What a step raises ends the loop and is raised at the end, rather than what the test waited for in vain.
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
