"""The measured numbers of the forecast, and what each was fitted to; all else is the compiler's word or arithmetic."""

ATTENTION_EFFICIENCY = 0.7
"""How much of the matrix unit splash attention keeps busy, beside what a small head leaves empty."""
