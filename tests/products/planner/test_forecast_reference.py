"""The notes of a forecast about the reference of DPO."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launcher.products.planner.forecast import memory_fit, reference
from launcher.products.planner.forecast.changes import changes
from launcher.products.planner.forecast.program import read
from tests.products.planner.forecasts import plan as planned
from tests.products.planner.forecasts import program

# The parameters of Llama 3 8B have 29.9 GiB in float32, and 16 devices have a part each.
PAIRS = (
    "slice: {topology: 4x4}\nfrom: base\ndata: {corpus: '', files: [/data/a.jsonl]}\ntrain: {model_name: llama3-8b}\n"
)


@pytest.mark.parametrize(
    ("sets", "total", "sentence"),
    [
        (["tuning.method=dpo"], 16, "takes 1.9 GiB of the memory; tuning.reference: precomputed frees it."),
        (
            ["tuning.method=dpo", "tuning.reference=precomputed"],
            16,
            "in memory it would take 1.9 GiB more, which fits.",
        ),
        (["tuning.method=dpo", "tuning.reference=precomputed"], 30, "would take 1.9 GiB more, which does not fit."),
        (["tuning.method=dpo", "tuning.adapter=lora"], 16, "is the model without its adapters; no second copy"),
        (["tuning.method=orpo"], 16, ""),
    ],
)
def test_the_reference_that_fits(sets: list[str], total: int, sentence: str) -> None:
    plan, compiled = planned(PAIRS, *sets), read(program(total=total))
    verdict = memory_fit.judge(compiled, plan)
    notes = reference.notes(plan, compiled, verdict)
    assert len(notes) == bool(sentence)
    assert sentence in "".join(notes)


@pytest.mark.parametrize(("sets", "first"), [(["tuning.adapter=none"], True), (["tuning.adapter=lora"], False)])
def test_precomputing_saves_memory_without_adapters_only(sets: list[str], first: bool) -> None:
    plan, compiled = planned(PAIRS, "tuning.method=dpo", *sets), read(program(total=40, fits=False))
    change = next(changes(plan, compiled, replace(memory_fit.judge(compiled, plan), fits=False)))
    assert (change.sets == {"tuning.reference": "precomputed"}) is first
