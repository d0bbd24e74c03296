"""The type of options that are numbers."""

from __future__ import annotations

import math
from typing import Any

import click


class Number(click.FloatRange):
    """A number in a range. NaN and infinity are rejected: no comparison with NaN is true, so it is in every range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not math.isfinite(number := super().convert(value, param, ctx)):
            self.fail(f"{value} is not a valid number.", param, ctx)
        return number
