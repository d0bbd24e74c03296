"""The doctor without a cluster checks only this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from launcher import api
from launcher.__main__ import run
from launcher.diagnose.doctor import Finding, Level, machine
from launcher.k8s.target import Target


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a kubeconfig and without Helm, which is not a pod."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "SLIPWAY_HELM"):
        monkeypatch.delenv(name, raising=False)


def by_subject(target: Target) -> dict[str, Finding]:
    return {one.subject: one for one in api.doctor(target)}


def test_no_kubeconfig_is_not_a_problem_if_runs_can_train_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert "  warning  kubeconfig     there is no kubeconfig, so runs are possible only on this machine.\n" in out
    assert "  warning  Helm           there is no helm on the PATH; the charts cannot be rendered without it.\n" in out
    assert "  ok       training here  Ray and MaxText are installed, so run.kind local works.\n" in out
    assert err == "2 warnings.\n"


def test_a_kubeconfig_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere/config")
    found = by_subject(Target())["kubeconfig"]
    assert (
        found.says == "KUBECONFIG names /nowhere/config, which does not exist, "
        "so runs are possible only on this machine."
    )


def test_no_packages_for_training(monkeypatch: pytest.MonkeyPatch) -> None:
    # The test replaces a package name, because this environment has the extra `train`.
    monkeypatch.setattr(machine, "_TRAINING", ("ray", "not_installed_here"))
    found = by_subject(Target())
    assert found["training here"].level is Level.WARNING
    assert found["training here"].says == "not possible: not_installed_here is not installed."


def test_a_context_without_a_kubeconfig_is_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--context", "prod", "-o", "json"]) == 1
    found = {one["subject"]: one for one in json.loads(capsys.readouterr().out)}
    assert found["kubeconfig"]["level"] == "problem"
    assert found["kubeconfig"]["says"] == "there is no ~/.kube/config, so there is no cluster to connect to."
    # A missing Helm is a problem, too: it renders what is sent to a cluster.
    assert found["Helm"]["level"] == "problem"


def test_a_kubeconfig_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "kubeconfig"
    broken.write_text("a: [")
    monkeypatch.setenv("KUBECONFIG", str(broken))
    found = by_subject(Target())
    assert found["kubeconfig"].level is Level.PROBLEM
    assert str(broken) in found["kubeconfig"].says


def test_this_machine_is_checked_without_large_imports() -> None:
    code = (
        "import sys; from launcher import api; from launcher.k8s.target import Target; api.doctor(Target(local=True));"
        "sys.exit(bool({'ray', 'jax', 'maxtext', 'kubernetes'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
