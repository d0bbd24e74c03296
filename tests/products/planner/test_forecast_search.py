"""The search for faster configs: its order, what it skips, and what ends it.

A fake replaces the compile. It takes no time but advances its own clock. A real compile takes minutes, and a test
cannot choose whether its result fits or how fast it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from launcher.config.checks.rules import SHAPE_RULES
from launcher.config.plan import plan_launch
from launcher.config.values import files as values
from launcher.errors import LauncherError
from launcher.products.planner.cli import forecast_text as texts
from launcher.products.planner.forecast import memory_fit
from launcher.products.planner.forecast.cache import Cache
from launcher.products.planner.forecast.child import CompileTimeout
from launcher.products.planner.forecast.compile_progress import Silent
from launcher.products.planner.forecast.compiled import Compiler
from launcher.products.planner.forecast.forecast import Forecast, forecast
from launcher.products.planner.forecast.program import Program, read
from launcher.products.planner.forecast.request import Request, request
from launcher.products.planner.forecast.search import SearchResult, search
from tests.products.planner.forecasts import DEFAULTS, GIB, LLAMA, V6E, plan, program

SECONDS = 100.0


class RecordingWatch(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def print_line(self, line: str) -> None:
        self.lines.append(line)


def fake_program(
    train: Mapping[str, Any], *, gib: float | None = None, links: float | None = None, fits: bool | None = None
) -> Program:
    """Return a program whose memory and time grow with the batch; the transfer of the weights always takes as long.

    A sequence takes 0.25 s and 2 GiB; without recomputation (remat minimal) it takes 0.2 s and 5 GiB.
    """
    batch = float(train.get("per_device_batch_size") or 12)
    minimal = "minimal" in str(train.get("remat_policy"))
    total = gib if gib is not None else 7 + batch * (5 if minimal else 2)
    found = program(total=total, fits=total < 31 if fits is None else fits)
    found["model"] |= {
        "tokens_per_step_per_device": 2048 * batch,
        "global_batch": 16 * batch,
        "flops_per_step_per_device": 5e13 * batch,
    }
    seconds = batch * (0.2 if minimal else 0.25)
    exposed = links if links is not None else 0.4 if train.get("ici_tensor_parallelism") == 4 else 0.3
    if found["work"]:
        group = {"size": 16, "slices": 1, "extent": [4, 4, 1], "stride": [1, 1, 1]}
        found["work"] = [
            {**found["work"][0], "flops": seconds * V6E},
            {"do": "collective", "what": "all-gather", "name": "y", "bytes": int(exposed * 192e9), "group": group},
        ]
    return read(found)


class FakeCompile:
    """A fake compile that records the train values of each request."""

    def __init__(self, answer: Callable[[Mapping[str, Any]], Program] = fake_program) -> None:
        self.answer = answer
        self.requests: list[Mapping[str, Any]] = []
        self.clock = 0.0

    def __call__(self, request: Request, log: Path, *, limits: Any, **_: Any) -> Program:
        train = request.config["train"]
        self.requests.append(train)
        if limits.seconds < SECONDS:
            self.clock += limits.seconds
            raise CompileTimeout("The compile took too long and was ended.")
        self.clock += SECONDS
        return self.answer(train)

    @property
    def batches(self) -> list[Any]:
        return [train.get("per_device_batch_size") for train in self.requests]


def run_search(
    folder: Path, compiles: FakeCompile, seconds: float, *sets: str, user: Program | None = None
) -> tuple[SearchResult, list[str]]:
    wanted, output = plan(LLAMA, *sets), RecordingWatch()
    own = user or compiles.answer(wanted.config["train"])
    compiler = Compiler(Cache(folder), watch=output, run=compiles)
    verdict = memory_fit.judge(own, wanted)
    return search(wanted, own, verdict, compiler, seconds, now=lambda: compiles.clock), output.lines


# --- The result ---------------------------------------------------------------------------------------------------


def test_the_best_configs_were_compiled_and_are_faster(tmp_path: Path) -> None:
    compiles = FakeCompile()
    result, output = run_search(tmp_path, compiles, 1000)
    rates = [one.speed.tokens_per_second_per_device or 0 for one in result.better]
    assert len(rates) == 3
    assert rates == sorted(rates, reverse=True)
    assert all(one.verdict.fits and one.gain > 1 for one in result.better)
    for one in result.better:
        train = plan(LLAMA, *(f"{key}={value}" for key, value in one.change.sets.items())).config["train"]
        assert any(train.items() <= compiled.items() for compiled in compiles.requests)
    assert any("tokens/s/device" in line for line in output)


def test_each_step_is_from_the_best_so_far(tmp_path: Path) -> None:
    """The first compiles find a config that is faster than the run; later ones find one that is faster than that."""
    first = run_search(tmp_path / "few", FakeCompile(), 240)[0].better[0]
    more = run_search(tmp_path / "more", FakeCompile(), 1000)[0].better[0]
    assert 1 < first.gain < more.gain


def test_nothing_is_compiled_twice(tmp_path: Path) -> None:
    compiles = FakeCompile()
    run_search(tmp_path, compiles, 700)
    keys = [repr(sorted(train.items())) for train in compiles.requests]
    assert len(keys) == len(set(keys))


def test_nothing_is_faster(tmp_path: Path) -> None:
    """All other configs are very slow, so that after some compiles no estimate is faster than the run."""

    def slow(train: Mapping[str, Any]) -> Program:
        return fake_program(train, links=30.0)

    user = fake_program(plan().config["train"])
    compiles = FakeCompile(slow)
    result, _ = run_search(tmp_path, compiles, 1e6, user=user)
    assert result.better == ()
    assert result.says.endswith("no other config is estimated to be faster. None is faster.")


# --- Skipped configs ----------------------------------------------------------------------------------------------


def test_what_cannot_fit_is_not_compiled(tmp_path: Path) -> None:
    """30 of 31.25 GiB are used: three times the batch cannot fit, even with the margin of the estimate."""
    tight, roomy = FakeCompile(), FakeCompile()
    tight.answer = lambda train: fake_program(train, gib=22 + 2 * float(train["per_device_batch_size"]))
    for name, compiles in (("tight", tight), ("roomy", roomy)):
        run_search(tmp_path / name, compiles, 700)
    assert max(tight.batches) <= 8
    assert max(roomy.batches) >= 12


def test_what_did_not_fit_is_not_tried_with_a_larger_batch(tmp_path: Path) -> None:
    def small(train: Mapping[str, Any]) -> Program:
        return fake_program(train, gib=40, fits=False) if train["per_device_batch_size"] > 4 else fake_program(train)

    compiles = FakeCompile(small)
    result, output = run_search(tmp_path, compiles, 700)
    assert any("It does not fit" in line for line in output)
    same = [
        train["per_device_batch_size"]
        for train in compiles.requests
        if train["per_device_batch_size"] > 4 and not train.get("remat_policy") and train["ici_tensor_parallelism"] == 4
    ]
    assert same == sorted(same, reverse=True)
    assert "not fit; " in result.says


def test_a_full_host_does_not_exclude_configs_without_offloading(tmp_path: Path) -> None:
    """If a config does not fit because of the host's memory, the search still tries other configs."""

    def full(train: Mapping[str, Any]) -> Program:
        offloads = "offload" in train.values() or "offloaded" in str(train.get("remat_policy"))
        return read(program(host=181)) if offloads else fake_program(train)

    compiles = FakeCompile(full)
    result, output = run_search(tmp_path, compiles, 900)
    assert any("the offloaded data takes 724.0 GiB" in line for line in output)
    assert len(result.better) == 3


def test_configs_that_do_not_fit_the_host_are_not_compiled(tmp_path: Path) -> None:
    """A policy that offloads everything needs 7.5 GB per chip for four sequences, 30 GB per host."""
    compiles = FakeCompile()
    run_search(tmp_path, compiles, 900, "worker.memory=20G")
    for train in compiles.requests:
        if train["per_device_batch_size"] >= 4:
            assert [value for value in train.values() if value == "offload"].count("offload") < 4


def test_rejected_configs_are_skipped(tmp_path: Path) -> None:
    def picky(train: Mapping[str, Any]) -> Program:
        if train["per_device_batch_size"] != 6:
            raise LauncherError("No such batch.")
        return fake_program(train)

    compiles = FakeCompile(picky)
    result, output = run_search(tmp_path, compiles, 700, user=fake_program(plan().config["train"]))
    assert any(line.endswith(": No such batch.") for line in output)
    assert " refused; " in result.says
    assert result.better
    assert all(one.change.sets["train.per_device_batch_size"] == 6 for one in result.better)


def test_what_a_rule_forbids_is_not_compiled(tmp_path: Path) -> None:
    """Llama's 8 key and value heads can be divided over 8 chips at most, and 16 chips are not a multiple of 3."""
    compiles = FakeCompile()
    run_search(tmp_path, compiles, 700)
    assert all(16 % train.get("ici_tensor_parallelism", 1) == 0 for train in compiles.requests)


# --- The end of the search ----------------------------------------------------------------------------------------


def test_it_ends_in_time(tmp_path: Path) -> None:
    compiles = FakeCompile()
    result, _ = run_search(tmp_path, compiles, 240)
    # With 40 s left, no compile is started, because the compile of the run took 100 s.
    assert (len(compiles.requests), compiles.clock) == (2, 200)
    assert result.says.startswith("2 other configs were compiled")
    assert result.says.endswith("the time limit of 4 min was reached.")


def test_a_compile_that_takes_too_long_is_the_last(tmp_path: Path) -> None:
    compiles = FakeCompile()
    result, output = run_search(tmp_path, compiles, 160)
    assert (len(compiles.requests), compiles.clock) == (2, 160)
    assert result.says.startswith("1 other config was compiled")
    assert not any("took too long" in line for line in output)


def test_a_timeout_of_one_compile_is_not_the_end(tmp_path: Path) -> None:
    """--timeout is shorter than the remaining time of the search."""

    def endless(train: Mapping[str, Any]) -> Program:
        if train.get("remat_policy"):
            raise CompileTimeout("The compile took too long and was ended.")
        return fake_program(train)

    compiles = FakeCompile(endless)
    result, output = run_search(tmp_path, compiles, 900, user=fake_program(plan().config["train"]))
    assert any("took too long" in line for line in output)
    assert result.better


def test_cached_configs_come_first_and_take_no_time(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for batch in (2, 5, 6):
        wanted = plan(LLAMA, f"train.per_device_batch_size={batch}")
        cache.put(request(wanted), fake_program(wanted.config["train"]))
    compiles = FakeCompile()
    result, output = run_search(tmp_path, compiles, 0.01)
    assert compiles.requests == []
    assert [one.change.sets["train.per_device_batch_size"] for one in result.better] == [6, 5]
    assert len(output) == 2  # a smaller batch alone is not faster
    assert result.says == "2 other configs were compiled; the time limit of 0 s was reached."


def test_the_same_again_is_all_from_the_cache(tmp_path: Path) -> None:
    first, _ = run_search(tmp_path, FakeCompile(), 500)
    compiles = FakeCompile()
    again, _ = run_search(tmp_path, compiles, 0.01)
    assert compiles.requests == []
    assert again.better == first.better


def test_ctrl_c_keeps_what_was_compiled(tmp_path: Path) -> None:
    def interrupted(train: Mapping[str, Any]) -> Program:
        if compiles.clock > 250:
            raise KeyboardInterrupt
        return fake_program(train)

    compiles = FakeCompile(interrupted)
    output = RecordingWatch()
    wanted = plan()
    own = fake_program(wanted.config["train"])
    compiler = Compiler(Cache(tmp_path), watch=output, run=compiles)
    with pytest.raises(KeyboardInterrupt):
        search(wanted, own, memory_fit.judge(own, wanted), compiler, 1000, now=lambda: compiles.clock)
    assert len(list(tmp_path.glob("*.json"))) == 2
    assert output.lines[-1] == "Interrupted. Compiled configs are cached: the same command resumes from there."


# --- The output of launcher forecast ------------------------------------------------------------------------------


def run_forecast(folder: Path, compiles: FakeCompile, *sets: str, seconds: float | None) -> Forecast:
    # Without a search, only the run itself is compiled.
    return forecast(plan(LLAMA, *sets), Compiler(Cache(folder), run=compiles), search_seconds=seconds)


def test_there_is_no_search_by_default(tmp_path: Path) -> None:
    compiles = FakeCompile()
    for seconds in (None, 0):
        result = run_forecast(tmp_path, compiles, seconds=seconds)
        assert (result.better, result.searched) == ((), "")
    assert len(compiles.requests) == 1


def test_the_table_and_the_overlays(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    wanted = plan(LLAMA, "train.per_device_batch_size=8")
    cache.put(request(wanted), fake_program(wanted.config["train"]))
    result = run_forecast(tmp_path, FakeCompile(), seconds=0.01)
    table, overlay = texts.text(result).split("\n\n")[1:]
    assert table.splitlines() == [
        "          step   tokens/s/device  gain    MFU    HBM left  global batch",
        "this run  1.4 s  5,851            1.00 x  15.6%  16.2 GiB  64",
        "1         2.4 s  6,827            1.17 x  18.2%  8.2 GiB   128",
    ]
    assert overlay.splitlines() == [
        "# Forecast: 1.17 x the run's tokens per second: 6,827 per device instead of 5,851; 2.4 s per step instead of "
        "1.4 s. MFU",
        "# 18.2%.",
        "# It fits: 23.0 GiB of a chip's 31.2 GiB, 26% of it left.",
        "# Compiled for llama3-8b on v6e 4x4 by maxtext 0.2.5, jax 0.11.1, jaxlib 0.11.1, libtpu 0.0.46.",
        "# A step learns from 128 sequences instead of 64.",
        "train:",
        "  per_device_batch_size: 8",
    ]
    (data,) = result.as_json()["better"]
    assert data["overlay"] == overlay + "\n"
    assert (data["sets"], data["global_batch"]) == ({"train.per_device_batch_size": 8}, 128)
    assert data["gain"] == pytest.approx(2.8 / 2.4, rel=1e-4)
    assert data["hbm_margin_bytes"] == int(31.25 * GIB) - 23 * GIB


def test_an_overlay_is_what_was_compiled(tmp_path: Path) -> None:
    """With -f after the run's values, it gives the same program, even with flags that contain spaces."""
    compiles = FakeCompile()
    result, _ = run_search(tmp_path, compiles, 1000, "worker.env.LIBTPU_INIT_ARGS=--xla_a=true")
    keys = {path.stem for path in tmp_path.glob("*.json")}
    assert len(result.better) == 3
    for number, one in enumerate(result.better):
        file = tmp_path / f"{number}.yaml"
        file.write_text(one.overlay)
        user = values.merge(plan(LLAMA, "worker.env.LIBTPU_INIT_ARGS=--xla_a=true").user, values.read_file(str(file)))
        assert request(plan_launch(user, DEFAULTS, rules=SHAPE_RULES)).key in keys
