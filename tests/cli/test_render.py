"""render, and the module that calls Helm, with both real Helms."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher import api
from launcher.config.plan import LaunchPlan
from launcher.errors import LauncherError
from launcher.helm import client as helm
from launcher.paths import charts_dir
from tests.charts.helm import KUBE_VERSION
from tests.cli.conftest import Launcher

A = """\
run: {name: demo, kind: ray-job, maxRestarts: 2}
team: {name: research}
slice: {accelerator: v6e, topology: 4x4}
image: {repository: registry.example.com/slipway, tag: "1"}
storage: {kind: gcsfuse, bucket: our-bucket}
worker: {env: {CLOCK: "1:30", DAY: "2024-01-01", OCTAL: "010", MAGIC_WORD: xyzzy}}
train: {model_name: llama3-8b, steps: 10, dataset_type: synthetic, learning_rate: 3.0e-5}
"""
# A null removes a default; a list replaces the earlier list.
B = """\
run: {maxRestarts: 0}
slice: {count: 2}
storage: {sidecarLimits: {cpu: null}}
train: {steps: 20, learning_rate: 1e-4}
worker: {env: {XLA_FLAGS: "--a=1 --b='2'"}}
"""
KINDS = ["ray-job", "job-set"]


@pytest.fixture
def files(launcher: Launcher) -> list[str]:
    return [launcher.write("a.yaml", A), launcher.write("b.yaml", B)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_manifest_is_that_of_helm(helm: Path, launcher: Launcher, files: list[str], kind: str) -> None:
    kinds = launcher.write("kind.yaml", f"run: {{kind: {kind}}}\n")
    arguments = ["-f", files[0], "-f", files[1], "-f", kinds]
    result = launcher("render", *arguments, env={"SLIPWAY_HELM": str(helm)})
    assert (result.code, result.err) == (0, "")
    options = ["--namespace", "research", "--kube-version", KUBE_VERSION]
    done = subprocess.run(
        [helm, "template", "demo", charts_dir() / "run", *arguments, *options],
        cwd=launcher.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.out == done.stdout


def test_as_json_it_is_the_one_object(helm4: Path, launcher: Launcher, files: list[str]) -> None:
    obj = launcher("render", "-f", files[0], "--name", "other", "-o", "json", env={"SLIPWAY_HELM": str(helm4)}).json
    assert (obj["kind"], obj["metadata"]["name"], obj["metadata"]["namespace"]) == ("RayJob", "other", "research")
    worker = obj["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]
    environment = {entry["name"]: entry.get("value") for entry in worker["containers"][0]["env"]}
    assert {key: environment[key] for key in ("CLOCK", "DAY", "OCTAL")} == {
        "CLOCK": "1:30",
        "DAY": "2024-01-01",
        "OCTAL": "010",
    }


def test_rules_come_before_helm(launcher: Launcher, files: list[str]) -> None:
    result = launcher("render", "-f", files[0], "--set", "slice.topology=4x5", env={"SLIPWAY_HELM": "/none"})
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith('Error: --set slice.topology: "4x5" is not a topology of v6e.')


def test_kinds_that_make_no_object(launcher: Launcher, files: list[str]) -> None:
    ray_cluster = ["--set", "run.kind=ray-cluster", "--set", "run.cluster=ours"]
    result = launcher("render", "-f", files[0], *ray_cluster, env={"SLIPWAY_HELM": "/none"})
    assert result.code == 0
    assert result.err == (
        "A ray-cluster run creates no Kubernetes object. launcher submit sends this run config to the Ray cluster "
        "ours (namespace research) as a Ray job.\n"
    )
    assert "  cluster: ours\n" in result.out
    result = launcher("render", "-f", "quickstart", "--name", "x", "-o", "json", env={"SLIPWAY_HELM": "/none"})
    assert result.code == 0
    assert "creates no Kubernetes object" in result.err
    assert result.json["run"]["kind"] == "local"


def test_render_needs_neither_kubernetes_nor_ray(helm4: Path, launcher: Launcher, files: list[str]) -> None:
    code = (
        "import sys; from launcher.__main__ import run; code = run(sys.argv[1:]);"
        "assert not {'kubernetes', 'ray', 'jax', 'pyhelm3', 'asyncio'} & set(sys.modules); sys.exit(code)"
    )
    command = [sys.executable, "-c", code, "render", "-f", files[0]]
    environment = {**launcher.env, "SLIPWAY_HELM": str(helm4), "KUBECONFIG": "/none"}
    done = subprocess.run(command, cwd=launcher.folder, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_value_is_on_a_command_line(helm4: Path, launcher: Launcher, files: list[str]) -> None:
    log = launcher.folder / "log"
    spy = script(launcher, f'echo "$@" >>{log}\nexec {helm4} "$@"')
    assert launcher("render", "-f", files[0], env={"SLIPWAY_HELM": spy}).code == 0
    assert "template demo" in log.read_text()
    assert "xyzzy" not in log.read_text()


# Helm 2 and Helm 5 are not available here, so scripts print what they would print.
@pytest.mark.parametrize(
    ("printed", "message"),
    [
        ("echo v2.17.0", "Error: Helm 2.17.0 (HELM) is not supported.\n"),
        ("echo v3.15.4", "Error: Helm 3.15.4 (HELM) is not supported.\n"),
        ("echo v5.0.0", "Error: Helm 5.0.0 (HELM) is not supported.\n"),
        ("echo hello", "Error: HELM is not Helm: its command version prints 'hello'.\n"),
        ("echo broken >&2; exit 1", "Error: Helm (HELM) cannot be run: broken\n"),
    ],
)
def test_an_invalid_helm(launcher: Launcher, files: list[str], printed: str, message: str) -> None:
    fake = script(launcher, printed)
    result = launcher("render", "-f", files[0], env={"SLIPWAY_HELM": fake})
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(message.replace("HELM", fake))
    assert "Hint: Install Helm 3.16 or newer" in result.err


def test_no_helm_at_all(launcher: Launcher, files: list[str]) -> None:
    result = launcher("render", "-f", files[0], env={"PATH": "/none", "SLIPWAY_HELM": ""})
    assert result.code == 1
    assert result.err.startswith("Error: There is no helm on the PATH; the charts cannot be rendered without it.\n")


def script(launcher: Launcher, text: str) -> str:
    file = launcher.folder / "a helm"  # a path with a space
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return str(file)


# --- sweeps: many runs in one call --------------------------------------------------------------------------------


@pytest.fixture
def plan(
    helm: Path, launcher: Launcher, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., LaunchPlan]:
    monkeypatch.setenv("SLIPWAY_HELM", str(helm))
    monkeypatch.chdir(launcher.folder)
    return lambda name, *sets: api.plan(files, sets, name=name)


def test_the_runs_of_a_sweep_render_as_single_runs(plan: Callable[..., LaunchPlan]) -> None:
    plans = [
        plan("a-1", "train.learning_rate=1e-4"),
        plan("a-2", "train.learning_rate=3e-4", "storage.sidecarLimits.memory=null"),
        plan("a-3", "run.kind=job-set", "slice.topology=4x8"),
        plan("a-4", "team.namespace=elsewhere", "run.command={sleep,1:30}"),
    ]
    together = helm.run_objects(plans)
    assert together == [helm.run_object(one) for one in plans]
    # repr compares the order of the keys, too, which == ignores.
    assert list(map(repr, together)) == [repr(helm.run_object(one)) for one in plans]


def test_a_row_of_the_table_of_one_run_does_not_change_another(plan: Callable[..., LaunchPlan]) -> None:
    plans = [plan("a-1", "common.accelerators.v6e.hbmGiB=33"), plan("a-2")]
    assert helm.run_objects(plans) == [helm.run_object(one) for one in plans]


def test_a_sweep_reports_the_charts_error_like_a_single_run(plan: Callable[..., LaunchPlan]) -> None:
    from dataclasses import replace

    from launcher.config.values.tree import Origin, set_value

    valid, invalid = plan("a-1"), plan("a-2")
    path, origin = ("from",), Origin("x", 1)
    own = "a-2@100"
    invalid = replace(
        invalid, user=set_value(invalid.user, path, own, origin), values=set_value(invalid.values, path, own, origin)
    )
    with pytest.raises(LauncherError, match=r"^from: \"a-2@100\" is the run itself"):
        helm.run_objects([valid, invalid])
