"""Prerequisites of a test other than Python, Go, make and git."""

from __future__ import annotations

import os

import pytest


def require(condition: object, reason: str) -> None:
    """Skip the test with `reason` if the condition is false. If the variable CI is set, fail the test instead.

    Call it in a test or a fixture. `reason` is a sentence that names what is missing and how to get it.
    """
    if condition:
        return
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
