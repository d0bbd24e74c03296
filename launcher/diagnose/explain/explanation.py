"""Explain the state of a run: one sentence, the evidence, and suggestions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from launcher.backends.base import State
from launcher.backends.kubernetes import reader
from launcher.backends.kubernetes.reader import run_parallel
from launcher.diagnose.explain.finding import Evidence, Explanation
from launcher.diagnose.explain.rule_order import explain
from launcher.diagnose.explain.situation import Situation
from launcher.errors import LauncherError

if TYPE_CHECKING:
    from launcher.backends.base import Backend, RunStatus
    from launcher.diagnose.explain.situation import Situation


def explain_run(backend: Backend, status: RunStatus) -> Explanation:
    """Return the explanation of a run of `backend`.

    Raises LauncherError if the run has been deleted meanwhile, or if the cluster does not answer.
    """
    if backend.cluster is None or not status.has_object:
        return _by_status(status, backend.cli_args)

    run = reader.find(backend.cluster, status.name)
    if run is None:
        raise LauncherError(f'The run "{status.name}" was deleted meanwhile.')
    situation = Situation(run, backend.cluster, cli_args=backend.cli_args)
    _ask_at_once(situation)
    return explain(situation)


def _ask_at_once(situation: Situation) -> None:
    """Read in parallel what nearly every explanation needs: requests to a distant API server are slow."""

    wanted = ["workload", "pods"]
    if situation.run.suspended and not situation.run.cancelled_at:
        wanted = ["workload", "workloads", "local_queues", "all_local_queues", "cluster_queues", "flavors"]
    run_parallel([partial(getattr, situation, name) for name in wanted])


_ENDS = {State.SUCCEEDED: "has succeeded", State.FAILED: "failed", State.CANCELLED: "was cancelled"}


def _by_status(status: RunStatus, cli_args: str) -> Explanation:
    """Explain a run that waits neither for a queue nor for machines, by its state alone."""
    why = f": {status.reason}" if status.reason not in ("", "Cancelled.") else "."
    run = f"{status.name}{cli_args}"
    suggestions: tuple[str, ...] = (f"launcher logs {run} shows its output.",) if status.state is State.FAILED else ()
    if status.state in (State.FAILED, State.CANCELLED):
        again = "resumes it from its last checkpoint" if status.step else "starts it again"
        suggestions += (f"launcher submit -f FILE --name {run} {again}; add --continue if the values have changed.",)
    evidence = (Evidence("folder", "", status.folder),) if status.folder else ()
    return Explanation(
        status.name,
        str(status.state),
        f"{status.name} {_ENDS.get(status.state, f'is {status.state}')}{why}",
        evidence=evidence,
        suggestions=suggestions,
    )
