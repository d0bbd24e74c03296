"""Follow a run while another process switches it to another alternative of slice.any.

launcher submit cancels the run, deletes its object, and creates the next attempt with the same name. Between the last
two, no run is found.
"""

from __future__ import annotations

import time

from launcher.backends.base import BEING_SWITCHED, GAP_SECONDS, SWITCH_SECONDS, RunStatus, State, found_or_deleted


class Followed:
    """Decides when a run that is followed has ended."""

    def __init__(self) -> None:
        self._since: float | None = None  # when the switch, or the absence of the run, was observed first

    def ended(self, status: RunStatus) -> bool:
        """Return whether the run has ended; False during a switch, for at most SWITCH_SECONDS."""
        if status.state is not State.CANCELLED or status.reason != BEING_SWITCHED:
            return status.state.ended
        return self._passed() > SWITCH_SECONDS

    def next(self, now: RunStatus | None, before: RunStatus) -> RunStatus:
        """Return the new status, or the one before it while the run is not found because of a switch.

        Raises LauncherError if the run was deleted.
        """
        if now is None:
            seconds = SWITCH_SECONDS if before.reason == BEING_SWITCHED else GAP_SECONDS
            if before.has_object and self._passed() <= seconds:
                return before
        elif now.reason != BEING_SWITCHED:
            self._since = None
        return found_or_deleted(now, before.name)

    def _passed(self) -> float:
        if self._since is None:
            self._since = time.monotonic()
        return time.monotonic() - self._since
