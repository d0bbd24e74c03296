"""Writes models of some families with random adapters, as the trainer builds and saves them, and MaxText's own logits.

Run as a program (python -m tests.trainer.adapter_models FOLDER NAME...), because MaxText is imported once for all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests import compiled_programs
from tests.trainer import reference_models
from tests.trainer.reference_models import STEP, inputs, write_config
from tests.trainer.runs import CHECKOUT


def prepare(root: Path, names: Sequence[str], tokenizer: Path, rank: int, alpha: int, quantized: str = "") -> None:
    """Write to `root` a base checkpoint, an adapter checkpoint and MaxText's logits of each name.

    The adapter of NAME is the run NAME-lora. The model `quantized` also has one of quantized weights, NAME-qlora.
    """
    root.mkdir()
    for name in names:
        path = write_config(root, name, tokenizer)
        tree = json.loads(path.read_text())
        weights = str(root / name / "checkpoints" / str(STEP) / "items")
        tree["train"] |= {"load_parameters_path": weights, "weight_dtype": "float32"}
        if name == "mixtral":
            tree["train"]["load_balance_loss_weight"] = 0.01  # a loss that a forward pass leaves in the model
        for method in ("lora", "qlora") if name == quantized else ("lora",):
            tree["run"]["name"] = f"{name}-{method}"
            tree |= {"tuning": {"method": method, "lora": {"rank": rank, "alpha": alpha}}, "from": f"{name}@{STEP}"}
            (root / f"{name}-{method}.json").write_text(json.dumps(tree))
    program = [sys.executable, "-m", "tests.trainer.adapter_models", str(root), *names]
    with compiled_programs.kept(root):
        subprocess.run(program, cwd=CHECKOUT, check=True)


def main(root: Path, names: list[str]) -> None:
    """For each name, write the checkpoint of NAME and its logits, and then those of NAME-lora and NAME-qlora, whose run
    configs exist."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    reference_models.main(root, names)
    import jax
    import jax.numpy as jnp
    from flax import nnx
    from maxtext.common import checkpointing
    from maxtext.configs import pyconfig
    from maxtext.utils import maxtext_utils, model_creation_utils

    from trainer.config import read
    from trainer.maxtext_keys import maxtext_argv
    from trainer.tuning import lora

    for path in sorted(root.glob("*-*lora.json")):
        config = pyconfig.initialize(maxtext_argv(read(path)))
        mesh = maxtext_utils.get_mesh_from_config(config)
        with lora.installed():
            model = model_creation_utils.get_nnx_create_model_fn(config, mesh)()
            # MaxText's step removes what a forward pass leaves, and requires the state that it began with.
            assert not nnx.state(model, nnx.Intermediate), "the model has arrays of a forward pass"
            _, weights = checkpointing.load_state_if_possible(
                None, None, config.load_parameters_path, "", 96, None, maxtext_config=config
            )
            nnx.update(model, weights)
            random = np.random.default_rng(2)
            changed = jax.tree.map(
                lambda value, random=random: jnp.asarray(0.1 * random.standard_normal(value.shape), value.dtype),
                nnx.state(model, nnx.LoRAParam),
            )
            nnx.update(model, changed)
            folder = root / path.stem / "checkpoints" / str(STEP)
            checkpointing.save_params_to_path(folder, {"params": changed.to_pure_dict()})
            tokens = jnp.asarray(inputs())
            positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
            with jax.default_matmul_precision("highest"):
                logits: Any = model(tokens, positions, jnp.ones_like(tokens), enable_dropout=False)
        np.save(path.with_suffix(".npy"), np.asarray(logits, np.float32))
        print(path.stem, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
