"""launcher/config/maxtext/models.json matches the installed MaxText, and the launcher's arithmetic agrees with it.

One process runs MaxText: it traces three models, lowers (but does not compile) a step of tiny models on eight devices
of this CPU, and lowers the TPU's attention kernel for a TPU. The launcher's rules must accept what MaxText accepts
there, and report an error, in any words, for what it rejects.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launcher.config.maxtext import mesh, models, splash_attention
from launcher.config.maxtext.keys import maxtext
from launcher.config.plan import check_launch
from launcher.config.values import files as values
from launcher.config.values.files import chart_defaults
from launcher.config.values.writer import dumps

TRACED = ["default", "gemma3-4b", "llama3.1-8b", "mixtral-8x7b"]
TINY: dict[str, Any] = {
    **{"base_emb_dim": 64, "base_num_decoder_layers": 2, "base_num_query_heads": 4, "base_num_kv_heads": 4},
    **{"head_dim": 32, "base_mlp_dim": 128, "vocab_size": 256, "max_target_length": 64, "per_device_batch_size": 1},
    **{"steps": 2, "attention": "dot_product", "dataset_type": "synthetic", "enable_checkpointing": False},
}
CASES: list[dict[str, Any]] = [
    {},
    {"ici_tensor_parallelism": 4},
    {"base_emb_dim": 60},  # JAX: IndivisibleError of a weight
    {"vocab_size": 257, "ici_tensor_parallelism": 4},  # like the previous line
    {"base_mlp_dim": 130, "ici_tensor_parallelism": 4},  # like the previous line
    {"base_num_kv_heads": 2, "ici_tensor_parallelism": 4},  # Attention: heads are atomic
    {"base_num_kv_heads": 3},  # Attention: invalid num_kv_heads for GQA
    {"per_device_batch_size": 1.5},  # IndivisibleError of the batch
    {"per_device_batch_size": 1.5, "ici_tensor_parallelism": 2},
    {"per_device_batch_size": 0.5, "ici_tensor_parallelism": 2},
    {"per_device_batch_size": 0.3},  # the config: tokens of a device and num_vocab_tiling
    {"ici_context_parallelism": 4, "max_target_length": 66},  # IndivisibleError of the batch
    {"ici_tensor_sequence_parallelism": 4, "max_target_length": 66},  # like the previous line
    {"base_num_decoder_layers": 3, "ici_pipeline_parallelism": 2},  # the config: stages and layers
    {"ici_data_parallelism": -1},  # fill_unspecified_mesh_axes
    {"ici_data_parallelism": 3},  # like the previous line
    {"ici_fsdp_parallelism": 4},  # like the previous line
    {"dcn_fsdp_parallelism": 2},  # the config: one slice only
]
"""Changes to TINY. The comments name the errors of MaxText 0.2.5."""

KERNEL: dict[str, Any] = {**TINY, "attention": "flash", "max_target_length": 1024}
_SHARED = {"ici_context_parallelism": 4, "sa_block_q": 256, "sa_block_q_dkv": 256}
BLOCKS: list[dict[str, Any]] = [
    {},
    {"max_target_length": 640},  # mask_info: the blocks must divide the sequence
    {"max_target_length": 192},  # blocks of keys that are not a multiple of 128
    {"sa_block_q": 8, "sa_block_kv_dkv": 64, "sa_block_kv_dkv_compute": 4},
    {"sa_block_q": 4},  # Pallas: not a multiple of 8
    {"sa_block_q_dkv": 64},  # not a multiple of 128
    {"sa_block_q_dq": 64},  # Pallas: not a multiple of 128
    {"sa_block_kv_dq": 64},  # not a multiple of 128
    {"sa_block_q_dq": 768, "sa_block_kv_dq": 64, "sa_use_fused_bwd_kernel": True},
    {"sa_block_kv": 256},  # not a multiple of sa_block_kv_compute
    {"sa_block_kv_dkv": 256},  # like the previous line, in the backward pass
    _SHARED,  # sa_block_q_dq does not divide a device's 256 queries
    {**_SHARED, "sa_block_q_dq": 128},
    {**_SHARED, "use_tokamax_splash": True},
    {"use_tokamax_splash": True, "sa_block_q": 768},  # the blocks must divide the sequence
]
"""Changes to KERNEL. The comments name the errors of MaxText 0.2.5 with the kernel of JAX or Tokamax."""

_PROGRAM = '''
import json, sys
from tests.maxtext_tables import models as model_table
from trainer.deferred_imports import defer_unused_imports

defer_unused_imports()
from absl import flags
flags.FLAGS(["x"])
import jax
from flax.core.spmd import logical_axis_rules
from jax.sharding import Mesh
from maxtext.configs import pyconfig
from maxtext.layers.attention_op import AttentionOp
from maxtext.trainers.pre_train import train, train_compile
from maxtext.utils import maxtext_utils, sharding

asked = json.load(sys.stdin)

def configured(keys):
    fixed = {"hardware": "cpu", "skip_jax_distributed_system": True, "run_name": "x", "base_output_directory": "x",
             "log_config": False}
    argv = ["x", str(model_table._configs() / "base.yml")]
    config = pyconfig.initialize(argv + [f"{key}={json.dumps(value)}" for key, value in {**fixed, **keys}.items()])
    return config, Mesh(maxtext_utils.create_device_mesh(config), config.mesh_axes)

def kernel(keys):
    """Nothing, after lowering the attention kernel and its gradient for a TPU."""
    config, mesh = configured(keys)
    heads, length = config.num_query_heads, config.max_target_length
    attention = AttentionOp(config=config, mesh=mesh, attention_kernel="flash", max_target_length=length,
                            num_query_heads=heads, num_kv_heads=heads)
    def loss(query, key, value, segments):
        return attention.tpu_flash_attention(query, key, value, segments)[0].astype("float32").sum()
    batch = config.micro_batch_size_to_train_on
    segments = jax.ShapeDtypeStruct((batch, length), "int32")
    array = jax.ShapeDtypeStruct((batch, length, heads, config.head_dim), "bfloat16")
    with jax.set_mesh(mesh), logical_axis_rules(config.logical_axis_rules):
        traced = jax.jit(jax.grad(loss, argnums=(0, 1, 2))).trace(array, array, array, segments)
        traced.lower(lowering_platforms=("tpu",))
    return {}

def step(keys):
    """The mesh's axes of more than one device, after lowering a step."""
    config, mesh = configured(keys)
    args, kwargs, state, _, model = train_compile.get_shaped_inputs(mesh, config)
    params, state = sharding.maybe_update_params_sharding_with_opt(config, state)
    data = sharding.get_input_data_sharding(config, mesh)
    function, ins, outs, static, donated = maxtext_utils.get_functional_train_with_signature(
        train.train_step, data, state, model, config, params
    )
    with jax.set_mesh(mesh), logical_axis_rules(config.logical_axis_rules):
        jitted = jax.jit(function, in_shardings=ins, out_shardings=outs, static_argnums=static, donate_argnums=donated)
        jitted.lower(*args, **kwargs)
    sizes = ("global_batch_size_to_load", "global_batch_size_to_train_on", "micro_batch_size_to_train_on")
    batch = [getattr(config, size) for size in sizes]
    return {"mesh": {axis: size for axis, size in mesh.shape.items() if size > 1}, "batch": batch}

def asked_of(function, keys):
    try:
        return function(keys)
    except (Exception, SystemExit) as error:  # MaxText ends the process where it refuses a config
        return {"refused": f"{type(error).__name__}: {error}"[:300]}

def count(keys):
    import math
    arguments = [f"{key}={json.dumps(value)}" for key, value in keys.items()]
    return sum(math.prod(shape) for _, _, shape in model_table.trace(arguments)[1])

answer = {
    "text": model_table.as_text(model_table.model_table(asked["models"], asked["traced"])),
    "steps": [asked_of(step, keys) for keys in asked["steps"]],
    "kernels": [asked_of(kernel, keys) for keys in asked["kernels"]],
    "counts": [count(keys) for keys in asked["counts"]],
}
print("answer: " + json.dumps(answer))
'''

COUNTED: list[dict[str, Any]] = [
    {"base_emb_dim": 64, "base_num_decoder_layers": 3, "head_dim": 32, "vocab_size": 999, "base_mlp_dim": 100},
    {"global_parameter_scale": 8},
    {"model_name": "gemma3-4b", "override_model_config": True, "base_num_decoder_layers": 7, "base_mlp_dim": 512},
    {"model_name": "mixtral-8x7b", "override_model_config": True, "num_experts": 4, "base_num_decoder_layers": 2},
]


@pytest.fixture(scope="module")
def answer() -> dict[str, Any]:
    questions = {
        "models": maxtext()["models"],
        "traced": TRACED,
        "steps": [{**TINY, **case} for case in CASES],
        "kernels": [{**KERNEL, **case} for case in BLOCKS],
        "counts": COUNTED,
    }
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        input=json.dumps(questions),
        env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("answer: "))
    found: dict[str, Any] = json.loads(line.removeprefix("answer: "))
    return found


def test_the_table_has_not_drifted_from_the_installed_maxtext(answer: dict[str, Any]) -> None:
    file = Path(models.__file__).parent / "models.json"
    by_maxtext, by_launcher = json.loads(answer["text"]), json.loads(file.read_text(encoding="utf-8"))
    for name, row in by_launcher["models"].items():
        if name not in TRACED:  # tracing all of them takes minutes
            row.pop("weights")
            row.pop("scales")
    assert by_launcher == by_maxtext, "run `make keys`"


def test_parameters_are_counted_as_maxtext_counts_them(answer: dict[str, Any]) -> None:
    assert [models.parameters(keys) for keys in COUNTED] == answer["counts"]


@pytest.mark.parametrize("number", range(len(CASES)), ids=[str(case) for case in CASES])
def test_rules_report_what_maxtext_rejects(answer: dict[str, Any], number: int) -> None:
    train, by_maxtext = {**TINY, **CASES[number]}, answer["steps"][number]
    tree = {
        "run": {"name": "tiny", "kind": "local"},
        "slice": {"accelerator": "cpu", "hosts": 8},
        "storage": {"kind": "local"},
        "train": train,
    }
    user = values.read_text(dumps(tree).encode(), "v.yaml")
    errors = [str(problem) for problem in check_launch(user, chart_defaults("run")) if problem.severity == "error"]
    assert ("refused" in by_maxtext) == bool(errors), (errors, by_maxtext)
    if "refused" not in by_maxtext:
        by_launcher = mesh.mesh(train, slices=1, devices=8).sizes
        assert {axis: size for axis, size in by_launcher.items() if size > 1} == by_maxtext["mesh"]
        batch = mesh.batch(train, 8)
        assert [batch.load, batch.train, batch.micro] == by_maxtext["batch"]


@pytest.mark.parametrize("number", range(len(BLOCKS)), ids=[str(case) for case in BLOCKS])
def test_the_block_rules_agree_with_the_attention_kernel(answer: dict[str, Any], number: int) -> None:
    train, by_maxtext = {**KERNEL, **BLOCKS[number]}, answer["kernels"][number]
    keys = models.settings(train)
    assert splash_attention.is_used(keys)
    works = splash_attention.works(keys, int(keys["max_target_length"]), int(keys["ici_context_parallelism"]))
    assert works == ("refused" not in by_maxtext), by_maxtext
