"""CHANGELOG.md: cuts "Unreleased" into a release, and finds the notes of a release."""

from __future__ import annotations

import re
from datetime import date

from tests.release.versions import ReleaseError

_UNRELEASED = "## Unreleased\n"
UPGRADE = "### Upgrade\n"


def cut(text: str, version: str, day: date) -> str:
    """Return the changelog with the notes under "Unreleased" as the release `version`.

    Raises ReleaseError if there are no notes, or if they do not say what users have to do when they upgrade.
    """
    if text.count(_UNRELEASED) != 1:
        raise ReleaseError('CHANGELOG.md must have one section "## Unreleased".')
    notes = section(text, "Unreleased")
    if UPGRADE not in notes:
        raise ReleaseError(
            'CHANGELOG.md: "Unreleased" has no section "### Upgrade". Write there what users have to do, or "Nothing."'
        )
    for heading, body in re.findall(r"(?ms)^### (.+?)\n(.*?)(?=^### |\Z)", notes):
        if not body.strip():
            raise ReleaseError(f'CHANGELOG.md: the section "### {heading}" of "Unreleased" is empty.')
    return text.replace(_UNRELEASED, f"{_UNRELEASED}\n## {version} - {day.isoformat()}\n")


def has(text: str, version: str) -> bool:
    """Return whether the changelog has the release `version`."""
    return bool(re.search(rf"(?m)^## {re.escape(version)} - \d{{4}}-\d\d-\d\d$", text))


def notes(text: str, version: str) -> str:
    """Return the notes of a release, without its heading."""
    return section(text, rf"{re.escape(version)} - \S+").strip() + "\n"


def section(text: str, heading: str) -> str:
    """Return the text below the heading, which is a pattern."""
    match = re.search(rf"(?ms)^## {heading}\n(.*?)(?=^## |\Z)", text)
    return match[1] if match else ""
