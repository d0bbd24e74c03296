"""What somebody who mistyped a word may have meant."""

from __future__ import annotations

from collections.abc import Iterable


def bare(key: str) -> str:
    """A key without what spellings differ in: max_restarts, max-restarts and maxRestarts are one."""
    return key.replace("_", "").replace("-", "").lower()


def closest(word: str, words: Iterable[str], count: int = 1) -> list[str]:
    """The words nearest to `word`; the same but for case, hyphens and underscores comes first."""
    from difflib import get_close_matches

    by_plain: dict[str, str] = {}
    for known in words:
        by_plain.setdefault(bare(known), known)
    if bare(word) in by_plain:
        return [by_plain[bare(word)]]
    found = [by_plain[known] for known in by_plain if _one_slip(bare(word), known)]
    found += [by_plain[match] for match in get_close_matches(bare(word), by_plain, n=count, cutoff=0.7)]
    return list(dict.fromkeys(found))[:count]


def _one_slip(word: str, known: str) -> bool:
    """Whether one slip of a finger makes `known` to `word`: a letter too many, too few, or wrong, or two swapped."""
    if len(known) < 2 or abs(len(word) - len(known)) > 1:
        return False
    start = next((i for i, (a, b) in enumerate(zip(word, known, strict=False)) if a != b), min(len(word), len(known)))
    mine, right = word[start:], known[start:]
    swapped = len(right) > 1 and mine == right[1] + right[0] + right[2:]
    return swapped or mine[1:] == right[1:] or mine[1:] == right or mine == right[1:]


def join_or(names: Iterable[str], joint: str = "or") -> str:
    """The words as a list in a sentence: a, b or c."""
    words = list(names)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {joint} {words[-1]}"
