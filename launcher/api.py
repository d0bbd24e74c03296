"""The verbs as Python functions; the command line is their first user.

    from launcher import api

    plan = api.plan(["quickstart"], ["train.steps=20"], name="first")
    api.submit(plan)
    print(api.wait("first").loss)

    sweep = api.plan_sweep(["quickstart"], [], ["train.learning_rate=1e-3,1e-2"], name="rates")
    api.submit_sweep(sweep)
    print(api.wait_sweep("rates").best.name)

`files` are values files or presets by their names, `sets` texts as `--set` takes them. What runs is a LaunchPlan, made
by `plan` and checked there; all that is known of a run is a launcher.runs.RunStatus, whose state is one of
launcher.runs.State. `place` says where to look, and whom to ask: launcher.place.Place(context, namespace, local), by
default this machine and then the current context of the kubeconfig.

Every function raises launcher.errors.LauncherError for what the caller can mend: its `message` is the sentence that
the command line prints, its `hint` says what to do where the message does not, and `exit_code` is the command's. Its
subclasses are named where they are raised; those of a cluster that refuses, or does not answer, are in
launcher.cluster_errors. Importing this module is light: what a function needs is imported when it is called.

docs/examples/sweep.ipynb is a notebook that submits a sweep, waits, and plots.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from launcher.cluster_errors import Unreachable
from launcher.errors import ExitCode, LauncherError
from launcher.place import ANYWHERE, Place

if TYPE_CHECKING:
    from http.server import ThreadingHTTPServer

    from launcher.checks.rules import Problem
    from launcher.diff import ObjectChange
    from launcher.doctor import Finding
    from launcher.explain import Explanation
    from launcher.plan import LaunchPlan
    from launcher.releases.install import ReleasePlan
    from launcher.releases.removal import Removal
    from launcher.render import Rendering
    from launcher.runs import Backend, Preview, RunStatus, Submission
    from launcher.standing.clusters import StandingCluster
    from launcher.sweeps.plan import SweepPlan
    from launcher.sweeps.sweep import Sweep, SweepSubmission
    from launcher.values.tree import Values

# What can be the name of a run (a label in DNS), so that nothing else gets into a path.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.IGNORECASE)
# The chart that holds the defaults of every kind of run.
_CHART = "run"


class NoSuchRun(LauncherError):
    """No run, and no sweep, has the name."""


class WaitTimeout(LauncherError):
    """`wait` ran out of time; the run goes on."""

    exit_code = ExitCode.TIMEOUT


# --- values and plans -------------------------------------------------------------------------------------------


def values(files: Sequence[str], sets: Sequence[str] = (), *, defaults: bool = False) -> Values:
    """The values files and `--set`s merged by Helm's rule, not validated; with `defaults`, over the chart's."""
    from launcher.values.files import chart_defaults, load
    from launcher.values.tree import with_defaults

    user = load(files, sets)
    return with_defaults(user, chart_defaults(_CHART)) if defaults else user


def plan(files: Sequence[str], sets: Sequence[str] = (), *, name: str | None = None, force: bool = False) -> LaunchPlan:
    """What a submit of these values would run. Raises launcher.plan.CheckFailed where a rule is broken.

    With `force` the plan is submitted even where the cluster says that it could never start.
    """
    from launcher.plan import plan_launch
    from launcher.values.files import chart_defaults, load

    return replace(plan_launch(load(files, sets), chart_defaults(_CHART), name=name), force=force)


def check(
    files: Sequence[str],
    sets: Sequence[str] = (),
    *,
    name: str | None = None,
    live: bool = False,
    place: Place = ANYWHERE,
) -> Sequence[Problem]:
    """Every rule that can be told without chips: what is broken, and the warnings.

    With `live`, those too that only the cluster can tell, once none of the others is broken.
    """
    from launcher.checks.problems import has_errors
    from launcher.plan import check_launch
    from launcher.values.files import chart_defaults, load

    found = check_launch(load(files, sets), chart_defaults(_CHART), name=name)
    if not live or has_errors(found):
        return found
    wanted = plan(files, sets, name=name)
    return [*found, *backend_for(wanted, place).problems(wanted)]


# --- a run's life -----------------------------------------------------------------------------------------------


def backends(place: Place = ANYWHERE) -> list[Backend]:
    """Every kind of run that can be looked at from here.

    Raises LauncherError where a cluster is meant, and there is no way to speak to it.
    """
    found, refusal = _backends(place)
    if refusal is not None:
        raise refusal
    return found


def _backends(place: Place) -> tuple[list[Backend], LauncherError | None]:
    """The same, and what is in the way of speaking to the cluster: no reason not to look at this machine's runs."""
    from launcher.local.backend import LocalBackend

    found: list[Backend] = [LocalBackend()] if place.here else []
    if not place.there:
        return found, None
    from launcher.kube.backend import KubeBackend
    from launcher.standing.backend import StandingBackend

    try:
        cluster = place.cluster()
    except LauncherError as error:
        return found, error
    kinds = (KubeBackend(cluster, everywhere=place.everywhere), StandingBackend(cluster, everywhere=place.everywhere))
    return [*found, *kinds], None


def backend_for(plan: LaunchPlan, place: Place = ANYWHERE) -> Backend:
    """Where a run of the plan's kind goes. Raises LauncherError where `place` and the plan name two places."""
    if plan.kind == "local":
        if not place.here:
            raise LauncherError("run.kind is local: the run goes to this machine; leave out --context and --namespace.")
        from launcher.local.backend import LocalBackend

        return LocalBackend()
    if place.local:
        raise LauncherError(
            f"run.kind is {plan.kind}: the run goes to a cluster; leave out --local, or use --set run.kind=local."
        )
    team = plan.config["team"]
    named = team["namespace"] or team["name"]
    if named and place.namespace not in (None, named):
        raise LauncherError(
            f"The values put the run into the namespace {named} (team), and --namespace says {place.namespace}.",
            "Leave out --namespace, or change team.namespace.",
        )
    cluster = replace(place, namespace=named or place.namespace).cluster()
    if plan.kind == "ray-cluster":
        from launcher.standing.backend import StandingBackend

        return StandingBackend(cluster)
    from launcher.kube.backend import KubeBackend

    return KubeBackend(cluster)


def find(name: str, place: Place = ANYWHERE) -> tuple[Backend, RunStatus]:
    """The run called `name` (or "run/NAME") and the backend that answers for it.

    A run that is found counts, whatever is wrong with the other places; where none is, one that could not be asked is
    an error, for it may have the run.
    """
    bare = name.removeprefix("run/")
    found = _run_called(bare, place)
    if found is None:
        raise _no_run(bare, place)
    return found


def _run_called(name: str, place: Place, *, glance: bool = False) -> tuple[Backend, RunStatus] | None:
    """`find`, but None where there is no such run; with `glance`, without what is not needed to tell the run."""
    if not _NAME.fullmatch(name):
        return None
    everywhere, refusal = _backends(place)
    found, refusals = [], [refusal] if refusal is not None else []
    for backend in everywhere:
        try:
            look = getattr(backend, "glance", backend.status) if glance else backend.status
            status = look(name)
        except LauncherError as error:
            refusals.append(error)
        else:
            found += [(backend, status)] if status is not None else []
    if len(found) == 1:
        return found[0]
    if found:
        places = " and ".join(f"{status.kind} ({status.folder})" for _, status in found)
        raise LauncherError(
            f'There are several runs "{name}": {places}.',
            "--local means this machine's, --namespace or --context a cluster's.",
        )
    if refusals:
        raise refusals[0]
    return None


def resolve(name: str, place: Place = ANYWHERE) -> tuple[Backend, RunStatus | Sweep]:
    """The run or the sweep called `name`, and the backend that answers for it.

    "run/NAME" and "sweep/NAME" say which is meant. Raises LauncherError where there are both, or neither.
    """
    kind, slash, bare = name.partition("/")
    if slash and kind == "run":
        return find(bare, place)
    if slash and kind == "sweep":
        found = _sweeps_called(bare, place, strict=True)
        if not found:
            raise LauncherError(f'There is no sweep "{bare}"{_looked(place)}.', "launcher list shows all runs.")
        return _only(bare, found)

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:  # at the same time: this is the first thing that most verbs do
        asked = pool.submit(_sweeps_called, name, place)
        try:
            run = _run_called(name, place)
        except LauncherError:
            run = None
            if not asked.result():  # a sweep of this machine is found where the cluster does not answer, too
                raise
        found = asked.result()
    if run is None:
        if not found:
            raise _no_run(name, place)
        return _only(name, found)
    if found:
        from launcher.sweeps import sweep as sweeps

        raise LauncherError(
            f'There are a run "{name}" and a sweep "{name}" ({sweeps.range_of(found[0][1])}).',
            f"run/{name} means the run, sweep/{name} the sweep.",
        )
    return run


def _sweeps_called(name: str, place: Place, *, strict: bool = False) -> list[tuple[Backend, Sweep]]:
    """The sweeps of that name. A cluster that does not answer, or tells this user nothing, has none; where nothing else
    has one, that is an error if `strict`."""
    from launcher.sweeps import sweep as sweeps

    everywhere, refusal = _backends(place)
    found = []
    for backend in everywhere:
        try:
            sweep = sweeps.look(name, backend)
        except LauncherError as error:
            refusal = error
        else:
            found += [(backend, sweep)] if sweep is not None else []
    if strict and refusal is not None and not found:
        raise refusal
    return found


def _only(name: str, found: Sequence[tuple[Backend, Sweep]]) -> tuple[Backend, Sweep]:
    if len(found) > 1:
        places = " and ".join(f"{sweep.runs[0].kind} ({backend.where or 'this machine'})" for backend, sweep in found)
        raise LauncherError(
            f'There are several sweeps "{name}": {places}.',
            "--local means this machine's, --namespace or --context a cluster's.",
        )
    return found[0]


def _looked(place: Place) -> str:
    """Where a name was looked for, as the end of a sentence."""
    looked = f" in the {place.cluster().where}" if place.there else " on this machine"
    return f" on this machine, or{looked}" if place.here and place.there else looked


def _no_run(name: str, place: Place) -> NoSuchRun:
    from difflib import get_close_matches

    from launcher.sweeps import sweep as sweeps

    for _, sweep in _sweeps_called(name, place):
        return NoSuchRun(
            f'"{name}" is a sweep; this takes one of its runs: {sweeps.range_of(sweep)}.',
            f"launcher status {name} shows them.",
        )
    names = [status.name for status in list_runs(place=place)]
    near = get_close_matches(name, names, n=1)
    guess = f' Did you mean "{near[0]}"?' if near else ""
    looked = _looked(place)
    elsewhere = " -n NAMESPACE looks in another namespace." if place.there else ""
    return NoSuchRun(
        f'There is no run "{name}"{looked}.{guess}', f"launcher list shows the runs that there are.{elsewhere}"
    )


def preview(plan: LaunchPlan, *, accept_changes: bool = False, place: Place = ANYWHERE) -> Preview:
    """What `submit` would do now. Creates nothing; raises what `submit` would raise.

    Where there is a cluster, the API server is asked too; without one, the values have been checked, and no more.
    """
    if plan.kind != "local" and not place.there:
        from launcher.runs import Preview

        return Preview(plan.config, "The values hold up. There is no kubeconfig, so no cluster was asked.")
    return backend_for(plan, place).preview(plan, accept_changes=accept_changes)


def submit(plan: LaunchPlan, *, accept_changes: bool = False, place: Place = ANYWHERE) -> Submission:
    """Start the run, or find or resume the one that has its name; returns at once.

    `accept_changes` goes on from the last checkpoint with a config that differs from the run's.
    """
    return backend_for(plan, place).submit(plan, accept_changes=accept_changes)


def list_runs(
    warn: Callable[[str], None] = lambda _: None, *, place: Place = ANYWHERE, sweep: str = ""
) -> list[RunStatus]:
    """Every run, newest first; a run, or a whole cluster, that cannot be read is told to `warn`, one sentence each.

    `sweep`: only the runs of the sweep of that name. Raises LauncherError where a cluster alone is asked, and does not
    answer.
    """
    from concurrent.futures import ThreadPoolExecutor

    def listed(backend: Backend) -> Sequence[RunStatus] | LauncherError:
        try:
            return backend.list(once, sweep=sweep)
        except LauncherError as error:
            return error

    said: set[str] = set()

    def once(sentence: str) -> None:
        if sentence not in said:
            said.add(sentence)
            warn(sentence)

    everywhere, refusal = _backends(place)
    with ThreadPoolExecutor(max(1, len(everywhere))) as pool:
        answers = [*pool.map(listed, everywhere), *([refusal] if refusal is not None else [])]
    runs: list[RunStatus] = []
    nothing = all(isinstance(answer, LauncherError) for answer in answers)
    for answer in answers:
        if not isinstance(answer, LauncherError):
            runs += answer
        elif nothing or not place.here:
            raise answer
        else:
            once(answer.message)
    return sorted(runs, key=lambda status: status.submitted or "", reverse=True)


def status(name: str, *, place: Place = ANYWHERE) -> RunStatus:
    """The run's status now; of a cluster's run with the steps and losses that its log tells."""
    return find(name, place)[1]


def logs(name: str, *, follow: bool = False, worker: int | None = None, place: Place = ANYWHERE) -> Iterator[str]:
    """The run's output line by line, without newlines; with `follow`, until the run ends.

    `worker` is that host's output alone, counted from 0. Raises LauncherError where there is none, or its log has gone
    with its pods.
    """
    return find(name, place)[0].logs(name, follow=follow, worker=worker)


def wait(name: str, *, timeout: float | None = None, place: Place = ANYWHERE) -> RunStatus:
    """The run's status once it has ended; raises WaitTimeout after `timeout` seconds.

    An API server that does not answer meanwhile is asked again until it does.
    """
    backend, now = find(name, place)
    deadline = None if timeout is None else time.monotonic() + timeout
    while not now.state.ended:
        pause = backend.poll_seconds
        if deadline is not None:
            pause = min(pause, deadline - time.monotonic())
            if pause <= 0:
                raise WaitTimeout(f'The run "{name}" is still {now.state} after {timeout:g} s; it goes on.')
        time.sleep(pause)
        with contextlib.suppress(Unreachable):
            now = gone_or(backend.status(name), name)
    return now


def gone_or(status: RunStatus | None, name: str) -> RunStatus:
    """The status of a run that was there a moment ago."""
    if status is None:
        raise LauncherError(f'The run "{name}" was deleted meanwhile.')
    return status


def cancel(name: str, *, place: Place = ANYWHERE) -> RunStatus:
    """Stop the run and free all that it holds; its record and checkpoints stay. Idempotent.

    Returns once nothing is held; raises LauncherError where that lasts minutes, and calling it again goes on waiting.
    """
    return find(name, place)[0].cancel(name)


def delete(name: str, *, place: Place = ANYWHERE) -> None:
    """Remove a run that has ended: on this machine with its folder and checkpoints, in a cluster its record.

    Raises LauncherError where it goes on, and for a run that is a Helm release.
    """
    find(name, place)[0].delete(name)


# --- why, and how well --------------------------------------------------------------------------------------------


def explain(name: str, *, place: Place = ANYWHERE) -> Explanation:
    """Why the run is where it is: a sentence, what shows it, and what would help. Changes nothing."""
    from launcher.explain import explain_run

    found = _run_called(name, place, glance=True)
    if found is None:
        raise _no_run(name, place)
    return explain_run(*found)


def clusters(name: str | None = None, *, place: Place = ANYWHERE) -> list[StandingCluster]:
    """The namespace's standing Ray clusters, each with its pods and the runs in it; [] where there is no cluster.

    With `name`, that one alone. Raises LauncherError where the API server does not answer.
    """
    if not place.there:
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


# --- sweeps -----------------------------------------------------------------------------------------------------


def plan_sweep(
    files: Sequence[str],
    sets: Sequence[str],
    sweeps: Sequence[str],
    *,
    name: str | None = None,
    force: bool = False,
) -> SweepPlan:
    """What a sweep of these values would run: a plan for each combination of `sweeps`, the last changing fastest.

    Each of `sweeps` is a key and its values, "train.learning_rate=1e-4,3e-4", read as those of `--set`. The runs are
    called NAME-1, NAME-2, … Raises launcher.plan.CheckFailed with all that is wrong with any of them.
    """
    from launcher.sweeps import plan as sweep_plan
    from launcher.values.files import chart_defaults, load

    plan = sweep_plan.plan_sweep(load(files, sets), chart_defaults(_CHART), sweeps, name=name)
    return replace(plan, plans=tuple(replace(each, force=force) for each in plan.plans))


def preview_sweep(plan: SweepPlan, *, accept_changes: bool = False, place: Place = ANYWHERE) -> list[Preview]:
    """What `submit_sweep` would do with each run. Creates nothing; raises what `submit_sweep` would raise."""
    from launcher.sweeps import sweep as sweeps

    if plan.kind != "local" and not place.there:
        return [preview(each, accept_changes=accept_changes, place=place) for each in plan.plans]
    return sweeps.preview(plan, backend_for(plan.plans[0], place), accept_changes=accept_changes)


def submit_sweep(plan: SweepPlan, *, accept_changes: bool = False, place: Place = ANYWHERE) -> SweepSubmission:
    """Start the sweep's runs, or find or resume those that are there, each by its own name; returns at once.

    Nothing is made where one of them would be refused. A submit that was killed halfway is completed by another.
    """
    from launcher.sweeps import sweep as sweeps

    return sweeps.submit(plan, backend_for(plan.plans[0], place), accept_changes=accept_changes)


def find_sweep(name: str, place: Place = ANYWHERE) -> tuple[Backend, Sweep]:
    """The sweep called `name` and the backend that answers for it; of a cluster's runs without steps and losses."""
    backend, found = resolve(f"sweep/{name}", place)
    return backend, cast("Sweep", found)


def sweep(name: str, *, place: Place = ANYWHERE) -> Sweep:
    """The sweep now: its runs with their steps and losses, and which of them is the best."""
    from launcher.sweeps import sweep as sweeps

    backend, found = find_sweep(name, place)
    return sweeps.closer(found, backend)


def wait_sweep(name: str, *, timeout: float | None = None, place: Place = ANYWHERE) -> Sweep:
    """The sweep once all its runs have ended; raises WaitTimeout after `timeout` seconds."""
    from launcher.sweeps import sweep as sweeps

    backend, now = find_sweep(name, place)
    deadline = None if timeout is None else time.monotonic() + timeout
    for seen in sweeps.watch(now, backend, deadline):
        now = now if isinstance(seen, Unreachable) else seen
    if not now.ended:
        states = ", ".join(f"{count} {state}" for state, count in now.counts.items())
        raise WaitTimeout(f'Of the sweep "{name}" {states} after {timeout:g} s; they go on.')
    return sweeps.closer(now, backend)


def cancel_sweep(name: str, *, place: Place = ANYWHERE) -> Sweep:
    """Cancel all runs of the sweep that have not ended, those that wait first. Idempotent."""
    from launcher.sweeps import sweep as sweeps

    backend, found = find_sweep(name, place)
    return sweeps.cancel(found, backend)


def delete_sweep(name: str, *, place: Place = ANYWHERE) -> None:
    """Remove all runs of a sweep that has ended, as `delete` does; none where one of them goes on."""
    from launcher.sweeps import sweep as sweeps

    backend, found = find_sweep(name, place)
    sweeps.delete(found, backend)


# --- manifests, and the releases of a platform or a team --------------------------------------------------------


def render(plan: LaunchPlan) -> Rendering:
    """The manifest that a submit would create, by Helm and without a cluster; see launcher.render.Rendering."""
    from launcher.render import render

    return render(plan)


def plan_release(
    chart: str,
    files: Sequence[str],
    sets: Sequence[str] = (),
    *,
    name: str | None = None,
    place: Place = ANYWHERE,
    recover: bool = False,
) -> ReleasePlan:
    """What `install` of a chart (queues, ray-cluster) with these values would change. Changes nothing.

    `recover` takes an operation that another helm has begun and not ended for dead, however young it is.
    """
    from launcher.releases import install as releases

    return releases.plan(chart, name, files, sets, place, recover=recover)


def install(
    plan: ReleasePlan, say: Callable[[str], None] = lambda _: None, *, seconds: float | None = None
) -> list[str]:
    """Install or upgrade the release, and wait until it works, at most `seconds` (0: do not wait).

    Returns what does not work yet, a sentence each; that stays. What Kubernetes refuses is taken back as a whole, and
    raised.
    """
    from launcher.releases import install as releases

    return releases.install(plan, say, seconds=seconds)


def plan_removal(name: str, *, place: Place = ANYWHERE) -> Removal:
    """What `uninstall` of a release would remove, and which runs need that. Changes nothing."""
    from launcher.releases import removal

    return removal.plan_removal(name, place)


def uninstall(
    removal: Removal, say: Callable[[str], None] = lambda _: None, *, force: bool = False, seconds: float = 60
) -> list[str]:
    """Remove the release; what is still there after `seconds`, a sentence each.

    Raises LauncherError where runs need it, unless `force`.
    """
    from launcher.releases.removal import uninstall

    return uninstall(removal, say, force=force, seconds=seconds)


def diff_run(plan: LaunchPlan, *, place: Place = ANYWHERE) -> list[ObjectChange]:
    """What `submit` would make in the cluster, or how the run of that name there differs; [] for other kinds."""
    from launcher import diff

    return diff.run(plan, place)


# --- the cluster and this machine -------------------------------------------------------------------------------


def doctor(place: Place = ANYWHERE) -> list[Finding]:
    """Whether this machine, and the cluster of the place, are fit to run: what is well, what is not, what to do.

    Changes nothing. What this user may not look at is a finding of level `unknown`.
    """
    from launcher.doctor import examine

    return examine(place)
