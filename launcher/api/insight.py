"""What can be told of a run, a standing Ray cluster, this machine and the cluster. Changes nothing."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from launcher.backends.lookup import find, find_run, no_run
from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from http.server import ThreadingHTTPServer

    from launcher.backends.ray_cluster.clusters import RayClusterStatus
    from launcher.diagnose.doctor import Finding
    from launcher.diagnose.explain import Explanation
    from launcher.report import Report


def explain(name: str, *, target: Target = DEFAULT_TARGET) -> Explanation:
    """Why the run is where it is: a sentence, what shows it, and what would help. Changes nothing."""
    from launcher.diagnose.explain import explain_run

    found = find_run(name, target, summary=True)
    if found is None:
        raise no_run(name, target)
    return explain_run(*found)


def clusters(name: str | None = None, *, target: Target = DEFAULT_TARGET) -> list[RayClusterStatus]:
    """The namespace's standing Ray clusters, each with its pods and the runs in it; [] where there is no cluster.

    With `name`, that one alone. Raises LauncherError where the API server does not answer, or KUBECONFIG names no file
    that is there.
    """
    if not target.cluster_requested:
        return []
    from launcher.backends.ray_cluster.backend import RayClusterBackend

    return list(RayClusterBackend(target.cluster()).clusters(name))


def dashboard(
    name: str, *, port: int = 0, target: Target = DEFAULT_TARGET
) -> contextlib.AbstractContextManager[tuple[str, ThreadingHTTPServer]]:
    """Ray's dashboard of a standing Ray cluster, or of a run that has one, on a port of this machine (0: a free one).

        with api.dashboard("notebooks") as (url, server):
            server.serve_forever()

    Raises LauncherError where there is no such Ray cluster, or its token cannot be read.
    """
    from launcher.backends.ray_cluster.dashboard import opened

    return opened(target.cluster(), name, port)


def metrics(name: str, *, target: Target = DEFAULT_TARGET) -> list[dict[str, Any]]:
    """What the run has measured, in the order of its steps: an entry for each step (step, loss, step_seconds,
    tokens_per_second_per_device, …, time), and for each held-out evaluation (step, eval_loss, time).

    Of a step that was done twice, after a restart, the later entry. On a cluster they are read from the run's log:
    raises LauncherError where that has gone with its pods.
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
    """The report of runs, side by side: its HTML page, and what the page's first table says of each, as data.

    A name is a run's or a sweep's, a run's folder (with a slash in it), or the URL of one in a bucket. Raises
    LauncherError where one of them cannot be read; with `skip` it is left out, and told in `left_out`. `say` gets a
    sentence where a run was read in another way than from its folder.
    """
    from launcher.report import build

    return build(names, target=target, skip=skip, say=say)


def doctor(target: Target = DEFAULT_TARGET) -> list[Finding]:
    """Whether this machine, and the cluster of the place, are fit to run: what is well, what is not, what to do.

    Changes nothing. What this user may not look at is a finding of level `unknown`.
    """
    from launcher.diagnose.doctor import examine

    return examine(target)
