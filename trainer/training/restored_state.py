"""The state of a run that resumes, or that starts from weights: the chips hold each array once.

MaxText 0.2.5 always initializes the whole state, and then replaces what it has loaded. Until then, the chips hold both,
so a run whose state needs more than half of their memory could train, but not resume. Here, only what was not loaded is
initialized.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def without_copy(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return MaxText's `setup_initial_state` (`plain`), which initializes only what it does not load."""

    def set_up(iterator: Any, config: Any, mesh: Any, manager: Any, create: Any, is_training: bool = True) -> Any:
        from flax import nnx
        from flax.core.spmd import logical_axis_rules
        from flax.traverse_util import unflatten_dict
        from maxtext.utils import maxtext_utils

        if not _loads(config, manager):
            return plain(iterator, config, mesh, manager, create, is_training)
        state, annotations, shardings = maxtext_utils.get_abstract_state(config, mesh, create, is_training)
        with logical_axis_rules(config.logical_axis_rules):
            arrays = _loaded(iterator, config, manager, state, _flat(shardings))
            missing = [path for path, value in _flat(state).items() if _is_abstract(value) and path not in arrays]
            arrays |= _initialized(create, missing, _flat(shardings))
        nnx.replace_by_pure_dict(state, unflatten_dict(arrays))
        return state, annotations, shardings, iterator, True

    return set_up


def _loads(config: Any, manager: Any) -> bool:
    """Return whether there is something to load, in a form that _loaded knows."""
    from maxtext.common import checkpointing

    if config.enable_diloco or config.enable_emergency_checkpoint or config.enable_multi_tier_checkpointing:
        return False
    saved = manager is not None and checkpointing.latest_step(manager) is not None
    return bool(saved or config.load_parameters_path or config.load_full_state_path)


def _loaded(
    iterator: Any, config: Any, manager: Any, state: Any, shardings: Mapping[tuple[Any, ...], Any]
) -> dict[tuple[Any, ...], Any]:
    """Return the arrays of the checkpoint and of the starting weights, by their paths in the abstract `state`."""
    import jax
    from maxtext.common import checkpointing

    restored, weights = checkpointing.load_state_if_possible(
        manager,
        iterator,
        config.load_parameters_path,
        config.load_full_state_path,
        config.checkpoint_storage_concurrent_gb,
        state,
        config.enable_single_replica_ckpt_restoring,
        config.dataset_type,
        use_ocdbt=config.checkpoint_storage_use_ocdbt,
        use_zarr3=config.checkpoint_storage_use_zarr3,
        enable_orbax_v1=config.enable_orbax_v1,
        checkpoint_conversion_fn=config.checkpoint_conversion_fn,
        source_checkpoint_layout=config.source_checkpoint_layout,
        expansion_factor_real_data=config.expansion_factor_real_data,
        maxtext_config=config,
    )
    arrays = {}
    if weights:
        weights = weights.get("model", weights)
        weights = weights.get("params", weights)
        for path, value in _flat(weights).items():
            at = ("model", *path)
            if at in shardings and not _is_abstract(value):
                arrays[at] = jax.device_put(value, shardings[at]) if isinstance(value, jax.Array) else value
    if restored:
        arrays |= {path: value for path, value in _flat(restored["items"]).items() if not _is_abstract(value)}
    return arrays


def _initialized(
    create: Callable[[], Any], paths: list[tuple[Any, ...]], shardings: Mapping[tuple[Any, ...], Any]
) -> dict[tuple[Any, ...], Any]:
    """Return the initial values at these paths. The compiler leaves out all others."""
    import jax
    from flax import nnx

    if not paths:
        return {}

    def initialize() -> list[Any]:
        values = _flat(nnx.state(create()))
        return [values[path] for path in paths]

    arrays = jax.jit(initialize, out_shardings=[shardings[path] for path in paths])()
    return dict(zip(paths, arrays, strict=True))


def _flat(tree: Any) -> dict[tuple[Any, ...], Any]:
    from flax.traverse_util import flatten_dict

    flat: dict[tuple[Any, ...], Any] = flatten_dict(tree.to_pure_dict() if hasattr(tree, "to_pure_dict") else tree)
    return flat


def _is_abstract(value: Any) -> bool:
    """Return whether the value at a path, which can be a tree of a quantized array, has shapes instead of arrays."""
    import jax

    return any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(value))
