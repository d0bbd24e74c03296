"""`make e2e` itself: what it says of a cluster that lacks something, and that it leaves nothing behind.

The control plane is real, and the module's own; Kueue, JobSet, KubeRay and the kubelet are stand-ins, for the real
ones cannot be had here (tests/e2e/stand_ins). So this tests the suite, and nothing that the suite tests.
`python -m tests.e2e.stand_ins python -m tests.e2e` runs all of the suite that way.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.charts import schemas
from tests.cluster.control_plane import ControlPlane
from tests.cluster.launching import until
from tests.e2e import leftovers
from tests.e2e.settings import LABEL
from tests.e2e.stand_ins.cluster import controllers
from tests.tools import tool

ROOT = Path(__file__).resolve().parents[2]
QUEUES = "tests/e2e/test_queues.py::test_queues_are_installed_and_active"
STORY = "tests/e2e/test_multislice.py::test_three_slices_run_alone_then_one_and_two_together"
JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/jobsets"


@pytest.fixture
def bare(control_plane: ControlPlane) -> ControlPlane:
    """A cluster with upstream's kinds, and no controllers that serve them."""
    return control_plane


@pytest.fixture(scope="module")
def equipped() -> Iterator[ControlPlane]:
    """A cluster of its own, with stand-ins for the controllers."""
    schemas.shared()
    with ControlPlane.start() as plane:
        plane.install_crds()
        with controllers(plane):
            yield plane


def suite(kubeconfig: Path | str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """`python -m tests.e2e …`, as make runs it."""
    rest = {key: value for key, value in os.environ.items() if key != "CI" and not key.startswith("SLIPWAY_E2E")}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.e2e", *arguments],
        env={**rest, "KUBECONFIG": str(kubeconfig), "SLIPWAY_HELM": str(tool("helm")), **environment},
        cwd=ROOT,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def end_of(process: subprocess.Popen[str], seconds: float = 300) -> tuple[int, str, str]:
    """Exit code, stdout, stderr."""
    out, err = process.communicate(timeout=seconds)
    assert "Traceback" not in err, err
    return process.returncode, out, err


def left(plane: ControlPlane, err: str) -> list[str]:
    """All that a run of the suite, by what it said on stderr, has left: of every kind."""
    found = re.search(r"Everything this run makes begins with (\S+)\.", err)
    assert found, err
    return leftovers.mentions(plane.api, found[1])


def test_no_cluster_is_a_sentence(tmp_path: Path) -> None:
    code, out, err = end_of(suite(tmp_path / "none"))
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
    code, _, err = end_of(suite(tmp_path / "none", SLIPWAY_E2E_PATIENCE="never"))
    assert (code, err.splitlines()[0][:32]) == (1, 'Error: SLIPWAY_E2E_PATIENCE is "')


def test_a_user_without_rights_is_told_so(bare: ControlPlane) -> None:
    code, out, err = end_of(suite(bare.kubeconfig_for("nobody")))
    assert (code, out) == (1, "")
    assert "Error: You may not make namespaces in this cluster, and every test has its own." in err


def test_without_controllers_every_test_is_skipped_by_what_it_needs(bare: ControlPlane) -> None:
    code, out, err = end_of(suite(bare.admin))
    assert code == 1
    assert re.search(r"= \d+ skipped", out), out
    assert " passed" not in out
    assert "needs Kueue 0.16 or later; its kinds are served, and no controller of its kind runs" in out
    assert "an image with the trainer; name it in SLIPWAY_E2E_IMAGE" in out
    assert "1 node for ordinary pods, ready and without taints; it has 0" in out
    assert "Error: The cluster lacks what the suite is for (" in err
    assert left(bare, err) == []


def test_it_passes_twice_at_once_and_leaves_nothing(equipped: ControlPlane) -> None:
    both = [suite(equipped.admin, QUEUES) for _ in range(2)]
    for process in both:
        code, out, err = end_of(process)
        assert code == 0, out + err
        assert "1 passed" in out
        assert left(equipped, err) == []


def test_a_setting_that_is_not_given_is_no_error_but_in_ci(equipped: ControlPlane) -> None:
    standing = "tests/e2e/test_standing.py"
    code, out, err = end_of(suite(equipped.admin, standing))
    assert (code, "1 skipped" in out) == (0, True), out + err
    code, _, err = end_of(suite(equipped.admin, standing, CI="true"))
    assert code == 1
    assert "Error: In CI no test may be skipped, and 1 were; it needs an image with the trainer" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_suite_cleans_up(equipped: ControlPlane, number: signal.Signals) -> None:
    process = suite(equipped.admin, STORY)
    until(lambda: equipped.api.items(JOB_SETS), 120)
    process.send_signal(number)
    code, out, err = end_of(process)
    assert code == 130, out + err
    assert "Removing what e2e-" in err
    assert left(equipped, err) == []


def test_what_a_killed_suite_has_left_is_cleaned(equipped: ControlPlane) -> None:
    process = suite(equipped.admin, STORY)
    until(lambda: equipped.api.items(JOB_SETS), 120)
    (ident,) = leftovers.known(equipped.api)
    code, _, err = end_of(suite(equipped.admin, "clean"))
    assert code == 0
    assert f"{ident} may still be at work" in err, "nothing is taken from a suite that runs"
    process.kill()
    process.communicate()
    assert [
        space["metadata"]["labels"][LABEL] for space in equipped.api.items(f"/api/v1/namespaces?labelSelector={LABEL}")
    ]
    code, _, err = end_of(suite(equipped.admin, "clean"))
    assert (code, f"Removing what {ident} has made" in err) == (0, True), err
    assert leftovers.mentions(equipped.api, ident) == []
    code, _, err = end_of(suite(equipped.admin, "clean"))
    assert (code, err.splitlines()[-1]) == (0, "No run of the suite has left anything.")
    code, _, err = end_of(suite(equipped.admin, "clean", "kube-system"))
    assert (code, err.splitlines()[-1][:30]) == (1, 'Error: "kube-system" is no id ')
