"""How long a hand-written kernel takes, of which the compiler knows nothing: by what it has to multiply.

Splash attention is what MaxText trains with on a TPU. Its work is known from its operands; how much of the matrix
unit it keeps busy is measured, one number for all (constants.KERNEL_EFFICIENCY).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from launcher.forecast.chips import Chip
from launcher.forecast.constants import FASTER_BY_TYPE, KERNEL_EFFICIENCY


def kernel_seconds(step: Mapping[str, Any], chip: Chip) -> float | None:
    """The seconds of a kernel, None where it is none that is known here."""
    work = attention_flops(step) if is_attention(step) else grouped_flops(step)
    if work is None:
        return None
    flops, head = work
    faster = 1.0 if is_attention(step) else FASTER_BY_TYPE.get(_matrices(step["operands"])[0][0], 1.0)
    filled = min(1.0, head / chip.matrix_unit)
    return flops / (chip.peak * faster * KERNEL_EFFICIENCY * filled)


def is_attention(step: Mapping[str, Any]) -> bool:
    return "splash" in step["name"] or "flash" in step["name"]


def grouped_flops(step: Mapping[str, Any]) -> tuple[float, int] | None:
    """FLOPs of a grouped matrix multiplication (megablox's gmm and tgmm: rows of each expert by its weights), and the
    smallest side of what is multiplied. They say of themselves how they are tiled."""
    matrices, results = _matrices(step["operands"]), _matrices(step["results"])
    if "tiling" not in step["options"] or len(matrices) < 2 or not results:
        return None
    rows, wide = matrices[0][1], results[0][1][-1]
    return 2.0 * math.prod(rows) * wide, min(rows[-1], wide)


def attention_flops(step: Mapping[str, Any]) -> tuple[float, int] | None:
    """FLOPs of an attention kernel (blocks that the mask leaves out are not done), and the size of a head."""
    # Queries, keys and values: [batch (left out where it is 1), heads, length, head].
    operands = [dims for kind, dims in _matrices(step["operands"]) if len(dims) >= 3 and "f" in kind]
    if len(operands) < 2:
        return None
    name, options = str(step["name"]), step["options"]
    queries, keys = _heads_last(operands[0], options.get("q_layout")), _heads_last(operands[1], options.get("k_layout"))
    length, head = queries[-2:]
    # Products of the size of queries x keys: scores and output; going back, scores again, the gradient of the
    # probabilities, those of keys and values, and that of the queries, by a kernel of its own or by the same.
    whole = [dims for _, dims in step["results"] if len(dims) >= len(queries)]
    going_back = {"dkv": 5 if len(whole) > 2 else 4, "dq": 3}
    products = next((count for part, count in going_back.items() if part in name), 2)
    # The mask's blocks: as a map of them, or as a list of those that are done.
    grid: Sequence[int] = next((dims for kind, dims in step["operands"] if kind == "s8"), [])
    done = _done(options, name, length, keys[-2], grid)
    return products * 2.0 * math.prod(queries[:-2]) * length * keys[-2] * head * done, head


_SEQUENCE_LAST = 2
"""Of a kernel's layouts the one in which an operand is [..., head, length]."""


def _heads_last(dims: Sequence[int], layout: Any) -> list[int]:
    """[…, length, head]."""
    return [*dims[:-2], dims[-1], dims[-2]] if layout == _SEQUENCE_LAST else list(dims)


def _matrices(arrays: Sequence[Any]) -> list[tuple[str, list[int]]]:
    """Those that can be multiplied; segments and the sizes of groups are numbers of 32 bits, a mask's are of 8."""
    return [(kind, dims) for kind, dims in arrays if len(dims) >= 2 and kind not in ("s32", "u32", "pred")]


def _done(options: Mapping[str, Any], name: str, queries: int, keys: int, grid: Sequence[int]) -> float:
    """The part of all blocks that the mask leaves; blocks on its edge are done whole.

    The kernel is given the mask's blocks in `grid`: a list of those that are done, or a map [heads, rows, columns] that
    is narrower where a sliding window leaves the same few in every row. Else the mask is causal; where queries are a
    part of the sequence, a device has as much of its beginning as of its end, which is half of all blocks.
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
