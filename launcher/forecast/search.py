"""Configs that are faster than a run that fits: estimated by arithmetic, and compiled, the most promising first.

From the best config so far every lever is looked at, alone and with one of another kind. What cannot fit, or cannot be
faster than the best, is left out with a margin for what the estimate does not know; of the others, those in the cache
are taken first, which costs nothing, and then the one that promises most for its compile. What comes of it is the base
of the next look.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from launcher import formatting
from launcher.config.checks.rules import FORECAST_RULES
from launcher.config.maxtext.mesh import MeshError, mesh
from launcher.config.plan import LaunchPlan
from launcher.errors import LauncherError
from launcher.forecast import fit
from launcher.forecast.changes import Change, changed
from launcher.forecast.chip import Chip, chip_of
from launcher.forecast.compiled import Compiler, describe
from launcher.forecast.estimate import (
    MEMORY_MARGIN,
    SPEED_DOUBT,
    SPEED_MARGIN_DIFFERENT_SHARDING,
    TENSORS,
    CompiledReference,
    Estimate,
    Layout,
    estimate,
    layout,
)
from launcher.forecast.fit import FitResult
from launcher.forecast.improvement import Improvement, overlay
from launcher.forecast.network import Torus
from launcher.forecast.program import Program
from launcher.forecast.request import of_config, request
from launcher.forecast.search_space import AXES, FLAGS, candidates, value_of
from launcher.forecast.speed import Speed, speed_of

BEST = 3
# A compile that has less than this part of what the run's own took is not begun.
_WORTH_BEGINNING = 0.5
# The chance of what may fit by its estimate, and has little by what others of the kind took.
_MIN_FIT_PROBABILITY = 0.02
_FLAGS = f"worker.env.{FLAGS}"


@dataclass(frozen=True)
class SearchResult:
    """The best configs, best first, and a sentence on what was tried."""

    better: tuple[Improvement, ...]
    says: str


@dataclass(frozen=True)
class _Point:
    """A config that was compiled: `sets` is what it has on top of the user's values."""

    sets: Mapping[str, Any]
    plan: LaunchPlan
    program: Program
    speed: Speed
    verdict: FitResult
    compiled: CompiledReference

    @property
    def rate(self) -> float:
        return self.speed.tokens_per_second_per_device or 0.0


@dataclass(frozen=True)
class _Candidate:
    change: Change
    shape: Layout
    key: str
    cached: bool
    worth: float


@dataclass
class _Search:
    """`points` are the configs that were compiled and fit, the user's first; `seen` the keys of all that were tried;
    `too_large` those that did not fit in HBM, `too_much` the least that was offloaded and did not fit in the host's
    memory; `short` is how far estimates of the memory fell short of what did not fit."""

    user: _Point
    compiler: Compiler
    chip: Chip
    torus: Torus
    capacity: int
    devices: int
    versions: Mapping[str, str]
    deadline: float
    now: Callable[[], float]
    points: list[_Point] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    too_large: list[Layout] = field(default_factory=list)
    too_much: float = math.inf
    short: float = 1.0
    refused: int = 0
    tried: int = 0
    misfits: int = 0
    _looked_at: dict[str, tuple[str, Layout | None]] = field(default_factory=dict)

    # --- What to try ---

    @property
    def best(self) -> _Point:
        return max(self.points, key=lambda point: point.rate)

    @property
    def left(self) -> float:
        return self.deadline - self.now()

    def candidates(self, origin: _Point) -> Iterator[_Candidate]:
        """What is left to try from a point on."""
        best, config = self.best, origin.plan.config
        known: set[str] = set()
        for lever in candidates(config, mesh(config["train"], slices=self.slices, devices=self.devices)):
            sets = dict(sorted(self._net({**origin.sets, **lever}).items()))
            name = repr(sets)
            if name in known:
                continue
            known.add(name)
            if name not in self._looked_at:
                self._looked_at[name] = (self._key(sets), self._layout(sets))
            key, shape = self._looked_at[name]
            if shape is None or key in self.seen:
                continue
            cached = self.compiler.has(key)
            worth = 0.0 if self._is_too_large(shape) else self._worth(shape, best)
            if cached or worth > 0:
                yield _Candidate(Change(sets, ""), shape, key, cached, worth)

    def _key(self, sets: Mapping[str, Any]) -> str:
        """That of the program, without a plan: making one takes ten times as long, and few of them are needed."""
        config = self.user.plan.config
        env = {**config["worker"]["env"], **({FLAGS: sets[_FLAGS]} if _FLAGS in sets else {})}
        changed_ = {"train": {**config["train"], **_train(sets)}, "worker": {**config["worker"], "env": env}}
        return of_config({**config, **changed_}, self.versions).key

    def _layout(self, sets: Mapping[str, Any]) -> Layout | None:
        train = {**self.user.plan.config["train"], **_train(sets)}
        return layout(train, slices=self.slices, devices=self.devices)

    @property
    def slices(self) -> int:
        return int(self.user.plan.config["slice"].get("count") or 1)

    def _net(self, sets: Mapping[str, Any]) -> dict[str, Any]:
        """Without what is so by the user's values, or MaxText's defaults: the same config is the same sets."""
        plan = self.user.plan
        env, train = plan.config["worker"]["env"], value_of(plan.config["train"])
        found = {
            key: value
            for key, value in sets.items()
            if (train(key.removeprefix("train.")) if key.startswith("train.") else env.get(FLAGS)) != value
        }
        merged = {**plan.config["train"], **_train(sets)}
        if value_of(merged)("remat_policy") != "custom":  # then nothing asks what it would be
            found = {key: value for key, value in found.items() if key.removeprefix("train.") not in TENSORS}
        if not any(key in found for key in AXES):
            return found
        try:
            ici = mesh(merged, slices=self.slices, devices=self.devices).ici
        except MeshError:
            return found
        alike = ici == self.user.compiled.layout.axes
        return {key: value for key, value in found.items() if not (alike and key in AXES)}

    def _is_too_large(self, shape: Layout) -> bool:
        """Whether one that is sharded alike and has no more to keep did not fit."""
        return any(
            one.axes == shape.axes and one.kept <= shape.kept and one.work <= shape.work for one in self.too_large
        )

    def _worth(self, shape: Layout, best: _Point) -> float:
        """What a compile may be expected to gain, 0 where it can gain nothing: the estimated gain over the best, with
        what the estimate may be wrong by, times the chance that it fits."""
        known = self._nearest(shape)
        found = estimate(shape, known.compiled, self.chip, self.torus)
        alike = known.compiled.layout.is_like(shape)
        at_best = found.rate * (SPEED_DOUBT if alike else SPEED_MARGIN_DIFFERENT_SHARDING)
        if at_best <= best.rate or not self._host_has_room(shape):
            return 0.0
        # A hope without a number counts for little, so that it comes after what is reckoned to be faster.
        hope = 0.01 * (at_best / best.rate - 1)
        sure = 1.0 if alike else SPEED_DOUBT / SPEED_MARGIN_DIFFERENT_SHARDING
        return (max(0.0, found.rate / best.rate - 1) * sure + hope) * self._chance(found)

    def _host_has_room(self, shape: Layout) -> bool:
        """For what is offloaded, beside what else the user's run keeps there."""
        own, row = self.user.verdict, self.user.plan.config["accelerator"]
        if shape.offloaded >= self.too_much:
            return False
        if own.host_capacity is None:
            return True
        more = shape.offloaded - self.user.compiled.layout.offloaded
        devices = int(row["chipsPerHost"]) * fit.devices_per_chip(self.user.program, self.user.plan.config)
        return bool(own.host + more * devices <= own.host_capacity)

    def _nearest(self, shape: Layout) -> _Point:
        """The compiled config that is most like a layout: sharded alike, with as much kept, of a similar batch."""

        def likeness(point: _Point) -> tuple[bool, bool, float]:
            own = point.compiled.layout
            as_much = own.kept / own.tokens == shape.kept / shape.tokens
            return own.is_like(shape), as_much, -abs(own.tokens - shape.tokens)

        return max(self.points, key=likeness)

    def _chance(self, found: Estimate) -> float:
        """That it fits: 1 well below the capacity, 0 from where the estimate's doubt ends."""
        if found.memory is None:
            return 1.0
        if found.memory > self.capacity * MEMORY_MARGIN:
            return 0.0
        over = found.memory * self.short / self.capacity
        return min(1.0, max(_MIN_FIT_PROBABILITY, (MEMORY_MARGIN - over) / (2 * (MEMORY_MARGIN - 1))))

    # --- Trying ---

    def run(self) -> bool:
        """Try until there is no time or nothing left; whether it was time that ended it."""
        looked_round = 0
        while True:
            # What is in the cache costs nothing, wherever it lies; so an interrupted search finds back all that it had.
            while looked_round < len(self.points):
                for candidate in list(self.candidates(self.points[looked_round])):
                    if candidate.cached and not self._try(candidate):
                        return True
                looked_round += 1
            found = list(self.candidates(self.best))
            if not found:
                return False
            if self.left <= max(0.0, _WORTH_BEGINNING * self.user.program.seconds):
                return True
            if not self._try(max(found, key=lambda one: one.worth)):
                return True

    def _try(self, candidate: _Candidate) -> bool:
        """Compile it, unless a rule forbids it; False where the time ran out over it."""
        self.seen.add(candidate.key)
        plan = changed(self.user.plan, candidate.change, FORECAST_RULES)
        if plan is None:
            return True
        options = candidate.change.options
        say = self.compiler.watch.say
        try:
            program, _ = self.compiler.program(
                plan, seconds=max(self.left, 1.0), what=f"{describe(plan)} with {options}"
            )
        except LauncherError as error:  # what MaxText or the compiler refuses is no way to go
            if self.left <= 0:
                return False
            self.refused += 1
            say(f"{options}: {error.message}")
            return True
        self.tried += 1
        judged = fit.judge(program, plan)
        if not judged.fits:
            self.misfits += 1
            if program.fits and (judged.hbm or 0) <= judged.hbm_capacity:  # then it is the host's memory
                self.too_much = min(self.too_much, candidate.shape.offloaded)
            else:
                self.too_large.append(candidate.shape)
                told = estimate(candidate.shape, self._nearest(candidate.shape).compiled, self.chip, self.torus).memory
                self.short = max(self.short, judged.hbm / told) if told and judged.hbm else self.short
            say(f"{options}: {judged.says}")
            return True
        point = point_of(candidate.change.sets, plan, program, judged, self.devices)
        if point is None:
            return True
        self.points.append(point)
        gain = point.rate / self.user.rate
        say(f"{options}: {point.rate:,.0f} tokens/s/device, {gain:.2f} x the run's. {judged.says}")
        return True


def search(
    plan: LaunchPlan,
    program: Program,
    judged: FitResult,
    compiler: Compiler,
    seconds: float,
    *,
    now: Callable[[], float] = time.monotonic,
) -> SearchResult:
    """Configs that are faster than the plan, whose program fits; at most `seconds` are spent on it.

    Raises KeyboardInterrupt as it comes: what was compiled until then is in the cache.
    """
    count = int(plan.config["slice"].get("count") or 1)
    devices = (program.devices or fit.chips_of(plan.config)) // count
    chip = chip_of(plan.config["accelerator"], fit.devices_per_chip(program, plan.config))
    user = point_of({}, plan, program, judged, devices)
    if chip is None or user is None:
        return SearchResult((), "Nothing was searched for: the program does not tell how many tokens a step has.")
    own = request(plan)
    looking = _Search(
        user=user,
        compiler=compiler,
        chip=chip,
        torus=Torus(program.torus["size"], program.torus["wraps"]),
        capacity=judged.hbm_capacity,
        devices=devices,
        versions=own.versions,
        deadline=now() + seconds,
        now=now,
        points=[user],
        seen={own.key},
    )
    try:
        out_of_time = looking.run()
    except KeyboardInterrupt:
        compiler.watch.say("Interrupted. What was compiled is kept: the same command goes on from there.")
        raise
    faster = sorted((point for point in looking.points if point.rate > user.rate), key=_order)
    better = tuple(_improvement(point, user) for point in faster[:BEST])
    return SearchResult(better, _summary(looking, better, out_of_time, seconds))


def point_of(
    sets: Mapping[str, Any], plan: LaunchPlan, program: Program, judged: FitResult, devices: int
) -> _Point | None:
    """A compiled config that fits, with what it is estimated by; None where its speed is not known."""
    speed = speed_of(program, plan.config)
    count = int(plan.config["slice"].get("count") or 1)
    shape = layout(plan.config["train"], slices=count, devices=devices)
    tokens = program.model.tokens_per_step_per_device
    if speed is None or shape is None or not tokens:
        return None
    compiled = CompiledReference(shape, program.memory, speed.parts, speed.hidden, tokens)
    return _Point(sets, plan, program, speed, judged, compiled)


def _order(point: _Point) -> tuple[float, int, str]:
    """The fastest first, and of those that are as fast the one that changes least."""
    return -point.rate, len(point.sets), repr(sorted(point.sets.items()))


def _improvement(point: _Point, user: _Point) -> Improvement:
    lines = [
        f"Forecast: {point.rate / user.rate:.2f} x the run's tokens a second: {point.rate:,.0f} a device instead of "
        f"{user.rate:,.0f}; {point.speed.step_seconds:.3g} s a step instead of {user.speed.step_seconds:.3g} s."
        + (f" MFU {point.speed.mfu:.1%}." if point.speed.mfu is not None else ""),
        point.verdict.says,
        f"Compiled for {describe(point.plan)} by {', '.join(map(' '.join, point.program.versions.items()))}.",
    ]
    batch, before = point.program.model.global_batch, user.program.model.global_batch
    if batch and before and batch != before:
        lines.append(f"A step learns from {batch:,g} sequences instead of {before:,g}.")
    change = Change(point.sets, "")
    return Improvement(change, point.verdict, point.speed, point.rate / user.rate, batch, overlay(point.sets, lines))


def _summary(looking: _Search, better: tuple[Improvement, ...], out_of_time: bool, seconds: float) -> str:
    """What was tried, and what ended it."""
    parts = ["1 other config was compiled" if looking.tried == 1 else f"{looking.tried} other configs were compiled"]
    if looking.misfits:
        parts.append(f"{looking.misfits} of them {'does' if looking.misfits == 1 else 'do'} not fit")
    if looking.refused:
        parts.append(f"{looking.refused} more {'was' if looking.refused == 1 else 'were'} refused")
    why = f"the {formatting.duration(seconds)} are over" if out_of_time else "no other is estimated to be faster"
    none = "" if better else " None is faster."
    return f"{', '.join(parts)}; {why}.{none}"


def _train(sets: Mapping[str, Any]) -> dict[str, Any]:
    return {key.removeprefix("train."): value for key, value in sets.items() if key.startswith("train.")}
