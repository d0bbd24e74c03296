"""What a compile says, as one JSON object: memory, buffers, the model's facts, and the work of a step."""

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
from trainer.config import read, replace_file
from trainer.errors import ConfigError

VERSION = 2
_SCHEDULED = "*jit_train_step*.after_optimizations_after_buffer_assignment.txt"
_ASSIGNED = "*jit_train_step*.after_optimizations-buffer-assignment.txt"
_LOOK_SECONDS = 0.2


def compile_and_describe(config_path: Path, out: Path, dumps: Path, *, finish: bool) -> bool:
    """Compile the run of `config_path` and write its program to `out`; whether an error was printed instead.

    `dumps` is where XLA writes what it compiles. Where what fits and what happens when is settled, the compiler begins
    to make the chip's code, which takes nine tenths of its time: without `finish` this process ends there.
    """
    clock = Clock()
    mine = threading.Lock()  # whose the answer is: this thread's, or that of the one that reads the dumps
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
            os._exit(TOLD if failed else 0)  # the compiler cannot be stopped otherwise

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
"""The exit code of a process that has printed its error itself."""


def _report_errors(say: Callable[[dict[str, Any]], None], do: Callable[[], None]) -> bool:
    """Whether an error was printed, of what was done."""
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
    """The text of the step as it is scheduled and laid out in memory, None while XLA has not written it whole."""
    for path in sorted(dumps.glob(_SCHEDULED)):
        text = path.read_text(encoding="utf-8")
        with contextlib.suppress(hlo.HloError):
            hlo.parse(text)
            return text
    return None


@contextlib.contextmanager
def _own_stdout() -> Iterator[TextIO]:
    """stdout for our lines alone: what libraries print there goes to stderr."""
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as ours:
        os.dup2(2, 1)
        yield ours


def describe(step: Step, dumps: Path, seconds: Mapping[str, float], compiled: Compiled | None) -> dict[str, Any]:
    """The program as data; launcher/forecast/program.py says what its keys are. `compiled` is None where the compiler
    has not come to its end."""
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
        # The scheduled program that was too large, which XLA leaves beside its words.
        for path in sorted(dumps.glob("*jit_train_step*.oom_intermediate_module.txt"))[:1]:
            text = path.read_text(encoding="utf-8")
            program["buffers"] = memory.largest_buffers(text, hlo.parse(text))
        return program
    from trainer.aot.work import schedule

    (assignment,) = dumps.glob(_ASSIGNED)
    program["memory"] = memory.from_assignment(assignment.read_text(encoding="utf-8"), step.capacity)
    laid_out = scheduled(dumps)
    assert laid_out is not None  # noqa: S101 - who calls this has seen it, or the compiler is done
    program["buffers"] = memory.largest_buffers(laid_out, hlo.parse(laid_out))
    text = laid_out
    if compiled is not None:
        # The same with the cycles that the compiler reckoned as it made the code.
        text = compiled.executable.as_text()
        program["memory"]["code"] = memory.code_bytes(compiled.executable)
    program["work"] = schedule(hlo.parse(text), places, torus, step.topology.wrap)
    return program


def _places(mesh: Any) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """Each device's slice and coordinates in it, in the order of the program's partitions, and a slice's sides."""
    devices = list(mesh.devices.flat)
    torus = tuple(max(each.coords[axis] for each in devices) + 1 for axis in range(len(devices[0].coords)))
    # With one slice there is none to tell.
    return [(getattr(each, "slice_index", 0), *each.coords) for each in devices], torus


def model_facts(config: Any, state: Any) -> dict[str, Any]:
    """What MaxText counts of the model and of one step of one device. FLOPs are MaxText's, those that its own
    tflops_per_second is made of."""
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
    """The size of each axis: of the whole mesh, and of that part of it that spans slices."""
    from maxtext.utils import max_utils

    across = [1] * len(mesh.axis_names)
    if config.num_slices > 1:
        across = max_utils.fill_unspecified_mesh_axes(list(config.dcn_parallelism), config.num_slices, "DCN")
    return {
        "mesh": {name: int(size) for name, size in mesh.shape.items()},
        "dcn_mesh": {name: int(size) for name, size in zip(mesh.axis_names, across, strict=True)},
        "devices": int(mesh.devices.size),
    }
