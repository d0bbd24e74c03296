"""launcher forecast, and its use by submit and check: one real compile; the other tests read a cached one."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from launcher.paths import presets_dir
from launcher.products.planner.forecast import program as programs
from launcher.products.planner.forecast.cache import Cache
from launcher.products.planner.forecast.request import request
from tests.cli.conftest import Launcher, eventually
from tests.products.planner.forecasts import LLAMA, plan, program

WHOLE = LLAMA + (
    "run: {name: llama, kind: ray-job}\nteam: {name: research}\nimage: {repository: registry/x, tag: v1}\n"
    "storage: {bucket: research-runs}\n"
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """The cache that the command uses."""
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    return Cache(tmp_path / "cache" / "forecast")


def put_in_cache(cache: Cache, *sets: str, **what: Any) -> None:
    """Put a program into the cache, as if it had been compiled before."""
    cache.put(request(plan(LLAMA, *sets)), programs.read(program(**what)))


def test_it_does_not_fit(launcher: Launcher, cache: Cache) -> None:
    put_in_cache(cache, total=60, fits=False)
    launcher.write("v.yaml", LLAMA)
    result = launcher("forecast", "-f", "v.yaml", "--search", "0", "-o", "json")
    assert result.code == 1
    assert (result.json["fits"], result.json["hbm_bytes"]["total"]) == (False, 60 << 30)
    assert result.json["suggestions"] == ["To search for a change that makes it fit: --search MINUTES."]
    assert result.err == "Error: It does not fit: a step needs 60.0 GiB of HBM, and a chip has 31.2 GiB.\n"


def test_the_text_of_what_does_not_fit(launcher: Launcher, cache: Cache) -> None:
    put_in_cache(cache, total=60, fits=False)
    put_in_cache(cache, "train.per_device_batch_size=2", total=33, fits=False)
    put_in_cache(cache, "train.per_device_batch_size=3", total=45, fits=False)
    put_in_cache(cache, "train.per_device_batch_size=1")
    launcher.write("v.yaml", LLAMA)
    result = launcher("forecast", "-f", "v.yaml")
    assert result.code == 1
    assert result.out.splitlines()[-1] == (
        "change                Add --set train.per_device_batch_size=1 (a smaller batch). It fits: 16.0 GiB of a "
        "chip's 31.2 GiB, 49% of it left."
    )
    assert "Compiling" not in result.err


def test_each_alternative_has_a_forecast(launcher: Launcher, cache: Cache) -> None:
    """Those that share a run share a program, too, and differ in the price."""
    put_in_cache(cache)
    put_in_cache(cache, "slice.topology=2x4", total=60, fits=False)
    launcher.write(
        "v.yaml",
        LLAMA.replace("topology: 4x4", "topology: 4x4, any: [{}, {provisioning: spot}, {topology: 2x4}]")
        + "run: {name: llama, kind: job-set}\n",
    )
    result = launcher("forecast", "-f", "v.yaml", "--search", "0", "--set", "train.steps=1000", "-o", "json")
    assert result.code == 0, result.err
    each = [result.json, *result.json["others"]]
    assert [(one["alternative"], one["fits"]) for one in each] == [
        ("v6e 4x4, on-demand", True),
        ("v6e 4x4, spot", True),
        ("v6e 2x4, on-demand", False),
    ]
    on_demand, spot = (one["cost"] for one in each[:2])
    assert on_demand["hours"] == spot["hours"]
    assert on_demand["usd"] > spot["usd"] > 0
    text = launcher("forecast", "-f", "v.yaml", "--search", "0", "--set", "train.steps=1000")
    rows = [line.split() for line in text.out.splitlines()[:4]]
    assert rows[0] == ["ALTERNATIVE", "FITS", "STEP", "TOKENS/S/DEVICE", "TIME", "COST"], rows
    assert [row[:5] for row in rows[1:]] == [
        ["1", "v6e", "4x4,", "on-demand", "yes"],
        ["2", "v6e", "4x4,", "spot", "yes"],
        ["3", "v6e", "2x4,", "on-demand", "no"],
    ]
    none = launcher("forecast", "-f", "v.yaml", "--set", "slice.any=[{topology: 2x4}]", "--search", "0")
    assert none.code == 1
    launcher.write("w.yaml", "slice: {any: [{topology: 2x4}, {topology: 2x4, after: 1h}]}\n")
    none = launcher("forecast", "-f", "v.yaml", "-f", "w.yaml", "--search", "0")
    assert (none.code, none.err) == (1, "Error: No alternative fits.\n")


def test_an_overlay_of_a_search_is_a_values_file(launcher: Launcher, cache: Cache) -> None:
    """A user writes the overlay to a file and gives it after the run's values. The time is too short for a compile."""
    put_in_cache(cache)
    model = {**program()["model"], "tokens_per_step_per_device": 8192, "global_batch": 128}
    put_in_cache(cache, "train.per_device_batch_size=8", total=24, model=model)
    launcher.write("v.yaml", LLAMA)
    result = launcher("forecast", "-f", "v.yaml", "--search", "0.0001")
    assert (result.code, "Compiling" in result.err) == (0, False), result.err
    assert "--set train.per_device_batch_size=8: 4,096 tokens/s/device, 2.00 x the run's." in result.err
    (overlay,) = result.out.split("\n\n")[2:]
    launcher.write("better.yaml", overlay)
    values = launcher("values", "-f", "v.yaml", "-f", "better.yaml", "-o", "json").json
    assert values["train"] == {"model_name": "llama3-8b", "per_device_batch_size": 8, "ici_tensor_parallelism": 4}
    (better,) = launcher("forecast", "-f", "v.yaml", "--search", "0.0001", "-o", "json").json["better"]
    assert (better["overlay"], better["gain"], better["global_batch"]) == (overlay, 2, 128)
    launcher.write("v.yaml", LLAMA)
    again = launcher("forecast", "-f", "v.yaml", "-f", "better.yaml", "-o", "json").json
    assert (again["cached"], again["tokens_per_second_per_device"], again["better"]) == (True, 4096, [])


def test_an_answer_from_the_cache_is_fast(launcher: Launcher, cache: Cache, tmp_path: Path) -> None:
    """It takes at most half a second of processor time. Clock time would depend on the other tests."""
    put_in_cache(cache, total=60, fits=False)
    launcher.write("v.yaml", LLAMA)
    installed = {"PYTHONPYCACHEPREFIX": str(tmp_path / "pyc"), "PYTHONDONTWRITEBYTECODE": ""}
    times = []
    for _ in range(4):
        before = os.times()
        assert launcher("forecast", "-f", "v.yaml", "--search", "0", env=installed).code == 1
        after = os.times()
        times.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(times) < 0.5


def test_gpus_and_cpus(launcher: Launcher, cache: Cache) -> None:
    launcher.write("v.yaml", "slice: {accelerator: h100-80gb}\ntrain: {model_name: llama3-8b}\n")
    result = launcher("forecast", "-f", "v.yaml", "-o", "json")
    assert result.code == 1
    assert (result.json["fits"], result.json["step_seconds"], result.json["cost"]) == (None, None, None)
    assert result.err == "Error: A forecast is not possible for GPUs: only the TPU compiler works without the chips.\n"
    assert launcher("forecast", "-f", "quickstart").err.startswith("Error: A forecast is not possible for CPUs")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--tokens", "many"], '"many" is not a valid number of tokens; use 500M, 300B, 15T or 1e9.'),
        (["--tokens", "1e99"], '"1e99" is not a valid number of tokens; use 500M, 300B, 15T or 1e9.'),
        (["--timeout", "0"], "0 is not in the range x>0"),
        (["--search", "NaN"], "NaN is not a valid number."),
    ],
)
def test_wrong_usage(launcher: Launcher, arguments: list[str], message: str) -> None:
    result = launcher("forecast", "-f", "quickstart", *arguments)
    assert (result.code, result.out) == (2, "")
    assert message in " ".join(result.err.split())


def test_the_extra_is_not_installed(launcher: Launcher, cache: Cache, tmp_path: Path) -> None:
    """The test hides the metadata of libtpu, which an installation without the extra does not have."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "from importlib import metadata\nversion = metadata.version\n"
        "def asked(name):\n"
        "    if name == 'libtpu': raise metadata.PackageNotFoundError(name)\n"
        "    return version(name)\n"
        "metadata.version = asked\n"
    )
    launcher.write("v.yaml", WHOLE + "data: {corpus: python}\n")
    path = f"{launcher.env['PYTHONPATH']}:{tmp_path / 'site'}"
    result = launcher("forecast", "-f", "v.yaml", env={"PYTHONPATH": path})
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        "Error: The Python package libtpu is not installed, and a forecast needs the TPU compiler.\n"
        'Hint: Install it: pip install "slipway-launcher[forecast]"\n'
    )
    assert launcher("check", "-f", "v.yaml", env={"PYTHONPATH": path}).code == 0


# --- submit and check -------------------------------------------------------------------------------------------


def test_submit_rejects_what_is_known_not_to_fit(launcher: Launcher, cache: Cache) -> None:
    put_in_cache(cache, total=60, fits=False)
    put_in_cache(cache, "train.per_device_batch_size=1")
    launcher.write("v.yaml", WHOLE)
    dry = ("submit", "-f", "v.yaml", "--dry-run", "--set", "train.dataset_type=synthetic")
    nowhere = {"KUBECONFIG": str(launcher.folder / "missing")}
    result = launcher(*dry, env=nowhere)
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        "Error: v.yaml:1: slice.topology: It does not fit: a step needs 60.0 GiB of HBM, and a chip has 31.2 GiB. It "
        "fits with --set train.per_device_batch_size=1.\n"
        "Hint: launcher forecast shows the details; --force submits it anyway.\n"
    )
    assert launcher(*dry, "--force", env=nowhere).code == 0
    assert launcher(*dry, "--set", "train.per_device_batch_size=1", env=nowhere).code == 0
    swept = launcher(*dry, "--sweep", "train.learning_rate=1e-4,3e-4", env=nowhere)
    assert swept.code == 1
    assert swept.err.count("It does not fit") == 1


def test_submit_compiles_nothing(launcher: Launcher, cache: Cache) -> None:
    launcher.write("v.yaml", WHOLE + "data: {corpus: python}\n")
    result = launcher("submit", "-f", "v.yaml", "--dry-run", env={"KUBECONFIG": str(launcher.folder / "missing")})
    assert (result.code, "fit" in result.err) == (0, False)
    assert not cache.folder.exists()


def test_check_reports_a_run_that_does_not_fit(launcher: Launcher, cache: Cache) -> None:
    put_in_cache(cache, total=60, fits=False)
    launcher.write("v.yaml", WHOLE + "data: {corpus: python}\n")
    result = launcher("check", "-f", "v.yaml", "-o", "json")
    assert result.code == 1
    (problem,) = [one for one in result.json if one["rule"] == "does-not-fit"]
    assert (problem["severity"], problem["file"], problem["line"]) == ("error", "v.yaml", 1)
    assert problem["message"].endswith("launcher forecast searches for a change that makes it fit.")


# --- The real compiler ------------------------------------------------------------------------------------------


def test_ctrl_c_ends_the_compile_at_once(launcher: Launcher, cache: Cache) -> None:
    process = launcher.start("forecast", "-f", "models/tiny", "-f", "slices/v6e-2x2")
    log = f"{request(plan(_tiny())).key[:16]}.log"
    eventually(lambda: (cache.folder / log).exists() and (cache.folder / log).stat().st_size, 60)
    compiling = _compiling()
    assert compiling
    since = time.monotonic()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "")
    assert time.monotonic() - since < 10
    eventually(lambda: not _compiling() & compiling)
    assert list(cache.folder.iterdir()) == []


def _tiny() -> str:
    root = presets_dir()
    return (root / "models/tiny.yaml").read_text() + (root / "slices/v6e-2x2.yaml").read_text()


def _compiling() -> set[int]:
    """Return the IDs of the processes that compile forecasts."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command_line = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"trainer.aot" in command_line and any(b"slipway-forecast-" in part for part in command_line):
            found.add(int(path.parent.name))
    return found


def test_a_real_forecast(launcher: Launcher, cache: Cache) -> None:
    """Forecast a tiny model on four chips with libtpu, then again from the cache."""
    arguments = ("forecast", "-f", "models/tiny", "-f", "slices/v6e-2x2", "-o", "json")
    result = launcher(*arguments, seconds=800)
    assert result.code == 0, result.err
    assert result.err.splitlines()[0] == (
        "Compiling default on v6e 2x2: this takes half a minute or more; the result is cached."
    )
    data = result.json
    assert (data["fits"], data["cached"], data["chips"], data["devices"]) == (True, False, 4, 4)
    # The memory of the tiny model: 4 million parameters with their optimizer. The compiler reserves 1 of the 32 GiB.
    assert data["hbm_bytes"]["arguments"] == pytest.approx(4_137_152 * 12, rel=0.01)
    assert 30 << 30 < data["hbm_bytes"]["capacity"] < 32 << 30
    assert data["versions"]["libtpu"]
    assert 0 < data["step_seconds"] < 0.1
    assert (data["better"], data["searched"]) == ([], "")
    assert sum(data["parts"].values()) == pytest.approx(data["step_seconds"], rel=0.01)
    assert data["cost"]["usd"] == pytest.approx(data["cost"]["steps"] * data["step_seconds"] * 4 * 2.7 / 3600)
    again = launcher(*arguments)
    assert again.err == ""
    assert again.json == {**data, "cached": True}
    text = launcher(*arguments[:-2]).out
    assert re.search(r"^step +\S+ s$", text, re.MULTILINE)
    assert json.loads(result.out) == data
