"""The measured constants of the forecast, and what each was fitted to. The rest is compiler output or arithmetic.

The steps of docs/reference/forecast-proof.md chose them. Neighbouring values hardly change the errors.
"""

MATMUL_EFFICIENCY = {128: 0.9, 256: 0.8}
"""The share of the matrix unit (or of HBM, if that is the limit) that a compiler's multiplication uses, if the
compiler has not estimated its cycles. The key is the side of the unit. A larger unit is harder to fill."""

KERNEL_EFFICIENCY = 0.7
"""The share of the matrix unit that attention and grouped multiplications use. Small heads reduce it further."""

HBM_EFFICIENCY = 0.5
"""The share of HBM's speed that elementwise operations, copies and reductions reach."""

FASTER_BY_TYPE: dict[str, dict[str, float]] = {
    **{chip: {"s8": 2.0} for chip in ("v5e", "v5p", "v6e")},
    "tpu7x": {"f8e4m3fn": 2.0, "f8e5m2": 2.0},
}
"""A matrix unit's speedup over bf16 for 8-bit numbers, by the chips' data sheets. Types that a data sheet does not
list are as fast as bf16."""

HOP = 1e-6
"""Seconds for one hop of a collective, as given for TPUs by jax-ml.github.io/scaling-book. It has almost no effect on
the steps of the table."""
