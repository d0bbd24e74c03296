"""A process that the parent forks later runs the compiled step of the first, without a trace."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.runs import CHECKOUT
from trainer.training import kept_step

# The process of each life has a jitted step of its own, so it has traced nothing.
PROGRAM = """
import types
import jax, jax.numpy as jnp
from jax.experimental import serialize_executable
from trainer.training import kept_step

jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
traces = []

def jitted(*_, **__):
    def step(state, batch):
        traces.append(1)
        loss, change = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(batch @ w["a"]) @ w["b"]) ** 2))(state)
        state = jax.tree.map(lambda w, d: w - 0.1 * d, state, change)
        return state, {"scalar": {"learning/loss": loss, "norms": {}}, "scalars": {}}
    return jax.jit(step, donate_argnums=0)

mesh = jax.make_mesh((1,), ("data",))
config = types.SimpleNamespace(
    enable_rampup_batch_size=False, moe_dropless_fallback="", enable_diloco=False, compiled_trainstep_file=""
)

def life():
    state = {"a": jnp.ones((64, 256)) / 7, "b": jnp.ones((256, 32)) / 3}
    batch = jnp.arange(8.0 * 64).reshape(8, 64) / 100
    step = kept_step.kept(jitted)(config, None, state, mesh=mesh)
    compiled = step.lower(state, batch).compile(compiler_options=None)
    assert compiled.memory_analysis() is not None
    losses = []
    for _ in range(3):
        state, metrics = step(state, batch)
        assert metrics["scalars"] == {} and metrics["scalar"]["norms"] == {}
        losses.append(float(metrics["scalar"]["learning/loss"]).hex())
    return losses

for entry in ("none", "in the cache of programs"):
    kept_step.prepare()
    traces.clear()
    first = life()
    assert traces, entry
    traces.clear()
    jax.clear_caches()
    assert life() == first and not traces, entry
    jax.clear_caches()

def refuse(*_, **__):
    raise jax.errors.JaxRuntimeError("another runtime")

serialize_executable.deserialize_and_load = refuse
assert life() == first and traces

class Mismatch:
    def __call__(self, *_):
        raise ValueError("other layouts")
    def memory_analysis(self):
        return ""

jax.clear_caches()
traces.clear()
serialize_executable.deserialize_and_load = lambda *_, **__: Mismatch()
assert life() == first and traces

compiled = jitted().lower({"a": jnp.ones((4, 4)), "b": jnp.ones((4, 4))}, jnp.ones((4, 4))).compile()
assert kept_step._serialized(compiled, ({"a": 0, "b": 0},), ())
assert kept_step._serialized(compiled, ({"other": 0},), ()) == b""

kept_step.prepare()
state = {"a": jnp.ones((4, 4), jnp.uint4), "key": jax.random.key(0)}
assert not isinstance(kept_step.kept(jitted)(config, None, state, mesh=mesh), kept_step._Step)
print(len(set(first)))
"""


def test_a_later_process_runs_the_same_program_without_a_trace(tmp_path: Path) -> None:
    cache = {"JAX_COMPILATION_CACHE_DIR": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, **cache}, cwd=CHECKOUT, text=True, capture_output=True
    )
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
    for why in ("another runtime", "other layouts"):
        assert f"The restart compiles the step, because JAX cannot run the one that was kept: {why}" in done.stderr
    assert list(tmp_path.iterdir())


def test_a_process_that_is_killed_while_it_writes_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    kept_step.prepare()
    file = kept_step._file
    assert file is not None
    monkeypatch.setattr(kept_step, "_file", None)  # for the tests that follow

    def killed(*_: Any) -> int:
        raise KeyboardInterrupt

    assert kept_step._read(file) == b""
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", killed)
        with pytest.raises(KeyboardInterrupt):
            kept_step._write(file, b"a program")
    assert kept_step._read(file) == b""
    kept_step._write(file, b"a program")
    assert kept_step._read(file) == b"a program"
    os.close(file)
