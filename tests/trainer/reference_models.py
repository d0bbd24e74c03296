"""Writes models of each family with random weights, as MaxText initializes and saves them, and MaxText's own logits.

Run as a program (python -m tests.trainer.reference_models FOLDER NAME...), because MaxText is imported once for all.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np

_SIZES: Final[dict[str, Any]] = {
    "base_emb_dim": 64,
    "base_num_decoder_layers": 2,
    "base_num_query_heads": 4,
    "base_num_kv_heads": 2,
    "head_dim": 16,
    "base_mlp_dim": 96,
    "vocab_size": 512,
    "attention": "dot_product",
    "max_target_length": 64,
    "per_device_batch_size": 1,
    "dtype": "float32",
    "dataset_type": "synthetic",
}
_MOE: Final[dict[str, Any]] = {
    "base_moe_mlp_dim": 96,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "sparse_matmul": False,  # the kernel of the other way has no CPU version
    "megablox": False,
}


def _like(model: str, **keys: Any) -> dict[str, Any]:
    return {"model_name": model, "override_model_config": True, **_SIZES, **keys}


MODELS: Final[dict[str, dict[str, Any]]] = {
    "llama2": {**_SIZES},
    "llama2-unscanned": {**_SIZES, "scan_layers": False, "base_num_decoder_layers": 3, "head_dim": 32},
    # Twice the width, heads and layers.
    "llama2-scaled": {**_SIZES, "global_parameter_scale": 8, "base_emb_dim": 32, "base_num_decoder_layers": 1},
    "llama2-linear": {**_SIZES, "rope_linear_scaling_factor": 4.0},
    "llama3": _like("llama3-8b"),
    # A base so small that the wavelengths of all three ranges of the scaling occur.
    "llama3.1": _like("llama3.1-8b", head_dim=32),
    "llama3.1-unscanned": _like("llama3.1-8b", scan_layers=False),
    "mistral": _like("mistral-7b"),
    "mixtral": _like("mixtral-8x7b", **_MOE),
    "mixtral-unscanned": _like("mixtral-8x7b", scan_layers=False, **_MOE),
    "gemma2": _like("gemma2-2b", sliding_window_size=16),
    "gemma2-unscanned": _like("gemma2-2b", sliding_window_size=16, scan_layers=False),
    "gemma3": _like("gemma3-4b", sliding_window_size=16, base_num_decoder_layers=8),
    "gemma3-unscanned": _like("gemma3-4b", sliding_window_size=16, base_num_decoder_layers=8, scan_layers=False),
    "gemma3-short": _like("gemma3-4b", sliding_window_size=16, base_num_decoder_layers=3),
    "qwen3": _like("qwen3-8b"),
    "qwen3-tied": _like("qwen3-0.6b", scan_layers=False),
    "qwen3-moe": _like("qwen3-30b-a3b", **_MOE),
}
"""MaxText's keys of each model. The name begins with the family's."""

STEP = 3


def write_config(root: Path, name: str, tokenizer: Path | None = None, **train: Any) -> Path:
    """Write the run config of a model, whose run's folder is `root`/`name`."""
    tree = {
        "run": {"name": name, "kind": "local", "maxRestarts": 0, "command": []},
        "slice": {"accelerator": "cpu", "count": 1, "hosts": 1},
        "accelerator": {"name": "cpu", "kind": "cpu", "hosts": 1, "chips": 1, "chipsPerHost": 1},
        "storage": {"kind": "local", "mountPath": str(root)},
        "data": {"tokenizer": {"kind": "sentencepiece", "path": str(tokenizer)}} if tokenizer else {},
        "train": {key: value for key, value in {**MODELS[name], **train}.items() if value is not None},
    }
    path = root / f"{name}.json"
    path.write_text(json.dumps(tree))
    return path


def inputs() -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(3, 512, (2, 48), dtype=np.int32)


def main(root: Path, names: list[str]) -> None:
    """For each name, write the run's checkpoint and NAME.npy, the logits of `inputs`."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    from trainer import deferred_imports
    from trainer.config import read
    from trainer.maxtext_keys import maxtext_argv

    deferred_imports.defer_unused_imports()
    import jax
    import jax.numpy as jnp
    from flax import nnx
    from maxtext.common import checkpointing
    from maxtext.configs import pyconfig
    from maxtext.utils import model_creation_utils

    # Keep every program, however quickly it compiles: MaxText sets the folder of the cache, as in a training.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    for name in names:
        config = pyconfig.initialize(maxtext_argv(read(root / f"{name}.json")))
        model = model_creation_utils.from_config(config, rngs=nnx.Rngs(params=0, dropout=1))
        state = nnx.state(model, nnx.Param)
        random = np.random.default_rng(0)

        def changed(value: Any, random: np.random.Generator = random) -> Any:
            # Norms start as ones, and small logits hide errors.
            noise = random.standard_normal(value.shape).astype(np.float32)
            large = noise * np.float32(0.3 if value.ndim <= 2 and min(value.shape, default=0) < 64 else 0.1)
            # MaxText rounds a tied embedding to bfloat16 for the logits, and nowhere else.
            return (jnp.asarray(value) + large).astype(jnp.bfloat16).astype(value.dtype)

        nnx.update(model, jax.tree.map(changed, state))
        weights = nnx.state(model, nnx.Param).to_pure_dict()
        checkpointing.save_params_to_path(root / name / "checkpoints" / str(STEP), {"params": weights})
        tokens = jnp.asarray(inputs())
        positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
        with jax.default_matmul_precision("highest"):
            logits = model(tokens, positions, jnp.ones_like(tokens), enable_dropout=False)
        np.save(root / f"{name}.npy", np.asarray(logits, np.float32))
        sizes = {
            "emb": config.emb_dim,
            "heads": config.num_query_heads,
            "kv_heads": config.num_kv_heads,
            "head_dim": config.head_dim,
            "mlp": config.moe_mlp_dim if config.num_experts > 1 else config.mlp_dim,
            "vocab": config.vocab_size,
            "blocks": config.num_decoder_layers,
            "epsilon": config.normalization_layer_epsilon,
            "tied": config.logits_via_embedding,
        }
        (root / f"{name}.sizes.json").write_text(json.dumps(sizes))
        print(name, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
