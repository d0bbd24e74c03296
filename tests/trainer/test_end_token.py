"""The end token of a document counts in the loss, even if it is the padding of the tokenizer, too."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grain.python as grain
import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from trainer import deferred_imports
from trainer.training import end_token

LENGTH, END = 12, 1
TEXTS = ["a b c", "d", "e f g h a b c d e f g h a b", "c d"]


def batches(folder: Path, *, packing: bool, padding: str, texts: list[str], fixed: bool) -> list[dict[str, Any]]:
    """Return MaxText's batches of the texts, with a tokenizer whose end token has the id END."""
    deferred_imports.defer_unused_imports()
    from maxtext.input_pipeline import grain_data_processing

    words = Tokenizer(models.WordLevel(unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.train_from_iterator(
        ["a b c d e f g h"],
        trainers.WordLevelTrainer(special_tokens=["<unk>", "</s>", "<pad>"]),  # type: ignore[no-untyped-call]
    )
    PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token="</s>", pad_token=padding, unk_token="<unk>"
    ).save_pretrained(folder)
    config = SimpleNamespace(
        tokenizer_type="huggingface",
        tokenizer_path=str(folder),
        add_bos=False,
        add_eos=True,
        hf_access_token="",
        grain_file_type="parquet",
        use_truncation=False,
        max_target_length=LENGTH,
        elastic_enabled=False,
        global_batch_size_to_load=2,
        expansion_factor_real_data=-1,
        packing=packing,
        max_segments_per_seq=-1,
        grain_packing_type="first_fit",
        grain_use_elastic_iterator=False,
    )
    dataset = grain.MapDataset.source([{"text": text} for text in texts]).to_iter_dataset()
    if not fixed:
        return list(grain_data_processing.pretrain_preprocessing_pipeline(dataset, config, ["text"], True, 0, 1))
    with end_token.counted(config):
        return list(grain_data_processing.pretrain_preprocessing_pipeline(dataset, config, ["text"], True, 0, 1))


def counted(found: list[dict[str, Any]]) -> tuple[int, int]:
    """Return the number of targets that count, and of end tokens among them."""
    counts = [batch["targets_segmentation"] != 0 for batch in found]
    ends = [(batch["targets"] == END) & count for batch, count in zip(found, counts, strict=True)]
    return sum(int(count.sum()) for count in counts), sum(int(each.sum()) for each in ends)


@pytest.mark.parametrize("packing", [True, False])
def test_the_end_counts_if_it_is_the_padding(tmp_path: Path, packing: bool) -> None:
    found = batches(tmp_path / "same", packing=packing, padding="</s>", texts=TEXTS, fixed=True)
    rows = sum(int((batch["inputs"] > 2).any(axis=1).sum()) for batch in found)
    total = 4 + 2 + 15 + 3 - rows  # all tokens but the first of a row
    assert counted(found) == (total, len(TEXTS))
    for batch in found:  # padding does not count
        assert not (batch["targets_segmentation"][batch["inputs_segmentation"] == 0]).any()
    # As with a tokenizer that has a padding of its own, which is left alone.
    other = batches(tmp_path / "own", packing=packing, padding="<pad>", texts=TEXTS, fixed=True)
    plain = batches(tmp_path / "own", packing=packing, padding="<pad>", texts=TEXTS, fixed=False)
    assert counted(other) == (total, len(TEXTS))
    for have, want in zip(other, plain, strict=True):
        for key, array in want.items():
            np.testing.assert_array_equal(have[key], array)
    # MaxText alone does not count it.
    assert counted(batches(tmp_path / "same", packing=packing, padding="</s>", texts=TEXTS, fixed=False))[1] == 0
