"""`make e2e` and `make e2e-clean`: run the suite on the cluster that KUBECONFIG selects.

    python -m tests.e2e [PYTEST OPTIONS AND TESTS]
    python -m tests.e2e clean [--all | ID…]

Exit code 0: all tests passed, or were skipped because of a missing setting. 1: a test failed, or the cluster lacks
something that the suite is meant to test. 130: interrupted. The suite always removes what it created before it exits.
`clean` removes what a killed suite left.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.errors import LauncherError
from tests.cluster.api import Api, ApiError
from tests.e2e import current, facts, leftovers, release, settings
from tests.e2e.cli import ROOT, Cli, find_helm
from tests.e2e.needs import FixedBy
from tests.e2e.teams import Session, user_storage


def main(arguments: list[str]) -> int:
    if arguments[:1] in (["-h"], ["--help"]):
        print((__doc__ or "").strip())
        return 0
    try:
        wanted = settings.read(os.environ)
        api = _connect(wanted)
        try:
            if arguments[:1] == ["clean"]:
                return _clean(api, arguments[1:])
            return _run(api, wanted, arguments)
        finally:
            api.close()
    except LauncherError as error:
        _print(f"Error: {error.message}")
        if error.hint:
            _print(f"Hint: {error.hint}")
        return 1
    except KeyboardInterrupt:
        return 130


def _connect(wanted: settings.Settings) -> Api:
    """A client of the cluster. Raises LauncherError if none is configured, or if it does not answer or refuses."""
    from launcher.k8s.kubeconfig import configured, nowhere
    from launcher.k8s.target import Target

    if wanted.values and not Path(wanted.values).is_file():
        raise LauncherError(f"SLIPWAY_E2E_VALUES names {wanted.values}, which is not a file.")
    if not configured():
        raise LauncherError(
            f"{nowhere() or 'There is no ~/.kube/config'}, so there is no cluster to test.",
            "tests/e2e/kind up makes one with kind; docs/how-to/test-a-cluster.md says more.",
        )
    cluster = Target(context=wanted.context or None, namespace="default").cluster()
    _print(f"{cluster.name}: Kubernetes {cluster.version()}")
    kubeconfig = Path(wanted.kubeconfig) if wanted.kubeconfig else None
    return Api(kubeconfig, wanted.context or None)


def _run(api: Api, wanted: settings.Settings, arguments: list[str]) -> int:
    try:
        helm = find_helm()
    except RuntimeError as error:
        raise LauncherError(f"Helm was not found: {error}", "Install Helm, or name it in SLIPWAY_HELM.") from error
    earlier = release.find(ROOT, wanted.release)
    found = facts.read(api, wanted, earlier.why)
    if user_storage(wanted):
        found = facts.with_storage(found)
    if "make namespaces" in found.refused:
        raise LauncherError(
            "You may not make namespaces in this cluster, and every test has its own.",
            "make e2e needs the rights of a cluster's administrator.",
        )
    ident = f"{wanted.prefix}-{secrets.token_hex(3)}"
    with _signals_interrupt(), tempfile.TemporaryDirectory(prefix=f"slipway-{ident}-") as name:
        folder = Path(name)
        cli = Cli(wanted, folder, helm, api)
        charts = release.charts(ROOT, earlier, folder) if not earlier.why else None
        session = Session(wanted, found, ident, api, cli, folder, charts)
        _print(*_summary(session, earlier))
        code: int = 1
        try:
            leftovers.claim(api, ident)
            current.SESSION = session
            os.chdir(ROOT)
            code = int(pytest.main(["-m", "e2e", *(arguments or ["tests/e2e"])]))
        except ApiError as error:
            raise LauncherError(f"The namespace {ident} cannot be made: {error}") from error
        finally:
            current.SESSION = None
            left = _remove(api, [ident])
    if code == pytest.ExitCode.INTERRUPTED:
        return 130
    return _verdict(session, code, left)


def _verdict(session: Session, code: int, left: list[str]) -> int:
    """The exit code. Prints the reasons that are not in the output of the tests."""
    skipped = session.skipped
    unmet = list(dict.fromkeys(need for needs in skipped.values() for need in needs))
    cluster = [need.text for need in unmet if need.fixed_by is FixedBy.CLUSTER]
    if left:
        _print(
            f"Error: These objects still exist: {', '.join(left)}.",
            f"Hint: make e2e-clean E2E={session.ident} tries again.",
        )
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        _print("Error: No test was found.")
    if skipped and cluster and not session.settings.partial:
        tests = f"{len(skipped)} test{'' if len(skipped) == 1 else 's'} skipped"
        _print(f"Error: The cluster lacks what the suite is for ({tests}); it needs {'; it needs '.join(cluster)}.")
        _print(
            "Hint: docs/how-to/test-a-cluster.md lists what to install. "
            "SLIPWAY_E2E_PARTIAL=1 accepts a cluster that lacks something."
        )
    elif skipped and session.settings.strict and not session.settings.partial:
        needed = "; it needs ".join(need.text for need in unmet)
        _print(f"Error: In CI no test may be skipped, and {len(skipped)} were; it needs {needed}.")
    else:
        return 1 if left and code == 0 else code
    return code or 1


def _summary(session: Session, earlier: release.Earlier) -> Iterator[str]:
    """Lines about what the tests will use."""
    found = session.facts
    controllers = [f"{what} {one.version or '(unknown version)'}" for what, one in sorted(found.controllers.items())]
    yield f"It has {', '.join(controllers) or 'none of Kueue, JobSet and KubeRay'}."
    yield f"Nodes for ordinary pods: {found.nodes}, with {found.cpu:g} cores and {found.memory_gib:.1f} GiB."
    yield f"Slices: {'of simulated chips' if session.chips else f'of cpu, for {found.simulated}'}."
    storage = found.storage or found.storage_class or "from SLIPWAY_E2E_VALUES"
    yield f"Image: {found.image or 'none'}. Storage: {storage}."
    yield f"Earlier charts: {earlier.why or earlier.called}."
    yield f"Everything this run makes begins with {session.ident}."


def _clean(api: Api, arguments: list[str]) -> int:
    known = leftovers.known(api)
    everything = "--all" in arguments
    given = [word for word in arguments if word != "--all"]
    for word in given:
        if not settings.is_id(word):
            raise LauncherError(f'"{word}" is no id of a run of the suite; they are like e2e-1a2b3c.')
    chosen = given or sorted(known)
    if not chosen:
        _print("No run of the suite has left anything.")
        return 0
    ready = []
    for ident in chosen:
        if not given and not everything and leftovers.may_run(known[ident]):
            owner = known[ident]
            _print(f"{ident} may still be at work ({owner}); make e2e-clean E2E={ident} removes it all the same.")
        else:
            ready.append(ident)
    with _signals_interrupt():
        left = _remove(api, ready)
    if left:
        _print(f"Error: These objects still exist: {', '.join(left)}.")
    return int(bool(left))


def _remove(api: Api, idents: list[str]) -> list[str]:
    """Remove all objects of these runs; returns what could not be removed. A signal does not interrupt it."""
    left = []
    with _signals_ignored():
        for ident in idents:
            _print(f"Removing what {ident} has made …")
            try:
                left += leftovers.clean(api, ident, _print)
            except Exception as error:
                _print(f"Error: It could not be removed: {error}", f"Hint: make e2e-clean E2E={ident} tries again.")
                left.append(f"what {ident} has made")
    return left


@contextlib.contextmanager
def _signals_interrupt() -> Iterator[None]:
    """While this is open, SIGTERM and SIGHUP end the tests as Ctrl-C does, with the cleanup."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _signals_ignored() -> Iterator[None]:
    """While this is open, another signal does not stop the cleanup. SIGKILL does."""

    def ignore(number: int, frame: object) -> None:
        _print("The cleanup is still running. The command exits when it is done.")

    numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = {number: signal.signal(number, ignore) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print(*sentences: str) -> None:
    for sentence in sentences:
        print(sentence, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
