"""The time of a step: the compiler's schedule, simulated with the speeds of a chip.

The child (trainer/aot/work.py) lists what a chip does, in the order of the compiler's schedule, and what is started
early and waited for later. This module simulates the schedule with one clock for the core, and one for each resource
that works in parallel: the links to other chips along each dimension and direction, the links to other slices, the
path to the host's memory, and the path between HBM and the chip's own memory. So overlapping work is counted once,
and waiting time is attributed to what was waited for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from launcher.products.planner.forecast.chip import Chip, chip_of
from launcher.products.planner.forecast.constants import HBM_EFFICIENCY, MATMUL_EFFICIENCY
from launcher.products.planner.forecast.kernels import is_attention, kernel_seconds
from launcher.products.planner.forecast.network import Torus, collective_seconds, links_of
from launcher.products.planner.forecast.program import Program

ICI, DCN, HOST, HBM = "collectives over ICI", "collectives over DCN", "host memory", "HBM"
_COMPUTE = {"matmul": "matrix multiplications", "elementwise": "elementwise operations", "copy": "copies"}
ATTENTION, GROUPED, KERNELS = "attention", "grouped multiplications", "other kernels"
_WAYS = {"to-host": HOST, "from-host": HOST, "host": HOST, "hbm": HBM}

Step = Mapping[str, Any]
Lane = Hashable
"""A resource that does one thing at a time: a slice's links in one direction, one way between HBM and the host."""


@dataclass(frozen=True)
class StepTime:
    """The seconds of one step. `parts` sum up to them. `hidden` is overlapped work that nothing waited for."""

    seconds: float
    parts: Mapping[str, float]
    hidden: Mapping[str, float] = field(default_factory=dict)
    unknown: Sequence[str] = ()
    """Kernels whose time is only that of moving their operands through HBM."""


def step_time(work: Sequence[Step], chip: Chip, torus: Torus) -> StepTime:
    """Simulate the schedule `work` of one step."""
    player = _Player(chip, torus)
    player.play(work, 1)
    parts = dict(sorted(player.parts.items(), key=lambda part: -part[1]))
    hidden = {name: player.begun[name] - player.waited[name] for name in player.begun}
    return StepTime(
        seconds=player.now,
        parts=parts,
        hidden={name: seconds for name, seconds in hidden.items() if seconds > 1e-9},
        unknown=sorted(player.unknown),
    )


def predict(program: Program, row: Mapping[str, Any], devices_per_chip: int) -> StepTime | None:
    """Return the time of a program's step on the accelerator of that row of the table. None if the accelerator's speeds
    are not known, or if the program does not fit and so has no schedule."""
    chip = chip_of(row, devices_per_chip)
    if chip is None or program.work is None:
        return None
    return step_time(program.work, chip, Torus(program.torus["size"], program.torus["wraps"]))


def compute_seconds(step: Step, chip: Chip) -> float:
    """Return the seconds of a fusion or of one instruction.

    Use the compiler's estimate if there is one. For a single copy or reduction that estimate is up to ten times too
    high, so it is limited to the time of moving the data through HBM at HBM_EFFICIENCY. Without an estimate, return the
    longer of the times for moving and for multiplying.
    """
    moved = step["bytes"] / (chip.hbm * HBM_EFFICIENCY)
    if step["cycles"] is not None:
        estimate = step["cycles"] / chip.clock
        return float(min(estimate, moved) if step["plain"] and step["bytes"] else estimate)
    if step["what"] != "matmul":
        return float(moved)
    peak = chip.peak * chip.faster.get(step["type"], 1.0)
    return float(max(step["bytes"] / chip.hbm, step["flops"] / peak) / MATMUL_EFFICIENCY[chip.matrix_unit])


class _Player:
    def __init__(self, chip: Chip, torus: Torus) -> None:
        self._chip, self._torus = chip, torus
        self.now = 0.0
        self.parts: defaultdict[str, float] = defaultdict(float)
        self.begun: defaultdict[str, float] = defaultdict(float)
        self.waited: defaultdict[str, float] = defaultdict(float)
        self.unknown: set[str] = set()
        self._free: defaultdict[Lane, float] = defaultdict(float)
        self._ends: dict[str, tuple[float, str]] = {}

    def play(self, steps: Sequence[Step], times: float) -> None:
        """Run the steps once. They count `times` in the sums."""
        for step in steps:
            match step["do"]:
                case "compute":
                    self._spend(compute_seconds(step, self._chip), _COMPUTE[step["what"]], times)
                case "kernel":
                    self._kernel(step, times)
                case "collective":
                    seconds, way, lanes = self._collective(step)
                    self._wait_until(max([self.now, *(self._free[lane] for lane in lanes)]) + seconds, way, times)
                case "start":
                    self._start(step["id"], step["of"], times)
                case "wait":
                    end, way = self._ends.pop(step["id"], (0.0, ""))
                    self.waited[way] += times * self._wait_until(end, way, times)
                case "loop":
                    self._loop(step, times)
                case "either":
                    self._longest(step["steps"], times)

    def _spend(self, seconds: float, part: str, times: float) -> None:
        self.now += seconds
        self.parts[part] += seconds * times

    def _wait_until(self, end: float, part: str, times: float) -> float:
        seconds = max(0.0, end - self.now)
        if seconds:
            self._spend(seconds, part, times)
        return seconds

    def _kernel(self, step: Step, times: float) -> None:
        seconds = kernel_seconds(step, self._chip)
        if seconds is None:
            # A gather or scatter by the compiler does little besides moving data.
            if not step["fusion"]:
                self.unknown.add(str(step["name"]))
            self._spend(step["bytes"] / self._chip.hbm, KERNELS, times)
        else:
            self._spend(seconds, ATTENTION if is_attention(step) else GROUPED, times)

    def _collective(self, step: Step) -> tuple[float, str, Iterable[Lane]]:
        group = step["group"]
        seconds = collective_seconds(step["what"], step["bytes"], group, self._chip, self._torus)
        return seconds, DCN if group["slices"] > 1 else ICI, links_of(group)

    def _start(self, name: str, what: Step, times: float) -> None:
        lanes: Iterable[Lane]
        if what["do"] == "collective":
            seconds, way, lanes = self._collective(what)
        else:
            way = _WAYS[what["way"]]
            lanes = [what["way"]]  # both directions of the path to the host are used at once
            seconds = what["bytes"] / (self._chip.host if way == HOST else self._chip.hbm)
        end = max([self.now, *(self._free[lane] for lane in lanes)]) + seconds
        self._free.update(dict.fromkeys(lanes, end))
        self._ends[name] = (end, way)
        self.begun[way] += seconds * times

    def _loop(self, step: Step, times: float) -> None:
        """Simulate the first pass, then the second for all that follow, with the work left over from the first."""
        count = int(step["times"])
        if count < 1:
            return
        self.play(step["steps"], times)
        if count > 1:
            start = self.now
            self.play(step["steps"], times * (count - 1))
            skipped = (self.now - start) * (count - 2)
            self.now += skipped
            for lane in self._free:
                self._free[lane] += skipped
            self._ends = {name: (end + skipped, way) for name, (end, way) in self._ends.items()}

    def _longest(self, branches: Sequence[Sequence[Step]], times: float) -> None:
        def alone(branch: Sequence[Step]) -> float:
            player = _Player(self._chip, self._torus)
            player.play(branch, 1)
            return player.now

        self.play(max(branches, key=alone, default=()), times)
