"""Ask products for what only they know: each function calls the hooks of the installed products.

Without a product that has the hook, the answer is empty, or an error that names what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from launcher.errors import LauncherError
from launcher.plugins import hooks

if TYPE_CHECKING:
    from launcher.backends.base import Backend, RunStatus, Submitter
    from launcher.config.checks.problems import Problem
    from launcher.config.kinds import RunKind
    from launcher.config.plan import LaunchPlan
    from launcher.diagnose.doctor.finding import Finding
    from launcher.diagnose.explain.finding import Evidence, Explanation
    from launcher.k8s.client import Cluster
    from launcher.k8s.target import Target


@dataclass(frozen=True)
class ExpectedStart:
    """When a run that waits in a queue will start: as JSON, as a word, with its band, and as a sentence."""

    data: Mapping[str, Any]
    likely: str
    text: str
    sentence: str


def misfit(plan: LaunchPlan) -> Problem | None:
    """Return the problem that an earlier forecast found: the plan does not fit. None if it is not known."""
    return _first("misfit", plan)


def forecast_speed(config: Mapping[str, Any]) -> Any:
    """Return the speed of a run config that an earlier forecast found (step_seconds, mfu); None if not known."""
    return _first("forecast_speed", config)


def expected_starts(
    target: Target, *, name: str | None = None, within: float | None = None
) -> dict[str, ExpectedStart]:
    """Return when the runs of the namespace that wait in a queue start, by their names; only that of `name` if given.

    Empty if it is not known. With `within`, raises LauncherError if it takes longer than about `within` seconds.
    """
    starts: dict[str, ExpectedStart] = {}
    for hook in hooks("expected_starts"):
        starts |= hook(target, name=name, within=within)
    return starts


def expected_start_of(obj: Mapping[str, Any], target: Target) -> ExpectedStart | None:
    """Return when the run of an object would start if it was submitted now; None if it is not known."""
    return _first("expected_start_of", obj, target)


def has_model(cluster: Cluster, name: str) -> bool:
    """Return whether a served model has the name. Raises LauncherError if the cluster does not answer or denies it."""
    return any(hook(cluster, name) for hook in hooks("has_model"))


def listing(
    things: str, target: Target, warn: Callable[[str], None] = lambda _: None
) -> tuple[Sequence[Any], str] | None:
    """Return the statuses of the "served_models" or "ray_clusters", and their table, "" if none exists.

    Returns None if no product has these. Raises LauncherError if the cluster does not answer.
    """
    return _first(things, target, warn)


def ray_cluster(name: str, target: Target) -> tuple[Any, str] | None:
    """Return the status of the long-lived Ray cluster, and its text; None if no such cluster is known."""
    return _first("ray_cluster", name, target)


def submitter(kind: RunKind, cluster: Cluster) -> Submitter:
    """Return the submitter of a kind of run that a product adds. Raises LauncherError if none adds it."""
    for hook in hooks(f"submitter {kind}"):
        made: Submitter = hook(cluster)
        return made
    raise LauncherError(
        f"run.kind is {kind}, but no installed package of the launcher can submit such a run.",
        "Install Slipway with its product ray_cluster, or use another kind: --set run.kind=ray-job.",
    )


def active_jobs(cluster: Cluster, manifests: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Return the jobs, as "namespace/name", that end with these objects, and a sentence for each that is unknown."""
    answers = [hook(cluster, manifests) for hook in hooks("active_jobs")]
    return [job for jobs, _ in answers for job in jobs], [sentence for _, unseen in answers for sentence in unseen]


def not_ready(cluster: Cluster, kind: str, live: Mapping[str, Any]) -> str:
    """Return why a RayCluster or a RayService does not answer; "" if it does, or if this is not known.

    A launcher.releases.readiness.Final is why it will not answer.
    """
    return _first(f"not_ready {kind}", cluster, live) or ""


def sweep_verb(name: str) -> Callable[..., int]:
    """Return the implementation of a command for a sweep. Raises LauncherError if no product has sweeps."""
    for hook in hooks("sweep_verb"):
        verb: Callable[..., int] = hook(name)
        return verb
    raise LauncherError("No installed package of the launcher has commands for sweeps.", "Name a run of the sweep.")


def cluster_findings(files: Sequence[str], sets: Sequence[str]) -> list[Finding] | None:
    """Return how the cluster differs from the values that created it; None if no product creates clusters."""
    lists = [hook(files, sets) for hook in hooks("cluster_findings")]
    return [finding for findings in lists for finding in findings] if lists else None


def explained_object(target: Target, name: str) -> Explanation | None:
    """Return why an object in a queue, which is not a run, is in its state; None if no such object is known."""
    return _first("explained_object", target, name)


def sick_nodes(backend: Backend, status: RunStatus) -> tuple[Sequence[Evidence], Sequence[str]]:
    """Return the nodes on which hosts of the run fail or are slow, as evidence, and suggestions."""
    return _first("sick_nodes", backend, status) or ((), ())


def stored_log(name: str, run: tuple[Backend, RunStatus] | None, **selected: Any) -> Iterator[str] | None:
    """Return the lines of a run from its folder; None if its pods have them, or if no product reads the folder.

    `run` is None if `name` is a folder. `selected` has attempt, worker and excerpt.
    """
    return _first("stored_log", name, run, **selected)


def ended(status: RunStatus) -> list[str]:
    """Notify products of the end of a run that was followed. Return a sentence for each problem."""
    return [sentence for hook in hooks("ended") for sentence in hook(status)]


def _first[Answer](name: str, *arguments: Any, **options: Any) -> Answer | None:
    """Return the first answer that a product has; None if none has one."""
    return next((answer for hook in hooks(name) if (answer := hook(*arguments, **options)) is not None), None)
