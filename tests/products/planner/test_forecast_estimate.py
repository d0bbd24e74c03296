"""The estimate by which a search orders and prunes configs, checked by hand and against compiled programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from launcher.products.planner.forecast.chip import Chip, chip_of
from launcher.products.planner.forecast.estimate import MEMORY_MARGIN, CompiledReference, Layout, estimate, layout
from launcher.products.planner.forecast.network import Torus
from launcher.products.planner.forecast.program import Memory
from tests.products.planner.forecast_programs import programs
from tests.products.planner.forecasts import DEFAULTS, GIB

LLAMA: Mapping[str, Any] = {"model_name": "llama3.1-8b", "max_target_length": 8192, "per_device_batch_size": 3}
OFFLOADED: Mapping[str, Any] = dict.fromkeys(
    ("decoder_layer_input", "query_proj", "key_proj", "value_proj", "out_proj"), "offload"
)
TORUS = Torus([4, 4, 1], [False, False, False])


def layout_of(devices: int = 16, slices: int = 1, **train: Any) -> Layout:
    found = layout({**LLAMA, **train}, slices=slices, devices=devices)
    assert found is not None
    return found


def chip(accelerator: str = "v6e") -> Chip:
    found = chip_of(DEFAULTS.tree["common"]["accelerators"][accelerator], 1)
    assert found is not None
    return found


def compiled(shape: Layout, parts: Mapping[str, float], hidden: Mapping[str, float] | None = None) -> CompiledReference:
    memory = Memory(total=16 * GIB, arguments=6 * GIB, temporaries=10 * GIB)
    return CompiledReference(shape, memory, parts, hidden or {}, shape.step_tokens)


# --- Layouts ------------------------------------------------------------------------------------------------------


def test_offloaded_bytes_are_exactly_those_of_the_compiler() -> None:
    """The recipe for v6e-16 offloads 24,576 tokens x 32 layers x (3 x 4096 + 2 x 1024) x 2 bytes."""
    found = layout_of(remat_policy="custom", **OFFLOADED)
    assert (found.offloaded, found.kept) == (22_548_578_304, 0)


def test_saved_activations_are_the_compilers_array_of_all_layers() -> None:
    """The array is bf16[16,2,8192,2048] in MaxText's default model on a v4 slice of 2x2x2."""
    found = layout({"max_target_length": 8192, "per_device_batch_size": 2}, slices=1, devices=8)
    assert found is not None
    assert found.kept == 16 * 2 * 8192 * 2048 * 2


def test_parameters_are_split_over_the_mesh_and_copied_along_data() -> None:
    whole = layout_of(devices=1).parameters
    assert whole == 8_030_261_248
    assert layout_of().parameters == pytest.approx(whole / 16, rel=0.001)
    assert layout_of(ici_tensor_parallelism=4, ici_fsdp_parallelism=4).parameters == pytest.approx(
        whole / 16, rel=0.001
    )
    assert layout_of(ici_data_parallelism=2, ici_fsdp_parallelism=8).parameters == pytest.approx(whole / 8, rel=0.001)
    assert layout_of(devices=8, slices=2).parameters == pytest.approx(whole / 8, rel=0.001)


def test_recomputed_products() -> None:
    """A layer of Llama 3.1 8B multiplies a token by 218,103,808 weights: 3 x 4096 x 14336 of the feed-forward, and
    4096 x (2 x 4096 + 2 x 1024) of the projections. The policy full recomputes all except the last of the feed-forward.
    """
    tokens, layer, head = 24_576, 218_103_808, 4096 * 128_256
    minimal = layout_of(remat_policy="minimal")
    assert minimal.matmul == 6 * tokens * (32 * layer + head)
    assert layout_of().matmul - minimal.matmul == 2 * tokens * 32 * (layer - 4096 * 14_336)
    reference_of = layout_of(remat_policy="save_out_proj")
    assert layout_of().matmul - reference_of.matmul == 2 * tokens * 32 * 4096 * 4096


def test_the_attention_kernel() -> None:
    """11 products if it is recomputed and has two backward kernels; 7 if neither. Of 16 blocks of 512, 17/32 count."""
    one = 2 * 24_576 * 32 * 8192 * 4096
    assert layout_of().attention == one * 11 * 17 / 32
    fast = layout_of(remat_policy="minimal_with_context", sa_use_fused_bwd_kernel=True, sa_block_q=2048)
    assert fast.attention == one * 7 * 5 / 8


def test_bytes_over_the_links() -> None:
    """Each device gathers 15/16 of all weights in bf16, twice, and sends as many gradients."""
    assert layout_of().gathered == pytest.approx(3 * 2 * 8_030_261_248 * 15 / 16, rel=0.001)
    assert (layout_of().exchanged, layout_of().reduced) == (0, 0)
    two = layout_of(ici_data_parallelism=2, ici_fsdp_parallelism=8)
    assert two.reduced == pytest.approx(2 * 4 * 8_030_261_248 / 8 / 2, rel=0.001)
    tensor = layout_of(ici_tensor_parallelism=4, ici_fsdp_parallelism=4, remat_policy="minimal")
    # 8 times the activations of a group of four devices, of which three quarters are on other devices.
    assert tensor.exchanged == 8 * 24_576 * 4 * 32 * 4096 * 2 * 3 / 4


def test_experts() -> None:
    """Each token of Mixtral goes to two of eight experts."""
    found = layout({"model_name": "mixtral-8x7b", "remat_policy": "minimal"}, slices=1, devices=16)
    assert found is not None
    layer = 4096 * (2 * 4096 + 2 * 1024) + 2 * 3 * 4096 * 14_336
    assert found.matmul == 6 * 12 * 2048 * (32 * layer + 4096 * 32_000)


def test_no_such_mesh() -> None:
    assert layout({**LLAMA, "ici_fsdp_parallelism": 3}, slices=1, devices=16) is None


# --- Estimates from a compiled program ----------------------------------------------------------------------------


def test_the_same_is_the_same() -> None:
    shape = layout_of()
    found = estimate(shape, compiled(shape, {"matrix multiplications": 1.5, "copies": 0.5}), chip(), TORUS)
    assert (found.memory, found.seconds, found.rate) == (16 * GIB, 2.0, shape.step_tokens / 2)


def test_twice_the_batch_hides_what_the_links_took() -> None:
    """The transfer of the weights takes as long as before, while each device has twice as much to multiply."""
    reference = compiled(
        layout_of(per_device_batch_size=2), {"matrix multiplications": 1.0, "collectives over ICI": 0.5}
    )
    found = estimate(layout_of(per_device_batch_size=4), reference, chip(), TORUS)
    assert found.seconds == pytest.approx(2.5)


def test_links_that_take_longer_than_all_else_are_waited_for() -> None:
    reference = compiled(
        layout_of(per_device_batch_size=4), {"matrix multiplications": 1.0}, {"collectives over ICI": 0.9}
    )
    found = estimate(layout_of(per_device_batch_size=1), reference, chip(), TORUS)
    assert found.seconds == pytest.approx(0.9)


def test_offloading_that_does_not_end_in_time() -> None:
    """22.5 GB to the host and back at 32 GB/s take 1.41 s. A third of the work hides a part; the step waits for the
    rest.
    """
    reference = compiled(layout_of(), {"matrix multiplications": 1.0})
    wanted = replace(layout_of(remat_policy="custom", **OFFLOADED), matmul=reference.layout.matmul)
    assert estimate(wanted, reference, chip(), TORUS).seconds == pytest.approx(1.0 + 1.409 - 1 / 3, abs=0.001)


def test_memory_that_is_not_known() -> None:
    shape = layout_of()
    reference = replace(compiled(shape, {"matrix multiplications": 1.0}), memory=Memory(total=None))
    assert estimate(shape, reference, chip(), TORUS).memory is None


# --- Compiled programs --------------------------------------------------------------------------------------------

PROGRAMS = programs()


def reference_of(one: Mapping[str, Any]) -> CompiledReference:
    shape = layout(one["train"], slices=1, devices=one["devices"])
    assert shape is not None
    return CompiledReference(shape, Memory(**one["memory"]), one["parts"], one["hidden"], one["tokens"])


def pairs(which: Callable[[Mapping[str, Any]], bool] = lambda _: True) -> list[Any]:
    return [
        pytest.param(one, other, id=f"{one['name']} and {other['name']}")
        for one in PROGRAMS
        for other in PROGRAMS
        if one is not other and one["family"] == other["family"] and which(one) and which(other)
    ]


@pytest.mark.parametrize(("one", "other"), pairs())
def test_a_config_that_fits_is_never_skipped(one: dict[str, Any], other: dict[str, Any]) -> None:
    """This holds even on a chip with exactly the needed memory: the estimate is too high by less than its margin."""
    reference, wanted = reference_of(one), reference_of(other)
    found = estimate(wanted.layout, reference, chip(one["slice"]["accelerator"]), Torus(**one["torus"]))
    total = wanted.memory.total
    assert found.memory is not None
    assert total is not None
    assert found.memory < total * MEMORY_MARGIN
    assert found.memory > total / MEMORY_MARGIN  # configs that are far too large are not compiled


@pytest.mark.parametrize(("one", "other"), pairs(lambda one: bool(one["parts"])))
def test_speeds_are_exact_enough_to_order_configs(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Compare the estimate with a simulation of the compiler's schedule (step_time.py)."""
    reference, wanted = reference_of(one), reference_of(other)
    found = estimate(wanted.layout, reference, chip(one["slice"]["accelerator"]), Torus(**one["torus"]))
    alike = reference.layout.is_like(wanted.layout)
    seconds = sum(wanted.parts.values())
    assert found.seconds == pytest.approx(seconds, rel=0.15 if alike else 0.3)
