"""`--set`: Helm's paths (commas, backslashes, `a[0]`, `{x,y}`), each value read as in a file.

Helm's own strvals leaves `3e-4` a string; this is the one difference.
"""

from __future__ import annotations

import io
from typing import Any

from launcher.errors import LauncherError
from launcher.reader import Reader, json_number, resolve
from launcher.tree import SET, Node, Origin, from_plain, plain

_MAX_INDEX = 65_536  # Helm's own limit for `--set a[N]=…`


def assign(root: Node, text: str, origin: Origin) -> Node:
    """One `--set`: Helm's paths (commas, backslashes, `a[0]`, `{x,y}`), each value read as in a file."""
    reader = io.StringIO(text)

    def until(stops: str) -> tuple[str, str]:
        """Text up to one of `stops`, and which; "" at the end. A backslash takes the next character as it is."""
        out: list[str] = []
        while char := reader.read(1):
            if char in stops:
                return "".join(out), char
            out.append(reader.read(1) if char == "\\" else char)
        return "".join(out), ""

    def fail(sentence: str) -> LauncherError:
        return LauncherError(f'--set "{text}": {sentence}', hint="Write --set KEY=VALUE, for example train.steps=100.")

    def path() -> list[str | int]:
        parts: list[str | int] = []
        while True:
            key, stop = until("=[,.")
            if not key:
                raise fail("a key is missing." if stop or parts else 'a key is missing behind the last ",".')
            if stop in ("", ","):
                raise fail(f'the key "{key}" has no value.')
            parts.append(key)
            while stop == "[":
                index, closed = until("]")
                if not closed or not index.isascii() or not index.isdigit() or int(index) > _MAX_INDEX:
                    raise fail(f'"[{index}" is no index; an index is a number in brackets, from 0 to {_MAX_INDEX}.')
                parts.append(int(index))
                between, stop = until("[.=")
                if between or not stop:
                    raise fail('behind an index comes "=", "." or another index.')
            if stop == "=":
                return parts

    def value() -> Any:
        position = reader.tell()
        if reader.read(1) != "{":
            reader.seek(position)
            return _scalar(until(",")[0], origin, text)
        items = []
        while True:
            item, stop = until(",}")
            if not stop:
                raise fail('the list has no "}" at its end.')
            items.append(_scalar(item, origin, text))
            if stop == "}":
                break
        position = reader.tell()
        if reader.read(1) not in ("", ","):
            reader.seek(position)
        return items

    def put(old: Node | None, parts: list[str | int], new: Any) -> Node:
        if not parts:
            return from_plain(new, origin)
        head, *rest = parts
        if isinstance(head, int):
            items = list(old.value) if old is not None and isinstance(old.value, list) else None
            if items is None and old is not None:
                raise fail(f"[{head}] is the index of a list, but there is no list.")
            items = items or []
            items += [None] * (head + 1 - len(items))
            inner = items[head]
            before = None if inner is None or not isinstance(inner, dict | list) else from_plain(inner, origin)
            items[head] = plain(put(before, rest, new))
            return Node(items, origin)
        if old is not None and not isinstance(old.value, dict):
            raise fail(f'"{head}" cannot be set, since what is above it is no map.')
        children = dict(old.value) if old is not None else {}
        children[head] = put(children.get(head), rest, new)
        return Node(children, old.origin if old is not None else origin)

    if not text:
        raise fail("there is nothing to set.")
    while reader.tell() < len(text):
        parts = path()
        root = put(root, parts, value())
    return root


def _scalar(text: str, origin: Origin, option: str) -> Any:
    """A value of `--set`, read as in a file: 3e-4 is a number, "010" in quotes is text. Empty is "" as in Helm."""
    stripped = text.strip()
    if not stripped:
        return text
    if stripped[0] in "\"'[":
        try:
            node = Reader(SET, origin.line - 1).read(stripped)
        except LauncherError as error:
            raise LauncherError(f'--set "{option}": {stripped} is not valid YAML.') from error
        return None if node is None else plain(node)
    value = resolve(stripped)
    return text if isinstance(value, str) else json_number(value, origin)
