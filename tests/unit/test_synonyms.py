"""Words of other trainers lead to the right key."""

from __future__ import annotations

import re

import pytest

from launcher import api
from launcher.config.checks.rules import maxtext, schema
from launcher.config.checks.schema import leaves
from launcher.config.suggest import bare
from launcher.config.synonyms import CHANGED, SYNONYMS

KEYS = {f"train.{key}" for key in maxtext()["keys"]} | {".".join(path) for path in leaves(schema("run"))}


def test_the_keys_exist_and_the_words_are_not_keys() -> None:
    assert {key for keys in SYNONYMS.values() for key in keys} - KEYS == set()
    assert (SYNONYMS.keys() | CHANGED.keys()) & {bare(key) for key in maxtext()["keys"]} == set()
    assert SYNONYMS.keys() & CHANGED.keys() == set()
    named = {key for advice in CHANGED.values() for key in re.findall(r"train\.\w+", advice)}
    assert named - KEYS == set()


@pytest.mark.parametrize(
    ("typed", "key"),
    [
        ("lr", "train.learning_rate"),
        ("batch_size", "train.per_device_batch_size"),
        ("batch", "train.per_device_batch_size"),
        ("seq_len", "train.max_target_length"),
        ("sequence_length", "train.max_target_length"),
        ("weight_decay", "train.adam_weight_decay"),
        ("grad_clip", "train.gradient_clipping_threshold"),
        ("hidden_size", "train.base_emb_dim"),
        ("num_layers", "train.base_num_decoder_layers"),
        ("n_layers", "train.base_num_decoder_layers"),
        ("num_heads", "train.base_num_query_heads"),
        ("save_steps", "train.checkpoint_period"),
        ("optimizer", "train.opt_type"),
        ("rope_theta", "train.rope_max_timescale"),
        ("min_lr", "train.learning_rate_final_fraction"),
        ("betas", "train.adam_b1 or train.adam_b2"),
        ("seed", "train.data_shuffle_seed or train.init_weights_seed"),
        # Earlier names of MaxText's keys.
        ("save_period", "train.checkpoint_period"),
        ("scale", "train.global_parameter_scale"),
        ("cosine_learning_rate_final_fraction", "train.learning_rate_final_fraction"),
        ("load_from_other_directory", "train.load_full_state_path"),
        ("vocab_relative_path", "data.tokenizer.path"),
        ("tie_embeddings", "train.logits_via_embedding"),
        # These were right before.
        ("max_steps", "train.steps"),
        ("model", "train.model_name"),
        ("vocab", "train.vocab_size"),
        ("stepz", "train.steps"),
    ],
)
def test_under_train_and_at_the_top(typed: str, key: str) -> None:
    for written in (f"train.{typed}", typed):
        messages = [problem.message for problem in api.check(["quickstart"], [f"{written}=1"])]
        assert any(message.endswith(f"; did you mean {key}?") for message in messages), messages


@pytest.mark.parametrize(("typed", "key"), [("gpu", "slice.accelerator"), ("nodes", "slice.hosts")])
def test_words_of_schedulers(typed: str, key: str) -> None:
    (problem,) = api.check(["quickstart"], [f"{typed}=1"])
    assert problem.message == f"unknown key {typed}; did you mean {key}?"


@pytest.mark.parametrize(
    ("typed", "advice"),
    [
        ("base_num_heads", "set train.base_num_query_heads and train.base_num_kv_heads."),
        ("enable_profiler", "set train.profiler: xplane."),
        ("use_int8_training", "set train.quantization: int8."),
        ("int8_training", "set train.quantization: int8."),
        ("collect_stack_trace", "MaxText removed it; remove the key."),
    ],
)
def test_keys_that_maxtext_replaced_or_removed(typed: str, advice: str) -> None:
    for written in (f"train.{typed}", typed):
        messages = [problem.message for problem in api.check(["quickstart"], [f"{written}=1"])]
        assert any(message.endswith(f"{typed}; {advice}") for message in messages), messages


REMOVED_KEYS = """
ar_key_axis_order ar_value_axis_order assets_path base_num_heads bwd_int8 collect_stack_trace
cosine_learning_rate_final_fraction dcn_tensor_transpose_parallelism dpo_beta dpo_label_smoothing
enable_checkpoint_standard_logger enable_nnx enable_profiler enable_single_slice_checkpointing eos_id
eval_data_column expert_shard_attention_option fwd_int8 gcs_metrics_bucket hf_data_files
ici_tensor_transpose_parallelism index_head_dim index_n_heads index_topk int8_training load_from_other_directory
load_from_other_directory_step max_eval_target_length max_predict_length model_fsdp_ag_once moe_matmul mxla_barrier
pagedattn_head_dim_alignment pagedattn_max_page_groups pagedattn_max_pages_per_group pagedattn_num_pages
pagedattn_pages_per_compute_block pagedattn_tokens_per_page per_step_interval prefill_key_axis_order
prefill_value_axis_order quantization_calibration_method rms_norm_epsilon sampling_temperature sampling_top_k
save_period scale stack_trace_interval_seconds stack_trace_to_cloud tile_activation_dim tile_batch_seq
tile_weight_dim train_data_column use_int8_training use_megatron_tflops use_pjrt use_positional_embedding
use_sparse_indexer use_wandb vocab_relative_path wandb_project warmup_steps
"""
"""All keys of configs/base.yml in 12 versions of MaxText, from April 2023 on, that the tested version lacks."""


@pytest.mark.parametrize("key", REMOVED_KEYS.split())
def test_each_key_that_maxtext_no_longer_has_leads_on(key: str) -> None:
    assert key not in maxtext()["keys"]
    (message,) = (problem.message for problem in api.check(["quickstart"], [f"train.{key}=1"]))
    assert message.startswith(f"MaxText has no key {key}")
    expected = SYNONYMS.get(bare(key)) or (CHANGED.get(bare(key)), f"train.{key}s", "set tuning.method: dpo")
    assert any(words and words in message for words in expected), message


def test_lora_rank_is_in_another_section() -> None:
    (problem,) = api.check(["quickstart"], ["train.lora_rank=8"])
    assert "set tuning.method: lora" in problem.message
