"""Find configs that are faster than a run that fits: estimate them, and compile the most promising ones first.

From the best config so far, try every lever, alone and together with one of another kind. Configs that cannot fit, or
cannot be faster than the best, are left out, with a margin for the error of the estimate. The cached configs
come first, because they cost nothing, and then the config with the best expected gain for its compile. The result
is the base of the next round.
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
from launcher.products.planner.forecast import memory_fit
from launcher.products.planner.forecast.changes import Change, changed
from launcher.products.planner.forecast.chip import Chip, chip_of
from launcher.products.planner.forecast.compiled import Compiler, describe
from launcher.products.planner.forecast.estimate import (
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
from launcher.products.planner.forecast.improvement import Improvement, overlay
from launcher.products.planner.forecast.memory_fit import FitResult
from launcher.products.planner.forecast.network import Torus
from launcher.products.planner.forecast.program import Program
from launcher.products.planner.forecast.request import of_config, request
from launcher.products.planner.forecast.search_space import AXES, FLAGS, candidates, value_of
from launcher.products.planner.forecast.speed import Speed, speed_of

BEST = 3
# A compile is not started if the time left is less than this share of the time that the run's own compile took.
_WORTH_BEGINNING = 0.5
# The minimum probability of a fit for a config within the margin of its estimate.
_MIN_FIT_PROBABILITY = 0.02
_FLAGS = f"worker.env.{FLAGS}"


@dataclass(frozen=True)
class SearchResult:
    """The best configs, best first, and a sentence on what was tried."""

    better: tuple[Improvement, ...]
    says: str


@dataclass(frozen=True)
class _Point:
    """A config that was compiled. `sets` are its values on top of the user's."""

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
    """The state of a search.

    `points` are the configs that were compiled and fit, the user's first. `seen` are the keys of all that were tried.
    `too_large` are those that did not fit in HBM. `too_much` is the smallest amount of offloaded data that did not fit
    in the host's memory. `short` is the factor by which memory estimates were too low for configs that did not fit.
    """

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
        """Yield what is left to try from a point."""
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
        """Return the program's key without making a plan, which takes ten times as long and is rarely needed."""
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
        """Drop the sets that equal the user's values or MaxText's defaults, so that equal configs have equal sets."""
        plan = self.user.plan
        env, train = plan.config["worker"]["env"], value_of(plan.config["train"])
        differing = {
            key: value
            for key, value in sets.items()
            if (train(key.removeprefix("train.")) if key.startswith("train.") else env.get(FLAGS)) != value
        }
        merged = {**plan.config["train"], **_train(sets)}
        if value_of(merged)("remat_policy") != "custom":  # otherwise the sets of the tensors have no effect
            differing = {key: value for key, value in differing.items() if key.removeprefix("train.") not in TENSORS}
        if not any(key in differing for key in AXES):
            return differing
        try:
            ici = mesh(merged, slices=self.slices, devices=self.devices).ici
        except MeshError:
            return differing
        alike = ici == self.user.compiled.layout.axes
        return {key: value for key, value in differing.items() if not (alike and key in AXES)}

    def _is_too_large(self, shape: Layout) -> bool:
        """Return whether a config with the same sharding that keeps no more than this one did not fit."""
        return any(
            one.axes == shape.axes and one.kept <= shape.kept and one.work <= shape.work for one in self.too_large
        )

    def _worth(self, shape: Layout, best: _Point) -> float:
        """Return the expected gain of a compile, or 0 if it can gain nothing.

        It is the estimated gain over the best config, with a margin for the estimate's error, times the probability of
        a fit.
        """
        known = self._nearest(shape)
        estimated = estimate(shape, known.compiled, self.chip, self.torus)
        alike = known.compiled.layout.is_like(shape)
        at_best = estimated.rate * (SPEED_DOUBT if alike else SPEED_MARGIN_DIFFERENT_SHARDING)
        if at_best <= best.rate or not self._host_has_room(shape):
            return 0.0
        # A gain that is only within the margin counts for little: such configs come after those with an estimated gain.
        hope = 0.01 * (at_best / best.rate - 1)
        sure = 1.0 if alike else SPEED_DOUBT / SPEED_MARGIN_DIFFERENT_SHARDING
        return (max(0.0, estimated.rate / best.rate - 1) * sure + hope) * self._chance(estimated)

    def _host_has_room(self, shape: Layout) -> bool:
        """Return whether the host has room for the offloaded data, in addition to the user's run."""
        own, row = self.user.verdict, self.user.plan.config["accelerator"]
        if shape.offloaded >= self.too_much:
            return False
        if own.host_capacity is None:
            return True
        more = shape.offloaded - self.user.compiled.layout.offloaded
        devices = int(row["chipsPerHost"]) * memory_fit.devices_per_chip(self.user.program, self.user.plan.config)
        return bool(own.host + more * devices <= own.host_capacity)

    def _nearest(self, shape: Layout) -> _Point:
        """Return the compiled config that is most similar: the same sharding, as much kept, a similar batch."""

        def likeness(point: _Point) -> tuple[bool, bool, float]:
            own = point.compiled.layout
            as_much = own.kept / own.tokens == shape.kept / shape.tokens
            return own.is_like(shape), as_much, -abs(own.tokens - shape.tokens)

        return max(self.points, key=likeness)

    def _chance(self, estimated: Estimate) -> float:
        """Return the probability of a fit: 1 well below the capacity, 0 beyond the margin of the estimate."""
        if estimated.memory is None:
            return 1.0
        if estimated.memory > self.capacity * MEMORY_MARGIN:
            return 0.0
        over = estimated.memory * self.short / self.capacity
        return min(1.0, max(_MIN_FIT_PROBABILITY, (MEMORY_MARGIN - over) / (2 * (MEMORY_MARGIN - 1))))

    # --- Trying ---

    def run(self) -> bool:
        """Try configs until the time is up or none is left. Return whether the time ended the search."""
        looked_round = 0
        while True:
            # Cached configs cost nothing, so all are tried. An interrupted search thus resumes with all its results.
            while looked_round < len(self.points):
                for candidate in list(self.candidates(self.points[looked_round])):
                    if candidate.cached and not self._try(candidate):
                        return True
                looked_round += 1
            points = list(self.candidates(self.best))
            if not points:
                return False
            if self.left <= max(0.0, _WORTH_BEGINNING * self.user.program.seconds):
                return True
            if not self._try(max(points, key=lambda one: one.worth)):
                return True

    def _try(self, candidate: _Candidate) -> bool:
        """Compile a config unless a rule forbids it. Return False if the time ran out during the compile."""
        self.seen.add(candidate.key)
        plan = changed(self.user.plan, candidate.change, FORECAST_RULES)
        if plan is None:
            return True
        options = candidate.change.options
        say = self.compiler.watch.print_line
        try:
            program, _ = self.compiler.program(
                plan, seconds=max(self.left, 1.0), what=f"{describe(plan)} with {options}"
            )
        except LauncherError as error:  # MaxText or the compiler refuses this config
            if self.left <= 0:
                return False
            self.refused += 1
            say(f"{options}: {error.message}")
            return True
        self.tried += 1
        judged = memory_fit.judge(program, plan)
        if not judged.fits:
            self.misfits += 1
            if program.fits and (judged.hbm or 0) <= judged.hbm_capacity:  # so it is the host's memory
                self.too_much = min(self.too_much, candidate.shape.offloaded)
            else:
                self.too_large.append(candidate.shape)
                memory = estimate(
                    candidate.shape, self._nearest(candidate.shape).compiled, self.chip, self.torus
                ).memory
                self.short = max(self.short, judged.hbm / memory) if memory and judged.hbm else self.short
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
    """Return configs that are faster than the plan, whose program fits. Spend at most `seconds`.

    KeyboardInterrupt is passed on. Everything that was compiled before it is in the cache.
    """
    count = int(plan.config["slice"].get("count") or 1)
    devices = (program.devices or memory_fit.chips_of(plan.config)) // count
    chip = chip_of(plan.config["accelerator"], memory_fit.devices_per_chip(program, plan.config))
    user = point_of({}, plan, program, judged, devices)
    if chip is None or user is None:
        return SearchResult(
            (), "No search was made: the compiled program does not give the number of tokens of a step."
        )
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
        compiler.watch.print_line("Interrupted. Compiled configs are cached: the same command resumes from there.")
        raise
    faster = sorted((point for point in looking.points if point.rate > user.rate), key=_order)
    better = tuple(_improvement(point, user) for point in faster[:BEST])
    return SearchResult(better, _summary(looking, better, out_of_time, seconds))


def point_of(
    sets: Mapping[str, Any], plan: LaunchPlan, program: Program, judged: FitResult, devices: int
) -> _Point | None:
    """Return a compiled config that fits, with the basis for estimates, or None if its speed is not known."""
    speed = speed_of(program, plan.config)
    count = int(plan.config["slice"].get("count") or 1)
    shape = layout(plan.config["train"], slices=count, devices=devices)
    tokens = program.model.tokens_per_step_per_device
    if speed is None or shape is None or not tokens:
        return None
    compiled = CompiledReference(shape, program.memory, speed.parts, speed.hidden, tokens)
    return _Point(sets, plan, program, speed, judged, compiled)


def _order(point: _Point) -> tuple[float, int, str]:
    """Sort key: the fastest first, and of equally fast configs the one with the fewest changes."""
    return -point.rate, len(point.sets), repr(sorted(point.sets.items()))


def _improvement(point: _Point, user: _Point) -> Improvement:
    lines = [
        f"Forecast: {point.rate / user.rate:.2f} x the run's tokens per second: {point.rate:,.0f} per device instead "
        f"of {user.rate:,.0f}; {point.speed.step_seconds:.3g} s per step instead of {user.speed.step_seconds:.3g} s."
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
    """Return a sentence on what was tried, and why the search ended."""
    parts = ["1 other config was compiled" if looking.tried == 1 else f"{looking.tried} other configs were compiled"]
    if looking.misfits:
        parts.append(f"{looking.misfits} of them {'does' if looking.misfits == 1 else 'do'} not fit")
    if looking.refused:
        parts.append(f"{looking.refused} more {'was' if looking.refused == 1 else 'were'} refused")
    why = (
        f"the time limit of {formatting.duration(seconds)} was reached"
        if out_of_time
        else "no other config is estimated to be faster"
    )
    none = "" if better else " None is faster."
    return f"{', '.join(parts)}; {why}.{none}"


def _train(sets: Mapping[str, Any]) -> dict[str, Any]:
    return {key.removeprefix("train."): value for key, value in sets.items() if key.startswith("train.")}
