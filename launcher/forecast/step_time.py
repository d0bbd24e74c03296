"""How long a step takes: the compiler's schedule, played against the speeds of a chip.

The child (trainer/aot/work.py) says what a chip does, in the order in which the compiler has it done, and what was
started before and is waited for later. Here that is played with a clock for the core and one for each thing that works
beside it: the links to other chips along each dimension and direction, those to other slices, the way to the host's
memory, the way between HBM and the chip's own memory. So what overlaps is counted once, and what is waited for is told
as what was waited for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from launcher.forecast.chip import Chip, chip_of
from launcher.forecast.constants import HBM_EFFICIENCY, MATMUL_EFFICIENCY
from launcher.forecast.kernels import is_attention, kernel_seconds
from launcher.forecast.network import Torus, collective_seconds, links_of
from launcher.forecast.program import Program

ICI, DCN, HOST, HBM = "collectives over ICI", "collectives over DCN", "host memory", "HBM"
_COMPUTE = {"matmul": "matrix multiplications", "elementwise": "elementwise operations", "copy": "copies"}
ATTENTION, GROUPED, KERNELS = "attention", "grouped multiplications", "other kernels"
_WAYS = {"to-host": HOST, "from-host": HOST, "host": HOST, "hbm": HBM}

Step = Mapping[str, Any]
Lane = Hashable
"""What does one thing at a time: a slice's links in one direction, one way between HBM and the host."""


@dataclass(frozen=True)
class StepTime:
    """The seconds of one step; `parts` sum up to them; `hidden` is what went on beside, waited for by nothing."""

    seconds: float
    parts: Mapping[str, float]
    hidden: Mapping[str, float] = field(default_factory=dict)
    unknown: Sequence[str] = ()
    """Kernels whose time is only that of their operands' way through HBM."""


def step_time(work: Sequence[Step], chip: Chip, torus: Torus) -> StepTime:
    """Play the schedule `work` of one step."""
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
    """The time of a program's step on the accelerator of that row of the table; None where its speeds are not known,
    or where the program fits no chip, and so is no schedule."""
    chip = chip_of(row, devices_per_chip)
    if chip is None or program.work is None:
        return None
    return step_time(program.work, chip, Torus(program.torus["size"], program.torus["wraps"]))


def compute_seconds(step: Step, chip: Chip) -> float:
    """The seconds of a fusion or of one instruction.

    The compiler's estimate, where it has one. For a copy or a reduction on its own that is too much, by up to ten
    times: it takes no longer than what it moves through HBM at HBM_EFFICIENCY. Without an estimate: the longer of what
    is moved and what is multiplied.
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
        """Let the steps happen once; in the sums they count `times`."""
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
            # A gather or scatter of the compiler's own does little but move.
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
            lanes = [what["way"]]  # both directions of the way to the host go at once
            seconds = what["bytes"] / (self._chip.host if way == HOST else self._chip.hbm)
        end = max([self.now, *(self._free[lane] for lane in lanes)]) + seconds
        self._free.update(dict.fromkeys(lanes, end))
        self._ends[name] = (end, way)
        self.begun[way] += seconds * times

    def _loop(self, step: Step, times: float) -> None:
        """The first time round as it is, the second as all that follow: what the first has left to do is then there."""
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
