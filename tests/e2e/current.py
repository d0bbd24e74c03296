"""The open session, or None. __main__ opens it and runs the tests in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.e2e.teams import Session

SESSION: Session | None = None
