"""The image that people get, built for real."""

from __future__ import annotations

import pytest

from tests.image.conftest import Image

pytestmark = pytest.mark.image


def test_user(image: Image) -> None:
    assert image.config["User"] == "1000:1000"
