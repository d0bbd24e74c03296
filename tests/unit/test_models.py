"""launcher/config/maxtext/models.py: sizes of models, from the table only."""

from __future__ import annotations

import pytest

from launcher.config.maxtext import models

COUNTS = {
    "default": 1_104_218_112,
    "llama3.1-8b": 8_030_261_248,
    "gemma3-4b": 3_880_099_328,
    "mixtral-8x7b": 46_702_792_704,
    "llama3.1-405b": 405_853_388_800,
    "mixtral-8x22b": 140_630_071_296,
    "gemma3-27b": 27_009_002_240,
    "deepseek3-671b": 671_026_404_352,
}
"""MaxText's counts; tests/unit/test_model_table.py compares with MaxText."""


@pytest.mark.parametrize("name", COUNTS)
def test_parameters_are_counted_to_the_last(name: str) -> None:
    assert models.parameters({} if name == "default" else {"model_name": name}) == COUNTS[name]


def test_the_tuned_variant_has_its_models_sizes() -> None:
    assert models.parameters({"model_name": "llama3.1-8b-Instruct"}) == COUNTS["llama3.1-8b"]


def test_given_dimensions_count() -> None:
    tiny = {
        **{"base_emb_dim": 64, "base_num_decoder_layers": 3, "base_num_query_heads": 4, "base_num_kv_heads": 2},
        **{"head_dim": 32, "base_mlp_dim": 128, "vocab_size": 256},
    }
    layer = 64 * 32 * (4 + 4 + 2 + 2) + 3 * 64 * 128 + 2 * 64
    assert models.parameters(tiny) == 3 * layer + 2 * 256 * 64 + 64


def test_a_null_is_like_a_missing_key() -> None:
    assert models.parameters({"model_name": "llama3.1-8b", "base_emb_dim": None}) == COUNTS["llama3.1-8b"]


def test_a_scale_makes_all_larger_as_maxtext_does() -> None:
    # A factor of 2 scales heads and feed-forward, 4 also scales the width, and 8 scales all four.
    assert models.dimensions({"global_parameter_scale": 2})["num_query_heads"] == 32
    assert models.dimensions({"global_parameter_scale": 2})["emb_dim"] == 2048
    assert models.dimensions({"global_parameter_scale": 4})["emb_dim"] == 4096
    assert models.dimensions({"global_parameter_scale": 4})["num_decoder_layers"] == 16
    assert models.dimensions({"global_parameter_scale": 8})["num_decoder_layers"] == 32
    with pytest.raises(ValueError, match="power of two"):
        models.dimensions({"global_parameter_scale": 3})
    assert models.parameters({"global_parameter_scale": 3}) is None


@pytest.mark.parametrize(
    "train",
    [
        {"model_name": "no-such-model"},
        {"decoder_block": "mixtral"},
        {"mtp_num_layers": 1},
        {"logits_via_embedding": True},
        {"model_name": "deepseek3-671b", "base_num_decoder_layers": 4, "override_model_config": True},
    ],
)
def test_sizes_that_the_table_lacks_are_not_guessed(train: dict[str, object]) -> None:
    assert models.parameters(train) is None
    assert models.checkpoint_bytes(train) is None


def test_keys_that_shape_nothing_change_nothing() -> None:
    train = {"model_name": "llama3.1-8b", "rope_max_timescale": 10_000, "steps": 3, "dtype": "float32"}
    assert models.parameters(train) == COUNTS["llama3.1-8b"]


def test_a_key_of_the_models_own_file_is_contested() -> None:
    train = {"model_name": "llama3.1-8b", "head_dim": 64, "base_emb_dim": 4096, "steps": 3}
    assert models.contested(train) == {"head_dim": 128}
    assert models.contested({**train, "override_model_config": True}) == {}


@pytest.mark.parametrize(
    ("keys", "bytes_each"),
    [
        ({}, 12),
        ({"mu_dtype": "bfloat16"}, 10),
        ({"weight_dtype": "bfloat16"}, 6),
        ({"weight_dtype": "bfloat16", "mu_dtype": "float32"}, 8),
        ({"opt_type": "adam_pax", "mu_dtype": "bfloat16"}, 12),
        ({"opt_type": "sgd"}, 4),
    ],
)
def test_a_checkpoint_holds_weights_and_moments(keys: dict[str, str], bytes_each: int) -> None:
    assert models.checkpoint_bytes({"model_name": "llama3.1-8b", **keys}) == bytes_each * COUNTS["llama3.1-8b"]


def test_muons_state_is_not_guessed() -> None:
    assert models.checkpoint_bytes({"model_name": "llama3.1-8b", "opt_type": "muon"}) is None


def test_contexts() -> None:
    assert models.context({"model_name": "llama3-8b"}) == 8192
    assert models.context({"model_name": "llama3.1-8b"}) == 131_072
    assert models.context({"model_name": "gpt-oss-20b"}) == 131_072  # from MaxText's file
    assert models.context({"model_name": "qwen2.5-7b"}) is None
    assert models.context({}) is None
