"""Keeps the compiled step in the memory of the parent of the process that trains (trainer/prepared.py).

A later process of the same parent has the same config, code and devices. It loads the step, and neither traces it nor
looks for it in the cache of programs, which needs the trace: most of a restart. The file has no name and ends with the
parent, so no other run can load it. It counts as memory of the pod: about 1 MB for a small model on CPU.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

_log = logging.getLogger(__name__)
_LENGTH = struct.Struct("<Q")
_file: int | None = None


def prepare() -> None:
    """Create the file, in the parent, before it forks."""
    global _file
    _file = os.memfd_create("train-step", os.MFD_CLOEXEC)


def kept(jit_train_step: Callable[..., Any]) -> Callable[..., Any]:
    """Return MaxText's function that makes the jitted step, which keeps the compiled step or loads it."""

    def jit(config: Any, model: Any, state: Any, *args: Any, mesh: Any, **options: Any) -> Any:
        step = jit_train_step(config, model, state, *args, mesh=mesh, **options)
        # These runs have several programs of the step.
        several = config.enable_rampup_batch_size or config.moe_dropless_fallback == "step" or config.enable_diloco
        if _file is None or several or config.compiled_trainstep_file or _has_small_types(state):
            return step
        return _Step(_file, step, mesh.devices.flatten().tolist())

    return jit


def _has_small_types(state: Any) -> bool:
    """Whether arrays have elements of 4 bits, such as those of qlora. A loaded program requires another layout."""
    import jax

    return any(re.match("u?int[24]|float4", leaf.dtype.name) for leaf in jax.tree.leaves(state))


class _Step:
    """The step, as MaxText uses a jitted function: it compiles it once, and calls it."""

    def __init__(self, file: int, step: Any, devices: list[Any]) -> None:
        self._file, self._step, self._devices = file, step, devices
        self._loaded: Any = None
        self._args: tuple[Any, ...] = ()
        self.__wrapped__ = step.__wrapped__  # the function, which MaxText traces for train.dump_jaxpr

    def __call__(self, *args: Any) -> Any:
        if self._loaded is not None:
            try:
                return self._loaded(*args)
            except ValueError as error:  # before the step runs: it requires other layouts or places of the arrays
                self._compile_again(error)
        return self._step(*args)

    def _compile_again(self, error: Exception) -> None:
        _log.warning("The restart compiles the step, because JAX cannot run the one that was kept: %s", error)
        self._loaded = None

    def lower(self, *args: Any) -> _Step:
        self._args = args
        return self

    def compile(self, **options: Any) -> Any:
        import jax

        if content := _read(self._file):
            try:
                self._loaded = _load(content, self._args, self._devices)
            except jax.errors.JaxRuntimeError as error:  # of the runtime of TPUs or GPUs, for which this is untested
                self._compile_again(error)
            else:
                return self._loaded
        with _reads_of_cache() as entries:
            compiled = self._step.lower(*self._args).compile(**options)
        if content := _serialized(compiled, self._args, entries):
            _write(self._file, content)
        return compiled


@contextlib.contextmanager
def _reads_of_cache() -> Iterator[list[bytes]]:
    """While the context lasts, collect the serialized programs that JAX reads from the cache of programs."""
    from jax._src import compilation_cache

    entries: list[bytes] = []
    extract = compilation_cache.extract_executable_and_time

    def extracted(entry: bytes) -> tuple[bytes, int]:
        program, seconds = extract(entry)
        entries.append(program)
        return program, seconds

    with mock.patch.object(compilation_cache, "extract_executable_and_time", extracted):
        yield entries


def _serialized(compiled: Any, args: tuple[Any, ...], entries: Sequence[bytes]) -> bytes:
    """Return the compiled step and the form of its metrics, or b"" if JAX cannot serialize it.

    On CPU, a program from the cache loses functions if it is serialized again (XLA: "Function … not found"), so its
    entry in the cache is kept.
    """
    import jax
    from jax.experimental import serialize_executable

    class Pickler(serialize_executable._JaxPjrtPickler):  # type: ignore[misc]  # JAX has no type for it
        def persistent_id(self, obj: Any) -> Any:
            found = super().persistent_id(obj)
            return ("exec", entries[-1]) if entries and found and found[0] == "exec" else found

    try:
        with mock.patch.object(serialize_executable, "_JaxPjrtPickler", Pickler):
            program, _, out_tree = serialize_executable.serialize(compiled)
    except (NotImplementedError, ValueError) as error:  # it depends on constants, or on the backend
        return _not_kept(error)
    state, metrics = jax.tree.unflatten(out_tree, range(out_tree.num_leaves))
    if jax.tree.structure(state) != jax.tree.structure(args[0]) or json.loads(json.dumps(metrics)) != metrics:
        return _not_kept("its results have another form")
    return json.dumps(metrics).encode() + b"\n" + bytes(program)


def _not_kept(why: object) -> bytes:
    _log.info("A restart traces the step again, because it cannot be kept: %s", why)
    return b""


def _load(content: bytes, args: tuple[Any, ...], devices: list[Any]) -> Any:
    import jax
    from jax.experimental import serialize_executable

    metrics, _, program = content.partition(b"\n")
    in_tree, out_tree = jax.tree.structure((args, {})), jax.tree.structure((args[0], json.loads(metrics)))
    return serialize_executable.deserialize_and_load(program, in_tree, out_tree, execution_devices=devices)


def _read(file: int) -> bytes:
    with open(file, "rb", closefd=False) as stream:
        stream.seek(0)
        header = stream.read(_LENGTH.size)
        return stream.read(*_LENGTH.unpack(header)) if header else b""


def _write(file: int, content: bytes) -> None:
    """Write the length last, so that a process that is killed leaves all or nothing."""
    with open(file, "r+b", closefd=False) as stream:
        stream.seek(_LENGTH.size)
        stream.write(content)
    os.pwrite(file, _LENGTH.pack(len(content)), 0)
