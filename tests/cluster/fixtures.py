"""Fixtures for tests with an API server.

control_plane   the session's own API server with upstream's CRDs; starts when the first test needs it
kubeconfig      a cluster admin's kubeconfig for the control plane; in a test marked `own_cluster`, with
                SLIPWAY_TEST_CLUSTER=1, for the user's own cluster (the current context of $KUBECONFIG)
api             the tests' own client for that cluster (api.py)
namespace       the name of a new namespace there, deleted after the test
cluster_config  the same, with KUBECONFIG set to the kubeconfig during the test
admin           the tests' own client, as an admin of the control plane
cli             the launcher with the control plane, for a team in `namespace` (launching.py)
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.api import Api
from tests.cluster.control_plane import BINARIES, ControlPlane, add_namespace, remove_namespace
from tests.cluster.launching import LauncherCli, add_team, remove_cluster_queue
from tests.tools import tool


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds the control plane's programs if tests need them. The first build takes longer than a test's time limit."""
    asking = {"control_plane", "kubeconfig"}
    if session.config.option.collectonly or not any(asking & {*getattr(i, "fixturenames", ())} for i in session.items):
        return
    with contextlib.suppress(RuntimeError):  # the fixture raises it again, in the tests that need it
        for name in BINARIES:
            tool(name)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    with ControlPlane.start(with_crds=True) as plane:
        yield plane
        assert not plane.processes.ended(), f"These processes ended unexpectedly:\n{plane.processes.last_lines()}"


@pytest.fixture
def kubeconfig(request: pytest.FixtureRequest) -> Path:
    if request.node.get_closest_marker("own_cluster") and os.environ.get("SLIPWAY_TEST_CLUSTER") == "1":
        given = os.environ.get("KUBECONFIG")
        assert given, "SLIPWAY_TEST_CLUSTER=1 requires KUBECONFIG, with your cluster for these tests."
        return Path(given)
    plane: ControlPlane = request.getfixturevalue("control_plane")
    return plane.admin


@pytest.fixture
def api(kubeconfig: Path) -> Iterator[Api]:
    client = Api(kubeconfig)
    yield client
    client.close()


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    name = f"test-{secrets.token_hex(4)}"
    add_namespace(api, name)
    yield name
    remove_namespace(api, name)


@pytest.fixture
def cluster_config(kubeconfig: Path, namespace: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    return namespace


@pytest.fixture
def admin(control_plane: ControlPlane) -> Api:
    return control_plane.api


@pytest.fixture
def cli(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[LauncherCli]:
    add_team(control_plane, namespace)
    with contextlib.closing(LauncherCli(control_plane.admin, namespace, tmp_path)) as made:
        yield made
    remove_cluster_queue(control_plane.api, namespace)
