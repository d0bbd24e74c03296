"""Imports MaxText without the parts that this run never uses.

A third of a cold start is the import of libraries for other platforms and features: the Vertex AI
client, Pathways, Hugging Face's model classes, goodput reporting. Each of them gets a stand-in that
imports the real module at its first use, so no feature is lost and nothing on disk is changed.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from types import ModuleType
from typing import Any, Never

from trainer.errors import ConfigError

# MaxText imports these on every start, but few runs use them. Seconds are of one warm import here (2 cores):
# vertex_tensorboard 2.1, load_dynamic 1.6 (all of it transformers), pathwaysutils 1.0, goodput 0.7,
# tokamax's autotuner 0.4, Google Cloud logging 0.2, sympy 0.2.
_DEFERRED = (
    "cloud_accelerator_diagnostics",
    "google.cloud.aiplatform",
    "google.cloud.logging",
    "google_cloud_mldiagnostics",
    "maxtext.checkpoint_conversion.utils.load_dynamic",
    "maxtext.integration.tunix.tunix_adapter",
    "ml_goodput_measurement",
    "pathwaysutils",
    "pathwaysutils.elastic",
    "sympy",
    "tokamax.autotuning",
    "tokamax._src.autotuning.api",
    "transformers",
)


class _Later:
    """A name in a deferred module. Calling it, or accessing an attribute of its instance, imports the real one."""

    def __init__(self, module: str, path: tuple[str, ...]) -> None:
        self.__module = module
        self.__path = path

    def __getattr__(self, name: str) -> _Later:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Later(self.__module, (*self.__path, name))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _real(self.__module, self.__path)(*args, **kwargs)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (_real(self.__module, self.__path),)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, _real(self.__module, self.__path))

    def __subclasscheck__(self, subclass: type) -> bool:  # by datasets, for what it pickles
        return issubclass(subclass, _real(self.__module, self.__path))

    def __or__(self, other: Any) -> Any:  # `manager.Manager | None` in an annotation
        return Any

    __ror__ = __or__

    def __bool__(self) -> Never:
        raise TypeError(
            f"{self.__module}.{'.'.join(self.__path)} is a deferred import; "
            "trainer/deferred_imports.py must not defer it"
        )


class _DeferredModule(ModuleType):
    """Replaces a module in `sys.modules` until something in it is used."""

    def __getattr__(self, name: str) -> Any:
        if name == "__version__":  # read at import by code that supports several versions
            return importlib.metadata.version(self.__name__.partition(".")[0])
        if name.startswith("__"):
            raise AttributeError(name)
        return _Later(self.__name__, (name,))


def _real(module: str, path: tuple[str, ...]) -> Any:
    """Import the real module of a stand-in, and look `path` up in it."""
    root = module.split(".")[0]
    for name in [n for n, m in sys.modules.items() if isinstance(m, _DeferredModule) and n.split(".")[0] == root]:
        del sys.modules[name]
        parent, _, child = name.rpartition(".")
        if parent in sys.modules:
            vars(sys.modules[parent]).pop(child, None)
    try:
        target: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"This feature of MaxText needs the Python package {error.name}, which is not installed; "
            'pip install "slipway-launcher[tpu]" installs all packages that MaxText can use.'
        ) from error
    for index, name in enumerate(path):
        try:
            target = getattr(target, name)
        except AttributeError:
            target = importlib.import_module(".".join((module, *path[: index + 1])))
    return target


class _VertexTensorboardManager:
    """MaxText creates one on every start and uses it only with `use_vertex_tensorboard`."""

    def configure_vertex_tensorboard(self, config: Any) -> Any:
        return _real("maxtext.common.vertex_tensorboard", ("VertexTensorboardManager",))().configure_vertex_tensorboard(
            config
        )


def defer_unused_imports() -> None:
    """Install the stand-ins. Call it before the first import of MaxText.

    Does nothing if the platform is Pathways, which uses them all.
    """
    if "proxy" in os.environ.get("JAX_PLATFORMS", "").split(","):
        return
    for name in _DEFERRED:
        if name not in sys.modules:
            sys.modules[name] = _DeferredModule(name)
    pathways: Any = sys.modules["pathwaysutils"]
    if type(pathways) is _DeferredModule:
        # Called on every start and every step; without the proxy platform these are the real answers.
        vars(pathways).update(
            initialize=lambda: None,
            is_pathways_backend_used=lambda: False,
            elastic=sys.modules["pathwaysutils.elastic"],
        )
    if "maxtext.common.vertex_tensorboard" not in sys.modules:
        vertex: Any = _DeferredModule("maxtext.common.vertex_tensorboard")
        vertex.VertexTensorboardManager = _VertexTensorboardManager
        sys.modules["maxtext.common.vertex_tensorboard"] = vertex


def import_training() -> None:
    """Import what training imports, in advance. Does not start JAX's backends, and so does not touch the chips."""
    defer_unused_imports()
    for name in ("maxtext.trainers.pre_train.train", "maxtext.input_pipeline.input_pipeline_interface"):
        importlib.import_module(name)


def main() -> None:
    """Import everything that training imports, so that its bytecode is on disk before the first run (`make setup`)."""
    import_training()
    for name in ("ray.train.v2.jax", "ray.dashboard.modules.job.job_manager"):
        importlib.import_module(name)


if __name__ == "__main__":
    main()
