"""The sizes of MaxText's models and their sharding, for launcher/config/maxtext/models.json (make keys).

With that file the launcher counts parameters and checks meshes without JAX. For each model the file contains

- `keys`: the keys that MaxText's own file of the model sets;
- `weights`: the arrays that a training keeps, with equal arrays in one entry: [axes, shape, copies, per_layer]. `axes`
  are the logical names of an array's sides, which the rules map to axes of the mesh. `shape` are the sizes of the
  sides: the name of a dimension (emb_dim) if the size is that dimension, else a number. `copies` is the number of such
  arrays in each decoder layer if `per_layer` is 1, else in total. The axis of the layers that MaxText scans over is not
  included.
- `scales`: whether all sizes are names, so that `weights` is also valid for other dimensions.

`weights` is null for a model that MaxText cannot trace from its name alone (it needs a token of Hugging Face, or other
keys), and for a model whose layers MaxText does not scan, because tracing it takes minutes.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trainer.deferred_imports import defer_unused_imports

TABLE = Path(__file__).resolve().parents[2] / "launcher" / "config" / "maxtext" / "models.json"

_DEFAULTS = (
    *("base_emb_dim", "base_num_query_heads", "base_num_kv_heads", "base_mlp_dim", "base_moe_mlp_dim", "head_dim"),
    *("base_num_decoder_layers", "vocab_size", "num_experts", "global_parameter_scale", "decoder_block"),
    *("per_device_batch_size", "eval_per_device_batch_size", "gradient_accumulation_steps", "num_vocab_tiling"),
    *("expansion_factor_real_data", "steps", "num_epoch", "packing", "use_truncation", "dataset_type"),
    *("max_target_length", "max_position_embeddings", "rope_type", "trainable_position_size", "first_num_dense_layers"),
    *("num_layers_per_pipeline_stage", "num_pipeline_repeats", "pipeline_parallel_layers"),
    *("num_pipeline_microbatches", "pipeline_delay_activation_forwarding", "context_parallel_strategy"),
    *("context_parallel_load_balance", "context_sharding", "attention", "attention_type", "opt_type", "weight_dtype"),
    *("mu_dtype", "checkpoint_period", "max_num_checkpoints_to_keep", "enable_checkpointing", "scan_layers"),
    *("save_checkpoint_on_start", "save_checkpoint_on_completion", "custom_mesh_and_rule", "shard_mode"),
    *("override_logical_axis_rules", "override_model_config", "sparse_matmul", "subslice_shape", "elastic_enabled"),
    *("sa_block_q", "sa_block_kv", "sa_block_kv_compute", "sa_block_q_dkv", "sa_block_kv_dkv"),
    *("sa_block_kv_dkv_compute", "sa_block_q_dq", "sa_block_kv_dq", "sa_use_fused_bwd_kernel"),
    *("use_tokamax_splash", "use_jax_splash"),
)
"""The keys of base.yml that the launcher reads, in addition to those of the mesh."""

# The dimensions that the size of a side may be, by the side's logical name. The first with that size is used.
_MEANINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"embed.*|norm", ("emb_dim", "head_dim")),
    (r"mlp_moe", ("moe_mlp_dim", "mlp_dim")),
    (r"mlp", ("mlp_dim", "moe_mlp_dim")),
    (r"q_heads|heads", ("num_query_heads",)),
    (r"kv_heads", ("num_kv_heads",)),
    (r"kv|kv_head_dim", ("head_dim",)),
    (r"vocab", ("vocab_size",)),
    (r"exp|none", ("num_experts",)),
)


def model_table(models: Iterable[str], traced: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the table for these models of MaxText. `traced`: the only models with `weights`; None for all."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    folder = _configs()
    base = _yaml(folder / "base.yml")
    wanted = None if traced is None else set(traced)
    table: dict[str, Any] = {
        "maxtext": importlib.metadata.version("maxtext"),
        "defaults": {
            key: _plain(value)
            for key, value in sorted(base.items())
            if key in _DEFAULTS or re.fullmatch(r"(ici|dcn)_\w+_parallelism", key)
        },
        "mesh_axes": base["mesh_axes"],
        "rules": _rules(base["logical_axis_rules"]),
        "custom_meshes": {
            path.stem: _yaml(path)["mesh_axes"] for path in sorted((folder / "custom_mesh_and_rule").glob("*.yml"))
        },
        "models": {},
    }
    names = {"default", *(name.replace("-Instruct", "") for name in models)}
    for name in sorted(names):
        keys = {} if name == "default" else _yaml(folder / "models" / f"{name}.yml")
        row: dict[str, Any] = {
            "keys": {key: _plain(value) for key, value in keys.items() if key not in _RULES and key not in _SLOW},
        }
        if "logical_axis_rules" in keys:
            row["rules"] = _rules(keys["logical_axis_rules"])
        if wanted is None or name in wanted:
            row |= _weights(name) if keys.get("scan_layers", True) else {"weights": None, "scales": False}
        table["models"][name] = row
    return table


_RULES = ("logical_axis_rules", "data_sharding")
_SLOW = ("base_config",)


def _configs() -> Path:
    defer_unused_imports()
    from maxtext.configs import types

    return Path(types.__file__).parent


def _yaml(path: Path) -> dict[str, Any]:
    """Read a file as MaxText does."""
    from omegaconf import OmegaConf

    tree: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    return dict(tree)


def _plain(value: Any) -> Any:
    return None if isinstance(value, str) and value.lower() == "none" else value


def _rules(rules: Iterable[tuple[str, Any]]) -> list[list[Any]]:
    return [[name, [axes] if isinstance(axes, str) else list(axes)] for name, axes in rules]


def _weights(name: str) -> dict[str, Any]:
    """Return the `weights` and `scales` of a model, traced with shapes only."""
    try:
        config, arrays = trace([f"model_name={name}"])
    except (ValueError, AssertionError, NotImplementedError) as error:
        print(f"{name}: {str(error).splitlines()[0]}", file=sys.stderr)
        return {"weights": None, "scales": False}
    layers = int(config.num_decoder_layers)
    counts: dict[tuple[tuple[str, ...], tuple[int, ...], bool], int] = {}
    for path, axes, shape in arrays:
        inside = "layers" in axes or re.search(r"\blayers", path) is not None
        kept = [(axis, size) for axis, size in zip(axes, shape, strict=True) if axis != "layers"]
        stacked = math.prod(size for axis, size in zip(axes, shape, strict=True) if axis == "layers")
        key = (tuple(axis for axis, _ in kept), tuple(size for _, size in kept), inside)
        counts[key] = counts.get(key, 0) + stacked
    weights, scales = [], True
    for (sides, sizes, inside), count in counts.items():
        named = [_meaning(axis, size, config) for axis, size in zip(sides, sizes, strict=True)]
        each = inside and count % layers == 0
        scales = scales and each == inside and not any(word.isdigit() for word in named)
        weights.append([" ".join(sides), " ".join(named), count // layers if each else count, int(each)])
    return {"weights": weights, "scales": scales}


def trace(arguments: Iterable[str]) -> tuple[Any, list[tuple[str, list[str], list[int]]]]:
    """Return MaxText's config for `key=value` arguments, and the path, the sides' names and the shape of each parameter
    array."""
    defer_unused_imports()
    from flax import nnx
    from jax.sharding import Mesh
    from maxtext.configs import pyconfig
    from maxtext.utils import maxtext_utils, model_creation_utils

    fixed = ("hardware=cpu", "skip_jax_distributed_system=true", "run_name=x", "base_output_directory=x")
    quiet = ("log_config=false", "enable_checkpointing=false", "attention=dot_product", "dataset_type=synthetic")
    with contextlib.redirect_stdout(io.StringIO()):
        config = _initialize(pyconfig, ["x", str(_configs() / "base.yml"), *fixed, *quiet, *arguments])
        mesh = Mesh(maxtext_utils.create_device_mesh(config), config.mesh_axes)
        _, model = model_creation_utils.create_nnx_abstract_model(config, mesh)
    found = []
    for path, variable in nnx.to_flat_state(nnx.state(model, nnx.Param)):
        metadata = variable.get_metadata()
        names = metadata.get("out_sharding") or metadata.get("sharding_names") or metadata.get("sharding") or ()
        shape = list(variable.get_value().shape)
        sides = ["none" if axis is None else str(axis) for axis in names]
        if len(sides) < len(shape) and metadata.get(nnx.PARTITION_NAME) == "layers" and "layers" not in sides:
            sides.insert(metadata.get("param_scan_axis", 0), "layers")
        sides += ["none"] * (len(shape) - len(sides))
        found.append((".".join(map(str, path)), sides, shape))
    return config, found


def _initialize(pyconfig: Any, argv: list[str]) -> Any:
    """Return MaxText's config. Raises ValueError if MaxText ends the process."""
    try:
        return pyconfig.initialize(argv)
    except SystemExit as error:
        raise ValueError("MaxText rejects the config") from error


def _meaning(axis: str, size: int, config: Any) -> str:
    for pattern, dimensions in _MEANINGS:
        if re.fullmatch(pattern, axis):
            return next((name for name in dimensions if getattr(config, name) == size), str(size))
    return str(size)


def as_text(table: Mapping[str, Any]) -> str:
    """Return the table as JSON with one line per model. It is compact, and a new MaxText gives a readable diff."""
    head = ",\n".join(f"{json.dumps(key)}:{_compact(value)}" for key, value in table.items() if key != "models")
    models = ",\n".join(f"{json.dumps(name)}:{_compact(row)}" for name, row in table["models"].items())
    return f'{{{head},\n"models":{{\n{models}\n}}}}\n'


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
