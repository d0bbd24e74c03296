"""A run that resumes has the state that MaxText computes, although it traces less."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.trainer.reference_models import write_config
from tests.trainer.runs import CHECKOUT

FAMILIES = ("llama2", "llama2-unscanned", "gemma3-short", "qwen3-moe", "mixtral")
PROGRAM = """
import json, pathlib, re, sys
from trainer import config, deferred_imports, loop
from trainer.maxtext_keys import maxtext_argv
from trainer.training import tracing

runs = [config.read(pathlib.Path(path)) for path in sys.argv[1:]]
loop.set_environment(runs[0])
deferred_imports.import_training()
import jax
from flax import nnx
from maxtext.configs import pyconfig
from maxtext.utils import maxtext_utils, model_creation_utils, train_utils

counts, plain, get_create = [], nnx.eval_shape, model_creation_utils.get_nnx_create_model_fn
from_config = model_creation_utils.from_config

def counted(*args, **options):
    counts.append(1)
    return from_config(*args, **options)

model_creation_utils.from_config = counted

def state(settings):
    mesh = maxtext_utils.get_mesh_from_config(settings)
    create, model = model_creation_utils.create_nnx_abstract_model(settings, mesh)
    _, transform = train_utils.create_training_optimizer(settings, model, mesh=mesh)

    def train_state():
        model = create()
        return train_utils.train_state_nnx.TrainStateNNX(model, nnx.Optimizer(model, transform, wrt=nnx.Param))

    values, _, shardings = maxtext_utils.get_abstract_state(settings, mesh, train_state)
    arrays = jax.tree_util.tree_leaves_with_path(values)
    places = jax.tree_util.tree_leaves_with_path(shardings)
    lines = [(jax.tree_util.keystr(path), str(value.shape), str(value.dtype)) for path, value in arrays]
    lines += [(jax.tree_util.keystr(path), str(place)) for path, place in places]
    # Functions in it are new objects each time.
    structure = re.sub("0x[0-9a-f]+", "", repr(nnx.graphdef(nnx.eval_shape(train_state))))
    assert len(structure) > 5000
    traces = len(counts)
    counts.clear()
    return lines, structure, traces

for run in runs:
    settings = pyconfig.initialize(maxtext_argv(run))
    expected, structure, more = state(settings)
    nnx.eval_shape = tracing.once(plain)
    model_creation_utils.get_nnx_create_model_fn = tracing.model_once(get_create)
    lines, other, traces = state(settings)
    nnx.eval_shape, model_creation_utils.get_nnx_create_model_fn = plain, get_create
    print(json.dumps([more, traces, len(lines) > 20, lines == expected, other == structure]), flush=True)
"""


def test_the_state_of_a_model_that_is_traced_once(tmp_path: Path) -> None:
    paths = [str(write_config(tmp_path, name)) for name in FAMILIES]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *paths], capture_output=True, text=True, timeout=300, cwd=CHECKOUT
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert rows == [[3, 1, True, True, True]] * len(FAMILIES)
