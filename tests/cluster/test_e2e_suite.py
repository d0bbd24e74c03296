"""`make e2e` itself: its messages about a cluster that lacks something, and its cleanup.

The control plane is real and belongs to this module. Kueue, JobSet, KubeRay and the kubelet are fake, because the real
ones are not available here (tests/e2e/fakes). So these tests check the suite, and not what the suite tests.
`python -m tests.e2e.fakes python -m tests.e2e` runs the whole suite in this way.
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

from tests.cluster.control_plane import ControlPlane
from tests.cluster.launching import until
from tests.e2e import leftovers
from tests.e2e.fakes.cluster import controllers
from tests.e2e.settings import LABEL
from tests.tools import tool

ROOT = Path(__file__).resolve().parents[2]
QUEUES = "tests/e2e/test_queues.py::test_queues_are_installed_and_active"
STORY = "tests/e2e/test_multislice.py::test_three_slices_run_alone_then_one_and_two_together"
JOB = "tests/e2e/test_ray_cluster.py::test_a_job_trains_in_a_long_lived_ray_cluster"
JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/jobsets"


@pytest.fixture
def bare(control_plane: ControlPlane) -> ControlPlane:
    """A cluster with upstream's CRDs, but without their controllers."""
    return control_plane


@pytest.fixture(scope="module")
def equipped() -> Iterator[ControlPlane]:
    """A separate cluster with fake controllers."""
    with ControlPlane.start(with_crds=True) as plane, controllers(plane):
        yield plane


def suite(kubeconfig: Path | str, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start `python -m tests.e2e …`, as make does."""
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
    """Wait for the end of the process, and return its exit code, stdout and stderr."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert "Traceback" not in err, err
    return process.returncode, out, err


def left(plane: ControlPlane, err: str) -> list[str]:
    """All objects, of any kind, that a run of the suite has left. `err` is the run's stderr, which has its id."""
    found = re.search(r"Everything this run makes begins with (\S+)\.", err)
    assert found, err
    return leftovers.mentions(plane.api, found[1])


def test_a_missing_cluster_is_an_error(tmp_path: Path) -> None:
    code, out, err = end_of(suite(tmp_path / "none"))
    assert (code, out) == (1, "")
    assert err.startswith("Error: ")
    code, _, err = end_of(suite(tmp_path / "none", SLIPWAY_E2E_PATIENCE="never"))
    assert (code, err.splitlines()[0][:32]) == (1, 'Error: SLIPWAY_E2E_PATIENCE is "')


def test_a_user_without_rights_gets_an_error(bare: ControlPlane) -> None:
    code, out, err = end_of(suite(bare.kubeconfig_for("nobody")))
    assert (code, out) == (1, "")
    assert "Error: You may not make namespaces in this cluster, and every test has its own." in err


def test_without_controllers_every_test_is_skipped_with_a_reason(bare: ControlPlane) -> None:
    code, out, err = end_of(suite(bare.admin))
    assert code == 1
    assert re.search(r"= \d+ skipped", out), out
    assert " passed" not in out
    assert "needs Kueue 0.16 or later; its kinds are served, and no controller of its kind runs" in out
    assert "an image with the trainer; name it in SLIPWAY_E2E_IMAGE" in out
    assert "1 node for ordinary pods, ready and without taints; it has 0" in out
    assert "Error: The cluster lacks what the suite is for (" in err
    assert left(bare, err) == []


def test_two_suites_at_once_pass_and_leave_nothing(equipped: ControlPlane) -> None:
    both = [suite(equipped.admin, QUEUES) for _ in range(2)]
    for process in both:
        code, out, err = end_of(process)
        assert code == 0, out + err
        assert "1 passed" in out
        assert left(equipped, err) == []


def test_a_missing_setting_is_an_error_only_in_ci(equipped: ControlPlane) -> None:
    code, out, err = end_of(suite(equipped.admin, JOB))
    assert (code, "1 skipped" in out) == (0, True), out + err
    code, _, err = end_of(suite(equipped.admin, JOB, CI="true"))
    assert code == 1
    assert "Error: In CI no test may be skipped, and 1 were; it needs an image with the trainer" in err


@pytest.mark.timeout(1200)
def test_a_model_is_served_with_the_fakes(equipped: ControlPlane) -> None:
    """The suite acts as a member, so charts/queues' policies apply to all that it creates."""
    image = {"SLIPWAY_E2E_IMAGE": "example.invalid/trainer:1.0.0"}
    code, out, err = end_of(suite(equipped.admin, "tests/e2e/test_serve.py", **image), 1000)
    assert (code, "1 passed" in out) == (0, True), out + err
    assert left(equipped, err) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_suite_cleans_up(equipped: ControlPlane, number: signal.Signals) -> None:
    process = suite(equipped.admin, STORY)
    until(lambda: equipped.api.items(JOB_SETS), 120)
    process.send_signal(number)
    code, out, err = end_of(process)
    assert code == 130, out + err
    assert "Removing what e2e-" in err
    assert left(equipped, err) == []


def test_clean_removes_what_a_killed_suite_left(equipped: ControlPlane) -> None:
    process = suite(equipped.admin, STORY)
    until(lambda: equipped.api.items(JOB_SETS), 120)
    (ident,) = leftovers.known(equipped.api)
    code, _, err = end_of(suite(equipped.admin, "clean"))
    assert code == 0
    assert f"{ident} may still be at work" in err, "clean removed objects of a running suite"
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
