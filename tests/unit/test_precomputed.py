"""The table of DPO's precomputed reference (trainer/tuning/precomputed.py): records, kills, and pairs without one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trainer.errors import ConfigError
from trainer.tuning.precomputed import Table, digest

RECORDS = [(1, -1.5, -2.5), (2**64 - 1, -3.0, -4.0), (7, 0.0, -0.25)]


@pytest.mark.parametrize("cut", [1, 8, 15])
def test_a_kill_cuts_the_last_record_and_it_is_computed_again(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "reference.bin"
    table = Table(path)
    table.add(RECORDS)
    table.write()
    path.write_bytes(path.read_bytes()[:-cut])
    again = Table(path)
    assert again.values == {key: (chosen, rejected) for key, chosen, rejected in RECORDS[:2]}
    again.add(RECORDS)
    again.write()
    assert path.stat().st_size == 3 * 16
    assert Table(path).values == {key: (chosen, rejected) for key, chosen, rejected in RECORDS}


def test_the_numbers_of_a_pair_are_at_the_first_token_of_each_answer(tmp_path: Path) -> None:
    arrays = {
        "inputs": np.array([5, 6, 7, 5, 6, 8], np.int32),
        "counted": np.array([0, 0, 1, 0, 0, 1], np.int32),
        "positions": np.array([0, 1, 2, 0, 1, 2], np.int32),
        "worse": np.array([0, 0, 0, 1, 1, 1], np.int32),
    }
    table = Table(tmp_path / "reference.bin")
    with pytest.raises(ConfigError, match=r"a\.jsonl:3: .* does not have the log probabilities of this pair"):
        table.feature(arrays, "a.jsonl:3")
    table.add([(digest(arrays), -1.5, -2.5)])
    assert table.feature(arrays, "a.jsonl:3").tolist() == [0, 0, -1.5, 0, 0, -2.5]
    other = {**arrays, "counted": np.array([0, 1, 1, 0, 1, 1], np.int32)}
    assert digest(other) != digest(arrays)
