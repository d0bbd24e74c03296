"""Products: optional packages that add commands to the launcher. The core imports none of them.

A package registers a Product with an entry point of the group `slipway.commands`: NAME = "MODULE:ATTRIBUTE". Slipway's
own products are in launcher/products; docs/how-to/add-a-command.md shows a package of another distribution.

The core asks products for what only they know through hooks: the functions at the end of this file. Without a product
that has the hook, they return nothing.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.errors import LauncherError

if TYPE_CHECKING:
    from launcher.config.checks.problems import Problem
    from launcher.config.plan import LaunchPlan
    from launcher.diagnose.doctor.finding import Finding
    from launcher.k8s.client import Cluster
    from launcher.k8s.target import Target

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


@dataclass(frozen=True)
class ExpectedStart:
    """When a run that waits in a queue will start: as JSON, as a word, with its band, and as a sentence."""

    data: Mapping[str, Any]
    likely: str
    text: str
    sentence: str


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


def misfit(plan: LaunchPlan) -> Problem | None:
    """Return the problem that an earlier forecast found: the plan does not fit. None if it is not known."""
    for hook in _hooks("misfit"):
        problem: Problem | None = hook(plan)
        if problem is not None:
            return problem
    return None


def forecast_speed(config: Mapping[str, Any]) -> Any:
    """Return the speed of a run config that an earlier forecast found (step_seconds, mfu); None if not known."""
    return next((speed for hook in _hooks("forecast_speed") if (speed := hook(config)) is not None), None)


def expected_starts(
    target: Target, *, name: str | None = None, within: float | None = None
) -> dict[str, ExpectedStart]:
    """Return when the runs of the namespace that wait in a queue start, by their names; only that of `name` if given.

    Empty if it is not known. With `within`, raises LauncherError if it takes longer than about `within` seconds.
    """
    starts: dict[str, ExpectedStart] = {}
    for hook in _hooks("expected_starts"):
        starts |= hook(target, name=name, within=within)
    return starts


def expected_start_of(obj: Mapping[str, Any], target: Target) -> ExpectedStart | None:
    """Return when the run of an object would start if it was submitted now; None if it is not known."""
    return next((start for hook in _hooks("expected_start_of") if (start := hook(obj, target)) is not None), None)


def has_model(cluster: Cluster, name: str) -> bool:
    """Return whether a served model has the name. Raises LauncherError if the cluster does not answer or denies it."""
    return any(hook(cluster, name) for hook in _hooks("has_model"))


def served_models(target: Target, warn: Callable[[str], None] = lambda _: None) -> tuple[Sequence[Any], str] | None:
    """Return the statuses of the served models, and their table, "" if none; None if no product serves models."""
    return next((hook(target, warn) for hook in _hooks("served_models")), None)


def not_ready(cluster: Cluster, live: Mapping[str, Any]) -> str:
    """Return why a RayService does not answer; "" if it does, or if this is not known.

    A launcher.releases.readiness.Final is why it will not answer.
    """
    return next((hook(cluster, live) for hook in _hooks("not_ready")), "")


def sweep_verb(name: str) -> Callable[..., int]:
    """Return the implementation of a command for a sweep. Raises LauncherError if no product has sweeps."""
    for hook in _hooks("sweep_verb"):
        verb: Callable[..., int] = hook(name)
        return verb
    raise LauncherError("No installed package of the launcher has commands for sweeps.", "Name a run of the sweep.")


def cluster_findings(files: Sequence[str], sets: Sequence[str]) -> list[Finding] | None:
    """Return how the cluster differs from the values that created it; None if no product creates clusters."""
    lists = [hook(files, sets) for hook in _hooks("cluster_findings")]
    return [finding for findings in lists for finding in findings] if lists else None


def _hooks(name: str) -> Iterator[Callable[..., Any]]:
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
