"""Sends the notifications of a run in a thread of its own, each once, with retries. Never delays the run."""

from __future__ import annotations

import contextlib
import queue
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer.reporting import marks
from trainer.reporting.addresses import Address
from trainer.reporting.patience import within
from trainer.reporting.send import SendError, send

_WAITING = 50
"""Notifications that wait at most; a further one is dropped."""
_SECONDS_FOR_A_MARK = 10.0
_SECONDS_BETWEEN_LOOKS = 0.1
_SECONDS_IN_TURN = 1.0
PAUSES = (1.0, 4.0, 15.0)
"""Seconds before each further attempt."""


def print_error(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)  # noqa: T201 - the log


class Notifier:
    """The notifications of one process of a run."""

    def __init__(
        self,
        addresses: Sequence[Address],
        folder: Path | None,
        *,
        pauses: Sequence[float] = PAUSES,
        report: Callable[[str], None] = print_error,
    ) -> None:
        """`folder` has the marks; without one, or if it cannot be written, each process sends a notification once."""
        self._addresses, self._folder, self._pauses, self._report = list(addresses), folder, pauses, report
        self._queue: queue.Queue[tuple[str, Mapping[str, Any]] | None] = queue.Queue(_WAITING)
        self._seen: set[str] = set()
        self._closing, self._hurry = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="notifications", daemon=True)
        self.failures: list[str] = []
        self.has_addresses = bool(self._addresses)
        if self._addresses:
            try:
                self._thread.start()
            except RuntimeError:  # no more threads
                self.has_addresses = False
                report("No notification is sent, because no thread can be started.")

    def put(self, number: str, message: Mapping[str, Any]) -> None:
        """Send a message, unless the notification with this id has been sent. Returns at once."""
        if not self.has_addresses or number in self._seen:
            return
        self._seen.add(number)
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait((number, message))

    def close(self, seconds: float) -> bool:
        """Wait until all is sent, for at most `seconds`. Returns whether it is; the rest is not sent."""
        if not self._thread.is_alive():
            return True
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)
        self._closing.set()
        self._thread.join(seconds)
        self._hurry.set()
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (entry := self._queue.get()) is not None and not self._hurry.is_set():
            try:
                self._send(*entry)
            except Exception as error:  # no notification is worth a run
                self._report(f"The notification {entry[0]} failed: {type(error).__name__}.")

    def _send(self, number: str, message: Mapping[str, Any]) -> None:
        mark = {"id": number, "event": message.get("event"), "time": message.get("time")}
        if self._folder is not None and self._mark(marks.claim, number, mark) is False:
            return
        failed = self._deliver_all(message)
        for label, reason in failed.items():
            self.failures.append(f"{label}: {reason}")
            self._report(f"The notification {number} was not sent to {label} of the addresses: {reason}.")
        if self._folder is not None:
            state = "sent" if len(failed) < len(self._addresses) else "failed"
            self._mark(marks.settle, number, {**mark, "state": state, **({"errors": failed} if failed else {})})

    def _mark(self, change: Callable[..., bool | None], number: str, mark: Mapping[str, Any]) -> bool | None:
        """Return what `change` returns; None if the storage does not answer: a notification must not wait for it."""
        try:
            return within(_SECONDS_FOR_A_MARK, change, self._folder, number, mark)
        except TimeoutError:
            return None

    def _deliver_all(self, message: Mapping[str, Any]) -> dict[str, str]:
        """Send a message to all addresses at once, so that none waits for another. Returns why it was not sent.

        At the end of the process, the next message waits for an address that does not answer for a moment only.
        """
        begun = time.monotonic()
        failed: dict[str, str] = {}

        def deliver(address: Address) -> None:
            if reason := self._deliver(address, message):
                failed[address.label] = reason

        threads = [threading.Thread(target=deliver, args=(address,), daemon=True) for address in self._addresses]
        for thread in threads:
            thread.start()
        for address, thread in zip(self._addresses, threads, strict=True):
            while thread.is_alive() and not (self._is_urgent() and time.monotonic() - begun > _SECONDS_IN_TURN):
                thread.join(_SECONDS_BETWEEN_LOOKS)
            if thread.is_alive():
                failed[address.label] = "it had not answered when the process ended"
        return dict(sorted(failed.copy().items()))

    def _is_urgent(self) -> bool:
        """Return whether the process ends, and messages wait."""
        return self._closing.is_set() and self._queue.qsize() > 1

    def _deliver(self, address: Address, message: Mapping[str, Any]) -> str:
        """Return why the message was not sent to an address; "" if it was."""
        reason = ""
        for pause in (0.0, *self._pauses):
            if pause and self._hurry.wait(pause * random.uniform(0.8, 1.2)):  # noqa: S311 - no secret
                break
            try:
                send(address, message)
            except SendError as error:
                reason = str(error)
                if error.final:
                    break
            else:
                return ""
        return reason


def message(event: str, text: str, *, run: str, **fields: Any) -> dict[str, Any]:
    """Return a message: the event, the run, a sentence for people, and further fields that are known."""
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"event": event, "run": run, "text": text, "time": at, **{key: at for key, at in fields.items() if at}}
