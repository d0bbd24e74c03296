"""The search for configs that are faster: its order, what it leaves out, what ends it.

The compile is a stand-in, which takes no time but says that it did, by a clock of its own: a real one takes minutes,
and none can be made to fit or to be fast as a test wants it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from launcher.cli import forecast_text as texts
from launcher.config.checks.rules import SHAPE_RULES
from launcher.config.plan import plan_launch
from launcher.config.values import files as values
from launcher.errors import LauncherError
from launcher.forecast import fit
from launcher.forecast.cache import Cache
from launcher.forecast.child import CompileTimeout
from launcher.forecast.compiled import Compiler
from launcher.forecast.forecast import Forecast, forecast
from launcher.forecast.program import Program, read
from launcher.forecast.request import Request, request
from launcher.forecast.search import SearchResult, search
from launcher.forecast.watch import Silent
from tests.forecasts import DEFAULTS, GIB, LLAMA, V6E, plan, program

SECONDS = 100.0


class Said(Silent):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


def made(
    train: Mapping[str, Any], *, gib: float | None = None, links: float | None = None, fits: bool | None = None
) -> Program:
    """Of a model whose memory and time grow with the batch; its weights' way over the links takes as long for all.

    A sequence takes a quarter of a second, 0.05 s less where nothing is made again, and 2 GiB, or 5.
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


class Compiles:
    """Remembers what it was asked for, beside what the user has."""

    def __init__(self, answer: Callable[[Mapping[str, Any]], Program] = made) -> None:
        self.answer = answer
        self.asked: list[Mapping[str, Any]] = []
        self.clock = 0.0

    def __call__(self, request: Request, log: Path, *, limits: Any, **_: Any) -> Program:
        train = request.config["train"]
        self.asked.append(train)
        if limits.seconds < SECONDS:
            self.clock += limits.seconds
            raise CompileTimeout("The compile took too long and was ended.")
        self.clock += SECONDS
        return self.answer(train)

    @property
    def batches(self) -> list[Any]:
        return [train.get("per_device_batch_size") for train in self.asked]


def found(
    folder: Path, compiles: Compiles, seconds: float, *sets: str, user: Program | None = None
) -> tuple[SearchResult, list[str]]:
    wanted, said = plan(LLAMA, *sets), Said()
    own = user or compiles.answer(wanted.config["train"])
    compiler = Compiler(Cache(folder), watch=said, run=compiles)
    verdict = fit.judge(own, wanted)
    return search(wanted, own, verdict, compiler, seconds, now=lambda: compiles.clock), said.lines


# --- What comes of it ---------------------------------------------------------------------------------------------


def test_the_best_configs_were_compiled_and_are_faster(tmp_path: Path) -> None:
    compiles = Compiles()
    result, said = found(tmp_path, compiles, 1000)
    rates = [one.speed.tokens_per_second_per_device or 0 for one in result.better]
    assert len(rates) == 3
    assert rates == sorted(rates, reverse=True)
    assert all(one.verdict.fits and one.gain > 1 for one in result.better)
    for one in result.better:
        train = plan(LLAMA, *(f"{key}={value}" for key, value in one.change.sets.items())).config["train"]
        assert any(train.items() <= asked.items() for asked in compiles.asked)
    assert any("tokens/s/device" in line for line in said)


def test_each_step_is_from_the_best_so_far(tmp_path: Path) -> None:
    """A few compiles find what is better than the run, the next what is better than that."""
    first = found(tmp_path / "few", Compiles(), 240)[0].better[0]
    more = found(tmp_path / "more", Compiles(), 1000)[0].better[0]
    assert 1 < first.gain < more.gain


def test_nothing_is_compiled_twice(tmp_path: Path) -> None:
    compiles = Compiles()
    found(tmp_path, compiles, 700)
    keys = [repr(sorted(train.items())) for train in compiles.asked]
    assert len(keys) == len(set(keys))


def test_nothing_is_faster(tmp_path: Path) -> None:
    """All others are as slow as can be, so that nothing else promises enough after some."""

    def slow(train: Mapping[str, Any]) -> Program:
        return made(train, links=30.0)

    user = made(plan().config["train"])
    compiles = Compiles(slow)
    result, _ = found(tmp_path, compiles, 1e6, user=user)
    assert result.better == ()
    assert result.says.endswith("no other is estimated to be faster. None is faster.")


# --- What it leaves out -------------------------------------------------------------------------------------------


def test_what_cannot_fit_is_not_compiled(tmp_path: Path) -> None:
    """30 of 31.25 GiB are taken: three times the batch does not fit, whatever the estimate's doubt."""
    tight, roomy = Compiles(), Compiles()
    tight.answer = lambda train: made(train, gib=22 + 2 * float(train["per_device_batch_size"]))
    for name, compiles in (("tight", tight), ("roomy", roomy)):
        found(tmp_path / name, compiles, 700)
    assert max(tight.batches) <= 8
    assert max(roomy.batches) >= 12


def test_what_did_not_fit_is_not_tried_with_a_larger_batch(tmp_path: Path) -> None:
    def small(train: Mapping[str, Any]) -> Program:
        return made(train, gib=40, fits=False) if train["per_device_batch_size"] > 4 else made(train)

    compiles = Compiles(small)
    result, said = found(tmp_path, compiles, 700)
    assert any("It does not fit" in line for line in said)
    same = [
        train["per_device_batch_size"]
        for train in compiles.asked
        if train["per_device_batch_size"] > 4 and not train.get("remat_policy") and train["ici_tensor_parallelism"] == 4
    ]
    assert same == sorted(same, reverse=True)
    assert "not fit; " in result.says


def test_a_host_without_room_says_nothing_of_the_chip(tmp_path: Path) -> None:
    """What does not fit because of what is offloaded does not keep others from being tried."""

    def full(train: Mapping[str, Any]) -> Program:
        offloads = "offload" in train.values() or "offloaded" in str(train.get("remat_policy"))
        return read(program(host=181)) if offloads else made(train)

    compiles = Compiles(full)
    result, said = found(tmp_path, compiles, 900)
    assert any("what is offloaded takes 724.0 GiB" in line for line in said)
    assert len(result.better) == 3


def test_what_the_host_has_no_room_for_is_not_compiled(tmp_path: Path) -> None:
    """All that a policy can offload of four sequences is 7.5 GB a chip, 30 GB a host."""
    compiles = Compiles()
    found(tmp_path, compiles, 900, "worker.memory=20G")
    for train in compiles.asked:
        if train["per_device_batch_size"] >= 4:
            assert [value for value in train.values() if value == "offload"].count("offload") < 4


def test_what_is_refused_is_passed_over(tmp_path: Path) -> None:
    def picky(train: Mapping[str, Any]) -> Program:
        if train["per_device_batch_size"] != 6:
            raise LauncherError("No such batch.")
        return made(train)

    compiles = Compiles(picky)
    result, said = found(tmp_path, compiles, 700, user=made(plan().config["train"]))
    assert any(line.endswith(": No such batch.") for line in said)
    assert " refused; " in result.says
    assert result.better
    assert all(one.change.sets["train.per_device_batch_size"] == 6 for one in result.better)


def test_what_a_rule_forbids_is_not_compiled(tmp_path: Path) -> None:
    """Llama's 8 key and value heads are shared out over 8 chips at most, and 16 chips are no multiple of 3."""
    compiles = Compiles()
    found(tmp_path, compiles, 700)
    assert all(16 % train.get("ici_tensor_parallelism", 1) == 0 for train in compiles.asked)


# --- What ends it, and what it costs ------------------------------------------------------------------------------


def test_it_ends_in_time(tmp_path: Path) -> None:
    compiles = Compiles()
    result, _ = found(tmp_path, compiles, 240)
    # With 40 of the 100 s that the run's own compile took, no other is begun.
    assert (len(compiles.asked), compiles.clock) == (2, 200)
    assert result.says.startswith("2 other configs were compiled")
    assert result.says.endswith("the 4 min are over.")


def test_a_compile_that_takes_too_long_is_the_last(tmp_path: Path) -> None:
    compiles = Compiles()
    result, said = found(tmp_path, compiles, 160)
    assert (len(compiles.asked), compiles.clock) == (2, 160)
    assert result.says.startswith("1 other config was compiled")
    assert not any("took too long" in line for line in said)


def test_a_timeout_of_one_compile_is_not_the_end(tmp_path: Path) -> None:
    """--timeout is shorter than what is left to search."""

    def endless(train: Mapping[str, Any]) -> Program:
        if train.get("remat_policy"):
            raise CompileTimeout("The compile took too long and was ended.")
        return made(train)

    compiles = Compiles(endless)
    result, said = found(tmp_path, compiles, 900, user=made(plan().config["train"]))
    assert any("took too long" in line for line in said)
    assert result.better


def test_what_is_in_the_cache_goes_first_and_costs_no_time(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    for batch in (2, 5, 6):
        wanted = plan(LLAMA, f"train.per_device_batch_size={batch}")
        cache.put(request(wanted), made(wanted.config["train"]))
    compiles = Compiles()
    result, said = found(tmp_path, compiles, 0.01)
    assert compiles.asked == []
    assert [one.change.sets["train.per_device_batch_size"] for one in result.better] == [6, 5]
    assert len(said) == 2  # a smaller batch is no gain by itself
    assert result.says == "2 other configs were compiled; the 0 s are over."


def test_the_same_again_is_all_from_the_cache(tmp_path: Path) -> None:
    first, _ = found(tmp_path, Compiles(), 500)
    compiles = Compiles()
    again, _ = found(tmp_path, compiles, 0.01)
    assert compiles.asked == []
    assert again.better == first.better


def test_ctrl_c_keeps_what_was_compiled(tmp_path: Path) -> None:
    def interrupted(train: Mapping[str, Any]) -> Program:
        if compiles.clock > 250:
            raise KeyboardInterrupt
        return made(train)

    compiles = Compiles(interrupted)
    said = Said()
    wanted = plan()
    own = made(wanted.config["train"])
    compiler = Compiler(Cache(tmp_path), watch=said, run=compiles)
    with pytest.raises(KeyboardInterrupt):
        search(wanted, own, fit.judge(own, wanted), compiler, 1000, now=lambda: compiles.clock)
    assert len(list(tmp_path.glob("*.json"))) == 2
    assert said.lines[-1] == "Interrupted. What was compiled is kept: the same command goes on from there."


# --- As launcher forecast shows it --------------------------------------------------------------------------------


def whole(folder: Path, compiles: Compiles, *sets: str, seconds: float | None) -> Forecast:
    # Where nothing was searched for, nothing but the run itself is compiled.
    return forecast(plan(LLAMA, *sets), Compiler(Cache(folder), run=compiles), search_seconds=seconds)


def test_without_being_asked_nothing_is_searched_for(tmp_path: Path) -> None:
    compiles = Compiles()
    for seconds in (None, 0):
        result = whole(tmp_path, compiles, seconds=seconds)
        assert (result.better, result.searched) == ((), "")
    assert len(compiles.asked) == 1


def test_the_table_and_the_overlays(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    wanted = plan(LLAMA, "train.per_device_batch_size=8")
    cache.put(request(wanted), made(wanted.config["train"]))
    result = whole(tmp_path, Compiles(), seconds=0.01)
    table, overlay = texts.text(result).split("\n\n")[1:]
    assert table.splitlines() == [
        "          step   tokens/s/device  gain    MFU    HBM left  global batch",
        "this run  1.4 s  5,851            1.00 x  15.6%  16.2 GiB  64",
        "1         2.4 s  6,827            1.17 x  18.2%  8.2 GiB   128",
    ]
    assert overlay.splitlines() == [
        "# Forecast: 1.17 x the run's tokens a second: 6,827 a device instead of 5,851; 2.4 s a step instead of 1.4 s. "
        "MFU 18.2%.",
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
    """Read by -f over the run's own values it makes the very same program, flags with spaces and all."""
    compiles = Compiles()
    result, _ = found(tmp_path, compiles, 1000, "worker.env.LIBTPU_INIT_ARGS=--xla_a=true")
    keys = {path.stem for path in tmp_path.glob("*.json")}
    assert len(result.better) == 3
    for number, one in enumerate(result.better):
        file = tmp_path / f"{number}.yaml"
        file.write_text(one.overlay)
        user = values.merge(plan(LLAMA, "worker.env.LIBTPU_INIT_ARGS=--xla_a=true").user, values.read_file(str(file)))
        assert request(plan_launch(user, DEFAULTS, rules=SHAPE_RULES)).key in keys
