"""The charts' support for tracking runs: ports and keys of their pods, and the monitors of their teams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.paths import charts_dir
from tests.charts import queues_chart, schemas
from tests.charts.helm import template

CHARTS = charts_dir()
BASE = """
run: {name: demo}
team: {name: research}
slice: {accelerator: v6e, topology: 4x4}
image: {repository: registry.example.com/slipway, tag: v1}
storage: {bucket: our-bucket}
data: {corpus: python}
"""
KINDS = ("ray-job", "job-set", "ray-cluster")
Tree = dict[str, Any]


class Rendered:
    """The container of a run's hosts, and the containers of its head."""

    def __init__(self, helm: Path, folder: Path, kind: str, keys: str) -> None:
        files = [folder / "base.yaml", folder / "over.yaml"]
        for file, text in zip(files, (BASE, keys), strict=True):
            file.write_text(text)
        chart = "ray-cluster" if kind == "ray-cluster" else "run"
        options = () if kind == "ray-cluster" else ("--set", f"run.kind={kind}")
        self.text = template(helm, CHARTS / chart, files, *options)
        obj: Tree = yaml.safe_load(self.text)
        self.heads: list[Tree] = []
        if kind == "job-set":
            template_ = obj["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        else:
            cluster = obj["spec"].get("rayClusterSpec", obj["spec"])
            template_ = cluster["workerGroupSpecs"][0]["template"]
            self.heads = cluster["headGroupSpec"]["template"]["spec"]["containers"]
        [self.host] = template_["spec"]["containers"]


def ports(container: Tree) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container.get("ports", [])}


def variable(container: Tree, name: str) -> Any:
    return next((each for each in container.get("env", []) if each["name"] == name), None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("keys", "port"), [("{}", 9464), ("tracking: {metricsPort: 9999}", 9999)])
def test_hosts_that_train_name_the_port_of_their_metrics(
    helm4: Path, tmp_path: Path, kind: str, keys: str, port: int
) -> None:
    rendered = Rendered(helm4, tmp_path, kind, keys)
    assert ports(rendered.host)["train-metrics"] == port
    assert "metrics" not in ports(rendered.host)  # otherwise KubeRay does not add the port of Ray's metrics
    assert all("train-metrics" not in ports(head) for head in rendered.heads)


@pytest.mark.parametrize("kind", KINDS)
def test_without_metrics_there_is_no_port(helm4: Path, tmp_path: Path, kind: str) -> None:
    rendered = Rendered(helm4, tmp_path, kind, "tracking: {metricsPort: 0}")
    assert "train-metrics" not in ports(rendered.host)


@pytest.mark.parametrize("kind", ["ray-job", "job-set"])
def test_a_program_that_is_not_the_trainer_serves_none(helm4: Path, tmp_path: Path, kind: str) -> None:
    rendered = Rendered(helm4, tmp_path, kind, "run: {command: [sleep, infinity]}\ndata: {corpus: ''}")
    assert "train-metrics" not in ports(rendered.host)


@pytest.mark.parametrize("kind", KINDS)
def test_the_key_of_weights_and_biases_comes_from_a_secret(helm4: Path, tmp_path: Path, kind: str) -> None:
    keys = "tracking: {wandb: {project: llama, secret: {name: wandb}}}"
    rendered = Rendered(helm4, tmp_path, kind, keys)
    reference = {"secretKeyRef": {"name": "wandb", "key": "api-key"}}
    assert variable(rendered.host, "WANDB_API_KEY") == {"name": "WANDB_API_KEY", "valueFrom": reference}
    assert all(variable(head, "WANDB_API_KEY") is None for head in rendered.heads)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_secret_there_is_no_key(helm4: Path, tmp_path: Path, kind: str) -> None:
    rendered = Rendered(helm4, tmp_path, kind, "tracking: {wandb: {project: llama, mode: offline}}")
    assert "WANDB_API_KEY" not in rendered.text


# --- The monitors of teams ----------------------------------------------------------------------------------------


def monitors(helm: Path, folder: Path, keys: str) -> list[Tree]:
    objects = queues_chart.render(helm, queues_chart.merged(queues_chart.BASE, queues_chart.tree(keys)), folder)
    return [obj for obj in objects if obj["kind"] in ("PodMonitor", "PodMonitoring")]


def policies(helm: Path, folder: Path, keys: str) -> list[Tree]:
    objects = queues_chart.render(helm, queues_chart.merged(queues_chart.BASE, queues_chart.tree(keys)), folder)
    return [obj for obj in objects if obj["kind"] == "NetworkPolicy"]


def test_nothing_is_scraped_by_default(helm4: Path, tmp_path: Path) -> None:
    assert monitors(helm4, tmp_path, "{}") == []
    for policy in policies(helm4, tmp_path, "{}"):
        assert "metrics" not in str(policy["spec"]["ingress"])


@pytest.mark.parametrize(
    ("key", "kind", "endpoints"),
    [
        ("podMonitoring", "PodMonitoring", "endpoints"),
        ("podMonitor", "PodMonitor", "podMetricsEndpoints"),
    ],
)
def test_each_team_has_monitors_of_its_runs_and_its_long_lived_clusters(
    helm4: Path, tmp_path: Path, key: str, kind: str, endpoints: str
) -> None:
    found = monitors(helm4, tmp_path, f"monitoring: {{{key}: true}}")
    teams = queues_chart.BASE["teams"]
    assert {obj["kind"] for obj in found} == {kind}
    assert {obj["metadata"]["name"] for obj in found} == {f"{team}-{what}" for team in teams for what in SELECTED}
    for obj in found:
        assert schemas.validate(obj) == []
        selector = {"key": SELECTED[obj["metadata"]["name"].rpartition("-")[2]], "operator": "Exists"}
        assert obj["spec"]["selector"] == {"matchExpressions": [selector]}
        port = "metrics" if obj["metadata"]["name"].endswith("-models") else "train-metrics"
        assert obj["spec"][endpoints] == [{"port": port, "interval": "30s"}]


SELECTED = {"runs": "slipway.dev/run", "clusters": "slipway.dev/cluster", "models": "slipway.dev/model"}


def test_the_monitors_select_the_pods_that_the_other_charts_make(helm4: Path, tmp_path: Path) -> None:
    for kind in KINDS:
        label = SELECTED["clusters" if kind == "ray-cluster" else "runs"]
        assert f"{label}:" in Rendered(helm4, tmp_path, kind, "{}").text


def test_rays_metrics_are_scraped_on_request(helm4: Path, tmp_path: Path) -> None:
    for obj in monitors(helm4, tmp_path, "monitoring: {podMonitor: true, ray: true, intervalSeconds: 5}"):
        of_ray = {"port": "metrics", "interval": "5s"}  # KubeRay's name of Ray's port
        of_training = (
            [] if obj["metadata"]["name"].endswith("-models") else [{"port": "train-metrics", "interval": "5s"}]
        )
        assert obj["spec"]["podMetricsEndpoints"] == [*of_training, of_ray]


def test_labels_by_which_a_prometheus_selects_are_on_pod_monitors(helm4: Path, tmp_path: Path) -> None:
    keys = "monitoring: {podMonitor: true, podMonitoring: true, labels: {release: ours}}"
    for obj in monitors(helm4, tmp_path, keys):
        assert obj["metadata"]["labels"].get("release") == ("ours" if obj["kind"] == "PodMonitor" else None)


@pytest.mark.parametrize("ray", [False, True])
def test_a_scrapers_namespace_reaches_the_metrics_and_no_other_port(helm4: Path, tmp_path: Path, ray: bool) -> None:
    keys = f"monitoring: {{podMonitor: true, ray: {str(ray).lower()}, fromNamespaces: [monitoring]}}"
    for policy in policies(helm4, tmp_path, keys):
        assert schemas.validate(policy) == []
        [rule] = [rule for rule in policy["spec"]["ingress"] if "'monitoring'" in str(rule)]
        assert [port["port"] for port in rule["ports"]] == ["train-metrics", "metrics"]
