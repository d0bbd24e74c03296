"""The verbs as Python functions; the command line is their first user.

    from launcher import api

    plan = api.plan(["values/quickstart.yaml"], ["train.steps=20"], name="first")
    api.submit(plan)
    print(api.wait("first").loss)

Every function raises launcher.errors.LauncherError with a sentence for what the caller can mend. Importing
this module is light: what a verb needs is imported when it is called.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from launcher.errors import ExitCode, LauncherError

if TYPE_CHECKING:
    from launcher.checks import Problem
    from launcher.plan import LaunchPlan
    from launcher.runs import Backend, Preview, RunStatus, Submission
    from launcher.tree import Values

# The chart that holds the defaults of every kind of run.
_CHART = "run"


class WaitTimeout(LauncherError):
    """`wait` ran out of time; the run goes on."""

    exit_code = ExitCode.TIMEOUT


# --- values and plans -------------------------------------------------------------------------------------------


def values(files: Sequence[str], sets: Sequence[str] = (), *, defaults: bool = False) -> Values:
    """The values files and `--set`s merged by Helm's rule, not validated; with `defaults`, over the chart's."""
    from launcher.tree import with_defaults
    from launcher.values import chart_defaults, load

    user = load(files, sets)
    return with_defaults(user, chart_defaults(_CHART)) if defaults else user


def plan(files: Sequence[str], sets: Sequence[str] = (), *, name: str | None = None) -> LaunchPlan:
    """What a submit of these values would run. Raises launcher.plan.CheckFailed where a rule is broken."""
    from launcher.plan import plan_launch
    from launcher.values import chart_defaults, load

    return plan_launch(load(files, sets), chart_defaults(_CHART), name=name)


def check(files: Sequence[str], sets: Sequence[str] = (), *, name: str | None = None) -> Sequence[Problem]:
    """Every rule that can be told without chips and without a cluster: what is broken, and the warnings."""
    from launcher.plan import check_launch
    from launcher.values import chart_defaults, load

    return check_launch(load(files, sets), chart_defaults(_CHART), name=name)


# --- a run's life -----------------------------------------------------------------------------------------------


def backends() -> list[Backend]:
    """Every kind of run that can be looked at from here."""
    from launcher.local import LocalBackend

    return [LocalBackend()]


def backend_for(plan: LaunchPlan) -> Backend:
    """Where a run of the plan's kind goes."""
    if plan.kind == "local":
        from launcher.local import LocalBackend

        return LocalBackend()
    raise LauncherError(
        f"This version of Slipway runs on this machine only, and run.kind is {plan.kind}.",
        "Use --set run.kind=local; the kinds that run in a cluster are still to come.",
    )


def find(name: str) -> tuple[Backend, RunStatus]:
    """The run called `name` and the backend that answers for it."""
    found = [(backend, status) for backend in backends() if (status := backend.status(name)) is not None]
    if len(found) == 1:
        return found[0]
    if found:
        places = " and ".join(f"{status.kind} ({status.folder})" for _, status in found)
        raise LauncherError(f'There are several runs "{name}": {places}; delete or rename one.')
    from difflib import get_close_matches

    names = [status.name for backend in backends() for status in backend.list(lambda _: None)]
    near = get_close_matches(name, names, n=1)
    guess = f' Did you mean "{near[0]}"?' if near else ""
    raise LauncherError(f'There is no run "{name}".{guess}', "launcher list shows the runs that there are.")


def preview(plan: LaunchPlan, *, accept_changes: bool = False) -> Preview:
    """What `submit` would do now. Creates nothing; raises what `submit` would raise."""
    return backend_for(plan).preview(plan, accept_changes=accept_changes)


def submit(plan: LaunchPlan, *, accept_changes: bool = False) -> Submission:
    """Start the run, or find or resume the one that has its name; returns at once.

    `accept_changes` goes on from the last checkpoint with a config that differs from the run's.
    """
    return backend_for(plan).submit(plan, accept_changes=accept_changes)


def list_runs(warn: Callable[[str], None] = lambda _: None) -> list[RunStatus]:
    """Every run, newest first; a run that cannot be read is told to `warn`, one sentence each."""
    runs = [status for backend in backends() for status in backend.list(warn)]
    return sorted(runs, key=lambda status: status.submitted or "", reverse=True)


def status(name: str) -> RunStatus:
    """The run's status now."""
    return find(name)[1]


def logs(name: str, *, follow: bool = False, worker: int | None = None) -> Iterator[str]:
    """The run's output line by line; with `follow`, until the run ends."""
    return find(name)[0].logs(name, follow=follow, worker=worker)


def wait(name: str, *, timeout: float | None = None) -> RunStatus:
    """The run's status once it has ended; raises WaitTimeout after `timeout` seconds."""
    backend, now = find(name)
    deadline = None if timeout is None else time.monotonic() + timeout
    while not now.state.ended:
        pause = backend.poll_seconds
        if deadline is not None:
            pause = min(pause, deadline - time.monotonic())
            if pause <= 0:
                raise WaitTimeout(f'The run "{name}" is still {now.state} after {timeout:g} s; it goes on.')
        time.sleep(pause)
        now = gone_or(backend.status(name), name)
    return now


def gone_or(status: RunStatus | None, name: str) -> RunStatus:
    """The status of a run that was there a moment ago."""
    if status is None:
        raise LauncherError(f'The run "{name}" was deleted meanwhile.')
    return status


def cancel(name: str) -> RunStatus:
    """Stop the run and free all that it holds; its record and checkpoints stay. Idempotent."""
    return find(name)[0].cancel(name)


def delete(name: str) -> None:
    """Remove a run that has ended, with its folder and checkpoints."""
    find(name)[0].delete(name)
