"""The measured numbers of the forecast, and what each was fitted to; all else is the compiler's word or arithmetic.

They were chosen by the steps of docs/reference/forecast-proof.md. Between their neighbours the errors hardly change.
"""

MATMUL_EFFICIENCY = {128: 0.9, 256: 0.8}
"""How much of the matrix unit, or of HBM where that is the limit, a multiplication of the compiler's keeps busy, where
the compiler has not reckoned its cycles; by the side of the unit, of which the larger is harder to fill."""

KERNEL_EFFICIENCY = 0.7
"""How much of the matrix unit attention and grouped multiplications keep busy, beside what small heads leave empty."""

HBM_EFFICIENCY = 0.5
"""How much of HBM's speed elementwise operations, copies and reductions reach."""

FASTER_BY_TYPE: dict[str, dict[str, float]] = {
    **{chip: {"s8": 2.0} for chip in ("v5e", "v5p", "v6e")},
    "tpu7x": {"f8e4m3fn": 2.0, "f8e5m2": 2.0},
}
"""What a chip's matrix unit does with 8-bit numbers, against bf16, by the chips' data sheets; as fast as bf16 where
they do not say."""

HOP = 1e-6
"""Seconds for one link of a collective's way, as jax-ml.github.io/scaling-book has it for TPUs; of next to no weight
in the steps of the table."""
