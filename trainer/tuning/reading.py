"""The reader of the examples of a run."""

from __future__ import annotations

import hashlib
import json

from trainer.config import RunConfig
from trainer.maxtext_keys import sequence_length, tokenizer_keys
from trainer.starting_weights import base_of
from trainer.tuning import pipeline, precomputed
from trainer.tuning.template import ChatTemplate


def reader(config: RunConfig) -> pipeline.Reader:
    """Return the reader of the examples of fine-tuning. Raises ConfigError if there is no chat template."""
    return pipeline.Reader(chat_template(config), config.tuning, sequence_length(config), reference_table(config))


def reference_table(config: RunConfig) -> precomputed.Table | None:
    """Return the file with the log probabilities of the reference, which belong to the weights of the first start."""
    if not config.tuning.is_precomputed:
        return None
    base = json.dumps(base_of(config, config.folder), sort_keys=True)
    return precomputed.Table(config.folder / f"reference-{hashlib.sha256(base.encode()).hexdigest()[:12]}.bin")


def chat_template(config: RunConfig) -> ChatTemplate:
    """Return the chat template that tuning names, or that of the tokenizer. Raises ConfigError if there is none."""
    keys = tokenizer_keys(config.data.get("tokenizer") or {})
    return pipeline.chat_template(config.tuning, keys["tokenizer_path"], keys["tokenizer_type"])
