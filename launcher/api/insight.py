"""Explain and report: runs, long-lived Ray clusters, this machine and the cluster. Changes nothing."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from launcher.api.gke import plan_cluster
from launcher.backends.lookup import find, find_run, no_run
from launcher.errors import LauncherError
from launcher.k8s.target import DEFAULT_TARGET, Target
from launcher.report import build
from launcher.report.tensorboard import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from launcher.backends.profile import Profile
    from launcher.backends.ray_cluster.clusters import RayClusterStatus
    from launcher.backends.ray_cluster.dashboard import DashboardServer
    from launcher.diagnose.doctor import Finding
    from launcher.diagnose.explain import Explanation
    from launcher.report import Report


def explain(name: str, *, target: Target = DEFAULT_TARGET) -> Explanation:
    """Return why the run is in its state: a sentence, the evidence, and suggestions. Changes nothing.

    Explains an object in a queue that Slipway did not create, too, if no run has the name.
    """
    from launcher.diagnose.explain import explain_run, foreign

    found = find_run(name, target, summary=True)
    if found is not None:
        return explain_run(*found)
    explained = None
    if target.cluster_requested:
        with contextlib.suppress(LauncherError):  # the error is that there is no such run
            explained = foreign.explain(target.cluster(), name)
    if explained is None:
        raise no_run(name, target)
    return explained


def clusters(
    name: str | None = None, *, target: Target = DEFAULT_TARGET, warn: Callable[[str], None] = lambda _: None
) -> list[RayClusterStatus]:
    """Return the long-lived Ray clusters of the namespace, with their pods and runs; [] if no cluster is configured.

    With `name`, return only the Ray cluster with that name. Raises LauncherError if the API server does not answer, or
    if KUBECONFIG names only files that do not exist. Calls `warn` with a sentence for each object that cannot be read.
    """
    if not target.cluster_requested:
        return []
    from launcher.backends.ray_cluster.backend import RayClusterBackend

    cluster = target.cluster()
    found = list(RayClusterBackend(cluster).clusters(name))
    for sentence in sorted(cluster.unreadable):
        warn(f"{sentence} It is left out.")
    return found


@contextlib.contextmanager
def dashboard(name: str, *, port: int = 0, target: Target = DEFAULT_TARGET) -> Iterator[tuple[str, DashboardServer]]:
    """Serve Ray's dashboard of a long-lived Ray cluster, or of a run with one, on a local port (0: a free port).

        with api.dashboard("notebooks") as (url, server):
            server.serve_forever()

    `url` opens the dashboard in a browser. It contains `server.token`, which other clients of `server.address` send as
    `Authorization: Bearer TOKEN`. Raises LauncherError if the Ray cluster does not exist, or its token cannot be read.
    """
    from launcher.backends.ray_cluster.dashboard import opened

    with contextlib.ExitStack() as stack:
        try:
            served = stack.enter_context(opened(target.cluster(), name, port))
        except LauncherError:
            if target.includes_local and find_run(name, Target(local=True)) is not None:
                raise LauncherError(
                    f'The run "{name}" is on this machine; only a Ray cluster in Kubernetes has a dashboard.',
                    f"To show its state: launcher status {name}. To show its progress: launcher attach {name}",
                ) from None
            raise
        yield served


def metrics(name: str, *, target: Target = DEFAULT_TARGET) -> list[dict[str, Any]]:
    """Return the run's metrics, ordered by step.

    There is an entry for each step (step, loss, step_seconds, tokens_per_second_per_device, …, time), and for each
    held-out evaluation (step, eval_loss, time). For a step that was repeated after a restart, the later entry is used.
    On a cluster, the metrics are read from the run's log: raises LauncherError if the log was deleted with its pods.
    """
    backend, found = find(name, target)
    entries = backend.metrics(found.name)
    latest = {(entry["step"], "eval_loss" in entry): entry for entry in entries if isinstance(entry.get("step"), int)}
    return [latest[key] for key in sorted(latest)]


def report(
    names: Sequence[str],
    *,
    target: Target = DEFAULT_TARGET,
    skip: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Return a report that compares runs: an HTML page, and the first table of the page as data.

    A name is that of a run or a sweep, a run's folder (with a slash in it), or the URL of such a folder in a bucket.
    Raises LauncherError if one of them cannot be read; with `skip`, it is listed in `left_out` instead. `say` is called
    with a sentence if a run was not read from its folder.
    """

    return build(names, target=target, skip=skip, say=say)


def tensorboard(name: str, *, port: int = 0, target: Target = DEFAULT_TARGET) -> contextlib.AbstractContextManager[str]:
    """Serve TensorBoard for a run of this machine on a local port (0: a free port) while the context lasts.

        with api.tensorboard("first") as url:
            input(url)

    Raises LauncherError if TensorBoard is not installed, or the run has no files for it on this machine.
    """

    return serving(find(name, target)[1], port)


def profile(
    name: str, *, steps: int = 5, target: Target = DEFAULT_TARGET, say: Callable[[str], None] = lambda _: None
) -> Profile:
    """Record the next steps of a run with JAX's profiler, and return the profile.

    Waits until the steps are done. `say` is called with a sentence if the run has not started to train. Raises
    LauncherError if the run cannot be profiled, or ends before, or if it is on a cluster where you may not run commands
    in pods.
    """
    from launcher.backends.profile import capture

    return capture(*find(name, target), steps, say)


def doctor(target: Target = DEFAULT_TARGET, files: Sequence[str] = (), sets: Sequence[str] = ()) -> list[Finding]:
    """Check this machine and the cluster of `target`: return what works, what does not, and how to fix it.

    `files` and `sets` are values for `plan_cluster`; the cluster on Google Cloud is compared with them. Changes
    nothing. A check for which this user lacks the rights is a finding of level `unknown`.
    """

    from launcher.diagnose.doctor import examine

    found = examine(target)
    if files or sets:
        from launcher.gke import findings

        found += findings.examine(plan_cluster(files, sets))
    return found
