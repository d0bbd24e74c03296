"""Contents of products in the pages and generated files. In a checkout without a product, they have nothing of it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from tests.docs.pages import CHECKOUT


def gke_schema() -> dict[str, Any]:
    """Return the schema of the values of `launcher cluster`."""
    return _schema("gke")


def fleet_schema() -> dict[str, Any]:
    """Return the schema of the values of `launcher fleet`."""
    return _schema("fleet")


@cache
def _schema(product: str) -> dict[str, Any]:
    file = CHECKOUT / f"launcher/products/{product}/values.schema.json"
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"properties": {}}
    return schema
