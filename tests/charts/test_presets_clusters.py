"""Presets of tutorials and clusters: each renders with its charts to one valid object, on every kind of cluster."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from launcher.config.plan import check_launch
from launcher.config.values.files import chart_defaults, load
from launcher.paths import charts_dir, find_values_file, presets_dir
from tests.charts.helm import template
from tests.charts.parity_compare import differences
from tests.charts.schemas import objects, pod_templates, validate

PRESETS = presets_dir()
LLAMA = PRESETS / "tutorials" / "llama3-8b-v6e-16.yaml"
MULTISLICE = PRESETS / "tutorials" / "multislice-v5e.yaml"
DWS = PRESETS / "tutorials" / "dws-flex-start.yaml"
STANDARD = PRESETS / "clusters" / "gke-standard.yaml"
AUTOPILOT = PRESETS / "clusters" / "gke-autopilot.yaml"
KIND = PRESETS / "clusters" / "kind.yaml"
CLUSTERS = (STANDARD, AUTOPILOT, KIND)

# The chart and the options of every use of a tutorial.
USES: list[tuple[str, Path, list[str]]] = [
    ("ray-cluster", LLAMA, []),
    ("run", LLAMA, []),
    ("run", LLAMA, ["run.kind=job-set"]),
    ("run", DWS, []),
    *(("run", MULTISLICE, [f"slice.count={count}", f"run.name=multislice-{count}slice"]) for count in (1, 2, 3)),
    ("run", MULTISLICE, ["security.hostNetwork=true", "security.privileged=true"]),
    ("run", MULTISLICE, ["run.name=low-priority", "queue.podPriority=low-priority"]),
]
USE_IDS = [" ".join((chart, file.stem, *options)) for chart, file, options in USES]


def render(helm: Path, chart: str, files: Sequence[Path], sets: Iterable[str] = ()) -> list[dict[str, Any]]:
    options = [argument for option in sets for argument in ("--set", option)]
    return objects(template(helm, charts_dir() / chart, files, *options))


def test_every_tutorial_and_cluster_is_tested_here() -> None:
    assert {LLAMA, MULTISLICE, DWS} == set((PRESETS / "tutorials").iterdir())
    assert set(CLUSTERS) == set((PRESETS / "clusters").glob("*.yaml"))


@pytest.mark.parametrize(("chart", "file", "sets"), USES, ids=USE_IDS)
def test_a_tutorial_is_one_valid_object(helm: Path, chart: str, file: Path, sets: list[str]) -> None:
    (obj,) = render(helm, chart, [file], sets)
    assert validate(obj) == []


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda path: path.stem)
@pytest.mark.parametrize(("chart", "file", "sets"), USES, ids=USE_IDS)
def test_a_tutorial_is_one_valid_object_on_every_cluster(
    helm4: Path, chart: str, file: Path, sets: list[str], cluster: Path
) -> None:
    (obj,) = render(helm4, chart, [file, cluster], sets)
    assert validate(obj) == []


@pytest.mark.parametrize("cluster", [None, *CLUSTERS], ids=lambda path: path.stem if path else "no-cluster")
@pytest.mark.parametrize(
    ("file", "sets"),
    [
        *((file, sets) for chart, file, sets in USES if chart == "run"),
        (LLAMA, ["run.kind=ray-cluster", "run.cluster=maxtext-tpu-cluster"]),
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else " ".join(value),
)
def test_launcher_check_accepts_it(file: Path, sets: list[str], cluster: Path | None) -> None:
    """One problem is expected: a mesh of 16 chips does not fit the one CPU of a cluster of kind."""
    files = [str(path) for path in (file, cluster) if path]
    expected = ["mesh"] if file in (LLAMA, DWS) and cluster and cluster.stem == "kind" else []
    problems = check_launch(load(files, sets), chart_defaults("run"))
    assert [problem.rule for problem in problems if problem.rule != "placeholder"] == expected


@pytest.mark.parametrize("file", [LLAMA, MULTISLICE], ids=lambda path: path.stem)
def test_the_commands_above_a_tutorial_are_right(helm4: Path, file: Path) -> None:
    commands = [line.removeprefix("#   ") for line in file.read_text().splitlines() if line.startswith("#   ")]
    assert commands
    for line in commands:
        program, *arguments = shlex.split(line)
        if arguments[0] == "install":
            chart, release, flag, values = arguments[1:]
            assert (program, flag, find_values_file(values).resolve()) == ("launcher", "-f", file)
            (obj,) = objects(template(helm4, charts_dir() / chart, [file]))
            assert f"run.cluster={release}" in "".join(commands)
            assert obj["kind"] == "RayCluster"
            continue
        if program == "launcher":
            assert arguments.pop(0) == "submit"
            assert find_values_file(arguments[arguments.index("-f") + 1]).resolve() == file
        else:  # options for the command above
            arguments = [program, *arguments]
        sets = [argument for before, argument in itertools.pairwise(arguments) if before == "--set"]
        name = arguments[arguments.index("--name") + 1] if "--name" in arguments else None
        assert set(arguments[::2]) <= {"-f", "--set", "--name"}
        problems = check_launch(load([str(file)], sets), chart_defaults("run"), name=name)
        assert [problem for problem in problems if problem.rule != "placeholder"] == []


def test_values_to_fill_in_are_marked() -> None:
    lines = LLAMA.read_text().splitlines()
    marked = [after.split(":")[0].strip() for line, after in itertools.pairwise(lines) if "# HERE:" in line]
    assert marked == ["serviceAccount", "repository", "tag", "bucket"]
    # No other value is an example.
    assert sum("my-" in line for line in lines) == 3


# --- Autopilot and Standard ---------------------------------------------------------------------------------------

SIDECAR = {
    f"metadata.annotations.gke-gcsfuse/{resource}-limit": ("0", limit)
    for resource, limit in {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "5Gi"}.items()
}


def pods(obj: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the pod templates by their path, without the run config, which repeats the values."""
    found = dict(pod_templates(obj))
    for pod in found.values():
        pod["metadata"].get("annotations", {}).pop("slipway.dev/run-config", None)
    return found


@pytest.mark.parametrize(("chart", "file", "sets"), USES[:6], ids=USE_IDS[:6])
def test_autopilot_and_standard_differ_by_the_sidecars_limits(
    helm4: Path, chart: str, file: Path, sets: list[str]
) -> None:
    (standard,) = render(helm4, chart, [file, STANDARD], sets)
    (autopilot,) = render(helm4, chart, [file, AUTOPILOT], sets)
    standard_pods, autopilot_pods = pods(standard), pods(autopilot)
    assert set(standard_pods) == set(autopilot_pods)
    for path, pod in standard_pods.items():
        found = {where: (a, b) for where, a, b in differences(pod, autopilot_pods[path])}
        # A run without a bucket has no sidecar.
        assert found == (SIDECAR if file in (LLAMA, DWS) else {})
    # Nothing differs outside of the pods.
    for pod in [*standard_pods.values(), *autopilot_pods.values()]:
        pod.clear()
    assert standard == autopilot


def test_the_charts_defaults_are_of_a_standard_cluster(helm4: Path) -> None:
    assert render(helm4, "run", [LLAMA, STANDARD]) == render(helm4, "run", [LLAMA])


def test_the_autopilot_preset_resets_what_autopilot_rejects(helm4: Path, tmp_path: Path) -> None:
    request = tmp_path / "request.yaml"
    request.write_text("security: {hostNetwork: true, privileged: true}\n")
    plain, privileged, on_autopilot = (
        render(helm4, "run", [MULTISLICE, *files]) for files in ([], [request], [request, AUTOPILOT])
    )
    assert [pods(obj) for obj in on_autopilot] == [pods(obj) for obj in plain]
    assert [pods(obj) for obj in privileged] != [pods(obj) for obj in plain]


def test_kind_needs_nothing_from_gke(helm4: Path) -> None:
    for chart, file, sets in USES:
        (obj,) = render(helm4, chart, [file, KIND], sets)
        for pod in pods(obj).values():
            for container in pod["spec"]["containers"]:
                # An image and a command may contain any name.
                container["image"], container["command"] = "", []
            assert not [argument for argument in ("google", "gke") if argument in json.dumps(pod)]
        assert "annotations" not in obj["metadata"]


# --- The tutorial on slices ---------------------------------------------------------------------------------------


def test_the_queue_covers_all_that_the_job_sets_request_and_no_more_than_three_slices(helm4: Path) -> None:
    queues = render(helm4, "queues", [PRESETS / "queues" / "multislice-v5e.yaml"])
    (flavor,) = (obj for obj in queues if obj["kind"] == "ResourceFlavor")
    (cluster_queue,) = (obj for obj in queues if obj["kind"] == "ClusterQueue")
    (local_queue,) = (obj for obj in queues if obj["kind"] == "LocalQueue")
    (group,) = cluster_queue["spec"]["resourceGroups"]
    (offered,) = group["flavors"]
    quota = {resource["name"]: int(resource["nominalQuota"]) for resource in offered["resources"]}
    assert offered["name"] == flavor["metadata"]["name"]
    assert local_queue["spec"]["clusterQueue"] == cluster_queue["metadata"]["name"]

    chips = {}
    for count in (1, 2, 3):
        (job_set,) = render(helm4, "run", [MULTISLICE], [f"slice.count={count}"])
        labels, (job,) = job_set["metadata"]["labels"], job_set["spec"]["replicatedJobs"]
        assert labels["kueue.x-k8s.io/queue-name"] == local_queue["metadata"]["name"]
        assert job_set["metadata"]["namespace"] == local_queue["metadata"]["namespace"]
        ((_, pod),) = pods(job_set).items()
        (container,) = pod["spec"]["containers"]
        requests = container["resources"]["requests"]
        # The pods request only chips: the queue has no quota for another resource, so it would never admit them.
        assert set(requests) == set(container["resources"]["limits"]) == set(quota) == {"google.com/tpu"}
        assert flavor["spec"]["nodeLabels"].items() <= pod["spec"]["nodeSelector"].items()
        hosts = job["replicas"] * job["template"]["spec"]["parallelism"]
        assert hosts == job["replicas"] * job["template"]["spec"]["completions"]
        chips[count] = hosts * int(requests["google.com/tpu"])
    # The tutorial's text: runs of one and two slices run at the same time, a run of three slices runs alone.
    assert chips == {1: 8, 2: 16, 3: 24}
    assert quota["google.com/tpu"] == chips[3] == chips[1] + chips[2]
