"""Lazy imports of the kubernetes package (0.1 s instead of 0.7 s) and of pyhelm3 (0.1 s instead of 0.3 s).

`import kubernetes` imports everything: every API, leader election, informers. This module imports the packages
without running their __init__, so that a module is only imported when it is used. Access to a name that such a package
does not have yet (`kubernetes.watch`, in a notebook that uses the client itself) runs its __init__ as usual.
"""

from __future__ import annotations

import builtins
import functools
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

_PACKAGES = ("kubernetes", "kubernetes.client", "kubernetes.config", "kubernetes.utils")
_KUBE_CONFIG = "kubernetes.config.kube_config"
# That module imports these at its top (0.3 s). Only old kubeconfigs with an `auth-provider` need them.
_OF_AUTH_PROVIDERS = ("google", "oauthlib", "requests_oauthlib")


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


def prepare(packages: Sequence[str] = _PACKAGES) -> None:
    """Add the packages to sys.modules if they are missing. Idempotent."""
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


@functools.cache
def kube_config() -> Any:
    """Return a copy of kubernetes.config.kube_config that reads every kubeconfig except those with an `auth-provider`.

    The copy is private to the launcher: a regular import, here or in a notebook, gets the complete module.
    """
    prepare()
    spec = importlib.util.find_spec(_KUBE_CONFIG)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {_KUBE_CONFIG!r}", name=_KUBE_CONFIG)
    module = importlib.util.module_from_spec(spec)
    vars(module)["__builtins__"] = {**vars(builtins), "__import__": _import}
    spec.loader.exec_module(module)
    return module


def _import(
    name: str,
    module_globals: Mapping[str, object] | None = None,
    module_locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] = (),
    level: int = 0,
    /,
) -> Any:
    """Implement `import` for that copy: return placeholders for the modules that it does not use."""
    if name.partition(".")[0] in _OF_AUTH_PROVIDERS:
        return SimpleNamespace(**dict.fromkeys(fromlist or ()))
    if name == "kubernetes.client":  # its ApiClient brings pydantic, 0.1 s
        from kubernetes.client.configuration import Configuration

        return SimpleNamespace(ApiClient=None, Configuration=Configuration)
    return __import__(name, module_globals, module_locals, fromlist, level)
