"""The verdict, the changes that could make a run fit, and the cost: arithmetic on the compiler's report."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from launcher.config.checks.rules import SHAPE_RULES
from launcher.config.plan import CheckFailed, LaunchPlan
from launcher.errors import LauncherError
from launcher.products.planner.cli import forecast_text as texts
from launcher.products.planner.forecast.cache import Cache
from launcher.products.planner.forecast.changes import Change, changed, changes
from launcher.products.planner.forecast.child import CompileFailed, CompileTimeout, Limits
from launcher.products.planner.forecast.compiled import Compiler
from launcher.products.planner.forecast.cost import NOT_IN_IT, cost
from launcher.products.planner.forecast.forecast import Forecast, forecast
from launcher.products.planner.forecast.memory_fit import judge
from launcher.products.planner.forecast.program import Program, read
from launcher.products.planner.forecast.request import Request
from tests.products.planner.forecasts import GIB, LLAMA, TWO_SECONDS, plan, program


def verdict_on(text: str = LLAMA, *sets: str, **more: Any) -> tuple[bool, str]:
    found = judge(read(program(**more)), plan(text, *sets))
    return found.fits, found.says


def test_it_fits_with_a_margin() -> None:
    found = judge(read(program()), plan())
    assert (found.fits, found.margin) == (True, int(15.25 * GIB))
    assert found.says == "It fits: 16.0 GiB of a chip's 31.2 GiB, 49% of it left."


def test_the_weights_of_qlora_have_to_fit_before_they_are_quantized() -> None:
    text = "slice: {topology: 4x4}\nfrom: base\ndata: {corpus: '', files: [/data/a.jsonl]}\ntuning: {method: qlora}\n"
    assert verdict_on(text, "train.model_name=llama3-70b")[0]
    assert verdict_on(text, "train.model_name=llama3.1-405b") == (
        False,
        "It does not fit: the weights take 47.2 GiB of a chip before quantization, and it has 31.2 GiB.",
    )
    gpus = plan(
        text, "train.model_name=llama3.1-405b", "slice.accelerator=h100-80gb", "slice.topology=", "slice.hosts=1"
    )
    judged = forecast(gpus, Compiler())
    assert (judged.fits, "the parameters before quantization alone take 94.5 GiB" in judged.says) == (False, True)


def test_the_compiler_says_that_it_does_not_fit() -> None:
    found = judge(read(program(total=40.5, fits=False)), plan())
    assert (found.fits, found.margin) == (False, -int(9.25 * GIB))
    assert found.says == "It does not fit: a step needs 40.5 GiB of HBM, and a chip has 31.2 GiB."


def test_without_the_compilers_capacity_the_tables_is_used() -> None:
    text = program(total=33)
    text["memory"]["capacity"] = None
    found = judge(read(text), plan())
    assert (found.fits, found.hbm_capacity) == (False, 32 * GIB)


def test_a_chip_that_is_two_devices() -> None:
    text = program(total=90, mesh={"fsdp": 8})
    text["memory"]["capacity"] = None
    found = judge(read(text), plan("slice: {accelerator: tpu7x, topology: 2x2x1}\n"))
    assert (found.fits, found.hbm_capacity) == (True, 96 * GIB)
    assert "a device (a chip has 2)'s 96.0 GiB" in found.says


def test_what_is_offloaded_has_to_fit_in_the_host() -> None:
    """A ct6e-standard-4t has four chips and 720 GiB."""
    assert verdict_on(host=179)[0]
    assert verdict_on(host=181) == (
        False,
        "It does not fit: the offloaded data takes 724.0 GiB of a host's memory, and the memory of ct6e-standard-4t is "
        "720.0 GiB.",
    )


def test_a_pod_s_limit_is_the_host_s_memory() -> None:
    fits, message = verdict_on(LLAMA, "worker.memory=200G", host=50)
    assert (fits, message) == (
        False,
        "It does not fit: the offloaded data takes 200.0 GiB of a host's memory, and worker.memory is 186.3 GiB.",
    )


def test_a_machine_with_unknown_memory() -> None:
    assert verdict_on(LLAMA, "common.accelerators.v6e.hostMemoryGiB=null", host=9000)[0]


def changes_for(text: str = LLAMA, *sets: str, **more: Any) -> list[dict[str, Any]]:
    wanted = plan(text, *sets)
    found = read(program(**{"total": 60, "fits": False, **more}))
    return [dict(change.sets) for change in changes(wanted, found, judge(found, wanted))]


def test_changes_go_from_the_least_loss_to_the_largest() -> None:
    found = changes_for(LLAMA, "train.remat_policy=minimal")
    batch, remat = "train.per_device_batch_size", "train.remat_policy"
    assert found[:3] == [{batch: 2}, {batch: 1}, {remat: "full"}]  # 3 would still be too large
    kinds = [next(key for key in keys if any(key in sets for sets in found)) for keys in ([batch], [remat])]
    assert kinds == [batch, remat]
    whole = next(at for at, sets in enumerate(found) if sets.get("train.ici_fsdp_parallelism") == -1)
    larger = next(at for at, sets in enumerate(found) if "slice.topology" in sets)
    assert whole < larger
    assert found[larger] == {
        "slice.topology": "4x8",
        "train.ici_fsdp_parallelism": -1,
        "train.ici_tensor_parallelism": 1,
    }


def test_if_the_parameters_alone_do_not_fit_a_smaller_batch_is_not_tried() -> None:
    """70 billion parameters with their optimizer take 847 GB: 53 GB on each of 16 chips, which have 32 GiB."""
    found = changes_for(LLAMA, "train.model_name=llama3.1-70b", mesh={"fsdp": 4, "tensor": 4})
    assert found
    assert all("slice.topology" in sets or "train.ici_fsdp_parallelism" in sets for sets in found)


def test_a_change_is_options_of_a_command() -> None:
    change = Change({"train.per_device_batch_size": 1, "train.remat_policy": "full"}, "less")
    assert change.options == "--set train.per_device_batch_size=1 --set train.remat_policy=full"


def test_every_change_makes_a_plan() -> None:
    wanted = plan()
    for sets in changes_for():
        other = changed(wanted, Change(sets, ""), SHAPE_RULES)
        assert other is not None
        assert other.config != wanted.config


def test_a_change_that_a_rule_forbids_is_none() -> None:
    assert changed(plan(), Change({"slice.topology": "5x5"}, ""), SHAPE_RULES) is None


# --- The complete forecast --------------------------------------------------------------------------------------


class FakeCompile:
    """Replaces the compile, which takes minutes: `fits` decides by the batch and the topology."""

    def __init__(self, fits: Any) -> None:
        self.fits = fits
        self.requests: list[tuple[str, Any]] = []

    def __call__(self, request: Request, log: Path, **options: Any) -> Program:
        train, row = request.config["train"], request.config["accelerator"]
        self.requests.append((row["topology"], train.get("per_device_batch_size")))
        answer = self.fits(row["topology"], train)
        if isinstance(answer, Exception):
            raise answer
        return read(program() if answer else program(total=60, fits=False))


def make_forecast(fits: Any, cache: Path, text: str = LLAMA, *sets: str, **more: Any) -> tuple[Forecast, FakeCompile]:
    compiles = FakeCompile(fits)
    return forecast(plan(text, *sets), Compiler(Cache(cache), run=compiles), **more), compiles


def test_a_forecast_of_what_fits(tmp_path: Path) -> None:
    found, _ = make_forecast(lambda *_: True, tmp_path, LLAMA, "train.steps=1800")
    data = found.as_json()
    assert data["fits"] is True
    assert data["hbm_bytes"] == {
        "arguments": 6 * GIB,
        "outputs": 6 * GIB,
        "temporaries": 10 * GIB,
        "aliased": 6 * GIB,
        "code": None,
        "total": 16 * GIB,
        "capacity": int(31.25 * GIB),
    }
    assert (data["step_seconds"], data["parts"]) == (2.0, {"matrix multiplications": 2.0})
    assert data["tokens_per_second_per_device"] == 2048
    assert data["tflops_per_second_per_device"] == 100
    assert data["mfu"] == pytest.approx(100 / 918)
    # 1800 steps of 2 s take an hour on 16 chips.
    assert data["cost"]["usd"] == pytest.approx(16 * 2.7)
    assert (data["suggestions"], data["change"], data["chips"], data["cached"]) == ([], None, 16, False)
    assert texts.text(found).splitlines() == [
        "llama3-8b on v6e 4x4  16 chips",
        "fits                  yes",
        "HBM                   16.0 GiB of 31.2 GiB, 15.2 GiB left",
        "                      arguments 6.0 GiB, outputs 6.0 GiB, aliased 6.0 GiB, temporaries 10.0 GiB",
        "largest                 2.0 GiB  bf16[4,4096,14336]  decoder.mlp",
        "step                  2 s",
        "                      matrix multiplications 2 s",
        "speed                 2,048 tokens/s/device, 100.0 TFLOP/s/device, MFU 10.9%",
        "alert                 --set tracking.forecastStepSeconds=2 reports slower steps",
        "time                  1 h for 1,800 steps (118 million tokens)",
        "cost                  $43.20: 16.00 chip hours at $2.7 (on-demand, us-east5, 2026-08)",
        f"                      {NOT_IN_IT}",
    ]


def test_the_change_that_makes_it_fit_is_compiled(tmp_path: Path) -> None:
    found, compiles = make_forecast(lambda _, train: train.get("per_device_batch_size") == 1, tmp_path)
    assert (found.fits, compiles.requests[0], compiles.requests[-1]) == (False, ("4x4", 4), ("4x4", 1))
    assert found.change is not None
    assert found.change.options == "--set train.per_device_batch_size=1"
    assert found.suggestions == (
        "Add --set train.per_device_batch_size=1 (a smaller batch). It fits: 16.0 GiB of a chip's 31.2 GiB, 49% of it "
        "left.",
    )
    assert found.as_json()["change"]["sets"] == {"train.per_device_batch_size": 1}


def test_no_time_to_look_for_a_change(tmp_path: Path) -> None:
    found, compiles = make_forecast(lambda *_: False, tmp_path, search_seconds=0)
    assert (found.change, len(compiles.requests)) == (None, 1)
    assert found.suggestions == ("To search for a change that makes it fit: --search MINUTES.",)


def test_nothing_helps(tmp_path: Path) -> None:
    found, compiles = make_forecast(lambda *_: False, tmp_path)
    assert found.suggestions == ("No change that Slipway tries makes it fit; use an accelerator with more memory.",)
    assert len(compiles.requests) > 5


def test_a_rejected_change_is_skipped(tmp_path: Path) -> None:
    def fits(topology: str, train: dict[str, Any]) -> Any:
        if train.get("per_device_batch_size") == 1:
            return CompileFailed("No.")
        return "8" in topology

    found, _ = make_forecast(fits, tmp_path)
    assert found.change is not None
    assert found.change.sets["slice.topology"] == "4x8"


def test_a_finished_program_is_estimated_like_the_others_unless_finish_is_set(tmp_path: Path) -> None:
    """A search compares a run with candidates for which the compiler did not finish the program."""
    (step,) = TWO_SECONDS
    cycles = [{"do": "loop", "times": 1, "steps": [{**step, "cycles": 7_000_000_000}]}]

    def finished(*_: Any, **__: Any) -> Program:
        return read(program(finished=True, work=cycles))

    def seconds(finish: bool) -> float:
        compiler = Compiler(Cache(tmp_path), Limits(finish=finish), run=finished)
        return float(forecast(plan(), compiler).as_json()["step_seconds"])

    assert [seconds(True), seconds(False), seconds(True)] == pytest.approx([4, 2, 4])


def test_invalid_memory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        LauncherError, match=r'worker\.memory: "100GB" is not a valid amount of memory; write it like 16Gi\.'
    ):
        make_forecast(lambda *_: True, tmp_path, LLAMA, "worker.memory=100GB")


def test_a_run_without_steps_has_a_note_about_its_cost(tmp_path: Path) -> None:
    found, _ = make_forecast(lambda *_: True, tmp_path, LLAMA, "train.steps=null")
    assert found.cost is None
    assert "The time and the cost are unknown: set train.steps, or use --tokens." in found.notes
    assert make_forecast(lambda *_: True, tmp_path, LLAMA, "train.steps=7")[0].notes == ()


def test_a_speed_that_is_not_known(tmp_path: Path) -> None:
    found, _ = make_forecast(lambda *_: True, tmp_path, LLAMA, "common.accelerators.v6e.peakTflops=0")
    assert found.speed is None
    assert found.notes == ("The step time is unknown: set common.accelerators.v6e.peakTflops; 0 means unknown.",)


def test_larger_slices_are_those_nearest_to_a_cube(tmp_path: Path) -> None:
    _, compiles = make_forecast(
        lambda *_: False, tmp_path, LLAMA, "slice.accelerator=v5p", "slice.topology=4x4x8", "train.steps=1"
    )
    larger = [topology for topology, _ in compiles.requests if topology != "4x4x8"]
    assert set(larger) == {"4x8x8", "8x8x8", "8x8x16"}


def test_time_runs_out_in_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count(0, 400)  # 400 s pass between two readings, of the ten minutes of the search
    monkeypatch.setattr("launcher.products.planner.forecast.forecast.time.monotonic", lambda: next(clock))
    found, _ = make_forecast(lambda _, train: train.get("per_device_batch_size") != 4 and CompileTimeout("x"), tmp_path)
    assert found.suggestions == ("To search for a change that makes it fit: --search MINUTES.",)


def test_a_compile_that_takes_too_long_is_not_the_end_of_the_search(tmp_path: Path) -> None:
    """--timeout is the limit of one compile."""
    found, _ = make_forecast(
        lambda _, train: {4: False, 1: True}.get(train["per_device_batch_size"], CompileTimeout("x")), tmp_path
    )
    assert found.change is not None and found.change.sets == {"train.per_device_batch_size": 1}


# --- The cost ---------------------------------------------------------------------------------------------------


def cost_of(*sets: str, **more: Any) -> Any:
    tree = plan(LLAMA, *sets).values.tree
    return cost(tree, **{"step_seconds": 3.6, "chips": 16, "tokens_per_step": 65_536, **more})


def test_the_price_is_that_of_the_provisioning() -> None:
    assert cost_of("train.steps=1000").usd == pytest.approx(16 * 2.7)
    assert cost_of("train.steps=1000", "slice.provisioning=spot").usd == pytest.approx(16 * 1.215)
    assert cost_of("train.steps=1000", "slice.provisioning=reservation").usd == pytest.approx(16 * 1.89)
    assert cost_of("train.steps=1000", "common.prices.v6e.perChipHour.on-demand=1").usd == pytest.approx(16)


def test_a_users_price_has_no_source() -> None:
    key = ("common", "prices", "v6e", "perChipHour", "on-demand")
    found = cost_of("train.steps=1000", "common.prices.v6e.perChipHour.on-demand=1", given=[key])
    assert (found.region, found.date, found.source) == ("", "", "")
    found = cost_of("train.steps=1000", given=[key, (*key[:3], "region")])
    assert (found.region, found.date) == ("us-east5", "")


def test_a_price_that_is_not_known() -> None:
    found = cost_of(
        "train.steps=1000", "slice.accelerator=v5p", "slice.topology=2x2x4", "slice.provisioning=flex-start"
    )
    assert (found.usd, found.chip_hours) == (None, 16)
    assert found.says == "No price is known for v5p, flex-start; set common.prices.v5p.perChipHour.flex-start."


def test_tokens_instead_of_steps() -> None:
    found = cost_of("train.steps=7", tokens=65_536_000)
    assert (found.steps, found.tokens, found.hours) == (1000, 65_536_000, pytest.approx(1))
    assert cost_of(tokens=1).steps == 1


def test_neither_steps_nor_tokens() -> None:
    assert cost_of() is None


# --- GPUs and CPUs ----------------------------------------------------------------------------------------------


def test_gpus_have_only_arithmetic(tmp_path: Path) -> None:
    text = "slice: {accelerator: h100-80gb, hosts: 2}\ntrain: {model_name: llama3-8b}\n"
    found = forecast(plan(text), Compiler(Cache(tmp_path)))
    assert found.fits is None
    assert found.says == "A forecast is not possible for GPUs: only the TPU compiler works without the chips."
    assert found.notes == (
        "8,030,261,248 parameters and their optimizer take 89.7 GiB, at least 5.6 GiB on each GPU. The memory of the "
        "activations, the step time and the cost are unknown.",
    )
    data = found.as_json()
    assert (data["step_seconds"], data["mfu"], data["cost"], data["hbm_bytes"]) == (None, None, None, None)


def test_a_state_that_no_sharding_can_place(tmp_path: Path) -> None:
    text = "slice: {accelerator: l4, hosts: 1}\ntrain: {model_name: llama3-8b}\n"
    found = forecast(plan(text), Compiler(Cache(tmp_path)))
    assert found.fits is False
    assert found.says.startswith("It does not fit: the parameters and their optimizer alone take 89.7 GiB on each GPU")


def test_cpus(tmp_path: Path) -> None:
    found = forecast(plan("slice: {accelerator: cpu, hosts: 2}\ntrain: {steps: 3}\n"), Compiler(Cache(tmp_path)))
    assert found.fits is None
    assert found.says.startswith("A forecast is not possible for CPUs")


# --- The values that a forecast needs ---------------------------------------------------------------------------


def test_it_needs_only_slice_and_train() -> None:
    assert isinstance(plan("slice: {topology: 4x4}\ntrain: {model_name: llama3-8b}\n"), LaunchPlan)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("slice: {topology: 5x5}\n", "No v6e slice has 25 chips"),
        ("slice: {topolgy: 4x4}\n", "unknown key slice.topolgy"),
        ("trian: {steps: 1}\nslice: {topology: 4x4}\n", "unknown key trian"),
        ("slice: {topology: 4x4}\ntrain: {model_name: llama9}\n", 'MaxText 0.2.5 has no model "llama9"'),
        ("slice: {topology: 4x4}\ntrain: {remat: full}\n", "MaxText has no key remat"),
        ("run: {name: 3}\nslice: {topology: 4x4}\n", "run.name"),
    ],
)
def test_invalid_values_are_reported(text: str, message: str) -> None:
    with pytest.raises(CheckFailed, match=r"v\.yaml") as raised:
        plan(text)
    assert message in raised.value.message
