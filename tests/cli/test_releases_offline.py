"""check, render and values of a platform's queues and of a Ray cluster, without a cluster."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Launcher
from tests.tools import tool

QUEUES = """\
flavors:
  v6e: {accelerator: v6e, topology: 4x4}
clusterQueues:
  research: {chipsAlone: true, quota: {v6e: {slices: 2}}}
teams:
  research: {clusterQueue: research, members: {research@example.com: User}}
"""


@pytest.fixture(scope="module")
def env() -> dict[str, str]:
    return {"SLIPWAY_HELM": str(tool("helm")), "KUBECONFIG": "/dev/null"}


def test_check_finds_nothing(launcher: Launcher, env: dict[str, str]) -> None:
    result = launcher("check", "queues", "-f", "queues/three-teams", env=env)
    assert (result.code, result.out, result.err) == (0, "", "No problems found.\n")


def test_check_names_the_line_of_each_problem(launcher: Launcher, env: dict[str, str]) -> None:
    file = launcher.write("queues.yaml", QUEUES + "teamz: {}\n")
    result = launcher("check", "queues", file, env=env)
    assert (result.code, result.out) == (1, f"error: {file}:7: unknown key teamz; did you mean teams?\n")
    file = launcher.write("queues.yaml", QUEUES.replace("clusterQueue: research", "clusterQueue: reserch"))
    (problem,) = launcher("check", "queues", file, "-o", "json", env=env).json
    assert (problem["file"], problem["line"], problem["key"]) == (file, 6, "teams.research.clusterQueue")
    assert "reserch" in problem["message"]
    (problem,) = launcher("check", "queues", launcher.write("bad.yaml", "a: [\n"), "-o", "json", env=env).json
    assert (problem["rule"], problem["file"]) == ("syntax", "bad.yaml")


def test_check_warns_about_a_flavor_without_quota(launcher: Launcher, env: dict[str, str]) -> None:
    spare = "  spare: {accelerator: v6e, topology: 2x2}\n"
    file = launcher.write("queues.yaml", QUEUES.replace("clusterQueues:", f"{spare}clusterQueues:"))
    warning = "flavors.spare is in no quota, so no run of these queues can use it; add it to a quota of clusterQueues,"
    result = launcher("check", "queues", file, env=env)
    assert (result.code, result.out) == (0, f"warning: {file}:3: {warning} or remove it.\n")
    other = launcher.write(
        "queues.yaml", QUEUES.replace("clusterQueues:", f"{spare[:-2]}, create: false}}\nclusterQueues:")
    )
    assert launcher("check", "queues", other, env=env).out == ""


def test_render_prints_what_install_would_apply(launcher: Launcher, env: dict[str, str]) -> None:
    file = launcher.write("queues.yaml", QUEUES)
    objects = launcher("render", "queues", file, "-o", "json", env=env).json
    assert {"ResourceFlavor", "ClusterQueue", "LocalQueue", "Namespace"} <= {each["kind"] for each in objects}
    text = launcher("render", "queues", file, env=env).out
    assert text.count("kind: ClusterQueue\n") == 1
    result = launcher("render", "queues", file, "--set", "teams.research.clusterQueue=x", env=env)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("Error: --set teams.research.clusterQueue: ")


def test_a_ray_cluster(launcher: Launcher, env: dict[str, str]) -> None:
    arguments = ("ray-cluster", "shared", "tutorials/llama3-8b-v6e-16")
    assert launcher("check", *arguments, env=env).code == 0
    (cluster,) = launcher("render", *arguments, "-o", "json", env=env).json
    assert (cluster["kind"], cluster["metadata"]["name"]) == ("RayCluster", "shared")
    values = json.loads(launcher("values", "ray-cluster", "slices/v6e-4x4", "--all", "-o", "json").out)
    assert values["slice"]["topology"] == "4x4"
    result = launcher("check", "ray-cluster", "tutorials/llama3-8b-v6e-16", env=env)
    assert result.err.startswith("Error: The Ray cluster has no name.\nHint: Write it after ray-cluster")


def test_options_of_a_run(launcher: Launcher, env: dict[str, str]) -> None:
    result = launcher("check", "queues", "queues/one-team", "--live", env=env)
    assert (result.code, result.err) == (
        2,
        "Error: --live checks a run; for a release, use: launcher diff queues\n",
    )
    result = launcher("render", "queues", "queues/one-team", "--name", "x", env=env)
    assert (result.code, result.err) == (
        2,
        "Error: --name is the name of a run; for a release, use: launcher render queues RELEASE\n",
    )
