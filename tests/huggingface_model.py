"""A tiny Llama with random weights, and a tokenizer, as a Hugging Face folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten
from mlx_lm.models import llama
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

# The alphabet of a byte-level tokenizer has all 256 bytes, so a character outside of ASCII takes several tokens.
_TEXT = ("def main(arguments): return arguments", "import os, sys", "for line in lines: print(line)", "snow is white")
CONTEXT = 64


def write(folder: Path, *, seed: int = 0, **config: Any) -> Path:
    """Write the model, and return its folder. `config` overrides keys of config.json."""
    folder.mkdir(parents=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        _TEXT,
        trainers.BpeTrainer(  # type: ignore[no-untyped-call]
            vocab_size=300,
            special_tokens=["<s>", "</s>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>").save_pretrained(folder)
    tree = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": tokenizer.get_vocab_size(),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": CONTEXT,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": 0,
        "eos_token_id": 1,
        **config,
    }
    (folder / "config.json").write_text(json.dumps(tree))
    mx.random.seed(seed)
    network = llama.Model(llama.ModelArgs.from_dict(tree))
    # The initial weights are so small that all tokens are about equally likely.
    weights = {name: 4 * array for name, array in tree_flatten(network.parameters())}
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "pt"})
    return folder
