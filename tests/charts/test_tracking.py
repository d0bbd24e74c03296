"""Who follows runs: the ports and keys of their pods, and the monitors of their teams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.paths import charts_dir
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
    """The container of a run's hosts, and those of heads."""

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
    assert "metrics" not in ports(rendered.host)  # or KubeRay does not add the port of Ray's own
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
