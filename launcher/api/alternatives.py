"""The alternatives of slice.any that need runs of their own: choose one, and try the next if it waits too long.

Kueue chooses between alternatives that share an object; see launcher.config.alternatives.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from launcher import formatting, hooks
from launcher.backends.base import State, Submission

if TYPE_CHECKING:
    from launcher.backends.base import RunStatus, Submitter
    from launcher.config.checks.problems import Problem
    from launcher.config.plan import LaunchPlan

# How often a run that has waited long enough looks for the free quota of another alternative.
_LOOK_SECONDS = 60.0


def choose_alternative(plan: LaunchPlan, backend: Submitter) -> tuple[LaunchPlan, list[str]]:
    """Return the alternative to submit, and sentences about those that are dropped and about the choice.

    The first whose quota is free now is chosen, or else the first. A run that exists keeps its alternative. An
    alternative is dropped if it can never start in the cluster, or if an earlier forecast found that it does not fit.
    Raises launcher.config.plan.CheckFailed if none is left.
    """
    if not plan.others:
        return plan, []
    from launcher.config.plan import CheckFailed, config_difference, in_alternatives

    plans = plan.alternatives
    config = backend.config_of(plan.name)
    for candidate in plans:
        if config and not config_difference(config, candidate.config):
            return _with_others(candidate, plans), []
    errors = [(candidate, [] if plan.force else list(_errors(candidate, backend))) for candidate in plans]
    kept = [candidate for candidate, problems in errors if not problems]
    if not kept:
        failed = CheckFailed(in_alternatives(errors))
        failed.hint = "No alternative of slice.any is possible. To submit the first anyway, use --force."
        raise failed
    first = next((candidate for candidate in kept if backend.has_room(candidate)), kept[0])
    dropped = [f"Warning: {problem}" for problem in in_alternatives(errors)]
    return _with_others(first, kept), [*dropped, f"Submitting {first.alternative}."]


class Alternatives:
    """The alternatives of a submitted run. `plan` is the one that is submitted."""

    def __init__(self, plan: LaunchPlan, backend: Submitter) -> None:
        self.plan = plan
        self._backend = backend
        self._again = 0.0  # when to look again, on the monotonic clock
        self._next: tuple[LaunchPlan, str] | None = None  # the alternative that replaces `plan`, and a sentence

    def switch(self, status: RunStatus | None) -> Submission | None:
        """Submit another alternative if the run has waited too long for its machines; None if nothing was done.

        That is the first with free quota, or else the next. The last one keeps its place in the queue until the quota
        of another is free. Nothing is submitted if another client has cancelled the run in the meantime. `status` is
        None if the run was not found. If this raises Unreachable, call it again.
        """
        if self._next is None and status is not None:
            self._next = self._choose(status)
        if self._next is None:
            return None
        plan, message = self._next
        switched = self._backend.switch(plan)
        self._next = None
        if switched is None:
            return None
        self.plan = plan
        return Submission(switched, message, created=True)

    def _choose(self, status: RunStatus) -> tuple[LaunchPlan, str] | None:
        """Return the next alternative and a sentence about it, or None if the run has not waited too long."""
        now, backend = self.plan, self._backend
        if not now.others or time.monotonic() < self._again:
            return None
        later = [each for each in now.others if each.number > now.number]
        limit = _after(later[0] if later else now)
        self._again = time.monotonic() + min(_LOOK_SECONDS, limit)
        waited = _waited(status, backend)
        if waited is None or waited < limit:
            return None
        chosen = next((each for each in now.others if backend.has_room(each)), later[0] if later else None)
        if chosen is None:
            return None
        return _with_others(chosen, now.alternatives), (
            f'The run "{now.name}" waited {formatting.duration(waited)} for {now.alternative}; it now waits for '
            f"{chosen.alternative}."
        )


def _with_others(plan: LaunchPlan, plans: Sequence[LaunchPlan]) -> LaunchPlan:
    """Return the plan with the rest of `plans` as its others."""
    others = (replace(each, others=()) for each in plans if each.alternative != plan.alternative)
    return replace(plan, others=tuple(others))


def _after(plan: LaunchPlan) -> float:
    return plan.alternative.after if plan.alternative else 0


def _errors(plan: LaunchPlan, backend: Submitter) -> Iterator[Problem]:
    from launcher.config.checks.problems import ERROR

    misfit = hooks.misfit(plan)
    if misfit is not None:
        yield misfit
    yield from (problem for problem in backend.problems(plan) if problem.severity == ERROR)


def _waited(status: RunStatus, backend: Submitter) -> float | None:
    """Return the seconds that the run has waited for quota or for nodes; None if it waits for neither."""
    if status.state is State.QUEUED:
        since = [status.submitted or ""]
    elif status.state in (State.ADMITTED, State.STARTING) and not status.started:
        since = [pod.created for pod in backend.hosts(status.name) if not pod.node]
    else:
        return None
    times = [datetime.fromisoformat(time) for time in since if time]
    return max(0.0, (datetime.now(UTC) - min(times)).total_seconds()) if times else None
