"""The kubernetes package without its start-up: 0.2 s in place of 0.7 s; and pyhelm3, 0.1 s in place of 0.3 s.

`import kubernetes` imports all of it: every API, leader election, informers. Here the packages come without running
their __init__, so that a module is imported when it is asked for. Whoever then asks one of them for a name that it
does not have yet (`kubernetes.watch`, in a notebook that uses the client itself) has its __init__ run, as ever.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

_PACKAGES = ("kubernetes", "kubernetes.config", "kubernetes.utils")


class _Late(ModuleType):
    """A package whose __init__ has not run."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.__class__ = ModuleType  # type: ignore[assignment]  # a module's class may change to a base of it
        spec = self.__spec__
        assert spec is not None and spec.loader is not None  # noqa: S101 - `prepare` saw to it
        spec.loader.exec_module(self)
        return getattr(self, name)


def prepare(packages: Sequence[str] = _PACKAGES) -> None:
    """Put the packages into sys.modules, where they are not yet. Idempotent."""
    for name in packages:
        if name in sys.modules:
            continue
        spec = importlib.util.find_spec(name)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        module = importlib.util.module_from_spec(spec)
        module.__class__ = _Late
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
