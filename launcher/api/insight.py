"""What can be told of a run, a standing Ray cluster, this machine and the cluster. Changes nothing."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from launcher.api.finding import find, no_run, run_called
from launcher.place import ANYWHERE, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from http.server import ThreadingHTTPServer

    from launcher.doctor import Finding
    from launcher.explain import Explanation
    from launcher.report import Report
    from launcher.standing.clusters import StandingCluster


def explain(name: str, *, place: Place = ANYWHERE) -> Explanation:
    """Why the run is where it is: a sentence, what shows it, and what would help. Changes nothing."""
    from launcher.explain import explain_run

    found = run_called(name, place, glance=True)
    if found is None:
        raise no_run(name, place)
    return explain_run(*found)


def clusters(name: str | None = None, *, place: Place = ANYWHERE) -> list[StandingCluster]:
    """The namespace's standing Ray clusters, each with its pods and the runs in it; [] where there is no cluster.

    With `name`, that one alone. Raises LauncherError where the API server does not answer, or KUBECONFIG names no file
    that is there.
    """
    if not place.meant:
        return []
    from launcher.standing.backend import StandingBackend

    return list(StandingBackend(place.cluster()).clusters(name))


def dashboard(
    name: str, *, port: int = 0, place: Place = ANYWHERE
) -> contextlib.AbstractContextManager[tuple[str, ThreadingHTTPServer]]:
    """Ray's dashboard of a standing Ray cluster, or of a run that has one, on a port of this machine (0: a free one).

        with api.dashboard("notebooks") as (url, server):
            server.serve_forever()

    Raises LauncherError where there is no such Ray cluster, or its token cannot be read.
    """
    from launcher.standing.dashboard import opened

    return opened(place.cluster(), name, port)


def metrics(name: str, *, place: Place = ANYWHERE) -> list[dict[str, Any]]:
    """What the run has measured, in the order of its steps: an entry for each step (step, loss, step_seconds,
    tokens_per_second_per_device, …, time), and for each held-out evaluation (step, eval_loss, time).

    Of a step that was done twice, after a restart, the later entry. On a cluster they are read from the run's log:
    raises LauncherError where that has gone with its pods.
    """
    from launcher import progress

    backend, found = find(name, place)
    if found.kind == "local":
        from pathlib import Path

        from launcher.local.record import METRICS, read_lines

        entries = read_lines(Path(found.folder, METRICS))
    else:
        entries = progress.metrics(backend.logs(name, follow=False, worker=None))
    latest = {(entry["step"], "eval_loss" in entry): entry for entry in entries if isinstance(entry.get("step"), int)}
    return [latest[key] for key in sorted(latest)]


def report(
    names: Sequence[str], *, place: Place = ANYWHERE, skip: bool = False, say: Callable[[str], None] = lambda _: None
) -> Report:
    """The report of runs, side by side: its HTML page, and what the page's first table says of each, as data.

    A name is a run's or a sweep's, a run's folder (with a slash in it), or the URL of one in a bucket. Raises
    LauncherError where one of them cannot be read; with `skip` it is left out, and told in `left_out`. `say` gets a
    sentence where a run was read in another way than from its folder.
    """
    from launcher.report import build

    return build(names, place=place, skip=skip, say=say)


def doctor(place: Place = ANYWHERE) -> list[Finding]:
    """Whether this machine, and the cluster of the place, are fit to run: what is well, what is not, what to do.

    Changes nothing. What this user may not look at is a finding of level `unknown`.
    """
    from launcher.doctor import examine

    return examine(place)
