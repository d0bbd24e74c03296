"""The presets in values/tuned: one for each model and chip, all valid; the compiler confirms the speed of the first."""

from __future__ import annotations

import re

import pytest

from launcher.config.checks.rules import FORECAST_RULES
from launcher.config.plan import LaunchPlan, plan_launch
from launcher.config.values import files as values
from launcher.paths import presets_dir
from launcher.products.planner.forecast.cache import Cache, folder
from launcher.products.planner.forecast.compiled import Compiler
from launcher.products.planner.forecast.memory_fit import judge
from launcher.products.planner.forecast.speed import speed_of
from tests.products.planner.forecasts import DEFAULTS

TUNED = sorted(path.stem for path in (presets_dir() / "tuned").glob("*.yaml"))
SEEDS = "tutorials/llama3-8b-v6e-16"


def plan(*presets: str) -> LaunchPlan:
    return plan_launch(values.load(presets), DEFAULTS, rules=FORECAST_RULES)


def parts(name: str) -> tuple[str, str, str]:
    """Return the model, accelerator and topology in a preset's name."""
    found = re.fullmatch(r"(.+)-(v\w+)-([\dx]+)", name)
    assert found
    return found[1], found[2], found[3]


def test_both_models_are_tuned_for_three_generations() -> None:
    wanted = {(model, chip) for model in ("llama3.1-8b", "llama3.1-70b") for chip in ("v5e", "v5p", "v6e")}
    assert {parts(name)[:2] for name in TUNED} == wanted


@pytest.mark.parametrize("name", TUNED)
def test_a_tuned_preset_is_for_the_slice_in_its_name(name: str) -> None:
    model, accelerator, topology = parts(name)
    found = plan(f"models/{model}", f"tuned/{name}")
    row = found.config["accelerator"]
    assert (row["name"], row["topology"]) == (accelerator, topology)
    text = (presets_dir() / "tuned" / f"{name}.yaml").read_text(encoding="utf-8")
    assert f"-f models/{model} -f tuned/{name}\n" in text
    assert re.search(r"# Forecast: [\d,]+ tokens/s a device, [\d.]+ s a step, MFU [\d.]+%\.", text)


def test_the_first_is_as_fast_as_it_says() -> None:
    """The real compiler confirms that it fits, and trains 2.3 x as many tokens/s as Google's tutorial on this slice.

    The test uses the user's cache: the compile takes two minutes, and its result changes only with the config, the
    compiler or trainer/aot.
    """
    compiler = Compiler(Cache(folder()))
    rates = []
    for presets in ((SEEDS,), ("models/llama3.1-8b", "tuned/llama3.1-8b-v6e-4x4")):
        found = plan(*presets)
        program, _ = compiler.program(found)
        assert judge(program, found).fits
        speed = speed_of(program, found.config)
        assert speed is not None and speed.tokens_per_second_per_device is not None
        rates.append(speed.tokens_per_second_per_device)
    assert rates[1] >= 2.3 * rates[0]
    text = (presets_dir() / "tuned" / "llama3.1-8b-v6e-4x4.yaml").read_text(encoding="utf-8")
    match = re.search(r"# Forecast: ([\d,]+) tokens/s", text)
    assert match and float(match[1].replace(",", "")) == pytest.approx(rates[1], rel=0.01)
