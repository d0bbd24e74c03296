"""What all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from tests.tools import tool

# The same examples on every machine: a failure that a colleague cannot repeat helps nobody. `--hypothesis-seed`
# and `--hypothesis-profile=search` look further.
settings.register_profile("slipway", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=1000)
settings.load_profile("slipway")


@pytest.fixture(scope="session", params=["helm", "helm3"])
def helm(request: pytest.FixtureRequest) -> Path:
    """Both supported Helms, one after the other."""
    return tool(request.param)


@pytest.fixture(scope="session")
def helm4() -> Path:
    return tool("helm")
