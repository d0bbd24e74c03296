"""The token that ends a document counts in the loss, even if the tokenizer uses it as padding, too.

MaxText takes each token of this id for padding, so the model would never learn to end. Many tokenizers of Hugging Face
are like that: those of Qwen's base models, and GPT-2's, which has no token for padding.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def counted(config: Any) -> Iterator[None]:
    """Make MaxText's text pipelines of `config` count the end token, if it is the padding: their padding is what has no
    segment."""
    import numpy as np
    from maxtext.input_pipeline import data_processing_utils, input_pipeline_utils

    if config.tokenizer_type != "huggingface":
        yield
        return
    tokenizer, padding = data_processing_utils.get_tokenizer_and_pad_id(config)
    if padding != tokenizer.eos_id:
        yield
        return
    refine = input_pipeline_utils.shift_and_refine
    pad: Any = input_pipeline_utils.PadOrTrimToMaxLength

    def shift(batch: dict[str, Any], ignored_ids: list[int], axis: int = 1) -> dict[str, Any]:
        segments = input_pipeline_utils.shift_left(batch["targets_segmentation"], 0, axis=axis)
        # The last batch of a text is filled with whole sequences of padding, whose segments are not 0.
        exists = (batch["inputs"] != padding).any(axis=axis, keepdims=True)
        return {**refine(batch, ignored_ids, axis), "targets_segmentation": np.where(exists, segments, 0)}

    class Pad(pad):  # type: ignore[misc]
        def map(self, element: dict[str, Any]) -> dict[str, Any]:
            lengths = {column: len(tokens) for column, tokens in element.items()}
            place = np.arange(self.max_length)
            segments = {f"{column}_segmentation": (place < n).astype(np.int32) for column, n in lengths.items()}
            return {**super().map(element), **segments}

    input_pipeline_utils.shift_and_refine, input_pipeline_utils.PadOrTrimToMaxLength = shift, Pad
    try:
        yield
    finally:
        input_pipeline_utils.shift_and_refine, input_pipeline_utils.PadOrTrimToMaxLength = refine, pad
