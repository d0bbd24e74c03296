"""Describes a compiled program as one JSON object: memory, buffers, the model's sizes, and the work of a step."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from trainer.aot import hlo, memory
from trainer.aot.compile import Clock, Compiled, Step, compile_step
from trainer.aot.errors import AotError
from trainer.aot.work import schedule
from trainer.config import read, replace_file
from trainer.errors import ConfigError

VERSION = 2
_SCHEDULED = "*jit_train_step*.after_optimizations_after_buffer_assignment.txt"
_ASSIGNED = "*jit_train_step*.after_optimizations-buffer-assignment.txt"
_LOOK_SECONDS = 0.2


def compile_and_describe(config_path: Path, out: Path, dumps: Path, *, finish: bool) -> bool:
    """Compile the run of `config_path` and write its program to `out`. Returns whether an error was printed instead.

    `dumps` is the folder to which XLA writes what it compiles. After the buffer assignment and the schedule, the
    compiler generates the chip's code, which takes nine tenths of its time. Without `finish` this process ends before.
    """
    clock = Clock()
    mine = threading.Lock()  # the thread that holds it writes the result: this one, or the one that reads the dumps
    with _own_stdout() as stdout:

        def say(line: dict[str, Any]) -> None:
            print(json.dumps(line), file=stdout, flush=True)

        def write(step: Step, compiled: Compiled | None) -> None:
            say({"phase": "reading"})
            replace_file(out.absolute(), describe(step, dumps, clock.seconds, compiled))

        def answer_early(step: Step) -> None:
            while scheduled(dumps) is None:
                time.sleep(_LOOK_SECONDS)
            if not mine.acquire(blocking=False):
                return
            failed = _report_errors(say, lambda: write(step, None))
            os._exit(TOLD if failed else 0)  # no other way stops the compiler

        def begin(step: Step) -> None:
            if not finish:
                threading.Thread(target=answer_early, args=(step,), daemon=True).start()

        def run() -> None:
            compiled = compile_step(read(config_path.absolute()), lambda phase: say({"phase": phase}), clock, begin)
            if not mine.acquire(blocking=False):
                threading.Event().wait()  # the other thread ends the process
            write(compiled.step, compiled)

        return _report_errors(say, run)


TOLD = 3
"""The exit code of a process that printed its own error."""


def _report_errors(say: Callable[[dict[str, Any]], None], do: Callable[[], None]) -> bool:
    """Call `do`. If it raises, print the error with `say`. Returns whether it raised."""
    try:
        do()
    except AotError as error:
        if error.__cause__ is not None:
            traceback.print_exc()
        say(error.line())
    except ConfigError as error:
        say(AotError("key", str(error)).line())
    except MemoryError:
        traceback.print_exc()
        say(AotError("memory", "This machine's memory is too small for the compiler.").line())
    except Exception as error:
        traceback.print_exc()
        say(AotError("internal", f"{type(error).__name__}: {' '.join(str(error).split())[:1000]}").line())
    else:
        return False
    return True


def scheduled(dumps: Path) -> str | None:
    """Return the scheduled HLO of the step, with its buffers assigned, or None if XLA has not written all of it yet."""
    for path in sorted(dumps.glob(_SCHEDULED)):
        text = path.read_text(encoding="utf-8")
        with contextlib.suppress(hlo.HloError):
            hlo.parse(text)
            return text
    return None


@contextlib.contextmanager
def _own_stdout() -> Iterator[TextIO]:
    """Yield a stdout for Slipway's lines only. Redirects what libraries print on stdout to stderr."""
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as ours:
        os.dup2(2, 1)
        yield ours


def describe(step: Step, dumps: Path, seconds: Mapping[str, float], compiled: Compiled | None) -> dict[str, Any]:
    """Return the program as plain data. launcher/products/planner/forecast/program.py documents its keys.

    `compiled` is None if the compiler was stopped before it generated code.
    """
    places, torus = _places(step.mesh)
    program: dict[str, Any] = {
        "version": VERSION,
        "versions": {name: importlib.metadata.version(name) for name in ("maxtext", "jax", "jaxlib", "libtpu")},
        "seconds": round(sum(seconds.values()), 2),
        "stages": dict(seconds),
        "fits": compiled is None or compiled.executable is not None,
        "finished": compiled is not None,
        "model": model_facts(step.config, step.state),
        **meshes(step.config, step.mesh),
        "torus": {"size": list(torus), "wraps": list(step.topology.wrap)},
        "work": None,
    }
    if compiled is not None and compiled.executable is None:
        program["memory"], program["buffers"] = memory.from_refusal(compiled.refusal, step.capacity)
        # XLA also writes the scheduled program that was too large.
        for path in sorted(dumps.glob("*jit_train_step*.oom_intermediate_module.txt"))[:1]:
            text = path.read_text(encoding="utf-8")
            program["buffers"] = memory.largest_buffers(text, hlo.parse(text))
        return program

    (assignment,) = dumps.glob(_ASSIGNED)
    program["memory"] = memory.from_assignment(assignment.read_text(encoding="utf-8"), step.capacity)
    laid_out = scheduled(dumps)
    assert laid_out is not None  # noqa: S101 - the caller has seen it, or the compiler has finished
    program["buffers"] = memory.largest_buffers(laid_out, hlo.parse(laid_out))
    text = laid_out
    if compiled is not None:
        # The same HLO, with the cycles that the compiler estimates when it generates the code.
        text = compiled.executable.as_text()
        program["memory"]["code"] = memory.code_bytes(compiled.executable)
    program["work"] = schedule(hlo.parse(text), places, torus, step.topology.wrap)
    return program


def _places(mesh: Any) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """Return (slice, x, y, z) of each device in the order of the program's partitions, and the lengths of a slice's
    sides in chips."""
    devices = list(mesh.devices.flat)
    torus = tuple(max(each.coords[axis] for each in devices) + 1 for axis in range(len(devices[0].coords)))
    # With one slice, JAX's devices have no slice_index.
    return [(getattr(each, "slice_index", 0), *each.coords) for each in devices], torus


def model_facts(config: Any, state: Any) -> dict[str, Any]:
    """Return MaxText's sizes of the model and of one step of one device. The FLOPs are MaxText's own, from which it
    computes its tflops_per_second."""
    import jax
    from flax import nnx
    from maxtext.utils import maxtext_utils

    total, _, attention = maxtext_utils.calculate_tflops_training_per_device(config, log=False)
    parameters = nnx.filter_state(state["model"], nnx.Param)
    return {
        "name": config.model_name,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(parameters)),
        "flops_per_step_per_device": float(total) * 1e12,
        "attention_flops": float(attention) * 1e12,
        "tokens_per_step_per_device": int(maxtext_utils.calculate_tokens_training_per_device(config)),
        "global_batch": int(config.global_batch_size_to_train_on),
        "sequence": int(config.max_target_length),
        "layers": int(config.num_decoder_layers),
        "embedding": int(config.emb_dim),
        "heads": int(config.num_query_heads),
        "key_value_heads": int(config.num_kv_heads),
        "head_size": int(config.head_dim),
        "mlp": int(config.mlp_dim),
        "vocabulary": int(config.vocab_size),
        "experts": int(config.num_experts),
        "experts_per_token": int(config.num_experts_per_tok),
    }


def meshes(config: Any, mesh: Any) -> dict[str, Any]:
    """Return the size of each axis of the whole mesh, and of the part of the mesh that spans slices."""
    from maxtext.utils import max_utils

    across = [1] * len(mesh.axis_names)
    if config.num_slices > 1:
        across = max_utils.fill_unspecified_mesh_axes(list(config.dcn_parallelism), config.num_slices, "DCN")
    return {
        "mesh": {name: int(size) for name, size in mesh.shape.items()},
        "dcn_mesh": {name: int(size) for name, size in zip(mesh.axis_names, across, strict=True)},
        "devices": int(mesh.devices.size),
    }
