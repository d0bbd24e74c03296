"""The changes that a search may make to a run, and those that it never makes."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.config.checks.rules import FORECAST_RULES
from launcher.config.maxtext.mesh import mesh
from launcher.config.maxtext.models import settings
from launcher.products.planner.forecast.changes import Change, changed
from launcher.products.planner.forecast.search_space import AXES, candidates, levers
from tests.products.planner.forecasts import LLAMA, plan

ALLOWED = {
    *("per_device_batch_size", "remat_policy", "decoder_layer_input", "query_proj", "key_proj", "value_proj"),
    *("out_proj", "context", "sa_use_fused_bwd_kernel"),
    *(axis.removeprefix("train.") for axis in AXES),
    *(f"sa_block_{part}" for part in ("q", "kv", "kv_compute", "q_dkv", "kv_dkv", "kv_dkv_compute", "q_dq", "kv_dq")),
}
RECIPE = (
    "slice: {topology: 4x4}\n"
    "train: {model_name: llama3.1-8b, max_target_length: 8192, per_device_batch_size: 3, remat_policy: custom, "
    "decoder_layer_input: offload, mlpwo: device, sa_block_q: 2048, sa_use_fused_bwd_kernel: true}\n"
)


def levers_of(kind: str, text: str = LLAMA, *sets: str) -> list[dict[str, Any]]:
    wanted = plan(text, *sets)
    found = mesh(wanted.config["train"], slices=1, devices=16)
    return [dict(lever.sets) for lever in levers(wanted.config, found) if lever.kind == kind]


def batches(*sets: str) -> list[float]:
    found = [*levers_of("less", LLAMA, *sets), *levers_of("batch", LLAMA, *sets)]
    return [one["train.per_device_batch_size"] for one in found]


@pytest.mark.parametrize("text", [LLAMA, RECIPE])
def test_nothing_else_is_changed(text: str) -> None:
    """The search never changes sequence length, number type, optimizer or quantization."""
    wanted = plan(text)
    for sets in candidates(wanted.config, mesh(wanted.config["train"], slices=1, devices=16)):
        for key in sets:
            section, _, name = key.partition(".")
            assert key == "worker.env.LIBTPU_INIT_ARGS" or (section == "train" and name in {*ALLOWED, "mlpwo"})


def test_batches_are_whole_and_none_is_the_present_one() -> None:
    assert batches() == [2, 3, 5, 6, 8, 12, 16]
    assert batches("train.per_device_batch_size=1") == [2, 3, 4]
    assert batches("train.per_device_batch_size=0.25") == [0.5, 1]


def test_a_smaller_batch_comes_with_what_it_makes_room_for() -> None:
    wanted = plan()
    found = list(candidates(wanted.config, mesh(wanted.config["train"], slices=1, devices=16)))
    smaller = [sets for sets in found if sets.get("train.per_device_batch_size", 4) < 4]
    assert smaller
    assert all("train.remat_policy" in sets or "train.ici_fsdp_parallelism" in sets for sets in smaller)
    assert {"train.per_device_batch_size": 8} in found


def test_a_policy_that_is_not_known_is_left_alone() -> None:
    assert levers_of("remat", LLAMA, "train.remat_policy=none") == []


def test_custom_policies_reset_the_values_of_other_tensors() -> None:
    found = [one for one in levers_of("remat", RECIPE) if one["train.remat_policy"] == "custom"]
    assert found
    assert all(one["train.mlpwo"] == "remat" for one in found)
    custom = next(one for one in found if one.get("train.context") == "device" and "train.query_proj" not in one)
    assert custom["train.decoder_layer_input"] == "device"


def test_shardings_use_all_chips_and_differ() -> None:
    own = plan().config["train"]
    found = levers_of("sharding")
    sizes = []
    for one in found:
        train = {**own, **{key.removeprefix("train."): value for key, value in one.items()}}
        sizes.append({axis: size for axis, size in mesh(train, slices=1, devices=16).sizes.items() if size > 1})
    assert {"fsdp": 16} in sizes
    assert {"fsdp": 8, "data": 2} in sizes
    assert {"fsdp": 4, "tensor": 4} not in sizes  # the run's own sharding
    assert len({repr(one) for one in sizes}) == len(sizes)


def test_a_rule_rejects_an_indivisible_sharding() -> None:
    """Two key and value heads cannot be divided over four chips."""
    text = "slice: {topology: 4x4}\ntrain: {base_num_kv_heads: 2, base_num_query_heads: 16, model_name: default}\n"
    wanted = plan(text)
    four = [one for one in levers_of("sharding", text) if one.get("train.ici_tensor_parallelism") == 4]
    assert four
    assert changed(wanted, Change(four[0], ""), FORECAST_RULES) is None


def test_blocks_only_grow_and_divide_the_sequence() -> None:
    assert [one.get("train.sa_block_kv") for one in levers_of("attention")] == [None, 1024, 2048]
    assert [one.get("train.sa_block_kv") for one in levers_of("attention", LLAMA, "train.max_target_length=1024")] == [
        None,
        1024,
    ]
    assert levers_of("attention", RECIPE) == []  # the blocks already have the largest size
    assert levers_of("attention", LLAMA, "train.attention=dot_product") == []


def test_large_blocks_come_with_the_memory_that_they_need() -> None:
    flag = "worker.env.LIBTPU_INIT_ARGS"
    assert levers_of("attention")[-1][flag] == "--xla_tpu_scoped_vmem_limit_kib=98304"
    more = levers_of("attention", LLAMA, "worker.env.LIBTPU_INIT_ARGS=--xla_a=true")
    assert more[-1][flag] == "--xla_a=true --xla_tpu_scoped_vmem_limit_kib=98304"
    own = levers_of("attention", LLAMA, "worker.env.LIBTPU_INIT_ARGS=--xla_tpu_scoped_vmem_limit_kib=65536")
    assert flag not in own[-1]
    v5p = "slice: {accelerator: v5p, topology: 2x2x4}\ntrain: {model_name: llama3-8b}\n"
    assert flag not in levers_of("attention", v5p)[-1]


def test_most_candidates_make_a_plan() -> None:
    wanted = plan()
    found = list(candidates(wanted.config, mesh(wanted.config["train"], slices=1, devices=16)))
    plans = [changed(wanted, Change(sets, ""), FORECAST_RULES) for sets in found]
    assert sum(one is not None for one in plans) > len(found) / 2
    assert all(one is None or settings(one.config["train"])["max_target_length"] == 2048 for one in plans)
