"""charts/serve, option by option, and its TPU preset against KubeRay's own sample for vLLM on v6e."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.paths import charts_dir, presets_dir
from tests.charts import schemas
from tests.charts.helm import HelmError, template

TPU = presets_dir() / "serve" / "llama3.1-8b-v6e.yaml"
CPU = presets_dir() / "serve" / "tiny-cpu.yaml"
Tree = dict[str, Any]


REPLICAS = {"replicas": {"min": 1, "max": 4}}
"""Those of the preset."""


def render(helm: Path, folder: Path, keys: str = "{}", base: Path = TPU) -> Tree:
    """Return the RayService of a preset with other values, checked against the CRDs of every version of KubeRay."""
    file = folder / "keys.yaml"
    file.write_text(keys)
    text = template(helm, charts_dir() / "serve", [base, file])
    (obj,) = schemas.objects(text)
    assert schemas.validate(obj) == []
    return obj


def application(obj: Tree) -> tuple[Tree, Tree]:
    """Return the application of Ray Serve's config, and the options of its deployment."""
    (app,) = yaml.safe_load(obj["spec"]["serveConfigV2"])["applications"]
    (deployment,) = app["deployments"]
    return app, deployment


def group(obj: Tree) -> Tree:
    (found,) = obj["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    assert isinstance(found, dict)
    return found


def container(template: Tree) -> Tree:
    (found,) = template["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def environment(template: Tree) -> Tree:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container(template)["env"]}


# --- Replicas -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("replicas", "queue"), [("{min: 2, max: 2}", True), ("{min: 1, max: 3}", True), ("{min: 0, max: 3}", False)]
)
def test_each_replica_has_a_slice(helm4: Path, tmp_path: Path, replicas: str, queue: bool) -> None:
    team = "{}" if queue else "{name: ''}"
    obj = render(helm4, tmp_path, f"{{serve: {{replicas: {replicas}}}, team: {team}}}")
    low, high = yaml.safe_load(replicas).values()
    _, deployment = application(obj)
    slices = group(obj)
    assert [slices[key] for key in ("replicas", "minReplicas", "maxReplicas")] == [low, low, high]
    assert obj["spec"]["rayClusterConfig"].get("enableInTreeAutoscaling", False) is (high > low)
    if high > low:
        assert deployment["autoscaling_config"] == {
            "min_replicas": low,
            "max_replicas": high,
            "target_ongoing_requests": 16,
            "downscale_delay_s": 600,
        }
        assert "num_replicas" not in deployment
    else:
        assert deployment["num_replicas"] == low
        assert "autoscaling_config" not in deployment
    elastic = obj["metadata"].get("annotations", {}).get("kueue.x-k8s.io/elastic-job")
    assert elastic == ("true" if queue and high > low else None)
    # Without a replica, only the head can receive the request that starts one.
    assert obj["spec"]["excludeHeadPodFromServeSvc"] is (low > 0)


@pytest.mark.parametrize(
    ("keys", "base", "options", "parallel"),
    [
        ("{}", TPU, {"num_cpus": 1, "resources": {"TPU": 8}}, 8),
        ("{slice: {topology: 1x1, machineType: ''}}", TPU, {"num_cpus": 1, "resources": {"TPU": 1}}, 1),
        (
            "{slice: {accelerator: h100-80gb, topology: '', machineType: ''}}",
            TPU,
            {"num_cpus": 1, "num_gpus": 8},
            8,
        ),
        ("{}", CPU, {"num_cpus": 2}, None),
        ("{worker: {cpu: 2500m}}", CPU, {"num_cpus": 3}, None),
        ("{worker: {cpu: '0.5'}}", CPU, {"num_cpus": 1}, None),
    ],
)
def test_a_replica_fills_its_host(
    helm4: Path, tmp_path: Path, keys: str, base: Path, options: Tree, parallel: int | None
) -> None:
    app, deployment = application(render(helm4, tmp_path, keys, base))
    assert deployment["ray_actor_options"] == options
    assert app["args"].get("tensor_parallel_size") == parallel
    assert "placement_group_bundles" not in deployment


def test_a_replica_on_several_hosts_has_a_bundle_for_each(helm4: Path, tmp_path: Path) -> None:
    keys = "{slice: {topology: 4x4, machineType: ''}, serve: {replicas: {max: 1}}}"
    obj = render(helm4, tmp_path, keys)
    app, deployment = application(obj)
    assert deployment["placement_group_bundles"] == [{"CPU": 1, "TPU": 4}, *[{"TPU": 4}] * 3]
    assert deployment["placement_group_strategy"] == "STRICT_SPREAD"
    assert (app["args"]["tensor_parallel_size"], app["args"]["hosts"]) == (16, 4)
    assert group(obj)["numOfHosts"] == 4


# --- The model ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "loads", "home"),
    [
        ("exports/llama", "/data/exports/llama", None),
        ("/data/llama", "/data/llama", None),
        ("hf:meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B", "/data/huggingface"),
    ],
)
def test_a_folder_in_the_storage_or_a_name(
    helm4: Path, tmp_path: Path, model: str, loads: str, home: str | None
) -> None:
    obj = render(helm4, tmp_path, f"serve: {{model: '{model}'}}")
    assert application(obj)[0]["args"]["model"] == loads
    assert environment(group(obj)).get("HF_HOME") == home


def test_the_name_in_requests_is_the_releases_or_an_own_one(helm4: Path, tmp_path: Path) -> None:
    assert application(render(helm4, tmp_path, "serve: {name: ''}"))[0]["args"]["name"] == "x"
    assert application(render(helm4, tmp_path, "serve: {name: my/llama}"))[0]["args"]["name"] == "my/llama"


def test_own_variables_replace_the_charts(helm4: Path, tmp_path: Path) -> None:
    obj = render(helm4, tmp_path, "worker: {env: {VLLM_XLA_CACHE_PATH: /tmp/xla}}")
    assert environment(group(obj))["VLLM_XLA_CACHE_PATH"] == "/tmp/xla"


# --- The API --------------------------------------------------------------------------------------------------------


def test_only_the_hosts_have_the_key(helm4: Path, tmp_path: Path) -> None:
    obj = render(helm4, tmp_path)
    assert environment(group(obj))["SLIPWAY_API_KEY"] == {"secretKeyRef": {"name": "llama-api-key", "key": "api-key"}}
    assert "SLIPWAY_API_KEY" not in environment(obj["spec"]["rayClusterConfig"]["headGroupSpec"])
    assert application(obj)[0]["args"]["require_api_key"] is True


def test_serving_without_a_key_is_an_explicit_value(helm4: Path, tmp_path: Path) -> None:
    obj = render(helm4, tmp_path, "serve: {apiKey: {required: false, name: ''}}")
    assert "SLIPWAY_API_KEY" not in environment(group(obj))
    assert application(obj)[0]["args"]["require_api_key"] is False
    with pytest.raises(HelmError, match=r"or set serve\.apiKey\.required: false to serve without a key"):
        render(helm4, tmp_path, "serve: {apiKey: {name: ''}}")


def test_the_port(helm4: Path, tmp_path: Path) -> None:
    obj = render(helm4, tmp_path, "serve: {port: 9000, health: {requestSeconds: 90}}")
    http = yaml.safe_load(obj["spec"]["serveConfigV2"])["http_options"]
    assert http == {"host": "0.0.0.0", "port": 9000, "request_timeout_s": 90}
    for pod in (group(obj), obj["spec"]["rayClusterConfig"]["headGroupSpec"]):
        assert {"name": "serve", "containerPort": 9000} in container(pod)["ports"]


def test_a_host_is_ready_when_its_proxy_has_a_replica(helm4: Path, tmp_path: Path) -> None:
    host = container(group(render(helm4, tmp_path)))
    assert host["readinessProbe"]["httpGet"] == {"path": "/-/healthz", "port": "serve"}
    assert host["readinessProbe"]["failureThreshold"] == 1
    assert host["livenessProbe"]["httpGet"]["path"] == "/api/local_raylet_healthz"
    assert host["lifecycle"]["preStop"]["exec"]["command"][-1] == "--serve"


# --- Updates --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "kind", "cluster_changes"),
    [
        ("new-cluster", "NewCluster", True),
        ("incremental, gatewayClass: istio", "NewClusterWithIncrementalUpgrade", True),
        ("in-place", "None", False),
    ],
)
def test_another_model_changes_the_cluster_or_only_ray_serves_config(
    helm4: Path, tmp_path: Path, strategy: str, kind: str, cluster_changes: bool
) -> None:
    """KubeRay starts a new cluster if the spec of the cluster changes, and never with the type None."""
    keys = "serve: {{model: {}, upgrade: {{strategy: {}}}}}"
    old, new = (render(helm4, tmp_path, keys.format(model, strategy)) for model in ("exports/a", "exports/b"))
    assert new["spec"]["upgradeStrategy"]["type"] == kind
    assert (old["spec"]["rayClusterConfig"] != new["spec"]["rayClusterConfig"]) is cluster_changes
    assert old["spec"]["serveConfigV2"] != new["spec"]["serveConfigV2"]
    if cluster_changes:
        annotation = group(new)["template"]["metadata"]["annotations"]["slipway.dev/model-arguments"]
        assert json.loads(annotation) == application(new)[0]["args"] | REPLICAS


@pytest.mark.parametrize(
    ("more", "old", "new", "changes"),
    [
        ("", "{min: 1, max: 2}", "{min: 1, max: 5}", True),
        ("", "{min: 1, max: 1}", "{min: 2, max: 2}", False),
        ("team: {name: '', namespace: my-team}", "{min: 1, max: 1}", "{min: 2, max: 2}", True),
        ("serve: {upgrade: {strategy: in-place}}", "{min: 1, max: 2}", "{min: 1, max: 5}", False),
    ],
    ids=["autoscaling", "queue", "no queue", "in-place"],
)
def test_other_numbers_of_replicas_change_the_pods(
    helm4: Path, tmp_path: Path, more: str, old: str, new: str, changes: bool
) -> None:
    """KubeRay applies other numbers only to a new cluster. Kueue restarts the cluster for another fixed number."""
    trees = [yaml.safe_load(f"{{{more}}}") for _ in range(2)]
    for tree, numbers in zip(trees, (old, new), strict=True):
        tree.setdefault("serve", {})["replicas"] = yaml.safe_load(numbers)
    few, many = (render(helm4, tmp_path, yaml.safe_dump(tree)) for tree in trees)
    assert (group(few)["template"] != group(many)["template"]) is changes


def test_an_upgrade_in_steps(helm4: Path, tmp_path: Path) -> None:
    keys = "serve: {upgrade: {strategy: incremental, gatewayClass: istio, stepPercent: 5, surgePercent: 10}}"
    assert render(helm4, tmp_path, keys)["spec"]["upgradeStrategy"]["clusterUpgradeOptions"] == {
        "gatewayClassName": "istio",
        "stepSizePercent": 5,
        "intervalSeconds": 60,
        "maxSurgePercent": 10,
    }


def test_labels_by_which_kueue_and_the_monitors_find_it(helm4: Path, tmp_path: Path) -> None:
    obj = render(helm4, tmp_path, "queue: {priority: high}")
    labels = obj["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "my-team"
    assert labels["kueue.x-k8s.io/priority-class"] == "high"
    for pod in (group(obj), obj["spec"]["rayClusterConfig"]["headGroupSpec"]):
        assert pod["template"]["metadata"]["labels"] == {"slipway.dev/model": "x", "slipway.dev/team": "my-team"}
