"""Low-rank adapters (LoRA): MaxText's model with an adapter at each matrix, whose own weights are frozen.

MaxText's optimizer, step and checkpoints know adapters (`lora.enable_lora`), but its pre-training loop never adds them
to the model. This module does, with qwix, and loads the frozen weights at each start, because checkpoints have the
adapters only. For QLoRA, qwix quantizes the frozen matrices when they are loaded.
"""

from __future__ import annotations

import contextlib
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainer.tuning.settings import Lora

ATTENTION: Mapping[str, str] = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "out"}
MLP: Mapping[str, str] = {"gate_proj": "wi_0", "up_proj": "wi_1", "down_proj": "wo"}
"""The matrices by their names in Hugging Face format, and MaxText's modules. The matrices of experts have no module."""
QUANTIZED = "nf4"
TILE = 64
"""As in the paper of QLoRA: 4-bit numbers (NF4), with a scale for each 64 inputs, or fewer to divide the sizes."""


def maxtext_keys(lora: Lora | None) -> dict[str, Any]:
    """Return MaxText's key `lora`, which Slipway owns."""
    if lora is None:
        return {"lora": {"enable_lora": False}}
    names = lora.targets or (*ATTENTION, *MLP)
    parts = [
        f"{parent}[^/]*/({'|'.join(modules[name] for name in names if name in modules)})"
        for parent, modules in (("self_attention", ATTENTION), ("mlp", MLP))
        if any(name in modules for name in names)
    ]
    return {
        "lora": {
            "enable_lora": True,
            "lora_rank": lora.rank,
            "lora_alpha": lora.alpha,
            "lora_module_path": f"decoder/.*({'|'.join(parts)})",
            "lora_weight_qtype": QUANTIZED if lora.quantized else None,
        }
    }


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Make MaxText build models with adapters, and load their frozen weights, while the context lasts."""
    from flax import nnx
    from maxtext.common import checkpointing
    from maxtext.utils import max_utils, model_creation_utils, sharding
    from qwix._src.providers import lora as adapters

    def creator(config: Any, mesh: Any = None, *args: Any, **options: Any) -> Callable[[], Any]:
        create = plain(config, mesh, *args, **options)
        return lambda: _with_adapters(create(), config)

    def load(manager: Any, iterator: Any, path: str, *args: Any, **options: Any) -> tuple[Any, Any]:
        # MaxText lays the checkpoint over the weights, and keeps those that the checkpoint does not have.
        restored, _ = load_state(manager, iterator, "", *args, **options)
        return restored, _frozen(options["maxtext_config"], path, plain)

    def delta(inputs: Any, first: Any, second: Any, *args: Any, **options: Any) -> Any:
        # As MaxText with its own weights: float32 in memory, and computed in the type of the layer.
        return compute(inputs, first.astype(inputs.dtype), second.astype(inputs.dtype), *args, **options)

    def norm(tree: Any) -> Any:
        # The norm of the frozen weights never changes, and that of 4-bit numbers means nothing.
        return norm_of(nnx.filter_state(tree, nnx.LoRAParam) if isinstance(tree, nnx.State) else tree)

    def check_sharding(parameters: Any, *args: Any) -> None:
        # All devices have the whole adapters, which are small; MaxText allows that for a fiftieth of all parameters.
        check(nnx.filter_state(parameters, nnx.Not(nnx.LoRAParam)), *args)

    with contextlib.ExitStack() as stack:

        def replace(module: Any, name: str, new: Any) -> Any:
            old = getattr(module, name)
            stack.callback(setattr, module, name, old)
            setattr(module, name, new)
            return old

        plain = replace(model_creation_utils, "get_nnx_create_model_fn", creator)
        load_state = replace(checkpointing, "load_state_if_possible", load)
        replace(checkpointing, "_filter_lora_trainable_state", _without_frozen)
        compute = replace(adapters, "_compute_lora_delta", delta)
        norm_of = replace(max_utils, "l2norm_pytree", norm)
        check = replace(sharding, "assert_params_sufficiently_sharded", check_sharding)
        yield


def size(state: Any) -> tuple[int, int]:
    """Return the number of parameters of the adapters in MaxText's state, and their bytes."""
    import jax
    from flax import nnx

    arrays = jax.tree.leaves(nnx.filter_state(state["model"], nnx.LoRAParam))
    return sum(each.size for each in arrays), sum(each.nbytes for each in arrays)


def _without_frozen(tree: Any, path: str = "") -> Any:
    """Return a checkpoint's tree without the frozen weights.

    MaxText's own filter also drops the state of the optimizer: a resumed run would not be exact.
    """
    if not isinstance(tree, dict):
        return tree if "_lora_" in path else None
    if "step" in tree:  # the whole checkpoint; otherwise weights
        return {**tree, "params": _without_frozen(tree["params"])}
    kept = {key: _without_frozen(value, str(key)) for key, value in tree.items()}
    return {key: value for key, value in kept.items() if value is not None} or None


def _with_adapters(model: Any, config: Any) -> Any:
    """Return the model with adapters: float32, on all devices, the initial values those of peft."""
    import jax
    import jax.numpy as jnp
    import qwix
    from flax import nnx
    from maxtext.utils import lora_utils  # repairs qwix for MaxText's models when it is imported

    tile, path = math.gcd(TILE, config.emb_dim, config.head_dim, config.mlp_dim), config.lora.lora_module_path
    keys = {
        "rank": config.lora.lora_rank,
        "alpha": config.lora.lora_alpha,
        "weight_qtype": config.lora.lora_weight_qtype,
    }
    # The inputs of `out` have two axes. qwix tiles the last one, and the heads would share their scales.
    provider = qwix.LoraProvider(
        [
            qwix.LoraRule(module_path=f"(?=.*/out$){path}", tile_size={0: 1, 1: tile}, **keys),
            qwix.LoraRule(module_path=path, tile_size=tile, **keys),
        ]
    )
    seed = jax.random.PRNGKey(config.init_weights_seed)
    tokens, positions = lora_utils._prepare_dummy_inputs(model.mesh)
    model = qwix.apply_lora_to_model(
        model, provider, decoder_input_tokens=tokens, decoder_positions=positions, rngs=model.decoder.rngs
    )
    nnx.pop(model, nnx.Intermediate)  # what experts of the forward pass above left, and a step removes
    for path, node in nnx.iter_graph(model):
        if "qwix_rngs" in getattr(node, "__dict__", {}):
            del node.qwix_rngs
        if isinstance(node, nnx.LoRAParam):
            value = node.get_value().astype(jnp.float32)
            if str(path[-1]).endswith("_lora_a"):
                # qwix gives all layers of a scan the same values. These are peft's kaiming_uniform_(a=sqrt(5)): uniform
                # within the inverse square root of the number of inputs, which are the first axis.
                key = jax.random.fold_in(seed, zlib.crc32("/".join(map(str, path)).encode()))
                most = value.shape[0] ** -0.5
                value = jax.random.uniform(key, value.shape, jnp.float32, -most, most)
            node.set_value(value)
            node.set_metadata(sharding=jax.sharding.PartitionSpec(), out_sharding=None, sharding_names=None)
    return model


def _frozen(config: Any, path: str, plain: Callable[..., Any]) -> Any:
    """Return the frozen weights as a tree of arrays, as MaxText's model with adapters holds them."""
    import jax
    from flax import nnx
    from maxtext.common import checkpointing
    from maxtext.utils import maxtext_utils, model_creation_utils

    mesh = maxtext_utils.get_mesh_from_config(config)
    with_adapters = model_creation_utils.get_nnx_create_model_fn
    model_creation_utils.get_nnx_create_model_fn = plain
    try:
        create, abstract = model_creation_utils.create_nnx_abstract_model(config, mesh)
    finally:
        model_creation_utils.get_nnx_create_model_fn = with_adapters
    wanted = nnx.state(abstract, nnx.Param)
    weights = checkpointing.load_params_from_path(
        path,
        wanted,
        config.checkpoint_storage_concurrent_gb,
        use_ocdbt=config.checkpoint_storage_use_ocdbt,
        use_zarr3=config.checkpoint_storage_use_zarr3,
        enable_single_replica_ckpt_restoring=bool(config.enable_single_replica_ckpt_restoring),
    )
    if not config.lora.lora_weight_qtype:
        return weights

    def quantized(state: Any) -> Any:
        model = create()
        nnx.update(model, state)
        return nnx.state(_with_adapters(model, config), nnx.All(nnx.Param, nnx.Not(nnx.LoRAParam))).to_pure_dict()

    with jax.set_mesh(mesh):
        return jax.jit(quantized, donate_argnums=0)(weights)
