"""Fixtures for the tests of the products."""

from tests.cli.conftest import launcher as launcher
