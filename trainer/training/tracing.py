"""Leaves out traces that a start does not need: those of a large model take seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def once(eval_shape: Callable[..., Any]) -> Callable[..., Any]:
    """Return nnx.eval_shape, which keeps its results: MaxText asks twice for the shapes of the same state."""
    results: dict[Any, Any] = {}

    def shapes(function: Any, *args: Any, **options: Any) -> Any:
        if args or options:
            return eval_shape(function, *args, **options)
        if function not in results:
            results[function] = eval_shape(function)
        return results[function]

    return shapes


def model_once(get_create: Callable[..., Any]) -> Callable[..., Any]:
    """Return MaxText's function that returns the function that creates a model, which is traced once: the state of the
    training contains the model, whose shapes MaxText asks for before."""
    import jax
    from flax import nnx

    def get(*args: Any, **options: Any) -> Callable[[], Any]:
        create = get_create(*args, **options)
        structure: list[Any] = []

        def arrays() -> Any:
            definition, state = nnx.split(create())
            structure[:] = [definition]
            return state

        traced = jax.jit(arrays)

        def model() -> Any:
            state = traced()
            return nnx.merge(structure[0], state)

        return model

    return get


def on_demand(jit: Callable[..., Any]) -> Callable[..., Any]:
    """Return MaxText's function that makes a jitted evaluation, for a run that resumes.

    MaxText compiles the evaluation before the first step, to find errors and to fill the cache of programs. The first
    start of the run has done both.
    """

    class Evaluation:
        def __init__(self, *args: Any) -> None:
            self._step = jit(*args)

        def __call__(self, *args: Any) -> Any:
            return self._step(*args)

        def lower(self, *_: Any) -> Evaluation:
            return self

        def compile(self, **_: Any) -> Evaluation:
            return self

        def memory_analysis(self) -> None:
            return None

    return Evaluation
