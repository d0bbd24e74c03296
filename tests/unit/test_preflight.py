"""Checks of a run against the cluster before a submit; tests/cluster has most of them, with a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from launcher import api
from launcher.backends.kubernetes.snapshot import Snapshot
from launcher.diagnose import preflight
from launcher.diagnose.explain import rules_impossible
from tests.unit import recorded
from tests.unit.recorded import Recorded

RUN = """
run: {name: waiting-2, kind: job-set}
team: {name: research}
queue: {name: multislice, priority: urgent}
slice: {accelerator: v5e, topology: 2x4}
image: {repository: example.invalid/slipway, tag: 1.0.0}
storage: {kind: gcsfuse, bucket: example-runs}
data: {files: [/data/text]}
"""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def refusals(cluster: Recorded, folder: Path) -> list[str]:
    file = folder / "run.yaml"
    file.write_text(RUN)
    run = cluster.find("JobSet", "waiting-2")
    run["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = "urgent"
    snapshot = Snapshot(cluster)  # type: ignore[arg-type]  # it has the needed methods
    found = preflight.problems(api.plan([str(file)], force=True), run, snapshot)
    return [problem.message for problem in found if problem.rule == "live.no_priority"]


def test_a_missing_priority(tmp_path: Path) -> None:
    cluster = recorded.at("quota-in-use-by-others", 8)
    none = 'There is no WorkloadPriorityClass "urgent".\n  '
    assert refusals(cluster, tmp_path) == [f"{none}The cluster has: high, low, normal."]
    cluster.drop("WorkloadPriorityClass")
    hint = 'The cluster has none: charts/queues creates them; set "" to use none.'
    assert refusals(cluster, tmp_path) == [f"{none}{hint}"]


@pytest.mark.parametrize("what", ["hidden", "missing"])
def test_hidden_priorities_are_not_a_problem(what: str, tmp_path: Path) -> None:
    cluster = recorded.at("quota-in-use-by-others", 8)
    if what == "hidden":
        cluster.hidden.add(("workloadpriorityclasses", ""))
    else:
        cluster.missing.add("WorkloadPriorityClass")
    assert refusals(cluster, tmp_path) == []


@pytest.mark.parametrize(
    ("sets", "where", "key"),
    [
        ([], "FILE:5", "slice.topology"),
        (["slice.topology=4x4"], "--set slice.topology", "slice.topology"),
        (["slice.count=1", "slice.topology=4x4"], "--set slice.topology", "slice.topology"),
    ],
)
@pytest.mark.parametrize("others", [(), ("v6e-2x4",)])
def test_a_topology_without_a_flavor_is_reported_with_its_origin(
    sets: list[str], where: str, key: str, others: tuple[str, ...], tmp_path: Path
) -> None:
    cluster = recorded.at("quota-in-use-by-others", 8)
    [group] = [
        group
        for group in cluster.find("ClusterQueue", "tpu")["spec"]["resourceGroups"]
        if "google.com/tpu" in group["coveredResources"]
    ]
    for name in others:  # in front of the flavor of the run's accelerator
        group["flavors"].insert(0, {**group["flavors"][0], "name": name})
        labels = {**recorded.FLAVORS["v5e-2x4"], rules_impossible.ACCELERATOR: "tpu-v6e-slice"}
        cluster.add({"kind": "ResourceFlavor", "metadata": {"name": name}, "spec": {"nodeLabels": labels}})
    file = tmp_path / "run.yaml"
    file.write_text(RUN if sets else RUN.replace("topology: 2x4", "topology: 4x4"))
    run = cluster.find("JobSet", "waiting-2")
    for job in run["spec"]["replicatedJobs"]:
        job["template"]["spec"]["template"]["spec"]["nodeSelector"][rules_impossible.TOPOLOGY] = "4x4"
    snapshot = Snapshot(cluster)  # type: ignore[arg-type]  # it has the needed methods
    found = preflight.problems(api.plan([str(file)], sets, force=True), run, snapshot)
    [problem] = [problem for problem in found if problem.rule == "live.no_flavor"]
    assert str(problem).startswith(f"{where.replace('FILE', str(file))}: waiting-2 can never start")
    assert f"{rules_impossible.TOPOLOGY}=4x4" in problem.message and "slice.topology=2x4" in problem.message
    assert problem.key == key


def test_a_field_of_a_wrong_type_is_a_sentence(tmp_path: Path) -> None:
    cluster = recorded.at("quota-in-use-by-others", 8)
    file = tmp_path / "run.yaml"
    file.write_text(f"{RUN}pods: {{affinity: {{nodeAffinity: {{{REQUIRED}: {{nodeSelectorTerms: {{}}}}}}}}}}\n")
    run = cluster.find("JobSet", "waiting-2")
    spec = run["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    spec["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": {}}}}
    snapshot = Snapshot(cluster)  # type: ignore[arg-type]  # it has the needed methods
    [problem] = preflight.problems(api.plan([str(file)], force=True), run, snapshot)
    assert str(problem) == (
        f"{file}:9: pods: In the JobSet of the run, "
        "spec.replicatedJobs[0].template.spec.template.spec.affinity."
        f"nodeAffinity.{REQUIRED}.nodeSelectorTerms must be a list."
    )


UNCOUNTED = "Kueue does not count the collector of KubeRay's history server in each pod: 50m CPU, 256Mi of memory."


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"headGroupSpec": {}},
            "KubeRay in lab has no historyServerOptions, so the run would have no collector.\n"
            "  Use KubeRay 1.7 or later.",
        ),
        (
            {"headGroupSpec": {}, "historyServerOptions": {}},
            UNCOUNTED,
        ),
        (None, UNCOUNTED),
    ],
    ids=["KubeRay 1.6", "KubeRay 1.7", "no schema"],
)
def test_the_history_server_needs_a_field_of_kuberay(
    fields: dict[str, Any] | None, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "run.yaml"
    values = "tracking: {historyServer: {image: collector, bucket: history}}\n"
    file.write_text(RUN.replace("job-set", "ray-job") + values)
    plan = api.plan([str(file)])
    cluster = recorded.at("quota-in-use-by-others", 8)
    cluster.schemas = {} if fields is None else {"RayJob.rayClusterSpec": fields}
    head: dict[str, Any] = {"template": {"spec": {"containers": []}}}
    obj = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {**cluster.find("JobSet", "waiting-2")["metadata"]},
        "spec": {
            "rayClusterSpec": {"headGroupSpec": head, "historyServerOptions": {}},
        },
    }
    snapshot = Snapshot(cluster)  # type: ignore[arg-type]  # it has the needed methods
    (found,) = (each for each in preflight.problems(plan, obj, snapshot) if each.rule == "live.history_server")
    assert (found.message, found.key) == (message, "tracking.historyServer.image")


@pytest.mark.parametrize(
    ("slices", "limit", "refused"), [(7, 8, False), (9, 8, True), (9, 10, False), (9, None, False)]
)
def test_pod_sets_are_compared_with_the_limit_of_the_cluster(
    slices: int, limit: int | None, refused: bool, tmp_path: Path
) -> None:
    """Kueue 0.17 accepts 8 pod sets of a Workload, 0.18 accepts 10 (its CRDs)."""
    file = tmp_path / "run.yaml"
    file.write_text(RUN.replace("job-set", "ray-job").replace("2x4}", f"2x4, placement: topology, count: {slices}}}"))
    plan = api.plan([str(file)])
    cluster = recorded.at("quota-in-use-by-others", 8)
    cluster.schemas = {} if limit is None else {"Workload": {"podSets": {"maxItems": limit}}}
    groups = [
        {"groupName": f"slice-{n}", "replicas": 1, "numOfHosts": 2, "template": {"spec": {"containers": []}}}
        for n in range(slices)
    ]
    head: dict[str, Any] = {"template": {"spec": {"containers": []}}}
    obj = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {**cluster.find("JobSet", "waiting-2")["metadata"]},
        "spec": {"rayClusterSpec": {"headGroupSpec": head, "workerGroupSpecs": groups}},
    }
    snapshot = Snapshot(cluster)  # type: ignore[arg-type]  # it has the needed methods
    found = [each.message for each in preflight.problems(plan, obj, snapshot) if each.rule == "live.pod_sets"]
    assert [message.partition("\n")[0] for message in found] == [
        f"waiting-2 has {slices + 1} pod sets, including its head, and Kueue in lab accepts at most {limit}."
    ] * refused
    assert ("schema of Workload" in cluster.requests) == (slices > 7)
