"""Find runs and sweeps, and the backend that has them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING

from launcher import plugins
from launcher.errors import LauncherError
from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from launcher.backends.base import Backend, RunStatus
    from launcher.backends.sweeps import Sweep

# The backends of a target, and the error that prevents access to its cluster, if any.
type Reachable = tuple[list[Backend], LauncherError | None]
# A valid name of a run (a DNS label). Nothing else may become part of a path.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.IGNORECASE)


class NoSuchRun(LauncherError):
    """Neither a run nor a sweep has the name `name`, or the command needs a run and `name` is a sweep."""

    def __init__(self, name: str, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.name = name


class IsSweep(NoSuchRun):
    """The command needs a run, and the name is that of a sweep. `backend` and `sweep` are what `resolve` returns."""

    def __init__(self, name: str, backend: Backend, sweep: Sweep) -> None:
        from launcher.backends import sweeps

        runs = sweeps.range_of(sweep)
        super().__init__(
            name,
            f'"{sweep.name}" is a sweep; this command needs one of its runs: {runs}.',
            f"To show them: launcher status {sweep.name}{backend.cli_args}",
        )
        self.backend = backend
        self.sweep = sweep


def is_name(text: str) -> bool:
    """Return whether the text is a valid name of an object."""
    return _NAME.fullmatch(text) is not None


def backends(target: Target = DEFAULT_TARGET) -> list[Backend]:
    """Return the backends of every kind of run that `target` includes.

    Raises LauncherError if `target` includes a cluster that cannot be accessed.
    """
    places, refusal = reachable_backends(target)
    if refusal is not None:
        raise refusal
    return places


def reachable_backends(target: Target, in_namespaces: Callable[..., Backend] | None = None) -> Reachable:
    """Return the backends and the error that prevents access to the cluster; local runs work without it.

    `in_namespaces` replaces KubernetesBackend.
    """
    places: list[Backend] = []
    if target.includes_local:
        from launcher.backends.local.backend import LocalBackend

        places = [LocalBackend()]
    if not target.cluster_requested:
        return places, None
    from launcher.backends.kubernetes.backend import KubernetesBackend

    try:
        cluster = target.cluster()
    except LauncherError as error:
        return places, error
    kubernetes = (in_namespaces or KubernetesBackend)(cluster, all_namespaces=target.all_namespaces)
    added = [hook(cluster, all_namespaces=target.all_namespaces) for hook in plugins.hooks("backend")]
    return [*places, kubernetes, *added], None


def _ask_each[Answer](
    places: Sequence[Backend], ask: Callable[[Backend], Answer]
) -> list[tuple[Backend, Answer | LauncherError]]:
    """Return each backend with its answer or its error. The backends are queried in parallel."""
    from concurrent.futures import ThreadPoolExecutor

    def answer(backend: Backend) -> tuple[Backend, Answer | LauncherError]:
        try:
            return backend, ask(backend)
        except LauncherError as error:
            return backend, error

    with ThreadPoolExecutor(max(1, len(places))) as pool:
        return list(pool.map(answer, places))


def find(name: str, target: Target = DEFAULT_TARGET) -> tuple[Backend, RunStatus]:
    """Return the run called `name` (or "run/NAME") and its backend. Raises IsSweep if only a sweep has the name.

    If one backend has the run, errors of the others are ignored. Otherwise they are raised, because a backend that
    failed may have the run.
    """
    run = find_run(name.removeprefix("run/"), target)
    if run is None:
        raise no_run(name, target)
    return run


def find_run(
    name: str, target: Target, *, summary: bool = False, reachable: Reachable | None = None
) -> tuple[Backend, RunStatus] | None:
    """Like `find`, but return None if the run does not exist. `summary` omits the fields that need more requests."""
    if not _NAME.fullmatch(name):
        return None
    places, refusal = reachable or reachable_backends(target)

    def look(backend: Backend) -> RunStatus | None:
        return backend.summary(name) if summary else backend.status(name)

    runs, refusals = [], [refusal] if refusal is not None else []
    for backend, answer in _ask_each(places, look):
        if isinstance(answer, LauncherError):
            refusals.append(answer)
        elif answer is not None:
            runs.append((backend, answer))
    if len(runs) == 1:
        return runs[0]
    if runs:
        where = " and ".join(f"{status.kind} ({status.folder})" for _, status in runs)
        raise LauncherError(
            f'There are several runs "{name}": {where}.',
            "Use --local for this machine, or --namespace or --context for a cluster.",
        )
    if refusal is not None and target.includes_local and len(refusals) == 1:
        raise LauncherError(
            f'The run "{name}" was not found on this machine. {refusal.message}', refusal.hint
        ) from refusal
    if refusals:
        raise refusals[0]
    return None


def resolve(name: str, target: Target = DEFAULT_TARGET) -> tuple[Backend, RunStatus | Sweep]:
    """Return the run or the sweep called `name`, and its backend.

    "run/NAME" and "sweep/NAME" select one of the two. Raises LauncherError if both or neither exist.
    """
    kind, slash, bare = name.partition("/")
    if slash and kind == "run":
        return find(name, target)
    if slash and kind == "sweep":
        return _only(bare, _sweeps_called(bare, target, strict=True))

    from concurrent.futures import ThreadPoolExecutor

    reachable = reachable_backends(target)  # read the kubeconfig once, and share the connections
    with ThreadPoolExecutor(1) as pool:  # in parallel: most verbs start with this
        asked = pool.submit(_sweeps_called, name, target, reachable=reachable)
        try:
            run = find_run(name, target, reachable=reachable)
        except LauncherError:
            run = None
            if not asked.result():  # a local sweep is found even if the cluster does not answer
                raise
        matches = asked.result()
    if run is None:
        if not matches:
            raise no_run(name, target)
        return _only(name, matches)
    if matches:
        from launcher.backends import sweeps

        raise LauncherError(
            f'Both a run "{name}" and a sweep "{name}" ({sweeps.range_of(matches[0][1])}) exist.',
            f"Use run/{name} for the run, or sweep/{name} for the sweep.",
        )
    return run


def list_with_backends(
    warn: Callable[[str], None], *, target: Target, sweep: str = "", reachable: Reachable | None = None
) -> list[tuple[Backend, RunStatus]]:
    """Return every run with its backend; see launcher.api.list_runs."""
    reported: set[str] = set()

    def once(sentence: str) -> None:
        if sentence not in reported:
            reported.add(sentence)
            warn(sentence)

    places, refusal = reachable or reachable_backends(target)
    asked = _ask_each(places, lambda backend: backend.list(once, sweep=sweep))
    for backend in places:
        for sentence in sorted(backend.cluster.unreadable) if backend.cluster is not None else ():
            once(f"{sentence} It is left out.")
    answered = [(backend, answer) for backend, answer in asked if not isinstance(answer, LauncherError)]
    refusals = [answer for _, answer in asked if isinstance(answer, LauncherError)]
    refusals += [refusal] if refusal is not None else []
    if refusals and not (answered and target.includes_local):
        raise refusals[0]
    nowhere_else = not any(backend.description for backend, _ in answered)
    for refused in refusals:
        once(f"{refused.message} Only this machine was searched." if nowhere_else else refused.message)
    runs = [(backend, run) for backend, runs in answered for run in runs]
    return sorted(runs, key=lambda pair: pair[1].submitted or "", reverse=True)


def _sweeps_called(
    name: str, target: Target, *, strict: bool = False, reachable: Reachable | None = None
) -> list[tuple[Backend, Sweep]]:
    """Return the sweeps with that name. A cluster that does not answer, or denies access, counts as having none.

    With `strict`, raises LauncherError if there is none: the cluster's error, or that none was found.
    """
    from launcher.backends import sweeps

    places, refusal = reachable or reachable_backends(target)
    matching = []
    for backend, answer in _ask_each(places, lambda backend: sweeps.find(name, backend)):
        if isinstance(answer, LauncherError):
            refusal = answer
        elif answer is not None:
            matching.append((backend, answer))
    if strict and not matching:
        raise refusal or LauncherError(
            f'The sweep "{name}" was not found{_searched(target)}.', "To list all runs: launcher list"
        )
    return matching


def _only(name: str, matching: Sequence[tuple[Backend, Sweep]]) -> tuple[Backend, Sweep]:
    if len(matching) > 1:
        places = " and ".join(
            f"{sweep.runs[0].kind} ({backend.description or 'this machine'})" for backend, sweep in matching
        )
        raise LauncherError(
            f'There are several sweeps "{name}": {places}.',
            "Use --local for this machine, or --namespace or --context for a cluster.",
        )
    return matching[0]


def _searched(target: Target) -> str:
    """Return the places that were searched, as the end of a sentence."""
    looked = f" in the {target.cluster().description}" if target.includes_cluster else " on this machine"
    return f" on this machine, or{looked}" if target.includes_local and target.includes_cluster else looked


def no_run(name: str, target: Target) -> NoSuchRun:
    """Return the error about a name that no run has: IsSweep if a sweep has it, or if it is "sweep/NAME"."""
    kind, slash, bare = name.partition("/")
    if slash and kind == "sweep":
        return IsSweep(bare, *_only(bare, _sweeps_called(bare, target, strict=True)))
    if slash and kind == "run":
        name = bare
    elif matches := _sweeps_called(name, target):
        return IsSweep(name, *_only(name, matches))
    for foreign in plugins.hooks("foreign_object"):
        if found := foreign(name, target):
            return NoSuchRun(name, *found)
    names = [run.name for _, run in list_with_backends(lambda _: None, target=target)]
    near = get_close_matches(name, names, n=1)
    guess = f' Did you mean "{near[0]}"?' if near else ""
    looked = _searched(target)
    elsewhere = (
        ". To search another namespace, use -n NAMESPACE. A finished JobSet is deleted after run.keepFinishedDays; its "
        "checkpoints and metrics stay in its storage."
        if target.includes_cluster
        else ""
    )
    hint = f"To list all runs: launcher list{elsewhere}"
    return NoSuchRun(name, f'The run "{name}" was not found{looked}.{guess}', hint)


def look_again[Found](find: Callable[[], Found], target: Target) -> Found:
    """Return what `find` returns. If it raises NoSuchRun, repeat it for GAP_SECONDS if `target` includes a cluster."""
    from launcher.backends.base import GAP_SECONDS

    deadline = time.monotonic() + GAP_SECONDS
    while True:
        try:
            return find()
        except NoSuchRun:
            if not target.includes_cluster or time.monotonic() >= deadline:
                raise
        time.sleep(0.3)
