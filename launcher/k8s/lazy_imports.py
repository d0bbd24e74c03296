"""The kubernetes package without its start-up: 0.1 s in place of 0.7 s; and pyhelm3, 0.1 s in place of 0.3 s.

`import kubernetes` imports all of it: every API, leader election, informers. Here the packages come without running
their __init__, so that a module is imported when it is asked for. Whoever then asks one of them for a name that it
does not have yet (`kubernetes.watch`, in a notebook that uses the client itself) has its __init__ run, as ever.
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
# What the top of that module imports, 0.3 s, for the kubeconfigs of old alone that have an `auth-provider`.
_OF_AUTH_PROVIDERS = ("google", "oauthlib", "requests_oauthlib")


class _Late(ModuleType):
    """A package whose __init__ has not run."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.__class__ = ModuleType  # type: ignore[assignment]  # a module's class may change to a base of it
        spec = self.__spec__
        if spec is None or spec.loader is None:  # what `prepare` puts here has both
            raise ImportError(f"{self.__name__} cannot be loaded", name=self.__name__)
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


@functools.cache
def kube_config() -> Any:
    """A copy of kubernetes.config.kube_config that reads every kubeconfig but one with an `auth-provider`.

    It is the launcher's own: whoever imports the module, here or in a notebook, gets the whole of it.
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
    """`import` of that copy: nothing stands for what it does not use."""
    if name.partition(".")[0] in _OF_AUTH_PROVIDERS:
        return SimpleNamespace(**dict.fromkeys(fromlist or ()))
    if name == "kubernetes.client":  # its ApiClient brings pydantic, 0.1 s
        from kubernetes.client.configuration import Configuration

        return SimpleNamespace(ApiClient=None, Configuration=Configuration)
    return __import__(name, module_globals, module_locals, fromlist, level)
