"""The tokenizers in MaxText's package against the model. The trainer checks all others, before the first step."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.config.checks.problems import CheckContext, Problem
from launcher.config.checks.train_context import path_of, train_of
from launcher.config.maxtext import models

PACKAGED = {
    "tokenizer.default": ("sentencepiece", 32_768),
    "tokenizer.gemma": ("sentencepiece", 256_000),
    "tokenizer.gemma3": ("sentencepiece", 262_144),
    "tokenizer.llama2": ("sentencepiece", 32_000),
    "tokenizer.mistral-v1": ("sentencepiece", 32_000),
    "tokenizer.mistral-v3": ("sentencepiece", 32_768),
    "tokenizer_gemma4.model": ("sentencepiece", 262_144),
    "tokenizer_llama3.tiktoken": ("tiktoken", 128_256),
}
"""The kind and the number of pieces of the files in MaxText's package, by name. A test compares them with the files."""
_DEFAULT = "tokenizer.llama2"


def tokenizer(case: CheckContext) -> Iterator[Problem]:
    train = train_of(case)
    if train is None or train.get("dataset_type") == "synthetic":
        return
    given = case.tree["data"]["tokenizer"]
    if train.get("dataset_type") == "hf" and given["kind"] != "huggingface":
        message = f"data.tokenizer.kind is {given['kind']}; for train.dataset_type: hf, MaxText requires huggingface."
        yield from case.across("tokenizer", ("data", "tokenizer", "kind"), message, "train.dataset_type")
        return
    name = given["path"] or _DEFAULT
    if name not in PACKAGED:
        return
    kind, pieces = PACKAGED[name]
    if given["kind"] != kind:
        contested = models.contested({**train, "tokenizer_type": given["kind"]})  # a rule of its own
        if given["path"] and "tokenizer_type" not in contested:
            yield from case.across(
                "tokenizer",
                ("data", "tokenizer", "kind"),
                f"data.tokenizer.kind: {name} is a {kind} file, not {given['kind']}.",
                "data.tokenizer.path",
            )
        return
    rows = int(models.settings(train)["vocab_size"])
    if pieces > rows:
        message = (
            f"train.vocab_size: the tokenizer {name} has {pieces:,} pieces, but the model has room for {rows:,}, and "
            f"would not train on the others; set train.vocab_size: {pieces}, or another data.tokenizer.path."
        )
        yield from case.across("tokenizer", path_of(case, ["vocab_size", "model_name"]), message, "data.tokenizer.path")
