"""The losses of pairs of answers: DPO and ORPO, in place of MaxText's loss of tokens.

A sequence has pairs of segments: the better answer is odd, the worse answer is the next one (pipeline.py). MaxText's
own function runs the model, so all else of its step is unchanged. Its cross-entropy of each token is the negative log
probability, which is summed by segment. The reference of DPO is the weights that the run started from: a copy of them,
or in a run with adapters the model without these. Their log probabilities arrive with the batch: computed with it, or
before the first step (precomputed.py).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from trainer.errors import ConfigError
from trainer.tuning.settings import DPO, Tuning

REFERENCE = "reference"
"""The key of a batch with the log probabilities of the targets by the reference model, float32 [batch, length]."""
MEASURES = ("reward_chosen", "reward_rejected", "reward_margin", "reward_accuracy")
"""The means over pairs in the metrics. A reward is beta times the log ratio of the model and the reference; in ORPO, it
is beta times the mean log probability of a token. The accuracy is the share of pairs whose better answer has the higher
reward."""
_SLOT = "z_loss"
"""The key of MaxText's metrics that carries the sums of MEASURES and the number of pairs. MaxText passes a fixed set of
numbers from its loss to its metrics, and this one has no meaning here: require_simple_loss refuses a z-loss."""


def require_simple_loss(train: Mapping[str, Any]) -> None:
    """Raise ConfigError for keys of MaxText that change the loss of tokens, of which there is none."""
    for key, plain in (("z_loss_multiplier", 0), ("num_vocab_tiling", 1), ("mtp_num_layers", 0)):
        value = train.get(key)
        if value is not None and float(value) > plain:
            raise ConfigError(f"train.{key} is {value}, but the loss of pairs has no such part; set it to {plain}.")


def loss_function(tuning: Tuning, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function in place of `original`, MaxText's loss_fn of a model and a batch."""

    import jax.numpy as jnp

    @functools.wraps(original)
    def loss(model: Any, config: Any, batch: dict[str, Any], *args: Any, **options: Any) -> Any:
        with _negative_log_probabilities() as captured:
            value, aux = original(model, config, batch, *args, **options)
        sums, pairs = _sums(tuning, captured[0], batch)  # MaxText has cut the arrays of the batch in place
        accumulated = config.gradient_accumulation_steps > 1 and not config.use_tunix_gradient_accumulation
        scale = 1 if accumulated else jnp.maximum(pairs, 1)
        # MaxText adds the load balance of experts to the loss of tokens.
        rest = value - aux["xent_sum"] / (1 if accumulated else aux["total_weights"] + _EPS)
        aux |= {"xent_sum": sums[0], "total_weights": pairs, _SLOT: sums[1:]}
        return sums[0] / scale + rest, aux

    return loss


_EPS = 1e-8
"""MaxText's (maxtext/utils/globals.py)."""


@contextlib.contextmanager
def _negative_log_probabilities() -> Iterator[list[Any]]:
    """Collect MaxText's cross-entropies [batch, length] of the targets, in the trace of its loss."""
    from maxtext.utils import max_utils

    own, captured = max_utils.cross_entropy_with_logits, []

    def cross_entropy(*args: Any, **options: Any) -> Any:
        result = own(*args, **options)
        captured.append(result[0])
        return result

    max_utils.cross_entropy_with_logits = cross_entropy
    try:
        yield captured
    finally:
        max_utils.cross_entropy_with_logits = own


def by_pair(values: Any, segments: Any) -> Any:
    """Sum values [batch, length] by segment, as [batch, pairs, 2]."""
    import jax
    import jax.numpy as jnp

    pairs = segments.shape[1] // 4  # a conversation has two tokens or more
    rows = jax.vmap(lambda row, ids: jax.ops.segment_sum(row, ids, num_segments=1 + 2 * pairs))
    kept = jnp.where(segments != 0, values, jnp.zeros_like(values))
    return rows(kept, segments)[:, 1:].reshape(segments.shape[0], -1, 2)


def _sums(tuning: Tuning, negative: Any, batch: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the sums over the pairs of a batch: the loss, MEASURES, and 1; and the number of pairs."""
    import jax
    import jax.numpy as jnp

    segments = batch["targets_segmentation"]
    log_probabilities = by_pair(-negative.astype(jnp.float32), segments)
    tokens = by_pair(jnp.ones_like(negative, jnp.float32), segments)
    exists = (tokens > 0).all(axis=2)
    if tuning.method == DPO:
        rewards = tuning.beta * (log_probabilities - by_pair(batch[REFERENCE], segments))
        losses = -jax.nn.log_sigmoid(rewards[..., 0] - rewards[..., 1])
    else:
        means = log_probabilities / jnp.maximum(tokens, 1)
        means = jnp.where(exists[..., None], jnp.minimum(means, -1e-6), -1.0)  # no infinite odds
        odds = means - jnp.log1p(-jnp.exp(means))
        losses = -means[..., 0] - tuning.beta * jax.nn.log_sigmoid(odds[..., 0] - odds[..., 1])
        rewards = tuning.beta * means
    better, worse = rewards[..., 0], rewards[..., 1]
    parts = (losses, better, worse, better - worse, (better > worse).astype(jnp.float32))
    pairs = jnp.sum(exists)
    sums = [jnp.sum(jnp.where(exists, part, 0.0)) for part in parts]
    return jnp.stack([*sums, pairs.astype(jnp.float32)]), pairs


def measures(scalars: dict[str, Any]) -> None:
    """Replace the sums in MaxText's metrics of a step by MEASURES, as scalars on the devices."""
    sums, scalars[f"learning/{_SLOT}"] = scalars[f"learning/{_SLOT}"], 0.0
    scalars |= dict(zip(MEASURES, _means()(sums), strict=True))


@functools.cache
def _means() -> Any:
    import jax
    import jax.numpy as jnp

    return jax.jit(lambda sums: tuple(sums[number] / jnp.maximum(sums[-1], 1) for number in range(len(MEASURES))))


class Evaluation:
    """The sums of an evaluation."""

    def __init__(self) -> None:
        self._sums: Any = 0

    def add(self, scalars: dict[str, Any]) -> None:
        """Take the sums out of MaxText's metrics of a batch."""
        sums, scalars[f"evaluation/{_SLOT}"] = scalars[f"evaluation/{_SLOT}"], 0.0
        self._sums = self._sums + sums

    def take(self) -> dict[str, float]:
        """Return MEASURES, and start again."""
        values = dict(zip(MEASURES, _means()(self._sums), strict=True))
        self._sums = 0
        return {f"eval_{name}": round(float(value), 6) for name, value in values.items()}


def log_probabilities(graph: Any, parts: int) -> Callable[[Any, Mapping[str, Any]], Any]:
    """Return a function of the state of a model and a batch: the log probabilities of the targets.

    It returns float32 [batch, length], computed in `parts`, as many sequences at once as the step takes.
    """
    import jax
    import jax.numpy as jnp
    from flax import nnx

    def of_batch(state: Any, batch: Mapping[str, Any]) -> Any:
        def of(part: Mapping[str, Any]) -> Any:
            model = nnx.merge(graph, state)  # a loop may not change a model from outside
            logits = model(
                decoder_input_tokens=part["inputs"],
                decoder_positions=part["inputs_position"],
                decoder_segment_ids=part["inputs_segmentation"],
                enable_dropout=False,
            ).astype(jnp.float32)
            targets = jnp.take_along_axis(logits, part["targets"][..., None], axis=-1)
            return targets[..., 0] - jax.nn.logsumexp(logits, axis=-1)

        if parts == 1:
            return of(batch)
        cut = jax.tree.map(lambda array: array.reshape(parts, -1, *array.shape[1:]), dict(batch))
        return jax.lax.map(of, cut).reshape(batch["targets"].shape)

    return of_batch


def without_adapters(state: Any) -> Any:
    """Return the state of a model whose adapters add zero."""
    import jax
    import jax.numpy as jnp
    from flax import nnx

    adapters, frozen = nnx.split_state(state, nnx.LoRAParam, ...)
    return nnx.merge_state(frozen, jax.tree.map(jnp.zeros_like, adapters))


class Reference:
    """The model that a run of DPO started from, in memory: it computes the log probabilities of a batch."""

    def __init__(self, tuning: Tuning, config: Any, mesh: Any, model: Any) -> None:
        """Read the weights that `config`, MaxText's, names in load_parameters_path, unless the model that trains,
        `model`, has them."""
        import jax
        from flax import nnx
        from maxtext.utils import sharding

        graph, state = nnx.split(model)
        self._state = self._read(config, state) if tuning.copies_weights else None
        compute = log_probabilities(graph, config.gradient_accumulation_steps)
        if not tuning.copies_weights:
            with_adapters, compute = compute, lambda state, batch: with_adapters(without_adapters(state), batch)
        self._compute = jax.jit(compute, out_shardings=sharding.get_input_data_sharding(config, mesh))

    @staticmethod
    def _read(config: Any, state: Any) -> Any:
        import jax
        from flax import nnx
        from maxtext.common import checkpointing

        wanted = checkpointing._abstract_params(state)
        weights = checkpointing.load_params_from_path(
            config.load_parameters_path,
            jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), wanted),
            config.checkpoint_storage_concurrent_gb,
            use_ocdbt=config.checkpoint_storage_use_ocdbt,
            use_zarr3=config.checkpoint_storage_use_zarr3,
        )
        paths = {path for path, _ in nnx.to_flat_state(wanted)}
        # The step deletes the arrays of its state.
        others = jax.tree.map(lambda leaf: leaf.copy(), state.filter(lambda path, _: path not in paths))
        return nnx.merge_state(weights, others)

    def of(self, batch: Mapping[str, Any], state: Any) -> Any:
        """Return the log probabilities of the targets, float32 [batch, length]. `state` is that of the model that
        trains."""
        return self._compute(state if self._state is None else self._state, dict(batch))


def with_reference(step: Callable[..., Any], graph: Any, parts: int) -> Callable[..., Any]:
    """Return the step of a state, a batch and the state of the reference, as one program. `forecast` compiles it.

    `graph` is that of the train state. Without a state of the reference, it is the model without its adapters.
    """
    from flax import nnx

    def whole(state: Any, batch: Mapping[str, Any], reference: Any = None) -> Any:
        own, _ = nnx.split(nnx.merge(graph, state).model)
        values = log_probabilities(own, parts)(reference or without_adapters(state["model"]), batch)
        return step(state, {**batch, REFERENCE: values})

    whole.__name__ = step.__name__  # the name of the program
    return whole


def shaped(original: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Return a function in place of `original`, MaxText's get_shaped_batch, for batches with REFERENCE."""

    @functools.wraps(original)
    def batch(*args: Any, **options: Any) -> dict[str, Any]:
        import jax
        import jax.numpy as jnp

        shapes = original(*args, **options)
        targets = shapes["targets"]
        return {**shapes, REFERENCE: jax.ShapeDtypeStruct(targets.shape, jnp.float32, sharding=targets.sharding)}

    return batch
