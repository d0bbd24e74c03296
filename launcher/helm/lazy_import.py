"""Import pyhelm3 without running its __init__, which imports its models: 0.1 s instead of 0.3 s.

Access to a name that the package does not have yet, in a notebook that uses pyhelm3 itself, runs its __init__ as usual.
"""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any


class _Late(ModuleType):
    """A package whose __init__ has not run."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.__class__ = ModuleType  # type: ignore[assignment]  # a module's class may change to its base class
        spec = self.__spec__
        if spec is None or spec.loader is None:  # modules from `prepare` have both
            raise ImportError(f"{self.__name__} cannot be loaded", name=self.__name__)
        spec.loader.exec_module(self)
        return getattr(self, name)


def prepare(name: str) -> None:
    """Add the package to sys.modules if it is missing. Idempotent."""
    if name in sys.modules:
        return
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    module = importlib.util.module_from_spec(spec)
    module.__class__ = _Late
    sys.modules[name] = module
