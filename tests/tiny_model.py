"""A model that trains in seconds on a CPU."""

from __future__ import annotations

from typing import Any, Final

TINY_MODEL: Final[dict[str, Any]] = {
    "base_emb_dim": 32,
    "base_num_decoder_layers": 2,
    "base_num_query_heads": 2,
    "base_num_kv_heads": 2,
    "head_dim": 16,
    "base_mlp_dim": 64,
    "attention": "dot_product",
    "max_target_length": 64,
    "per_device_batch_size": 2,
}
"""MaxText's keys: the sizes of the model, and a suitable batch. If the tokenizer is small too, add vocab_size."""
