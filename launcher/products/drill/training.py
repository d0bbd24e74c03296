"""The training of a drill: a small model, from the values of the place and those of the user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from launcher import api
from launcher.backends.local.record import hosts
from launcher.errors import LauncherError

if TYPE_CHECKING:
    from launcher.config.plan import LaunchPlan

_FEWEST_PERIODS = 3


@dataclass(frozen=True)
class Training:
    """Values files and assignments. Later ones override."""

    files: Sequence[str]
    sets: Sequence[str]

    def plan(self, name: str, sets: Sequence[str] = (), files: Sequence[str] = ()) -> LaunchPlan:
        """Return the plan of a run, with more assignments and files. Raises CheckFailed."""
        return api.plan([*self.files, *files], [*self.sets, *sets], name=name)

    @cached_property
    def example(self) -> LaunchPlan:
        """The plan of a run. Raises LauncherError if a drill cannot use it: without checkpoints, or with few steps."""
        plan = self.plan("drill")
        train = plan.config.get("train") or {}
        steps, period = train.get("steps"), train.get("checkpoint_period")
        if plan.config["run"].get("command") or train.get("enable_checkpointing") is False:
            raise LauncherError("A drill needs a training with checkpoints: leave out run.command, and enable them.")
        if not isinstance(period, int) or period < 2 or not isinstance(steps, int) or steps < _FEWEST_PERIODS * period:
            raise LauncherError(
                f"A drill needs at least {_FEWEST_PERIODS} periods of checkpoints of 2 steps or more: train.steps is "
                f"{steps}, and train.checkpoint_period is {period}."
            )
        return plan

    @property
    def steps(self) -> int:
        return int(self.example.config["train"]["steps"])

    @property
    def period(self) -> int:
        return int(self.example.config["train"]["checkpoint_period"])

    @property
    def fault_at(self) -> int:
        """The steps that are finished before a fault: some after the first checkpoint."""
        return self.period + max(4, self.period // 5)

    @property
    def hosts(self) -> int:
        return hosts(self.example.config)
