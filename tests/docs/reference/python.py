"""The page on launcher.api, from its docstrings and signatures."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

from launcher import api
from launcher.k8s.target import DEFAULT_TARGET
from tests.docs.reference.parts import page, prose


def text() -> str:
    """Return the page: first the functions, in the order of their modules, then the errors."""
    found = {name: getattr(api, name) for name in dir(api)}
    functions = {name: each for name, each in found.items() if inspect.isfunction(each)}
    errors = {name: each for name, each in found.items() if inspect.isclass(each)}
    parts = [prose(api.__doc__), "A notebook: [sweep.ipynb](../examples/sweep.ipynb)."]
    by_module: dict[str, list[str]] = {}
    for name, function in functions.items():
        by_module.setdefault(function.__module__, []).append(name)
    for module in sorted(by_module, key=_place):
        names = sorted(by_module[module], key=lambda name: functions[name].__code__.co_firstlineno)
        parts.append(f"## {(import_module(module).__doc__ or 'Functions').splitlines()[0].split(':')[0].rstrip('.')}")
        for name in names:
            function = functions[name]
            parts += [f"### {name}", f"```python\n{_signature(name, function)}\n```", prose(function.__doc__)]
    parts.append("## Errors")
    for name, error in errors.items():
        parts += [f"### {name}", prose(error.__doc__)]
    return page("Python API", "launcher/api", *parts)


_ORDER = (
    "plans",
    "render",
    "runs",
    "sweeps",
    "finding",
    "insight",
    "measurements",
    "install",
    "offline",
    "removal",
    "diff",
)


def _place(module: str) -> tuple[int, str]:
    """Return the sort key of a module on the page; modules that are not in _ORDER are last."""
    last = module.rsplit(".", 1)[-1]
    return (_ORDER.index(last) if last in _ORDER else len(_ORDER), last)


def _signature(name: str, function: Any) -> str:
    """Return the signature in one line if it fits, otherwise with one parameter per line."""
    signature = inspect.signature(function)
    shown = str(signature).replace("'", "").replace(str(DEFAULT_TARGET).replace("'", ""), "DEFAULT_TARGET")
    shown = re.sub(r"<function <lambda> at 0x[0-9a-f]+>", "…", shown)
    if len(name) + len(shown) <= 100:
        return f"{name}{shown}"
    inner, _, returns = shown.rpartition(" -> ")
    parts, depth, at = [], 0, 1
    for index, char in enumerate(inner):
        depth += char in "([{"
        depth -= char in ")]}"
        if char == "," and depth == 1:
            parts.append(inner[at:index].strip())
            at = index + 1
    parts.append(inner[at:-1].strip())
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f") -> {returns}"
