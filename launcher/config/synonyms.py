"""The names that other trainers use for Slipway's and MaxText's keys, for the suggestion on an unknown key.

They are those of Hugging Face's Trainer and its model configs, PyTorch Lightning, Megatron-LM, nanoGPT, and of
schedulers; and the names that MaxText's keys had in earlier versions (maxtext/earlier.json).
"""

from __future__ import annotations

import json
from pathlib import Path

from launcher.config.suggest import bare

_NAMES = {
    # Training.
    "train.learning_rate": "lr max_lr peak_lr base_lr",
    "train.per_device_batch_size": "batch_size batch bs train_batch_size global_batch_size micro_batch_size "
    "per_device_train_batch_size per_gpu_batch_size",
    "train.gradient_accumulation_steps": "grad_accum gradient_accumulation accumulate_grad_batches grad_acc_steps",
    "train.max_target_length": "seq_len seq_length sequence_length max_seq_len max_seq_length max_length "
    "context_length context_len context_window block_size",
    "train.steps": "max_steps num_steps total_steps train_steps max_iters train_iters iterations epochs num_epochs "
    "num_train_epochs max_epochs",
    "train.warmup_steps_fraction": "warmup warmup_steps warmup_ratio num_warmup_steps warmup_iters lr_warmup",
    "train.learning_rate_final_fraction": "min_lr lr_min eta_min final_lr",
    "train.lr_schedule_type": "lr_scheduler lr_scheduler_type scheduler lr_schedule lr_decay_style",
    "train.opt_type": "optimizer optim optimizer_type",
    "train.adam_weight_decay": "weight_decay wd decay",
    "train.adam_b1": "beta1 beta_1 adam_beta1",
    "train.adam_b2": "beta2 beta_2 adam_beta2",
    "train.adam_b1 train.adam_b2": "betas adam_betas",
    "train.adam_eps": "eps epsilon adam_epsilon",
    "train.gradient_clipping_threshold": "grad_clip clip_grad max_grad_norm gradient_clip gradient_clip_val clip_norm",
    "train.dropout_rate": "dropout hidden_dropout resid_dropout",
    "train.data_shuffle_seed train.init_weights_seed": "seed random_seed manual_seed",
    "train.dtype": "precision bf16 fp16 mixed_precision torch_dtype compute_dtype",
    "train.remat_policy": "remat gradient_checkpointing activation_checkpointing recompute",
    # Checkpoints, evaluations and logs.
    "train.checkpoint_period": "save_steps save_every save_interval save_freq ckpt_every checkpoint_every "
    "checkpoint_interval checkpoint_steps",
    "train.max_num_checkpoints_to_keep": "save_total_limit keep_checkpoints max_to_keep",
    "from": "pretrained init_from load_checkpoint checkpoint_path model_path weights",
    "train.eval_interval": "eval_every eval_freq val_check_interval evaluation_interval",
    "train.log_period": "logging_steps log_every log_interval log_freq",
    # The model.
    "train.base_emb_dim": "hidden_size hidden_dim d_model n_embd embed_dim embedding_size model_dim dim",
    "train.base_num_decoder_layers": "num_layers n_layers n_layer num_hidden_layers layers depth",
    "train.base_num_query_heads": "num_heads n_heads n_head num_attention_heads heads head_num",
    "train.base_num_kv_heads": "n_kv_heads num_key_value_heads kv_heads num_query_groups",
    "train.rope_max_timescale": "rope_theta rope_base rotary_base",
    "train.attention": "attn_implementation attn_impl flash_attention use_flash_attention",
    "train.base_mlp_dim": "intermediate_size ffn_dim d_ff ffn_hidden_size ffn_size",
    "train.normalization_layer_epsilon": "rms_norm_eps layer_norm_eps layer_norm_epsilon",
    "train.model_name": "model arch architecture model_type",
    "train.logits_via_embedding": "tie_embeddings tie_word_embeddings tied_embeddings",
    # Parallelism.
    "train.ici_tensor_parallelism": "tp tensor_parallel tensor_parallel_size tensor_model_parallel_size",
    "train.ici_fsdp_parallelism": "fsdp fsdp_size zero zero_stage",
    "train.ici_data_parallelism": "dp data_parallel data_parallel_size",
    "train.ici_pipeline_parallelism": "pp pipeline_parallel pipeline_parallel_size pipeline_model_parallel_size",
    # The rest of a run.
    "data.files": "dataset datasets train_files train_file data_path data_dir text",
    "data.tokenizer.path": "tokenizer_name tokenizer_model vocab_file",
    "slice.accelerator": "gpu gpus tpu tpus accelerators gpu_type tpu_type device_type instance_type",
    "slice.topology": "chips num_chips num_gpus num_tpus devices num_devices",
    "slice.hosts": "nodes num_nodes nnodes num_workers workers replicas",
    "slice.count": "slices",
    "storage.bucket": "gcs_bucket output_dir out_dir save_dir",
    "tracking.wandb.project": "wandb wandb_project report_to",
    "run.maxRestarts": "retries max_retries backoff_limit max_failures",
    "run.deadlineSeconds": "timeout max_time time_limit walltime",
}

# The keys that MaxText renamed or removed, from the versions of its configs/base.yml since April 2023.
_EARLIER = json.loads((Path(__file__).parent / "maxtext" / "earlier.json").read_text(encoding="utf-8"))

SYNONYMS = {bare(word): tuple(keys.split()) for keys, words in _NAMES.items() for word in words.split()}
SYNONYMS |= {bare(key): tuple(keys.split()) for key, keys in _EARLIER["renamed"].items()}
"""The keys that a word means, dotted. The words are as launcher.config.suggest.bare writes them."""

CHANGED = {bare(key): advice for key, advice in _EARLIER["replaced"].items()}
CHANGED |= {bare(key): "MaxText removed it; remove the key." for key in _EARLIER["removed"]}
"""What to do about a key of earlier versions of MaxText that no key replaces one for one. Spelled as in SYNONYMS."""
