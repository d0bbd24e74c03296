"""Resolve the scalars of a values file as Helm does: go-yaml v2 to a value, JSON to float64."""

from __future__ import annotations

import math
import re
import struct
from typing import TYPE_CHECKING, Any

from launcher.errors import LauncherError

if TYPE_CHECKING:
    from launcher.config.values.tree import Origin

_WORDS: dict[str, Any] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}


_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


_POINT = re.compile(r"\.[0-9]+(_[0-9]+)*([eE][-+]?[0-9]+(_[0-9]+)*)?")


_INT = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<bin>[01]+)|0[oO]?(?P<oct>[0-7]+)|(?P<dec>0|[1-9][0-9]*))"
)


# A longer decimal number is above uint64. Python refuses to convert one of thousands of digits.
_MOST_DIGITS = 20


class Uint(int):
    """An integer above int64. Helm rejects it as a key."""


def _number(text: str) -> Any:
    """Parse a plain scalar that begins like a number, as go-yaml does; return the text itself if it is not a number."""
    if text[0] == ".":
        return _float(text) if _POINT.fullmatch(text) else text
    plain = text.replace("_", "")
    match = _INT.fullmatch(plain)
    if match and len(match["dec"] or "") <= _MOST_DIGITS:
        base = {"hex": 16, "bin": 2, "oct": 8, "dec": 10}[match.lastgroup or "dec"]
        digits = int(match[match.lastgroup or "dec"], base)
        value = -digits if match["sign"] == "-" else digits
        if -(2**63) <= value < 2**63:
            return value
        if value < 2**64 and not match["sign"]:
            return Uint(value)
    return _float(plain, text) if _FLOAT.fullmatch(plain) else text


def _float(digits: str, otherwise: str | None = None) -> Any:
    """Parse a float64 as Go does. Go raises an error if it is too large, so the scalar remains text."""
    value = float(digits)
    return (digits if otherwise is None else otherwise) if math.isinf(value) else value


def resolve(text: str) -> Any:
    """Resolve a plain scalar without a tag as go-yaml does: to a bool, None, int, float, or the text itself."""
    if text == "":
        return None
    first = text[0]
    if first in "yYnNtTfFoO~+-.0123456789" and text in _WORDS:
        return _WORDS[text]
    return _number(text) if first in "+-.0123456789" else text


def float32(value: float) -> str:
    """Format a number that is a key as Helm does: Go's FormatFloat(value, 'g', -1, 32).

    0.1 becomes "0.1", 1e6 becomes "1e+06".
    """
    if math.isnan(value):
        return ".nan"
    try:
        single: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        single = math.copysign(math.inf, value)
    if math.isinf(single):
        return ".inf" if single > 0 else "-.inf"
    for digits in range(9):  # nine significant digits distinguish any two float32 values
        text = f"{single:.{digits}e}"
        if struct.pack("f", float(text)) == struct.pack("f", single):
            break
    mantissa, exponent = text.split("e")
    power = int(exponent)
    if -4 <= power < 6:
        return f"{float(text):.{max(0, digits - power)}f}"
    return f"{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"


def json_number(value: Any, origin: Origin) -> Any:
    """Return a number as read from JSON: float64, or an int if it has no fraction and no digit is lost."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    number = float(value)
    if not math.isfinite(number):
        raise LauncherError(f"{origin}: {number} is not a valid number in JSON, and so not in Helm.")
    if number.is_integer() and abs(number) < 2**53 and not (number == 0 and math.copysign(1, number) < 0):
        return int(number)
    return number
