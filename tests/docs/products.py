"""Contents of products in the pages and generated files. In a checkout without a product, they have nothing of it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from tests.docs.pages import CHECKOUT


@cache
def gke_schema() -> dict[str, Any]:
    """Return the schema of the values of `launcher cluster`."""
    file = CHECKOUT / "launcher/products/gke/values.schema.json"
    schema: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"properties": {}}
    return schema
