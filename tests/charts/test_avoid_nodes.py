"""worker.avoidNodes: the nodes that the pods of hosts accept, what check reports, and what a run sends to Helm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher import api
from launcher.config.plan import config_difference
from tests.charts import schemas
from tests.charts.bad_values import GOOD, KINDS
from tests.charts.helm import template

CHARTS = Path(__file__).parents[2] / "charts"
SICK, END = "ip-10-0-0-1.ec2.internal", "2099-01-01"
POOLS = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "example.com/pool", "operator": "In", "values": [pool]}]}
                for pool in ("a", "b")
            ]
        }
    }
}


def affinities(helm: Path, folder: Path, kind: str, values: dict[str, Any], *options: str) -> tuple[Any, Any]:
    """Return the affinity of the head, if there is one, and of the hosts."""
    files = [folder / name for name in ("good.yaml", "kind.yaml", "own.yaml")]
    for file, text in zip(files, (GOOD, KINDS[kind], yaml.safe_dump(values)), strict=True):
        file.write_text(text)
    chart = {"cluster": "ray-cluster", "serve": "serve"}.get(kind, "run")
    rendered = schemas.objects(template(helm, CHARTS / chart, files, *options))
    pods = [pod["spec"] for obj in rendered for _, pod in schemas.pod_templates(obj)]
    by_name = {pod["containers"][0]["name"]: pod.get("affinity") for pod in pods}
    head = by_name.pop("ray-head", None)
    return head, by_name[("ray-worker", "trainer")[kind == "job-set"]]


def accepts(affinity: Any, host: str, pool: str = "", spot: bool = False) -> bool:
    """Return whether a node with these labels matches, as kube-scheduler decides for In, NotIn and DoesNotExist."""
    node = {"kubernetes.io/hostname": host, "example.com/pool": pool}
    if spot:
        node["cloud.google.com/gke-spot"] = "true"
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]

    def holds(expression: dict[str, Any]) -> bool:
        value, values = node.get(expression["key"]), expression.get("values", [])
        return {"In": value in values, "NotIn": value not in values, "DoesNotExist": value is None}[
            expression["operator"]
        ]

    return any(all(map(holds, term["matchExpressions"])) for term in terms)


@pytest.mark.parametrize("kind", ["job-set", "ray-job", "cluster", "serve"])
def test_hosts_avoid_the_nodes_also_with_an_affinity_of_the_user(helm: Path, tmp_path: Path, kind: str) -> None:
    worker = {"avoidNodes": {SICK: END, "node-2": "2000-01-01T00:00:00Z", "node-3": None}}
    head, host = affinities(helm, tmp_path, kind, {"worker": worker})
    assert head is None
    # Helm has no clock: an entry that has ended counts, too.
    assert [accepts(host, name) for name in (SICK, "node-2", "node-3")] == [False, False, True]

    _, host = affinities(helm, tmp_path, kind, {"worker": {**worker, "pods": {"affinity": POOLS}}})
    assert [accepts(host, SICK, pool) for pool in "abc"] == [False, False, False]
    assert [accepts(host, "node-3", pool) for pool in "abc"] == [True, True, False]


def test_hosts_avoid_the_nodes_of_each_alternative(helm: Path, tmp_path: Path) -> None:
    reserved = {"provisioning": "reservation", "reservation": "lab"}
    values = {"worker": {"avoidNodes": {SICK: END}}, "slice": {"any": [reserved, {"provisioning": "spot"}]}}
    _, host = affinities(helm, tmp_path, "job-set", values)
    assert [accepts(host, name, spot=True) for name in (SICK, "node-3")] == [False, True]


def test_helm_and_the_launcher_read_the_same_assignment(helm: Path, tmp_path: Path) -> None:
    option = r"worker.avoidNodes.ip-10-0-0-1\.ec2\.internal=2099-01-01"
    _, host = affinities(helm, tmp_path, "job-set", {}, "--set", option)
    assert [accepts(host, name) for name in (SICK, "node-3")] == [False, True]
    (tmp_path / "run.yaml").write_text(GOOD)
    assert api.plan([str(tmp_path / "run.yaml")], [option]).config["worker"]["avoidNodes"] == {SICK: END}


def test_a_run_leaves_out_the_entries_that_have_ended(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    ended = {"b.c": "2000-01-01T00:00:00+02:00", "node-2": "2000-02-29"}
    file.write_text(GOOD + "worker: " + yaml.safe_dump({"avoidNodes": {SICK: END, **ended}}, default_flow_style=True))
    plan = api.plan([str(file)])
    assert plan.config["worker"]["avoidNodes"] == plan.user.tree["worker"]["avoidNodes"] == {SICK: END}
    assert [warning.partition("worker.")[2] for warning in plan.warnings if "avoidNodes" in warning] == [
        f"avoidNodes.{key} ended at {end}. launcher submit leaves it out, and Helm does not; remove it."
        for key, end in zip(('"b.c"', "node-2"), ended.values(), strict=True)
    ]
    # The next attempt of a run may avoid other nodes: its training is the same.
    file.write_text(GOOD)
    assert config_difference(api.plan([str(file)]).config, plan.config) == []
