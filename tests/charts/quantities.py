"""Quantities in rendered objects, and amounts with their canonical form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

AMOUNTS: list[tuple[str | float, str]] = [
    (0, "0"),
    ("0.0", "0"),
    ("0Gi", "0"),
    (4, "4"),
    ("1000m", "1"),
    ("1500m", "1500m"),
    ("1.0", "1"),
    (0.5, "500m"),
    (".5", "500m"),
    ("2.50", "2500m"),
    (1000, "1k"),
    ("5000", "5k"),
    (16_000_000, "16M"),
    (12_345_678, "12345678"),
    ("2000k", "2M"),
    ("1E", "1E"),
    ("1024Mi", "1Gi"),
    ("16.0Gi", "16Gi"),
    ("1.5Gi", "1536Mi"),
    (".25Gi", "256Mi"),
    ("1025Ki", "1025Ki"),
    ("1048576Ti", "1Ei"),
    ("0.5Ki", "512"),
    ("1.3Gi", "1395864371200m"),
    # The API server rounds up to thousandths.
    ("0.0001", "1m"),
    ("3.14159", "3142m"),
    ("1.0001Gi", "1073849198183m"),
]
"""Amounts as users write them, and as the API server stores them."""

KEPT: list[tuple[str | float, str]] = [("08", "8"), ("1e3", "1k"), ("15E2", "1500"), ("1e-2", "10m"), (1e-08, "1m")]
"""Amounts with an exponent or leading zeros, which the API server keeps, and the same amounts without them."""

FORMS: dict[str, bool] = {
    **{str(given): True for given, _ in [*AMOUNTS, *KEPT]},
    **dict.fromkeys(["+5", "5.", "16.7Gi", "1e+3", "1E-2", "1n", "7u", "3Pi", "2Ei", "128974848000m"], True),
    **dict.fromkeys(["", "1e", "1e3m", "1e1.5", "1.2.3", "16GB", "16gi", "16 Gi", "5K", "5ki", "--5"], False),
}
"""Texts, and whether Kubernetes accepts each as a quantity. (It reads "." and "Gi" as 0, against its grammar.)"""

_MAPS = {"requests", "limits", "hard"}
_FIELDS = {"nominalQuota", "borrowingLimit", "lendingLimit", "sizeLimit", "weight"}


def quantities(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of every quantity of an object."""
    if isinstance(node, list):
        for number, item in enumerate(node):
            yield from quantities(item, f"{path}[{number}]")
    elif isinstance(node, dict):
        for key, value in node.items():
            here = f"{path}.{key}".removeprefix(".")
            if key in _FIELDS:
                yield here, value
            elif key in _MAPS and isinstance(value, list):  # of a LimitRange
                for number, item in enumerate(value):
                    maps = {field: amounts for field, amounts in item.items() if isinstance(amounts, dict)}
                    yield from (
                        (f"{here}[{number}].{field}.{name}", amount)
                        for field, amounts in maps.items()
                        for name, amount in amounts.items()
                    )
            elif key in _MAPS:
                yield from ((f"{here}.{name}", amount) for name, amount in value.items())
            else:
                yield from quantities(value, here)
