"""The measured numbers of the forecast, and what each was fitted to; all else is the compiler's word or arithmetic."""

ATTENTION_EFFICIENCY = 0.7
"""How much of the matrix unit splash attention keeps busy, beside what a small head leaves empty."""

FASTER_BY_TYPE = {"s8": 2.0, "f8e4m3fn": 2.0, "f8e5m2": 2.0}
"""What the matrix unit does with 8-bit numbers, against bf16."""

HBM_EFFICIENCY = 0.5
"""How much of HBM's speed a copy or a reduction of its own reaches at least."""

MATMUL_EFFICIENCY = 0.8
"""How much of the matrix unit the compiler's own multiplications keep busy, where it has not said so itself."""
