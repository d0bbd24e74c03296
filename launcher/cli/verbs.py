"""The verbs of the core and of the products, and their one-line helps, without importing any."""

from __future__ import annotations

import functools
import json
from pathlib import Path

from launcher import plugins
from launcher.cli import output
from launcher.plugins import Command

_TABLE = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
_GROUPS: dict[str, dict[str, Command]] = {
    title: {verb: Command(**row) for verb, row in rows.items()} for title, rows in _TABLE["groups"].items()
}
"""The core's verbs by their groups in `launcher --help`, which imports no verb. A test compares them with the verbs."""

CORE = {verb: command for rows in _GROUPS.values() for verb, command in rows.items()}
INSTEAD_OF: dict[str, str] = {word: use for use, words in _TABLE["instead_of"].items() for word in words}
"""What to use instead of a word that other tools have as a command. Products add words of their own."""


@functools.cache
def groups() -> dict[str, dict[str, str]]:
    """Return the verbs and their one-line helps by group: those of the core, then those of each product."""
    by_title = {title: {verb: command.help for verb, command in rows.items()} for title, rows in _GROUPS.items()}
    output.narrate(*(f"Warning: {problem}" for problem in plugins.problems()))
    for product in plugins.products():
        added = {verb: command.help for verb, command in product.commands.items() if verb not in CORE}
        for verb in sorted(product.commands.keys() & CORE.keys()):
            output.narrate(f'Warning: The command "{verb}" of {product.package} is left out: the launcher has it.')
        by_title.setdefault(product.title, {}).update(added)
    return {title: group for title, group in by_title.items() if group}


def verbs() -> dict[str, str]:
    """Return all verbs and their one-line helps."""
    return {verb: text for group in groups().values() for verb, text in group.items()}


def epilog(command: Command) -> str:
    """Return the end of a verb's help, as click formats it: its examples, and its page."""
    title = "Examples:" if len(command.examples) > 1 else "Example:"
    shown = ["\b", title, *(f"  {each}" for each in command.examples), ""] if command.examples else []
    return "\n".join([*shown, *([f"Page: {command.page}"] if command.page else [])])
