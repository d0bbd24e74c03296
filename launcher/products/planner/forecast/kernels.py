"""The time of hand-written kernels, which the compiler cannot estimate, from the size of their multiplications.

MaxText trains with splash attention on TPUs. Its work follows from its operands. The share of the matrix unit that it
uses is measured, one number for all (constants.KERNEL_EFFICIENCY).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from launcher.products.planner.forecast.chip import Chip
from launcher.products.planner.forecast.constants import KERNEL_EFFICIENCY


def kernel_seconds(step: Mapping[str, Any], chip: Chip) -> float | None:
    """Return the seconds of a kernel, or None if the kernel is not known here."""
    if not is_attention(step):
        return _grouped_seconds(step, chip)
    work = attention_flops(step)
    if work is None:
        return None
    flops, head = work
    return flops / (chip.peak * KERNEL_EFFICIENCY * min(1.0, head / chip.matrix_unit))


def is_attention(step: Mapping[str, Any]) -> bool:
    return "splash" in step["name"] or "flash" in step["name"]


def grouped_tiles(step: Mapping[str, Any]) -> tuple[int, Sequence[int]] | None:
    """Return the number of tiles of a grouped matrix multiplication, and a tile's [rows, deep, wide].

    Grouped multiplications are megablox's gmm and tgmm: the rows of each expert by its weights. The step itself gives
    the tiling. A tile is always computed whole, also at an edge. A tile with the rows of two experts is computed once
    for each. With many experts and few rows, this is several times the necessary work.
    """
    tiling, matrices = step["options"].get("tiling"), [dims for _, dims in _matrices(step["operands"])]
    experts = next((dims for _, dims in [*step["results"], *step["operands"]] if len(dims) == 3), None)
    if not isinstance(tiling, Mapping) or len(matrices) < 2 or experts is None:
        return None
    tile = [tiling[f"tile_{side}"] for side in ("m", "k", "n")]
    rows = math.ceil(matrices[0][0] / tile[0]) + experts[0] - 1
    deep, wide = experts[1:] if not step["options"].get("transpose_rhs") else reversed(experts[1:])
    return rows * math.ceil(deep / tile[1]) * math.ceil(wide / tile[2]), tile


def _grouped_seconds(step: Mapping[str, Any], chip: Chip) -> float | None:
    work = grouped_tiles(step)
    if work is None:
        return None
    tiles, (rows, deep, wide) = work
    kind = _matrices(step["operands"])[0][0]
    multiplied = 2.0 * rows * deep * wide / (chip.peak * chip.faster.get(kind, 1.0) * KERNEL_EFFICIENCY)
    # Both operands of a tile are read for it.
    gradients = any(len(dims) == 3 for _, dims in step["results"])
    read = rows * (deep + wide) if gradients else deep * (rows + wide)
    return tiles * max(multiplied, read * _BYTES.get(kind, 1) / chip.hbm)


def attention_flops(step: Mapping[str, Any]) -> tuple[float, int] | None:
    """Return the FLOPs of an attention kernel and the size of a head. Masked blocks are not computed."""
    # Queries, keys and values: [batch (left out if it is 1), heads, length, head].
    operands = [dims for kind, dims in _matrices(step["operands"]) if len(dims) >= 3 and "f" in kind]
    if len(operands) < 2:
        return None
    name, options = str(step["name"]), step["options"]
    queries, keys = _heads_last(operands[0], options.get("q_layout")), _heads_last(operands[1], options.get("k_layout"))
    length, head = queries[-2:]
    # Products of the size of queries x keys: scores and output. In the backward pass: scores again, the gradients of
    # the probabilities, of keys and values, and of the queries, in a kernel of its own or in the same one.
    whole = [dims for _, dims in step["results"] if len(dims) >= len(queries)]
    going_back = {"dkv": 5 if len(whole) > 2 else 4, "dq": 3}
    products = next((count for part, count in going_back.items() if part in name), 2)
    # The mask's blocks: a map of them, or a list of those that are computed.
    grid: Sequence[int] = next((dims for kind, dims in step["operands"] if kind == "s8"), [])
    done = _done(options, name, length, keys[-2], grid)
    return products * 2.0 * math.prod(queries[:-2]) * length * keys[-2] * head * done, head


_BYTES = {"f32": 4, "bf16": 2, "f16": 2}

_SEQUENCE_LAST = 2
"""The layout of a kernel in which an operand is [..., head, length]."""


def _heads_last(dims: Sequence[int], layout: Any) -> list[int]:
    """Return the dimensions as […, length, head]."""
    return [*dims[:-2], dims[-1], dims[-2]] if layout == _SEQUENCE_LAST else list(dims)


def _matrices(arrays: Sequence[Any]) -> list[tuple[str, list[int]]]:
    """Return the arrays that can be multiplied. Segments and group sizes have 32-bit numbers, masks 8-bit numbers."""
    return [(kind, dims) for kind, dims in arrays if len(dims) >= 2 and kind not in ("s32", "u32", "pred")]


def _done(options: Mapping[str, Any], name: str, queries: int, keys: int, grid: Sequence[int]) -> float:
    """Return the share of all blocks that the mask leaves. Blocks on its edge are computed whole.

    The kernel gets the mask's blocks in `grid`: a list of those that are computed, or a map [heads, rows, columns]. The
    map is narrower if a sliding window leaves the same few blocks in every row. Otherwise the mask is causal. If the
    queries are a part of the sequence, a device has as much of its beginning as of its end, which is half of all
    blocks.
    """
    suffix = next((part for part in ("_dkv", "_dq") if part in name), "")
    high = int(options.get(f"block_q{suffix}") or options.get("block_q") or 512)
    wide = int(options.get(f"block_kv{suffix}") or options.get("block_kv") or 512)
    rows, columns = math.ceil(queries / high), math.ceil(keys / wide)
    if len(grid) == 1:
        return min(1.0, grid[0] / (rows * columns))
    kept = sum(min(columns, math.ceil((row + 1) * high / wide)) for row in range(rows))
    if queries != keys:
        kept = math.ceil(rows * columns / 2)
    return min([kept, *([math.prod(grid[-2:])] if grid else [])]) / (rows * columns)
