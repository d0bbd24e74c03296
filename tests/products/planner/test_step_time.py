"""The duration of a step, for schedules that are small enough to compute by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from launcher.products.planner.forecast.chip import Chip
from launcher.products.planner.forecast.kernels import attention_flops, grouped_tiles, kernel_seconds
from launcher.products.planner.forecast.network import Torus, collective_seconds
from launcher.products.planner.forecast.step_time import DCN, HOST, ICI, compute_seconds, step_time

CHIP = Chip(
    name="v6e",
    clock=1e9,
    peak=1e12,
    hbm=1e12,
    ici=1e9,
    dcn=1e8,
    host=1e9,
    matrix_unit=256,
    faster={"s8": 2.0},
    latency=0.0,
)
LINE, RING = Torus((4, 4, 1), (False, False, False)), Torus((4, 4, 1), (True, True, False))


def compute(cycles: float, what: str = "matmul") -> dict[str, Any]:
    return {
        "do": "compute",
        "what": what,
        "name": "x",
        "cycles": cycles,
        "flops": 0,
        "type": "bf16",
        "bytes": 0,
        "plain": False,
    }


def gather(size: float, *, slices: int = 1, **group: Any) -> dict[str, Any]:
    group = {"size": 4 * slices, "slices": slices, "extent": [4, 1, 1], "stride": [1, 1, 1], **group}
    return {"do": "collective", "what": "all-gather", "name": "g", "bytes": size, "group": group}


def seconds(*work: dict[str, Any]) -> float:
    result = step_time(work, CHIP, LINE)
    assert sum(result.parts.values()) == pytest.approx(result.seconds)
    return result.seconds


def test_sequential_work_adds_up_and_a_loop_multiplies() -> None:
    body = [compute(1e9), gather(4e9)]  # 1 s, and 3/4 of 4 GB over one link of 1 GB/s
    assert seconds(compute(2e9), {"do": "loop", "times": 3, "steps": body}) == pytest.approx(2 + 3 * (1 + 3))
    assert seconds({"do": "loop", "times": 0, "steps": body}) == 0


def test_overlapping_work_counts_once_and_waiting_is_reported() -> None:
    start = {"do": "start", "id": "a", "of": gather(4e9)}
    result = step_time([start, compute(2e9), {"do": "wait", "id": "a"}], CHIP, LINE)
    assert result.seconds == pytest.approx(3)
    assert result.parts == pytest.approx({"matrix multiplications": 2.0, ICI: 1.0})
    assert result.hidden == pytest.approx({ICI: 2.0})
    assert seconds(start, compute(5e9), {"do": "wait", "id": "a"}) == pytest.approx(5)


def test_each_direction_carries_one_transfer_at_a_time() -> None:
    def transfer(name: str, way: str) -> dict[str, Any]:
        return {"do": "start", "id": name, "of": {"do": "transfer", "way": way, "bytes": 1e9}}

    waits = [{"do": "wait", "id": "a"}, {"do": "wait", "id": "b"}]
    assert seconds(transfer("a", "to-host"), transfer("b", "to-host"), *waits) == pytest.approx(2)
    assert seconds(transfer("a", "to-host"), transfer("b", "from-host"), *waits) == pytest.approx(1)
    result = step_time([transfer("a", "to-host"), waits[0]], CHIP, LINE)
    assert result.parts == pytest.approx({HOST: 1.0})


def test_collectives_over_different_links_overlap() -> None:
    def permute(*ways: list[int]) -> dict[str, Any]:
        group = {"hops": [1, 0, 0], "load": 1, "ways": list(ways), "slices": 1}
        return {"do": "collective", "what": "permute", "name": "p", "bytes": 1e9, "group": group}

    def together(*collectives: dict[str, Any]) -> float:
        names = [str(number) for number in range(len(collectives))]
        starts = [{"do": "start", "id": name, "of": each} for name, each in zip(names, collectives, strict=True)]
        return seconds(*starts, *({"do": "wait", "id": name} for name in names))

    up, down, across = permute([0, 1]), permute([0, -1]), permute([1, 1])
    assert together(up, down, across) == pytest.approx(1)
    assert together(up, up) == pytest.approx(2)
    assert together(permute([0, 1], [0, -1]), down) == pytest.approx(2)
    along = gather(4e9)  # 3 s, in both directions of the first dimension
    assert together(along, across) == pytest.approx(3)
    assert together(along, down) == pytest.approx(4)


def test_a_loop_waits_for_transfers_of_the_previous_iteration() -> None:
    """The link is free in the first iteration; in later ones, the transfer of the previous iteration still uses it."""
    body = [
        {"do": "start", "id": "a", "of": {"do": "transfer", "way": "to-host", "bytes": 1e9}},
        {"do": "wait", "id": "a"},
        compute(1e9),
        {"do": "start", "id": "b", "of": {"do": "transfer", "way": "to-host", "bytes": 0.5e9}},
    ]
    assert seconds({"do": "loop", "times": 4, "steps": body}) == pytest.approx(2 + 3 * 2.5)


def test_the_longest_branch_counts() -> None:
    assert seconds({"do": "either", "steps": [[compute(1e9)], [compute(3e9)], []]}) == pytest.approx(3)


def test_without_the_compilers_cycles_the_longer_of_moving_and_multiplying_counts() -> None:
    product = compute(0) | {"cycles": None, "flops": 1e12, "bytes": 1e9}
    wide, narrow = CHIP, replace(CHIP, matrix_unit=128)
    assert compute_seconds(product, wide) == pytest.approx(1 / 0.8)
    assert compute_seconds(product, narrow) == pytest.approx(1 / 0.9)
    assert compute_seconds(product | {"type": "s8"}, wide) == pytest.approx(1 / 2 / 0.8)
    # The chip has no unit for this type.
    assert compute_seconds(product | {"type": "f8e5m2"}, wide) == pytest.approx(1 / 0.8)
    assert compute_seconds(product | {"bytes": 3e12}, wide) == pytest.approx(3 / 0.8)
    assert compute_seconds(product | {"what": "elementwise"}, wide) == pytest.approx(1e-3 / 0.5)


def test_the_compilers_cycles_count_except_for_one_instruction() -> None:
    """For that instruction the compiler's cycles are up to ten times too high."""
    copy = compute(1e9, "copy") | {"bytes": 1e11}
    assert compute_seconds(copy, CHIP) == pytest.approx(1)
    assert compute_seconds(copy | {"plain": True}, CHIP) == pytest.approx(0.1 / 0.5)


@pytest.mark.parametrize(
    ("what", "torus", "extent", "expected"),
    [
        ("all-gather", LINE, [4, 1, 1], 3 / 4),
        ("all-gather", RING, [4, 1, 1], 3 / 4 / 2),
        ("reduce-scatter", LINE, [4, 1, 1], 3 / 4),
        ("all-reduce", LINE, [4, 1, 1], 2 * 3 / 4),
        ("all-gather", LINE, [4, 4, 1], 15 / 16 / 2),
        ("all-gather", RING, [4, 4, 1], 15 / 16 / 4),
        # Half of the data of the two chips in each half of a line crosses one link.
        ("all-to-all", LINE, [4, 1, 1], 1),
        ("all-to-all", RING, [4, 1, 1], 1 / 2),
    ],
)
def test_collectives_within_a_slice(what: str, torus: Torus, extent: list[int], expected: float) -> None:
    count = extent[0] * extent[1]
    group = {"size": count, "slices": 1, "extent": extent, "stride": [1, 1, 1]}
    assert collective_seconds(what, 1_000_000_000, group, CHIP, torus) == pytest.approx(expected)


def test_groups_that_share_links_take_longer() -> None:
    """Each group has every second chip, so the links between them carry two groups."""
    group = {"size": 2, "slices": 1, "extent": [2, 1, 1], "stride": [2, 1, 1]}
    assert collective_seconds("all-gather", 1_000_000_000, group, CHIP, LINE) == pytest.approx(2 * 1 / 2)


def test_between_slices_each_chip_exchanges_its_share() -> None:
    group = {"size": 8, "slices": 2, "extent": [4, 1, 1], "stride": [1, 1, 1]}
    inside = 2 * 3 / 4
    across = 2 * (1 / 4) * (1 / 2) * 10  # over a network a tenth as fast as a link
    assert collective_seconds("all-reduce", 1_000_000_000, group, CHIP, LINE) == pytest.approx(inside + across)
    result = step_time([gather(1e9, slices=2)], CHIP, LINE)
    assert set(result.parts) == {DCN}


def test_an_all_to_all_between_slices_sends_away_what_is_for_the_others() -> None:
    group = {"size": 8, "slices": 2, "extent": [4, 1, 1], "stride": [1, 1, 1]}
    # The exchange in the slice takes as long as without other slices; half of each chip's data crosses a network with a
    # tenth of a link's speed.
    assert collective_seconds("all-to-all", 1_000_000_000, group, CHIP, LINE) == pytest.approx(1 + 0.5 * 10)


def test_a_permute_waits_for_the_busiest_link() -> None:
    group = {"hops": [3, 0, 0], "load": 3, "slices": 1}
    assert collective_seconds("permute", 1_000_000_000, group, CHIP, LINE) == pytest.approx(3)


@pytest.mark.parametrize(
    ("name", "fused", "products"),
    [("splash_mha_fwd", 0, 2), ("splash_mha_dq", 0, 3), ("splash_mha_dkv", 0, 4), ("splash_mha_dkv", 1, 5)],
)
def test_attention_counts_the_blocks_that_the_mask_leaves(name: str, fused: int, products: int) -> None:
    step = {
        "name": name,
        "operands": [
            ["s8", [1, 8, 8]],
            *(["bf16", [3, heads, 1024, 128]] for heads in (4, 2, 2)),
            ["s32", [3, 8, 1024]],
        ],
        "results": [["f32", [3, 256, 128]], *(["bf16", [3, 2, 1024, 128]] for _ in range(2 + fused))],
        "fusion": False,
        "options": {"block_q": 256, "block_kv": 256},
    }
    found = attention_flops(step)
    assert found is not None
    flops, head = found
    # Of 4 x 4 blocks, 1 + 2 + 3 + 4 are on or below the diagonal.
    assert flops == pytest.approx(products * 2 * 3 * 4 * 1024 * 1024 * 128 * 10 / 16)
    assert head == 128


def test_a_batch_of_one_is_left_out_of_attentions_operands() -> None:
    step = {"name": "splash_mha_fwd", "results": [], "fusion": False, "options": {"block_q": 1024, "block_kv": 1024}}
    one = attention_flops({**step, "operands": [["bf16", [4, 1024, 64]], ["bf16", [4, 1024, 64]]]})
    assert one == (2 * 2 * 4 * 1024 * 1024 * 64, 64)


ROWS, WEIGHTS = [4096, 512], [8, 512, 1024]


@pytest.mark.parametrize(
    ("operands", "result", "turned"),
    [
        # Forward: the rows of all experts times each expert's weights. Backward: the same with transposed weights, and
        # the gradients of the weights.
        ([ROWS, WEIGHTS], [4096, 1024], False),
        ([[4096, 1024], WEIGHTS], ROWS, True),
        ([ROWS, [4096, 1024]], WEIGHTS, None),
    ],
)
def test_a_grouped_multiplication(operands: list[Any], result: list[int], turned: bool | None) -> None:
    step = {
        "name": "shard_map",
        "operands": [["s32", []], ["s32", [9]], *(["bf16", dims] for dims in operands)],
        "results": [["bf16", result]],
        "options": {"tiling": {"tile_m": 512, "tile_k": 256, "tile_n": 256}, "transpose_rhs": turned},
        "fusion": False,
    }
    # 8 tiles of rows; 7 of them are computed twice, because another expert starts in them.
    assert grouped_tiles(step) == (15 * 2 * 4, [512, 256, 256])
    fast = replace(CHIP, hbm=1e15)  # so that reading is faster than multiplying
    seconds = kernel_seconds(step, fast)
    assert seconds is not None and seconds == pytest.approx(120 * 2 * 512 * 256 * 256 / (0.7 * 1e12))
    assert kernel_seconds({**step, "operands": [["s8", dims] for dims in operands]}, fast) == pytest.approx(seconds / 2)
    slow = replace(CHIP, hbm=1e9)
    read = 512 * (256 + 256) if turned is None else 256 * (512 + 256)
    assert kernel_seconds(step, slow) == pytest.approx(120 * read * 2 / 1e9)
    assert kernel_seconds({**step, "options": {}}, CHIP) is None


def test_the_edge_tiles_of_a_grouped_multiplication_are_complete() -> None:
    """DeepSeek's experts have 1408 columns, which are two tiles of 1024."""
    step = {
        "name": "gmm",
        "operands": [["bf16", [12288, 2048]], ["bf16", [64, 2048, 1408]]],
        "results": [["bf16", [12288, 1408]]],
        "options": {"tiling": {"tile_m": 512, "tile_k": 1024, "tile_n": 1024}, "transpose_rhs": False},
    }
    assert grouped_tiles(step) == (87 * 2 * 2, [512, 1024, 1024])  # the kernel has 87 entries for its tiles of rows
