"""Tools that the tests run, built from source at pinned versions."""

from tests.tools.go_tools import tool

__all__ = ["tool"]
