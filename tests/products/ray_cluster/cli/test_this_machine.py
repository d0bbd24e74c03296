"""The commands for Ray clusters without a cluster."""

from __future__ import annotations

from tests.cli.conftest import SHORT, Launcher
from tests.cli.test_bad_input import rejected


def test_without_a_cluster(launcher: Launcher) -> None:
    result = launcher("dashboard", "demo")
    rejected(result, "so there is no cluster to connect to")
    hint = result.err.splitlines()[-1]
    assert hint.startswith("Hint: Set KUBECONFIG ") and "run.kind" not in hint


def test_a_kubeconfig_that_is_missing_or_invalid(launcher: Launcher) -> None:
    missing, broken = launcher.folder / "away", launcher.write("broken", "a: [")
    none = f"KUBECONFIG names {missing}, which does not exist, so there is no cluster to connect to."
    for file, message in ((str(missing), none), (broken, f"The kubeconfig {broken} is not valid YAML: ")):
        result = launcher("list", "--clusters", env={"KUBECONFIG": file})
        assert (result.code, result.out) == (1, "") and result.err.startswith(f"Error: {message}")


def test_the_dashboard_of_a_local_run(launcher: Launcher) -> None:
    launcher("submit", "-f", launcher.write("run.yaml", SHORT))
    dashboard = launcher("dashboard", "demo")
    assert (dashboard.code, dashboard.out) == (1, "")
    assert dashboard.err.splitlines()[0] == (
        'Error: The run "demo" is on this machine; only a Ray cluster in Kubernetes has a dashboard.'
    )
