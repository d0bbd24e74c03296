"""Reads MaxText's config and tokenizer in advance, in the process that forks those that train.

MaxText reads 800 keys of YAML and merges them five times, and loads its tokenizer for training and evaluation: a third
of a restart without the imports. A fork finds both in its memory. Nothing here starts JAX's backend.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

_recorded: dict[str, list[tuple[str, Any]]] = {}
"""For the arguments of a config: what OmegaConf returned for it, in order, by the names of its functions."""


class _Read(Exception):
    """MaxText has read the config, and would check it next, which needs the devices."""

    def __init__(self, keys: Mapping[str, Any]) -> None:
        super().__init__()
        self.keys = keys


def rehearse(argv: Sequence[str]) -> None:
    """Read the config of these arguments, and load its tokenizer if it is on this machine. Raises MaxText's errors."""
    from maxtext.configs import pyconfig

    results: list[tuple[str, Any]] = []

    def recorded(name: str) -> Callable[..., Any]:
        real = getattr(pyconfig.omegaconf.OmegaConf, name)

        def call(*arguments: Any) -> Any:
            result = real(*arguments)
            results.append((name, copy.deepcopy(result)))  # MaxText changes it
            return result

        return call

    def read(*arguments: Any, **options: Any) -> Any:
        raise _Read(prepare(*arguments, **options))

    prepare = pyconfig._prepare_for_pydantic
    with _functions_of_omegaconf(pyconfig, recorded), mock.patch.object(pyconfig, "_prepare_for_pydantic", read):
        try:
            pyconfig._initialize_pydantic(list(argv))
        except _Read as end:
            _recorded[json.dumps(argv)] = results
            _load_tokenizer(end.keys)


@contextlib.contextmanager
def replayed(argv: Sequence[str]) -> Iterator[None]:
    """While the context lasts, MaxText reads the config of these arguments from the rehearsal, if there was one."""
    from maxtext.configs import pyconfig

    results = iter(_recorded.pop(json.dumps(argv), ()))

    def replay(name: str) -> Callable[..., Any]:
        real = getattr(pyconfig.omegaconf.OmegaConf, name)

        def call(*arguments: Any) -> Any:
            expected, result = next(results, (name, None))
            if expected != name:
                raise AssertionError(f"MaxText calls OmegaConf.{name}, and in the rehearsal it called {expected}")
            return real(*arguments) if result is None else result

        return call

    with _functions_of_omegaconf(pyconfig, replay):
        yield


def _functions_of_omegaconf(pyconfig: Any, replaced: Callable[[str], Any]) -> Any:
    """Replace the slow functions of OmegaConf in MaxText's module alone: OmegaConf calls them, too."""
    own = type("OmegaConf", (pyconfig.omegaconf.OmegaConf,), {name: staticmethod(replaced(name)) for name in _SLOW})
    return mock.patch.object(pyconfig, "omegaconf", SimpleNamespace(**{**vars(pyconfig.omegaconf), "OmegaConf": own}))


_SLOW = ("load", "merge")


def _load_tokenizer(keys: Mapping[str, Any]) -> None:
    from maxtext.input_pipeline import tokenizer

    if not Path(str(keys["tokenizer_path"])).exists():
        return
    kind = keys["tokenizer_type"]
    build = tokenizer.build_tokenizer
    if kind == "sentencepiece":  # it does not change, so training and evaluation can share it
        build = tokenizer.build_tokenizer = functools.cache(build)
    build(keys["tokenizer_path"], kind, keys["add_bos"], keys["add_eos"], keys["hf_access_token"])
