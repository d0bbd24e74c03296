"""Suggestions for mistyped words."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def bare(key: str) -> str:
    """Normalize a key's spelling: max_restarts, max-restarts and maxRestarts are equal."""
    return key.replace("_", "").replace("-", "").lower()


def closest(word: str, words: Iterable[str], count: int = 1) -> list[str]:
    """Return the words nearest to `word`; one that differs only in case, hyphens and underscores comes first."""
    by_plain: dict[str, str] = {}
    for known in words:
        by_plain.setdefault(bare(known), known)
    if bare(word) in by_plain:
        return [by_plain[bare(word)]]
    matches = [by_plain[known] for known in by_plain if _one_slip(bare(word), known)]
    matches += [by_plain[match] for match in get_close_matches(bare(word), by_plain, n=count, cutoff=0.7)]
    return list(dict.fromkeys(matches))[:count]


def _one_slip(word: str, known: str) -> bool:
    """Return whether one typing error turns `known` into `word`: an extra, missing or wrong letter, or two swapped."""
    if len(known) < 2 or abs(len(word) - len(known)) > 1:
        return False
    start = next((i for i, (a, b) in enumerate(zip(word, known, strict=False)) if a != b), min(len(word), len(known)))
    mine, right = word[start:], known[start:]
    swapped = len(right) > 1 and mine == right[1] + right[0] + right[2:]
    return swapped or mine[1:] == right[1:] or mine[1:] == right or mine == right[1:]


def join_or(names: Iterable[str], joint: str = "or") -> str:
    """Join the words as a list in a sentence: a, b or c."""
    words = list(names)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {joint} {words[-1]}"
