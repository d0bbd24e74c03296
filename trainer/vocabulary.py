"""Compares a run's tokenizer with its model before the first step.

An id at or above the model's vocabulary has no row: JAX clamps it in the lookup, and the loss of a target without a row
is 0. Such a run trains wrongly, and its loss looks better than it is.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer.errors import ConfigError

_TIKTOKEN_SPECIAL = 256
"""The special tokens that MaxText's TikTokenTokenizer adds after the tokens of the file."""
_HUB_NAME = re.compile(r"[A-Za-z0-9][-\w.]*(/[-\w.]+)?")


def check(kind: str, tokenizer: str, rows: int, train: Mapping[str, Any]) -> None:
    """Raise ConfigError if the tokenizer cannot be loaded, or if the run uses an id without one of the model's `rows`.

    `train` has MaxText's keys that the user set.
    """
    ids = _SIZES[kind](tokenizer)
    if kind == "sentencepiece":
        _check_ends(tokenizer, train)
    if ids > rows:
        raise ConfigError(
            f"data.tokenizer.path: {tokenizer} has {ids:,} pieces, but the model has room for {rows:,}; "
            f"set train.vocab_size: {ids}, or set the path of the model's own tokenizer."
        )


def _sentencepiece(path: str) -> int:
    import sentencepiece

    try:
        return int(sentencepiece.SentencePieceProcessor(model_file=path).vocab_size())
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"data.tokenizer.path: {path} is not a sentencepiece model; set the path of one, or set "
            "data.tokenizer.kind."
        ) from error


def _check_ends(path: str, train: Mapping[str, Any]) -> None:
    """Raise ConfigError if MaxText would add a beginning or an end that the tokenizer lacks, whose id is then -1."""
    import sentencepiece

    tokenizer = sentencepiece.SentencePieceProcessor(model_file=path)
    for key, end, number in (("add_bos", "beginning", tokenizer.bos_id()), ("add_eos", "end", tokenizer.eos_id())):
        if number < 0 and train.get(key, True):
            raise ConfigError(
                f"data.tokenizer.path: {path} has no piece for the {end} of a text, which MaxText adds to each; set "
                f"train.{key}: false."
            )


def _tiktoken(path: str) -> int:
    """Return the largest rank of the file, plus MaxText's special tokens, plus 1."""
    last = -1
    message = (
        f"data.tokenizer.path: {path} is not a tiktoken file, which has a token in base64 and its rank in each line; "
        "set the path of one, or set data.tokenizer.kind."
    )
    try:
        for line in Path(path).read_bytes().splitlines():
            if line:
                token, rank = line.split()
                base64.b64decode(token, validate=True)
                last = max(last, int(rank))
    except (OSError, ValueError, binascii.Error) as error:
        raise ConfigError(message) from error
    if last < 0:
        raise ConfigError(message)
    if "tiktoken" not in path:
        raise ConfigError(
            f'data.tokenizer.path: {path} does not contain "tiktoken", as MaxText requires; rename the file.'
        )
    return last + 1 + _TIKTOKEN_SPECIAL


def _huggingface(path: str) -> int:
    """Return the largest id, with added tokens, plus 1. A name of Hugging Face is downloaded, as the training does."""
    if Path(path).is_file():
        raise ConfigError(
            f"data.tokenizer.path: {path} is a file; with data.tokenizer.kind: huggingface, set the path of its "
            "folder, or a name on Hugging Face (ORG/NAME)."
        )
    if not Path(path).is_dir() and not _HUB_NAME.fullmatch(path):
        raise ConfigError(
            f"data.tokenizer.path: {path} does not exist; set the path of a folder, or a name on Hugging Face "
            "(ORG/NAME)."
        )
    if Path(path, "tokenizer.json").is_file():
        import tokenizers

        try:
            ids = tokenizers.Tokenizer.from_file(f"{path}/tokenizer.json").get_vocab(with_added_tokens=True).values()
        except Exception as error:  # the library raises Exception itself
            raise _cannot_load(path, error) from error
    else:
        import transformers

        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(path, token=os.environ.get("HF_TOKEN") or None)
        except (OSError, ValueError, KeyError, TypeError, ImportError) as error:
            raise _cannot_load(path, error) from error
        ids = tokenizer.get_vocab().values()
    return max(ids, default=-1) + 1


def _cannot_load(path: str, error: Exception) -> ConfigError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".: ")
    reason = reason.removesuffix(" from one of")  # a list follows in other lines
    if Path(path).is_dir():
        return ConfigError(
            f"data.tokenizer.path: the tokenizer in the folder {path} cannot be loaded ({reason}); set a "
            "folder with a valid tokenizer.json, or with the files of a tokenizer of transformers."
        )
    return ConfigError(
        f"data.tokenizer.path: the tokenizer {path} cannot be loaded ({reason}); check the path, or set HF_TOKEN if it "
        "is private."
    )


_SIZES = {"sentencepiece": _sentencepiece, "tiktoken": _tiktoken, "huggingface": _huggingface}
