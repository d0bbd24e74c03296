"""Why a run is where it is: one sentence, what shows it, and what would help."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from launcher.diagnose.explain.finding import Evidence, Explanation, Finding

if TYPE_CHECKING:
    from launcher.backends.base import Backend, RunStatus
    from launcher.diagnose.explain.situation import Situation

__all__ = ["Evidence", "Explanation", "Finding", "explain_run"]


def explain_run(backend: Backend, status: RunStatus) -> Explanation:
    """The explanation of a run that `backend` answers for.

    Raises LauncherError where the run is gone by now, and where the cluster does not answer.
    """
    if backend.cluster is None or not status.has_object:
        return _by_status(status, backend.option)
    from launcher.backends.kubernetes import reader as kube_view
    from launcher.diagnose.explain.situation import Situation
    from launcher.diagnose.explain.table import explain
    from launcher.errors import LauncherError

    run = kube_view.find(backend.cluster, status.name)
    if run is None:
        raise LauncherError(f'The run "{status.name}" was deleted meanwhile.')
    situation = Situation(run, backend.cluster, option=backend.option)
    _ask_at_once(situation)
    return explain(situation)


def _ask_at_once(situation: Situation) -> None:
    """What nearly every answer needs, asked for at the same time: an API server can be far away."""
    from launcher.backends.kubernetes.reader import run_parallel
    from launcher.backends.kubernetes.states import CANCELLED
    from launcher.k8s.objects import annotation

    wanted = ["workload", "pods"]
    if situation.suspended and not annotation(situation.run, CANCELLED):
        wanted = ["workload", "workloads", "local_queues", "all_local_queues", "cluster_queues", "flavors"]
    run_parallel([partial(getattr, situation, name) for name in wanted])


def _by_status(status: RunStatus, option: str) -> Explanation:
    """A run that waits for no queue and no machines: its state says it all."""
    why = f": {status.reason}" if status.reason else "."
    suggestions = (f"launcher logs {status.name}{option} shows its output.",) if status.state == "failed" else ()
    evidence = (Evidence("folder", "", status.folder),) if status.folder else ()
    return Explanation(
        status.name,
        str(status.state),
        f"{status.name} is {status.state}{why}" if status.state != "failed" else f"{status.name} failed{why}",
        evidence=evidence,
        suggestions=suggestions,
    )
