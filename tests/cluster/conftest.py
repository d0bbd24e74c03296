"""Fixtures of the tests that speak to an API server.

control_plane   the session's own API server with upstream's CRDs; started when the first test asks for it
kubeconfig      a cluster admin's, of the control plane; of the user's own cluster in a test marked `own_cluster`
                where SLIPWAY_TEST_CLUSTER=1 (the cluster is the current context of $KUBECONFIG)
api             the tests' own client for that cluster (api.py)
namespace       the name of a new namespace there, deleted afterwards
cluster_config  the same, and KUBECONFIG names the kubeconfig while the test runs
admin           the tests' own client, as an admin of the control plane
desk            the launcher in front of the control plane, for a team settled in `namespace` (launching.py)
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.charts import schemas
from tests.cluster.api import Api
from tests.cluster.control_plane import BINARIES, ControlPlane, add_namespace
from tests.cluster.launching import LauncherCli, settle
from tests.tools import tool


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds the control plane where tests ask for it: cold, that takes longer than a test may take."""
    asking = {"control_plane", "kubeconfig"}
    if session.config.option.collectonly or not any(asking & {*getattr(i, "fixturenames", ())} for i in session.items):
        return
    with contextlib.suppress(RuntimeError):  # the fixture says it again, to the tests that need it
        for name in BINARIES:
            tool(name)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    schemas.shared()  # without it nothing needs to be started
    with ControlPlane.start() as plane:
        plane.install_crds()
        yield plane
        assert not plane.processes.ended(), f"These ended by themselves:\n{plane.processes.last_lines()}"


@pytest.fixture
def kubeconfig(request: pytest.FixtureRequest) -> Path:
    if request.node.get_closest_marker("own_cluster") and os.environ.get("SLIPWAY_TEST_CLUSTER") == "1":
        given = os.environ.get("KUBECONFIG")
        assert given, "SLIPWAY_TEST_CLUSTER=1 wants a cluster of yours for these tests; KUBECONFIG has to name it."
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
    api.delete(f"/api/v1/namespaces/{name}")  # its contents go later; no test waits for that


@pytest.fixture
def cluster_config(kubeconfig: Path, namespace: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    return namespace


@pytest.fixture
def admin(control_plane: ControlPlane) -> Api:
    return control_plane.api


@pytest.fixture
def desk(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> LauncherCli:
    settle(control_plane, namespace)
    return LauncherCli(control_plane.admin, namespace, tmp_path)
