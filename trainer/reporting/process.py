"""The notifications of this process, and the end of a run: who sends what.

The first host's process sends what it sees while it trains (reporter.py). The process that writes an event sends
`started`, `failed` and `preempted`. The process that starts the run, the driver or the first host without Ray, sends
`ended` if no restart follows. `launcher record` sends the rest: for runs that never started, or that died silently.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from trainer import metrics
from trainer.config import RunConfig
from trainer.reporting import addresses, record
from trainer.reporting.notifier import Notifier, message
from trainer.reporting.patience import within
from trainer.telemetry.log import warn

_OF_EVENT = {
    "loop_started": "started",
    "worker_failed": "failed",
    "driver_failed": "failed",
    "preempted": "preempted",
    "slow_host": "slow-host",
}
_SECONDS_TO_END = 5.0
_SECONDS_TO_STOP = 2.0
_SECONDS_TO_READ = 5.0
_WORDS = {
    "started": "started training",
    "first-step": "finished its first step",
    "failed": "failed, and may restart",
    "preempted": "was preempted",
    "stalled": "does not train",
    "checkpoint-too-old": "has an old checkpoint",
    "slower-than-forecast": "is slower than its forecast",
    "slow-host": "has a slow host",
}


class Notifications:
    """The notifications of a run in this process. Without addresses, nothing is sent. No method raises."""

    def __init__(self, config: RunConfig) -> None:
        self._config = config
        settings: Mapping[str, Any] = config.tree.get("notify") or {}
        known, events, problems = addresses.from_environment()
        self.events = frozenset(settings.get("events") or events)
        for problem in problems:
            warn(f"{problem} The other addresses are used.")
        self._notifier = Notifier(known, config.folder)
        self._sentence = ""
        self.attempts_before = self._attempts()
        """Attempts in the record when this process began. Clocks of hosts differ, so times do not show what is new."""
        self.attempt = 0
        """The number of the current attempt, if this process keeps the record."""
        metrics.listeners.append(self.on_event)

    def _attempts(self) -> int:
        with contextlib.suppress(OSError):
            return len(within(_SECONDS_TO_READ, record.read, self._config.folder).get("attempts") or ())
        return 0

    def on_event(self, event: str, fields: Mapping[str, Any]) -> None:
        """Send the notification of an event that this process writes to events.jsonl."""
        if event in ("error", "stopped"):
            self._sentence = str(fields.get("message") or "")
        kind = _OF_EVENT.get(event)
        if kind == "started" and fields.get("step"):
            return  # it resumes
        if kind is not None:
            host = str(fields.get("host", ""))  # several hosts of one attempt can be slow
            self.send(kind, str(fields.get("message") or ""), number=host, step=fields.get("step"))

    def send(
        self, event: str, detail: str = "", *, number: str = "", words: str = "", attempt: int = 0, **fields: Any
    ) -> None:
        """Send a notification, once for each attempt of the run. `number` distinguishes several of one attempt."""
        try:
            if self._notifier.has_addresses and event in self.events:
                self._put(event, detail, number, words, attempt or self.attempt or max(1, self._attempts()), fields)
        except Exception as error:  # no notification is worth a run
            warn(f"The notification {event} failed: {type(error).__name__}.")

    def _put(self, event: str, detail: str, number: str, words: str, attempt: int, fields: Mapping[str, Any]) -> None:
        config = self._config
        team = f" (team {config.team})" if config.team else ""
        text = f"Run {config.name}{team} {words or _WORDS[event]}.{f' {detail}' if detail else ''}"
        body = message(event, text, run=config.name, team=config.team, folder=record.folder_of(config), **fields)
        self._notifier.put("-".join(filter(None, (event, str(attempt), number))), {**body, "attempt": attempt})

    @property
    def sentence(self) -> str:
        """The sentence that the run ended with, as far as this process knows."""
        return self._sentence

    def close(self, seconds: float = _SECONDS_TO_END) -> None:
        """Wait a few seconds for the notifications that are on their way."""
        if not self._notifier.close(seconds):
            warn("A notification is not sent yet, and the process ends.")


_of_process: Notifications | None = None


def of_process(config: RunConfig) -> Notifications:
    """Return the notifications of this process; the first call starts them."""
    global _of_process
    if _of_process is None:
        _of_process = Notifications(config)
    return _of_process


def finish(config: RunConfig, end: str, *, final: bool) -> None:
    """Write the end of the run, or of its attempt, to its record, and send `ended` if it is `final`.

    `end` is succeeded, failed, preempted or stopped. Takes at most a few seconds, and never raises.
    """
    try:
        notifications = of_process(config)
        reason = "" if end == "succeeded" else notifications.sentence
        patience = _SECONDS_TO_STOP if end in ("preempted", "stopped") else _SECONDS_TO_END
        try:
            within(patience, _end_record, config, notifications.attempts_before, end, reason, final)
        except OSError as error:
            warn(f"The record of the run cannot be written: {error.strerror or error}.")
        if final:
            words = {"succeeded": "has succeeded", "stopped": "was cancelled"}.get(end, "has failed")
            notifications.send("ended", reason, words=words, state=end)
        elif end == "failed":
            notifications.send("failed", reason)
        notifications.close(patience)
    except Exception as error:  # the run is over, and its exit code must stay
        warn(f"The end of the run is not reported: {type(error).__name__}: {error}")


def _end_record(config: RunConfig, before: int, end: str, reason: str, final: bool) -> None:
    if not config.folder.is_dir():
        return
    kept = record.read(config.folder)
    if kept.get("state") == "succeeded" and end == "succeeded":
        return
    if len(kept.get("attempts") or ()) <= before:  # this process ended before it trained
        kept = record.started(config, kept)
    record.write(config.folder, record.ended(kept, end, reason, final=final))
