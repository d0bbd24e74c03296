"""Answers of the model to the user's prompts after each evaluation, so that people see what the losses mean.

The model is the one that trains, with its own compiled forward pass: the whole sequence for each token, without a cache
of keys and values. That is slow for a server, and cheap for a few prompts: an answer costs as many forward passes as it
has tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainer.tuning.template import ChatTemplate

MOST_TOKENS = 64
"""The tokens of an answer at most, if the sequence has room."""


class Samples:
    """Generates answers. Every host calls `answers` with the same state."""

    def __init__(self, prompts: Sequence[str], template: ChatTemplate, config: Any, mesh: Any, model: Any) -> None:
        """`config` is MaxText's, and `model` is the one that trains."""
        import jax
        import jax.numpy as jnp
        import numpy as np
        from flax import nnx
        from maxtext.utils import sharding

        self.prompts = prompts
        self._tokenizer = template.tokenizer
        length, rows = config.max_target_length, config.global_batch_size_to_load
        self._most = min(MOST_TOKENS, length // 2)
        self._begins = [template.prompt(prompt)[-(length - self._most) :] for prompt in prompts]
        graph, _ = nnx.split(model)
        end = -1 if self._tokenizer.eos_token_id is None else self._tokenizer.eos_token_id
        place = np.arange(length)

        def extended(state: Any, tokens: Any, begins: Any) -> Any:
            """Return the tokens [rows, length] with answers after the first `begins` tokens of each row."""

            def add(number: Any, tokens: Any) -> Any:
                network = nnx.merge(graph, state)  # a loop may not change a model from outside
                at = begins + number
                logits = network(
                    decoder_input_tokens=tokens,
                    decoder_positions=jnp.broadcast_to(place, tokens.shape),
                    decoder_segment_ids=(place < at[:, None]).astype(jnp.int32),
                    enable_dropout=False,
                )
                last = jnp.take_along_axis(logits, (at - 1)[:, None, None], axis=1)[:, 0]
                ended = jnp.take_along_axis(tokens, (at - 1)[:, None], axis=1)[:, 0] == end
                chosen = jnp.where(ended & (number > 0), end, jnp.argmax(last, axis=-1))
                return jnp.where(place == at[:, None], chosen[:, None], tokens)

            return jax.lax.fori_loop(0, self._most, add, tokens)

        self._rows, self._length = rows, length
        self._sharding = sharding.get_input_data_sharding(config, mesh)
        self._extended = jax.jit(extended, out_shardings=jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))

    def answers(self, state: Any) -> list[str]:
        """Return the answer to each prompt. `state` is that of the model."""
        import jax
        import numpy as np

        found = []
        for first in range(0, len(self._begins), self._rows):
            begins = self._begins[first : first + self._rows]
            tokens = np.zeros((self._rows, self._length), np.int32)
            for row, ids in enumerate(begins):
                tokens[row, : len(ids)] = ids
            lengths = np.asarray([len(ids) for ids in begins] + [1] * (self._rows - len(begins)), np.int32)
            result = np.asarray(self._extended(state, jax.device_put(tokens, self._sharding), lengths))
            for row, ids in enumerate(begins):
                answer = result[row, len(ids) : len(ids) + self._most]
                found.append(self._tokenizer.decode(answer, skip_special_tokens=True).strip())
        return found
