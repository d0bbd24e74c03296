"""The types that all rules share: the context of a check and the problems found."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from launcher.config.checks.schema import NO_VALUE
from launcher.config.kinds import RunKind
from launcher.config.values.tree import SET, SWEEP, Origin, Values, dotted

if TYPE_CHECKING:
    from launcher.config.values.reader import InvalidFile

ERROR, WARNING = "error", "warning"


@dataclass(frozen=True)
class Problem:
    """A problem in the values. `file` and `line` are None if the user's layers do not contain the key.

    `key` is the dotted path, `message` a full sentence that does not repeat file and line.
    """

    rule: str
    severity: str
    message: str
    file: str | None
    line: int | None
    key: str

    def __str__(self) -> str:
        """Return `FILE:LINE: KEY: sentence`, without unknown parts, and without the key if the sentence names it.

        For a key that --set or --sweep sets, return `--set KEY: sentence`.
        """
        if self.file in (SET, SWEEP) and self.key:
            return f"{self.file} {self.key}: {self.message.removeprefix(f'{self.key}: ')}"
        where = f"{Origin(self.file, self.line)}: " if self.file is not None and self.line is not None else ""
        return where + (self.message if _names(self.message, self.key) else f"{self.key}: {self.message}")


_IN_KEY = re.compile(r"[\w.]")
_MORE_OF_KEY = re.compile(r"[\w.]*\w")


def _names(message: str, key: str) -> bool:
    """Return whether the message has the key itself, not only as a part of another key; true for an empty key.

    A regular expression for each key would take most of the time of a check with thousands of problems.
    """
    at = message.find(key)
    while at >= 0:
        if not (at and _IN_KEY.match(message[at - 1])) and not _MORE_OF_KEY.match(message, at + len(key)):
            return True
        at = message.find(key, at + 1)
    return not key


def error_in_file(error: InvalidFile) -> Problem:
    """Return the error of a values file that cannot be read, such as a syntax error, as a problem."""
    return Problem("syntax", ERROR, error.sentence, error.origin.file, error.origin.line, "")


class CheckContext:
    """The input of a check: the user's own layers (for origins) and the effective values (for everything else)."""

    def __init__(self, user: Values, effective: Values) -> None:
        self.user = user
        self.effective = effective
        self.has_unknown_keys = False
        """Whether there is an unknown key, which may be a mistyped form of an absent key."""
        self.train_valid = True
        """Whether each key of `train` is valid on its own, so that rules can calculate with it."""
        self.release = ""
        """The kind of a release in charts/_rules.json; "" for a run."""

    @cached_property
    def tree(self) -> dict[str, Any]:
        return self.effective.tree

    @property
    def kind(self) -> RunKind:
        return RunKind(self.tree["run"]["kind"])

    @property
    def ignores_slice(self) -> bool:
        """Whether a local run requests TPUs, which are not in this machine. One rule reports that, and no rule checks
        its slice."""
        run, accelerator = self.tree.get("run"), self.tree["slice"]["accelerator"]
        kind = run.get("kind") if isinstance(run, dict) else ""
        return kind == RunKind.LOCAL and (table_of(self.tree).get(accelerator) or {}).get("kind") == "tpu"

    def problem(self, rule: str, path: Sequence[str], message: str, severity: str = ERROR) -> Problem:
        if message.endswith(NO_VALUE) and tuple(path) not in self.user.origins:
            message = message.removesuffix(NO_VALUE) + "is missing; set a value."
        origin = self.user.origin(path)
        file, line = (origin.file, origin.line) if origin else (None, None)
        return Problem(rule, severity, message, file, line, dotted(path))

    def across(
        self, rule: str, path: Sequence[str], message: str, *others: str, severity: str = ERROR
    ) -> Iterator[Problem]:
        """Yield a problem of `path` with the keys `others` (dotted); nothing if one of them may be mistyped."""
        keys = [tuple(path), *(tuple(other.split(".")) for other in others)]
        if not (self.has_unknown_keys and any(key not in self.user.origins for key in keys)):
            yield self.problem(rule, path, message, severity)


Rule = Callable[[CheckContext], Iterable[Problem]]


def as_lines(problems: Sequence[Problem]) -> str:
    """Format the problems as lines of text."""
    return "\n".join(map(str, problems))


def has_errors(problems: Iterable[Problem]) -> bool:
    """Return whether any of the problems is an error."""
    return any(problem.severity == ERROR for problem in problems)


def table_of(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the accelerator table in effective values."""
    table: Mapping[str, Any] = values["common"]["accelerators"]
    return table
