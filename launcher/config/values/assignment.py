"""Parse `--set` (Helm's paths with commas, backslashes, `a[0]`, `{x,y}`; values read as in a file) and `--sweep`.

Helm's own strvals keeps `3e-4` as a string; this is the only difference.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from launcher.config.values.reader import Reader
from launcher.config.values.scalars import json_number, resolve
from launcher.config.values.tree import SET, SWEEP, Node, Origin, from_plain, plain
from launcher.errors import LauncherError, UsageError

KeyParts = tuple[str | int, ...]
"""A path in `--set`: keys and list indexes."""

_MAX_INDEX = 65_536  # Helm's own limit for `--set a[N]=…`
_EXAMPLES = {
    SET: "KEY=VALUE, for example train.steps=100",
    SWEEP: "KEY=VALUE,VALUE…, for example train.learning_rate=1e-4,3e-4",
}
_CLOSES = {"[": "]", "{": "}"}


@dataclass(frozen=True)
class Axis:
    """One `--sweep`: a key as written, its path, and its values as plain data."""

    key: str
    parts: KeyParts
    values: tuple[Any, ...]
    origin: Origin


def assign(root: Node, text: str, origin: Origin) -> Node:
    """Apply one `--set`: Helm's paths (commas, backslashes, `a[0]`, `{x,y}`), each value read as in a file."""
    option = _Option(text, origin)
    if not text:
        raise option.fail("there is nothing to set.")
    while not option.at_end:
        parts = option.path()
        root = option.put(root, parts, option.value())
    return root


def read_sweep(text: str, origin: Origin) -> Axis:
    """Parse one `--sweep`: a key and comma-separated values. A comma in quotes, [] or {} is part of a value."""
    option = _Option(text, origin)
    if not text:
        raise option.fail("there is nothing to sweep.")
    parts, key = option.path(), option.text_before[:-1]
    values = [option.swept(item) for item in option.items()]
    if _repeats(values):
        raise option.fail("a value is listed twice.")
    return Axis(key, tuple(parts), tuple(values), origin)


def axis(key: str, values: Iterable[Any], origin: Origin) -> Axis:
    """Return the axis of a key, in the syntax of `--set`, with values of Python."""
    parsed = read_sweep(f"{key}=null", origin)
    given = [values] if isinstance(values, str) else [of_python(value) for value in values]
    if not given or _repeats(given):
        raise LauncherError(f"{origin}: {key} " + ("lists a value twice." if given else "has no values."))
    return replace(parsed, values=tuple(given))


def _repeats(values: Sequence[Any]) -> bool:
    return any(value == other and type(value) is type(other) for n, value in enumerate(values) for other in values[:n])


def of_python(value: Any) -> Any:
    """Return the value; a scalar of NumPy, such as an item of linspace, as that of Python, which can be written."""
    return value.item() if hasattr(value, "item") else value


def put(root: Node, axis: Axis, value: Any) -> Node:
    """Return the tree with one value of the axis set at its path."""
    return _Option(f"{axis.key}=…", axis.origin).put(root, axis.parts, value)


class _Option:
    """A parser for the text of one option, from left to right."""

    def __init__(self, text: str, origin: Origin) -> None:
        self.text, self.origin = text, origin
        self._reader = io.StringIO(text)

    @property
    def at_end(self) -> bool:
        return self._reader.tell() >= len(self.text)

    @property
    def text_before(self) -> str:
        """The text read so far."""
        return self.text[: self._reader.tell()]

    def fail(self, sentence: str) -> UsageError:
        name = self.origin.file
        return UsageError(f'{name} "{self.text}": {sentence}', hint=f"Write {name} {_EXAMPLES.get(name, '')}.")

    def until(self, stops: str) -> tuple[str, str]:
        """Return the text up to one of `stops`, and that stop ("" at the end). A backslash escapes a character."""
        out: list[str] = []
        while char := self._reader.read(1):
            if char in stops:
                return "".join(out), char
            out.append(self._reader.read(1) if char == "\\" else char)
        return "".join(out), ""

    def path(self) -> list[str | int]:
        parts: list[str | int] = []
        while True:
            key, stop = self.until("=[,.")
            if not key:
                raise self.fail("a key is missing." if stop or parts else 'a key is missing after the last ",".')
            if stop in ("", ","):
                raise self.fail(f'the key "{key}" has no value.')
            if key != key.strip():
                raise self.fail(f'there is a space before or after the key "{key.strip()}"; remove it.')
            parts.append(key)
            while stop == "[":
                index, closed = self.until("]")
                if not closed or not index.isascii() or not index.isdigit() or int(index) > _MAX_INDEX:
                    raise self.fail(
                        f'"[{index}" is not a valid index; an index is a number in brackets, from 0 to {_MAX_INDEX}.'
                    )
                parts.append(int(index))
                between, stop = self.until("[.=")
                if between or not stop:
                    raise self.fail('an index must be followed by "=", "." or another index.')
            if stop == "=":
                return parts

    def value(self) -> Any:
        position = self._reader.tell()
        if self._reader.read(1) != "{":
            self._reader.seek(position)
            return self._scalar(self.until(",")[0])
        items = []
        while True:
            item, stop = self.until(",}")
            if not stop:
                raise self.fail('the list is not closed: a "}" is missing at its end.')
            items.append(self._scalar(item))
            if stop == "}":
                break
        position = self._reader.tell()
        if self._reader.read(1) not in ("", ","):
            self._reader.seek(position)
        return items

    def items(self) -> list[str]:
        """Return the rest as the values of a sweep, each as written, without the commas between them."""
        items, item, open_, quote = [], "", "", ""
        rest = iter(self._reader.read())
        for char in rest:
            if char == " " and not item:
                continue
            if char == "\\" and quote != "'":
                item += char + next(rest, "")
                continue
            if quote:
                quote = "" if char == quote else quote
            elif char in "\"'" and (open_ or not item or (item[0] == "'" and item[-1] == char)):
                # Elsewhere it is an apostrophe. Two in single quotes mean one, so the quoted text continues.
                quote = char
            elif char in _CLOSES:
                open_ += _CLOSES[char]
            elif open_ and char == open_[-1]:
                open_ = open_[:-1]
            elif char == "," and not open_:
                items.append(item)
                item = ""
                continue
            item += char
        if quote or open_:
            raise self.fail(f"a {quote or open_[-1]} is missing at the end of a value.")
        return [*items, item]

    def swept(self, item: str) -> Any:
        """Parse one value of a sweep as --set does, with lists and maps written as in a file."""
        item = item.rstrip()
        if not item:
            raise self.fail('a value is missing; write "" for an empty one.')
        inner = _Option(item, self.origin)
        if item[0] in "\"'[":
            return self._scalar(item)
        value = inner.value()
        if not inner.at_end:
            raise self.fail(f'"{item}" is not a valid value.')
        return value

    def put(self, old: Node | None, parts: Sequence[str | int], new: Any) -> Node:
        if not parts:
            return from_plain(new, self.origin)
        head, *rest = parts
        if isinstance(head, int):
            items = list(old.value) if old is not None and isinstance(old.value, list) else None
            if items is None and old is not None:
                raise self.fail(f"[{head}] is the index of a list, but the value is not a list.")
            items = items or []
            items += [None] * (head + 1 - len(items))
            inner = items[head]
            before = None if inner is None or not isinstance(inner, dict | list) else from_plain(inner, self.origin)
            items[head] = plain(self.put(before, rest, new))
            return Node(items, self.origin)
        if old is not None and not isinstance(old.value, dict):
            raise self.fail(f'"{head}" cannot be set, because the value above it is not a map.')
        children = dict(old.value) if old is not None else {}
        children[head] = self.put(children.get(head), rest, new)
        return Node(children, old.origin if old is not None else self.origin)

    def _scalar(self, text: str) -> Any:
        """Parse a value of `--set` as in a file: 3e-4 is a number, "010" in quotes is text. Empty is "", as in Helm."""
        stripped = text.strip()
        if not stripped:
            return text
        if stripped[0] in "\"'[":
            try:
                node = Reader(self.origin.file, self.origin.line - 1).read(stripped)
            except LauncherError as error:
                raise self._no_yaml(stripped) from error
            return None if node is None else plain(node)
        value = resolve(stripped)
        return text if isinstance(value, str) else json_number(value, self.origin)

    def _no_yaml(self, text: str) -> LauncherError:
        cut = text[0] == "[" and self.origin.file == SET and "," in self.text
        if not cut:
            return LauncherError(f'{self.origin.file} "{self.text}": {text} is not valid YAML.')
        return LauncherError(
            f'{SET} "{self.text}": {text} is not valid YAML; as in Helm, a comma ends a value here.',
            "Write a list in braces: KEY={sleep,1}.",
        )
