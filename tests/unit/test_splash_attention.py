"""The blocks of the attention kernel: it accepts the sizes that the launcher suggests instead of rejected ones.

tests/unit/test_model_table.py checks against the kernel which sizes it rejects; test_model_rules.py has the messages.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from launcher.config.maxtext import models, splash_attention

SIZES = (0, 4, 96, 128, 300, 512, 768, 1024, 5000)


@pytest.mark.parametrize("length", [128, 640, 1024, 5120, 8192])
@pytest.mark.parametrize("shards", [1, 4])
def test_the_nearest_blocks_work(length: int, shards: int) -> None:
    if length % (shards * splash_attention.LANES):
        length *= shards
    for query, key, part in itertools.product(SIZES, SIZES, SIZES):
        sizes = {"sa_block_q": query, "sa_block_kv": key, "sa_block_kv_compute": part, "sa_block_q_dq": part}
        keys = {**models.settings({}), **sizes, "sa_block_kv_dkv": key, "sa_block_kv_dkv_compute": query}
        for _ in range(3):  # the correction of one block may require another
            for fault in splash_attention.faults(keys, length, shards):
                keys.update(dict.fromkeys(fault.keys, fault.nearest))
        assert splash_attention.works(keys, length, shards), (sizes, keys)


@pytest.mark.parametrize(
    ("train", "length", "shards", "nearest"),
    [
        ({}, 1000, 1, 1024),
        ({}, 700, 1, 512),
        ({}, 300, 1, 256),
        ({}, 2000, 4, 2048),
        ({"sa_block_q": 768}, 1000, 1, 512),  # 1536 is a multiple of 768 and of 512
        ({"sa_block_q": 4}, 1000, 1, None),
    ],
)
def test_the_nearest_sequence_works(train: dict[str, Any], length: int, shards: int, nearest: int | None) -> None:
    assert splash_attention.nearest_length(models.settings(train), length, shards) == nearest
