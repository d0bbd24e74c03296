"""Products: optional packages that add commands to the launcher. The core imports none of them.

A package registers a Product with an entry point of the group `slipway.commands`: NAME = "MODULE:ATTRIBUTE". Slipway's
own products are in launcher/products; docs/how-to/add-a-command.md shows a package of another distribution.

The core asks products for what only they know through hooks: see launcher/hooks.py.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GROUP = "slipway.commands"
_OWN = "launcher.products."


@dataclass(frozen=True)
class Command:
    """The one-line help of a command for `launcher --help`, its examples, and the page about it."""

    help: str
    examples: Sequence[str] = ()
    page: str = ""


@dataclass(frozen=True)
class Product:
    """Commands, and what else a package adds. `title` is the heading of its commands in `launcher --help`.

    The command NAME is the click command `command` in the module `package`.NAME, which is imported when the command is
    called. `api` has the functions that the package adds to launcher.api, and their modules. `instead_of` has words
    that other tools use for its commands, and what to use instead. `hooks` has functions as "MODULE:FUNCTION".
    """

    title: str
    package: str
    commands: Mapping[str, Command]
    api: Mapping[str, str] = field(default_factory=dict)
    instead_of: Mapping[str, str] = field(default_factory=dict)
    hooks: Mapping[str, str] = field(default_factory=dict)


def products() -> tuple[Product, ...]:
    """Return the installed products: Slipway's own first, then by the names of their entry points."""
    return _installed()[0]


def problems() -> tuple[str, ...]:
    """Return a sentence for each package that is left out, because it is broken or has a command of another one."""
    return _installed()[1]


@functools.cache
def _installed() -> tuple[tuple[Product, ...], tuple[str, ...]]:
    loaded: list[Product] = []
    sentences: list[str] = []
    names = set[str]()
    for name, value in sorted(_entry_points().items(), key=lambda entry: (not entry[1].startswith(_OWN), entry[0])):
        product = _load(value)
        if isinstance(product, Product) and (taken := sorted(names & product.commands.keys())):
            sentences.append(f'The package "{name}" is left out: another package has its command "{taken[0]}".')
        elif isinstance(product, Product):
            names |= product.commands.keys()
            loaded.append(product)
        elif product:
            sentences.append(
                f'The package "{name}" of commands is left out: {product}. Reinstall the package, or uninstall it.'
            )
    return tuple(loaded), tuple(sentences)


def product_of(command: str) -> Product | None:
    """Return the product with the command; None if no installed product has it."""
    return next((product for product in products() if command in product.commands), None)


def api_module(name: str) -> str | None:
    """Return the module of the function that a product adds to launcher.api; None if none adds it."""
    return next((product.api[name] for product in products() if name in product.api), None)


def hooks(name: str) -> Iterator[Callable[..., Any]]:
    """Yield the functions that the installed products have for a question of the core (launcher/hooks.py)."""
    for product in products():
        if name in product.hooks:
            module, _, attribute = product.hooks[name].partition(":")
            yield getattr(importlib.import_module(module), attribute)


def _load(value: str) -> Product | str:
    """Return the product of an entry point, or why it cannot be loaded: "" if its folder was deleted."""
    module, _, attribute = value.partition(":")
    try:
        product = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        # A checkout without the product's folder; the installed metadata still lists it.
        if module.startswith(_OWN) and f"{module}.".startswith(f"{error.name}."):
            return ""
        return str(error)
    except Exception as error:
        return str(error)
    return product if isinstance(product, Product) else f"{value} is not a launcher.plugins.Product"


def _entry_points() -> dict[str, str]:
    """Return the entry points of the group on the path of Python, as importlib.metadata does: the first of a name.

    importlib.metadata takes 60 ms with the packages of the trainer, which is as long as `launcher --help`.
    """
    entries_by_name: dict[str, str] = {}
    for folder in sys.path:
        try:
            with os.scandir(folder or ".") as entries:
                paths = sorted(entry.path for entry in entries if entry.name.endswith(_METADATA))
        except OSError:  # not a folder
            continue
        for path in paths:
            try:
                text = Path(path, "entry_points.txt").read_text(encoding="utf-8")
            except OSError:  # the distribution has none
                continue
            for line in text.partition(f"[{GROUP}]")[2].partition("\n[")[0].splitlines():
                key, equals, value = line.partition("=")
                if equals:
                    entries_by_name.setdefault(key.strip(), value.strip())
    return entries_by_name


_METADATA = (".dist-info", ".egg-info")
