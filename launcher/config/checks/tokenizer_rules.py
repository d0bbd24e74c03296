"""The tokenizers in MaxText's package and, for runs in a cluster, on this machine against the model.

The trainer checks every tokenizer before the first step, and `launcher check` of a local run asks the trainer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from launcher.config.checks.problems import WARNING, CheckContext, Problem
from launcher.config.checks.train_context import path_of, train_of
from launcher.config.kinds import RunKind
from launcher.config.maxtext import models

PACKAGED = {
    "qwen3-tokenizer": ("huggingface", 151_669),
    "tokenizer.default": ("sentencepiece", 32_768),
    "tokenizer.gemma": ("sentencepiece", 256_000),
    "tokenizer.gemma3": ("sentencepiece", 262_144),
    "tokenizer.llama2": ("sentencepiece", 32_000),
    "tokenizer.mistral-v1": ("sentencepiece", 32_000),
    "tokenizer.mistral-v3": ("sentencepiece", 32_768),
    "tokenizer_gemma4.model": ("sentencepiece", 262_144),
    "tokenizer_llama3.tiktoken": ("tiktoken", 128_256),
}
"""The kind and the number of pieces of the tokenizers in MaxText's package, by name. A test compares them."""


def tokenizer(case: CheckContext) -> Iterator[Problem]:
    train = train_of(case)
    if train is None or train.get("dataset_type") == "synthetic":
        return
    given = case.tree["data"]["tokenizer"]
    if train.get("dataset_type") == "hf" and given["kind"] != "huggingface":
        message = f"data.tokenizer.kind is {given['kind']}; for train.dataset_type: hf, MaxText requires huggingface."
        yield from case.across("tokenizer", ("data", "tokenizer", "kind"), message, "train.dataset_type")
        return
    name = given["path"] or "tokenizer.llama2"
    if name not in PACKAGED and case.kind is RunKind.LOCAL:
        return
    kind, pieces = PACKAGED.get(name) or (given["kind"], _pieces(given["kind"], name))
    if pieces is None:
        message = (
            f"data.tokenizer.path: {name} cannot be loaded on this machine, so its ids are not compared with "
            "train.vocab_size; the trainer does that before the first step."
        )
        yield case.problem("tokenizer", ("data", "tokenizer", "path"), message, WARNING)
        return
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


def _pieces(kind: str, path: str) -> int | None:
    """Return the largest id of a tokenizer on this machine, plus 1; None if it is not here or cannot be read here.

    trainer/vocabulary.py has the same for every tokenizer that its libraries load, with errors.
    """
    try:
        if kind == "sentencepiece":
            import sentencepiece

            return int(sentencepiece.SentencePieceProcessor(model_file=path).vocab_size())
        if kind == "tiktoken":  # MaxText adds 256 special tokens
            return max(int(line.split()[1]) for line in Path(path).read_bytes().splitlines() if line) + 257
        tree = json.loads(_tokenizer_json(path).read_bytes())
        vocabulary = tree["model"]["vocab"]
        ids = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
        return int(max([*ids, *(token["id"] for token in tree["added_tokens"])])) + 1
    except (ImportError, OSError, RuntimeError, LookupError, TypeError, ValueError):
        return None


def _tokenizer_json(path: str) -> Path:
    """Return the file of a folder, or else of a name on Hugging Face in the library's cache."""
    if (file := Path(path, "tokenizer.json")).is_file():
        return file
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    cache = Path(os.environ.get("HF_HUB_CACHE") or f"{home}/hub").expanduser() / f"models--{path.replace('/', '--')}"
    commit = (cache / "refs" / "main").read_text(encoding="ascii")
    return cache / "snapshots" / commit / "tokenizer.json"
