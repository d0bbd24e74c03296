"""Compare the output of a command with the output on a page."""

from __future__ import annotations

import difflib
import re


def pattern(shown: str) -> re.Pattern[str]:
    """Return a pattern: a line `...` matches any lines, `...` in a line any text, two spaces two or more spaces."""
    parts = re.split(r"(?m)(^\.\.\.\n|\.\.\.)", _narrow(shown))
    return re.compile(
        "".join(
            r"(?:.*\n)*?" if part == "...\n" else r"[^\n]*?" if part == "..." else re.escape(part) for part in parts
        )
    )


def differs(shown: str, printed: str) -> str:
    """Return the differences line by line, or "" if `printed` matches `shown`."""
    if printed and not printed.endswith("\n"):
        printed += "\n"
    if pattern(shown).fullmatch(_narrow(printed)):
        return ""
    return "\n".join(difflib.unified_diff(shown.splitlines(), printed.splitlines(), "shown", "printed", lineterm=""))


def _narrow(text: str) -> str:
    """Replace runs of spaces by two: the width of a column depends on its widest cell, which differs by machine."""
    return re.sub(r"(?<=\S) {2,}", "  ", re.sub(r" +$", "", text, flags=re.MULTILINE))
