"""Presets of tutorials and clusters: each renders with its charts, is valid, and is one run on either cluster."""

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
from tests.charts.schemas import CHECKOUT, objects, pod_templates, validate

PRESETS = presets_dir()
LLAMA = PRESETS / "tutorials" / "llama3-8b-v6e-16.yaml"
MULTISLICE = PRESETS / "tutorials" / "multislice-v5e.yaml"
STANDARD = PRESETS / "clusters" / "gke-standard.yaml"
AUTOPILOT = PRESETS / "clusters" / "gke-autopilot.yaml"
KIND = PRESETS / "clusters" / "kind.yaml"
CLUSTERS = (STANDARD, AUTOPILOT, KIND)

# Every tutorial as it is used: which chart, which options.
USES: list[tuple[str, Path, list[str]]] = [
    ("ray-cluster", LLAMA, []),
    ("run", LLAMA, []),
    ("run", LLAMA, ["run.kind=job-set"]),
    *(("run", MULTISLICE, [f"slice.count={count}", f"run.name=multislice-{count}slice"]) for count in (1, 2, 3)),
    ("run", MULTISLICE, ["security.hostNetwork=true", "security.privileged=true"]),
    ("run", MULTISLICE, ["run.name=low-priority", "queue.podPriority=low-priority"]),
]
USE_IDS = [" ".join((chart, file.stem, *options)) for chart, file, options in USES]


def render(helm: Path, chart: str, files: Sequence[Path], sets: Iterable[str] = ()) -> list[dict[str, Any]]:
    options = [word for option in sets for word in ("--set", option)]
    return objects(template(helm, charts_dir() / chart, files, *options))


def test_every_tutorial_and_cluster_is_tested_here() -> None:
    assert {LLAMA, MULTISLICE} == set((PRESETS / "tutorials").iterdir())
    assert set(CLUSTERS) == set((PRESETS / "clusters").iterdir())


@pytest.mark.parametrize(("chart", "file", "sets"), USES, ids=USE_IDS)
def test_a_tutorial_is_one_valid_object(helm: Path, chart: str, file: Path, sets: list[str]) -> None:
    (obj,) = render(helm, chart, [file], sets)
    assert validate(obj) == []


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda path: path.stem)
@pytest.mark.parametrize(("chart", "file", "sets"), USES, ids=USE_IDS)
def test_and_so_it_is_on_every_cluster(helm4: Path, chart: str, file: Path, sets: list[str], cluster: Path) -> None:
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
def test_launcher_check_has_nothing_against_it(file: Path, sets: list[str], cluster: Path | None) -> None:
    """But that a mesh of 4 x 4 is not for the one CPU of a cluster of kind."""
    files = [str(path) for path in (file, cluster) if path]
    expected = ["mesh"] if file == LLAMA and cluster and cluster.stem == "kind" else []
    assert [problem.rule for problem in check_launch(load(files, sets), chart_defaults("run"))] == expected


@pytest.mark.parametrize("file", [LLAMA, MULTISLICE], ids=lambda path: path.stem)
def test_the_commands_above_a_tutorial_are_right(helm4: Path, file: Path) -> None:
    told = [line.removeprefix("#   ") for line in file.read_text().splitlines() if line.startswith("#   ")]
    assert told
    for line in told:
        program, *words = shlex.split(line)
        if words[0] == "install":
            chart, release, flag, values = words[1:]
            assert (program, flag, find_values_file(values).resolve()) == ("launcher", "-f", file)
            (obj,) = objects(template(helm4, CHECKOUT / "charts" / chart, [file]))
            assert f"run.cluster={release}" in "".join(told)
            assert obj["kind"] == "RayCluster"
            continue
        if program == "launcher":
            assert words.pop(0) == "submit"
            assert find_values_file(words[words.index("-f") + 1]).resolve() == file
        else:  # options for the command above
            words = [program, *words]
        sets = [word for before, word in itertools.pairwise(words) if before == "--set"]
        name = words[words.index("--name") + 1] if "--name" in words else None
        assert set(words[::2]) <= {"-f", "--set", "--name"}
        assert check_launch(load([str(file)], sets), chart_defaults("run"), name=name) == []


def test_what_is_to_be_filled_in_is_marked() -> None:
    lines = LLAMA.read_text().splitlines()
    marked = [after.split(":")[0].strip() for line, after in itertools.pairwise(lines) if "# HERE:" in line]
    assert marked == ["serviceAccount", "repository", "tag", "bucket"]
    # And nothing else is an example.
    assert sum("my-" in line for line in lines) == 3


# --- Autopilot and Standard ---------------------------------------------------------------------------------------

SIDECAR = {
    f"metadata.annotations.gke-gcsfuse/{resource}-limit": ("0", limit)
    for resource, limit in {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "5Gi"}.items()
}


def pods(obj: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The pod templates by their path; the run config, which repeats the values, is left out."""
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
    ours, others = pods(standard), pods(autopilot)
    assert set(ours) == set(others)
    for path, pod in ours.items():
        found = {where: (a, b) for where, a, b in differences(pod, others[path])}
        # A run whose storage is no bucket has no sidecar.
        assert found == (SIDECAR if file == LLAMA else {})
    # Nothing differs outside of the pods.
    for pod in [*ours.values(), *others.values()]:
        pod.clear()
    assert standard == autopilot


def test_the_charts_defaults_are_of_a_standard_cluster(helm4: Path) -> None:
    assert render(helm4, "run", [LLAMA, STANDARD]) == render(helm4, "run", [LLAMA])


def test_autopilot_takes_back_what_it_would_refuse(helm4: Path, tmp_path: Path) -> None:
    asking = tmp_path / "asking.yaml"
    asking.write_text("security: {hostNetwork: true, privileged: true}\n")
    plain, asked, taken = (render(helm4, "run", [MULTISLICE, *files]) for files in ([], [asking], [asking, AUTOPILOT]))
    assert [pods(obj) for obj in taken] == [pods(obj) for obj in plain]
    assert [pods(obj) for obj in asked] != [pods(obj) for obj in plain]


def test_kind_needs_nothing_of_gkes(helm4: Path) -> None:
    for chart, file, sets in USES:
        (obj,) = render(helm4, chart, [file, KIND], sets)
        for pod in pods(obj).values():
            for container in pod["spec"]["containers"]:
                # These name what they like.
                container["image"], container["command"] = "", []
            assert not [word for word in ("google", "gke") if word in json.dumps(pod)]
        assert "annotations" not in obj["metadata"]


# --- The slices' story --------------------------------------------------------------------------------------------


def test_the_queue_covers_all_that_the_job_sets_ask_for_and_no_more_than_three_slices(helm4: Path) -> None:
    queues = render(helm4, "queues", [PRESETS / "queues" / "multislice-v5e.yaml"])
    (flavor,) = (obj for obj in queues if obj["kind"] == "ResourceFlavor")
    (cluster_queue,) = (obj for obj in queues if obj["kind"] == "ClusterQueue")
    (local_queue,) = (obj for obj in queues if obj["kind"] == "LocalQueue")
    (group,) = cluster_queue["spec"]["resourceGroups"]
    (offered,) = group["flavors"]
    quota = {resource["name"]: int(resource["nominalQuota"]) for resource in offered["resources"]}
    assert offered["name"] == flavor["metadata"]["name"]
    assert local_queue["spec"]["clusterQueue"] == cluster_queue["metadata"]["name"]

    asked = {}
    for count in (1, 2, 3):
        (job_set,) = render(helm4, "run", [MULTISLICE], [f"slice.count={count}"])
        labels, (job,) = job_set["metadata"]["labels"], job_set["spec"]["replicatedJobs"]
        assert labels["kueue.x-k8s.io/queue-name"] == local_queue["metadata"]["name"]
        assert job_set["metadata"]["namespace"] == local_queue["metadata"]["namespace"]
        ((_, pod),) = pods(job_set).items()
        (container,) = pod["spec"]["containers"]
        requests = container["resources"]["requests"]
        # Chips alone: what is asked for beside them, no queue without quota for it would ever admit.
        assert set(requests) == set(container["resources"]["limits"]) == set(quota) == {"google.com/tpu"}
        assert flavor["spec"]["nodeLabels"].items() <= pod["spec"]["nodeSelector"].items()
        hosts = job["replicas"] * job["template"]["spec"]["parallelism"]
        assert hosts == job["replicas"] * job["template"]["spec"]["completions"]
        asked[count] = hosts * int(requests["google.com/tpu"])
    # One and two slices run together, three alone, as the tutorial's text has it.
    assert asked == {1: 8, 2: 16, 3: 24}
    assert quota["google.com/tpu"] == asked[3] == asked[1] + asked[2]
