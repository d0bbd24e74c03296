"""Whether a command has printed what a page shows."""

from __future__ import annotations

import difflib
import re


def pattern(shown: str) -> re.Pattern[str]:
    """`...` alone on a line stands for any lines, within a line for any text; two spaces for two or more."""
    parts = re.split(r"(?m)(^\.\.\.\n|\.\.\.)", _narrow(shown))
    return re.compile(
        "".join(
            r"(?:.*\n)*?" if part == "...\n" else r"[^\n]*?" if part == "..." else re.escape(part) for part in parts
        )
    )


def differs(shown: str, printed: str) -> str:
    """Empty where `printed` is what is shown; else both, line by line."""
    if printed and not printed.endswith("\n"):
        printed += "\n"
    if pattern(shown).fullmatch(_narrow(printed)):
        return ""
    return "\n".join(difflib.unified_diff(shown.splitlines(), printed.splitlines(), "shown", "printed", lineterm=""))


def _narrow(text: str) -> str:
    """Columns are as wide as their widest cell, which differs from place to place."""
    return re.sub(r"(?<=\S) {2,}", "  ", re.sub(r" +$", "", text, flags=re.MULTILINE))
