"""How long a hand-written kernel takes, of which the compiler knows nothing: by what it has to multiply.

Splash attention is what MaxText trains with on a TPU. Its work is known from its operands; how much of the matrix
unit it keeps busy is measured, one number for all (constants.ATTENTION_EFFICIENCY).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from launcher.forecast.chips import Chip
from launcher.forecast.constants import ATTENTION_EFFICIENCY


def kernel_seconds(step: Mapping[str, Any], chip: Chip) -> float | None:
    """The seconds of a kernel, None where it is none that is known here."""
    if "splash" not in step["name"] and "flash" not in step["name"]:
        return None
    work = attention_flops(step)
    if work is None:
        return None
    flops, head = work
    filled = min(1.0, head / chip.matrix_unit)
    return flops / (chip.peak * ATTENTION_EFFICIENCY * filled)


def attention_flops(step: Mapping[str, Any]) -> tuple[float, int] | None:
    """FLOPs of an attention kernel (blocks that the mask leaves out are not done), and the size of a head."""
    # Queries, keys and values: [batch, heads, length, head].
    operands = [dims for dims in step["operands"] if len(dims) == 4]
    if len(operands) < 2:
        return None
    (batch, heads, length, head), keys = operands[0], operands[1]
    name, options = str(step["name"]), step["options"]
    # Products of the size of queries x keys: scores and output; going back, scores again, the gradient of the
    # probabilities, those of keys and values, and that of the queries, by a kernel of its own or by the same.
    going_back = {"dkv": 5 if options.get("use_fused_bwd_kernel") else 4, "dq": 3}
    products = next((count for part, count in going_back.items() if part in name), 2)
    return products * 2.0 * batch * heads * length * keys[-2] * head * _done(options, name, length, keys[-2]), head


def _done(options: Mapping[str, Any], name: str, queries: int, keys: int) -> float:
    """The part of all blocks that a causal mask leaves; blocks on the diagonal are done whole."""
    suffix = next((part for part in ("_dkv", "_dq") if part in name), "")
    high = int(options.get(f"block_q{suffix}") or options.get("block_q") or 512)
    wide = int(options.get(f"block_kv{suffix}") or options.get("block_kv") or 512)
    rows, columns = math.ceil(queries / high), math.ceil(keys / wide)
    kept = sum(min(columns, math.ceil((row + 1) * high / wide)) for row in range(rows))
    return kept / (rows * columns)
