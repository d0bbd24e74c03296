"""Write a tree as YAML."""

from __future__ import annotations

import json
import re
from typing import Any

from launcher.config.values.scalars import resolve

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./+=@%-]*(?:[ :][A-Za-z0-9_./+=@%-]+)*")


_ESCAPE = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]")


def dumps(tree: Any) -> str:
    """Format `tree` as YAML that Helm reads back unchanged; text that YAML would read as another type is quoted."""
    lines: list[str] = []
    _dump(tree, "", lines)
    return "\n".join(lines) + "\n"


def _dump(value: Any, indent: str, lines: list[str]) -> None:
    if isinstance(value, dict) and value:
        for key, child in value.items():
            name = _dump_scalar(key)
            if len(name) > 128:  # YAML requires an explicit key marker for a key longer than 1024 bytes
                lines.append(f"{indent}? {name}")
                name = ""
            _dump_under(f"{indent}{name}:", child, indent + "  ", lines)
    elif isinstance(value, list) and value:
        for child in value:
            _dump_under(f"{indent}-", child, indent + "  ", lines)
    else:
        lines.append(indent + _dump_scalar(value))


def _dump_under(head: str, child: Any, indent: str, lines: list[str]) -> None:
    if isinstance(child, dict | list) and child:
        if head.endswith("-"):  # a map or list in a list starts on the dash's line
            at = len(lines)
            _dump(child, indent, lines)
            lines[at] = head + " " + lines[at][len(indent) :]
        else:
            lines.append(head)
            _dump(child, indent, lines)
    else:
        lines.append(f"{head} {_dump_scalar(child)}")


def _dump_scalar(value: Any) -> str:
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and isinstance(resolve(value), str):
            return value
        quoted = json.dumps(value, ensure_ascii=False)
        return _ESCAPE.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)
    if isinstance(value, dict | list):
        return "{}" if isinstance(value, dict) else "[]"
    return json.dumps(value)
