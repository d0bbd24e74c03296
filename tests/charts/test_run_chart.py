"""charts/run and charts/ray-cluster, option by option: what each key renders, and what is not rendered by default."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from launcher.config.plan import plan_launch
from launcher.config.values import files as values
from launcher.config.values.files import chart_defaults
from launcher.paths import charts_dir
from tests.charts.helm import HelmError, dump_chart, dumped, template
from tests.charts.schemas import validate

CHARTS = charts_dir()
BASE = """
run: {name: demo}
slice: {accelerator: v6e, topology: 4x4}
image: {repository: registry.example.com/slipway, tag: v1}
storage: {bucket: our-bucket}
data: {corpus: python}
"""
Tree = dict[str, Any]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base.yaml"
    path.write_text(BASE)
    return path


class Renderer:
    """Renders `keys`, YAML on top of BASE, as one kind of object."""

    def __init__(self, helm: Path, base: Path) -> None:
        self.helm, self.base = helm, base

    def __call__(self, kind: str, keys: str = "{}") -> Tree:
        over = self.base.with_name("over.yaml")
        over.write_text(keys)
        chart = "ray-cluster" if kind == "ray-cluster" else "run"
        options = () if kind == "ray-cluster" else ("--set", f"run.kind={kind}")
        rendered: Tree = yaml.safe_load(template(self.helm, CHARTS / chart, [self.base, over], *options))
        return rendered


@pytest.fixture
def render(helm4: Path, base: Path) -> Renderer:
    return Renderer(helm4, base)


def cluster_of(obj: Tree) -> Tree:
    found: Tree = obj["spec"].get("rayClusterSpec", obj["spec"])
    return found


def pod_of(obj: Tree, *, head: bool = False, group: int = 0) -> Tree:
    """Return the pod template of the hosts, or of the head."""
    found: Tree
    if obj["kind"] == "JobSet":
        assert not head
        found = obj["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    elif head:
        found = cluster_of(obj)["headGroupSpec"]["template"]
    else:
        found = cluster_of(obj)["workerGroupSpecs"][group]["template"]
    return found


def container_of(obj: Tree, *, head: bool = False, group: int = 0) -> Tree:
    [found] = pod_of(obj, head=head, group=group)["spec"]["containers"]
    container: Tree = found
    return container


def environment(container: Tree) -> Tree:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container.get("env", [])}


KINDS = ("ray-job", "job-set", "ray-cluster")
every_kind = pytest.mark.parametrize("kind", KINDS)


# --- The library's values; test_docs.py checks those of the charts that users install -----------------------------


def test_the_table_is_valid_and_closed() -> None:
    schema = json.loads((CHARTS / "common" / "values.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(values.read_file(str(CHARTS / "common" / "values.yaml")).tree)
    optional = {"global", "coresPerChip", "topologies", "larger", "defaultMachineType", "speeds", "hostMemoryGiB"}
    optional |= {"hostCpus", "labelKey", "resource"}
    row = schema["properties"]["accelerators"]["additionalProperties"]
    for node in (schema, row, row["properties"]["larger"]):
        assert node["additionalProperties"] is False
        assert set(node["required"]) | optional >= set(node["properties"])
        assert all("description" in child for child in node["properties"].values())


# --- The objects of a run ---------------------------------------------------------------------------------------


def test_helm_and_the_launcher_compute_the_same_effective_values(helm: Path, tmp_path: Path) -> None:
    chart = dump_chart(tmp_path / "dump", (CHARTS / "run" / "values.yaml").read_text())
    shutil.copytree(CHARTS / "common", chart / "charts" / "common")
    with (chart / "Chart.yaml").open("a") as about:
        about.write('dependencies: [{name: slipway-common, alias: common, version: ">=0.1.0"}]\n')
    user = tmp_path / "v.yaml"
    user.write_text("run: {name: x}\nworker: {env: {A: b}}\ncommon: {accelerators: {v4: null, v6e: {hbmGiB: 1}}}\n")
    by_helm = dumped(template(helm, chart, [user]))
    assert by_helm["common"].pop("global") == {}
    by_helm.pop("global", None)
    assert by_helm == values.with_defaults(values.load([str(user)]), chart_defaults("run")).tree


@pytest.mark.parametrize("kind", ["ray-job", "job-set"])
def test_the_run_config_is_the_launchers_and_is_mounted_as_a_file(helm: Path, base: Path, kind: str) -> None:
    obj = Renderer(helm, base)(kind, "train: {learning_rate: 3e-4, steps: 1e3}\n")
    user = values.load([str(base), str(base.with_name("over.yaml"))], [f"run.kind={kind}"])
    expected = plan_launch(user, chart_defaults("run")).config
    for head in (True, False) if kind == "ray-job" else (False,):
        pod = pod_of(obj, head=head)
        assert json.loads(pod["metadata"]["annotations"]["slipway.dev/run-config"]) == expected
        [mount] = [mount for mount in container_of(obj, head=head)["volumeMounts"] if mount["name"] == "run-config"]
        [volume] = [volume for volume in pod["spec"]["volumes"] if volume["name"] == "run-config"]
        [item] = volume["downwardAPI"]["items"]
        assert (mount["mountPath"], item["path"]) == ("/etc/slipway", "run.json")
        assert item["fieldRef"]["fieldPath"] == "metadata.annotations['slipway.dev/run-config']"


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("base", "/runs/base/checkpoints/last/items"),
        ("base@9999", "/runs/base/checkpoints/9999/items"),
        ("base@0", "/runs/base/checkpoints/0/items"),
        ("/data/weights/llama", "/data/weights/llama/items"),
        ("/data/weights/llama//", "/data/weights/llama/items"),
        ("/data/base/checkpoints/9/items/", "/data/base/checkpoints/9/items"),
        ("gs://weights/llama/items", "gs://weights/llama/items"),
    ],
)
def test_the_path_of_the_weights_follows_from_from(helm4: Path, base: Path, source: str, path: str) -> None:
    """In the chart's run config as in the launcher's, byte for byte, and without a change of the values."""
    keys = f"storage: {{mountPath: /runs}}\ntrain: {{steps: 30}}\nfrom: '{source}'\n"
    obj = Renderer(helm4, base)("job-set", keys)
    user = values.load([str(base), str(base.with_name("over.yaml"))], ["run.kind=job-set"])
    expected = plan_launch(user, chart_defaults("run")).config
    assert expected["train"] == {"steps": 30, "load_parameters_path": path}
    text = pod_of(obj, head=False)["metadata"]["annotations"]["slipway.dev/run-config"]
    assert text == json.dumps(expected, sort_keys=True, separators=(",", ":"))


def test_a_ray_job_runs_the_trainer_and_ends_with_it(render: Renderer) -> None:
    spec = render("ray-job", "run: {maxRestarts: 2}")["spec"]
    assert spec.pop("rayClusterSpec")
    assert spec == {
        "entrypoint": "python -m trainer --config /etc/slipway/run.json",
        # A failed Ray job is not retried: the trainer has already used its restarts, and a second cluster would
        # replace the reason that KubeRay recorded for the first.
        "backoffLimit": 0,
        "submissionMode": "HTTPMode",
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": 0,
    }


def test_a_job_set_is_a_job_for_each_slice(render: Renderer) -> None:
    obj = render("job-set", "run: {maxRestarts: 2}\nslice: {count: 3}")
    [job] = obj["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    assert (job["replicas"], spec["parallelism"], spec["completions"], spec["backoffLimit"]) == (3, 4, 4, 0)
    assert obj["spec"]["failurePolicy"]["maxRestarts"] == 2
    container = container_of(obj)
    assert container["command"] == ["python", "-m", "trainer", "--config", "/etc/slipway/run.json", "--no-ray"]
    assert {port["containerPort"] for port in container["ports"]} == {8471, 8080, 8476, 9464}
    assert environment(container)["SLIPWAY_COORDINATOR"] == "demo-slice-0-0.demo:8476"
    assert pod_of(obj)["spec"]["restartPolicy"] == "Never"


def test_a_job_set_stops_on_a_config_error_and_does_not_count_preemptions(render: Renderer) -> None:
    """Apply the JobSet's rules to the messages that the Job controller writes when a pod matches a rule."""
    obj = render("job-set", "run: {deadlineSeconds: 60}")
    job = obj["spec"]["replicatedJobs"][0]["template"]["spec"]
    codes, preempted = job["podFailurePolicy"]["rules"]
    assert (codes["action"], codes["onExitCodes"]["values"], codes["onExitCodes"]["containerName"]) == (
        "FailJob",
        [2, 3],
        container_of(obj)["name"],
    )
    assert (preempted["action"], preempted["onPodConditions"][0]["type"]) == ("FailJob", "DisruptionTarget")
    rules = obj["spec"]["failurePolicy"]["rules"]

    def action(reason: str, message: str) -> str:
        """Return JobSet's action: that of the first rule whose reasons and unanchored patterns match, else a restart
        that counts.
        """
        for rule in rules:
            patterns = rule.get("onJobFailureMessagePatterns", [""])
            if reason in rule["onJobFailureReasons"] and any(re.search(pattern, message) for pattern in patterns):
                return str(rule["action"])
        return "RestartJobSet"

    # The messages of kube-controller-manager 1.34 to 1.36 (pkg/controller/job/pod_failure_policy.go).
    exit2 = (
        "Container trainer for pod research/demo-slice-0-0-x failed with exit code 2 matching FailJob rule at index 0"
    )
    disrupted = "Pod research/demo-slice-0-0-x has condition DisruptionTarget matching FailJob rule at index 1"
    assert action("PodFailurePolicy", exit2) == "FailJobSet"
    assert action("PodFailurePolicy", exit2.replace("code 2", "code 3")) == "RestartJobSetAndIgnoreMaxRestarts"
    assert action("PodFailurePolicy", exit2.replace("code 2", "code 21")) == "RestartJobSet"
    assert action("PodFailurePolicy", exit2.replace("code 2", "code 33")) == "RestartJobSet"
    assert action("PodFailurePolicy", disrupted) == "RestartJobSetAndIgnoreMaxRestarts"
    assert action("BackoffLimitExceeded", "Job has reached the specified backoff limit") == "RestartJobSet"
    assert action("DeadlineExceeded", "Job was active longer than specified deadline") == "FailJobSet"


def test_restart_job_restarts_the_failed_slice_only(render: Renderer) -> None:
    """The same rules, with the actions for one Job; and a last rule for what JobSet would restart as a whole."""
    obj = render("job-set", "run: {deadlineSeconds: 60, restartAction: RestartJob}\nslice: {count: 2}")
    assert [(rule["name"], rule["action"]) for rule in obj["spec"]["failurePolicy"]["rules"]] == [
        ("configError", "FailJobSet"),
        ("preempted", "RestartJobAndIgnoreMaxRestarts"),
        ("deadline", "FailJobSet"),
        ("failed", "RestartJob"),
    ]
    assert obj["spec"]["failurePolicy"]["rules"][-1] == {"name": "failed", "action": "RestartJob"}
    assert obj["spec"]["failurePolicy"]["maxRestarts"] == 4
    default = render("job-set", "run: {deadlineSeconds: 60}\nslice: {count: 2}")
    assert "RestartJob" not in [rule["action"] for rule in default["spec"]["failurePolicy"]["rules"]]


def test_only_jobset_0_12_accepts_restart_job(render: Renderer) -> None:
    """The CRDs of earlier versions refuse the actions, so the API server does."""
    faults = validate(render("job-set", "run: {restartAction: RestartJob}\nslice: {count: 2}"))
    known = "not one of FailJobSet, RestartJobSet, RestartJobSetAndIgnoreMaxRestarts. (JobSet 0.10.1, JobSet 0.11.1)"
    assert faults == [
        f"JobSet demo: spec.failurePolicy.rules[1].action is 'RestartJobAndIgnoreMaxRestarts', {known}",
        f"JobSet demo: spec.failurePolicy.rules[2].action is 'RestartJob', {known}",
    ]


def test_exit_codes_of_a_command_have_no_special_meaning(render: Renderer) -> None:
    obj = render("job-set", "run: {command: [sleep, infinity]}")
    assert container_of(obj)["command"] == ["sleep", "infinity"]
    [rule] = obj["spec"]["replicatedJobs"][0]["template"]["spec"]["podFailurePolicy"]["rules"]
    assert "onPodConditions" in rule
    [policy] = obj["spec"]["failurePolicy"]["rules"]
    assert policy["name"] == "preempted"


def test_deadline_and_ttl(render: Renderer) -> None:
    keys = "run: {deadlineSeconds: 1000000, ttlSeconds: 600}\nqueue: {name: q}"
    job, jobset = render("ray-job", keys), render("job-set", keys)
    assert (job["spec"]["activeDeadlineSeconds"], job["spec"]["ttlSecondsAfterFinished"]) == (1000000, 600)
    assert jobset["spec"]["ttlSecondsAfterFinished"] == 600
    assert jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["activeDeadlineSeconds"] == 1000000
    # Kueue's limit would suspend the run instead of ending it.
    assert not [label for obj in (job, jobset) for label in obj["metadata"]["labels"] if "max-exec" in label]
    plain = render("job-set")
    assert plain["spec"]["ttlSecondsAfterFinished"] == 30 * 24 * 3600
    assert "activeDeadlineSeconds" not in plain["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert "deadline" not in [rule["name"] for rule in plain["spec"]["failurePolicy"]["rules"]]


@pytest.mark.parametrize(
    ("keys", "seconds"),
    [
        ("{keepFinishedDays: 1}", 86400),
        ("{keepFinishedDays: 0}", None),
        ("{keepFinishedDays: 0, ttlSeconds: 60}", 60),
        ("{keepFinishedDays: 24855}", 2147472000),  # fits the field's 32 bits
    ],
)
def test_a_finished_job_set_expires(render: Renderer, keys: str, seconds: int | None) -> None:
    assert render("job-set", f"run: {keys}")["spec"].get("ttlSecondsAfterFinished") == seconds


def test_shared_memory_is_at_most_the_memory_of_its_container(render: Renderer) -> None:
    keys = "head: {memory: 16Gi}\nworker: {memory: 100Gi}"
    spec = render("ray-job", keys)["spec"]["rayClusterSpec"]
    pods = [group["template"] for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"])]
    volumes = [{volume["name"]: volume for volume in pod["spec"]["volumes"]} for pod in pods]
    assert [each["shared-memory"]["emptyDir"]["sizeLimit"] for each in volumes] == ["16Gi", "100Gi"]


@every_kind
def test_a_name_a_namespace_a_queue_and_priorities(render: Renderer, kind: str) -> None:
    obj = render(kind, "team: {name: research}\nqueue: {priority: high, podPriority: batch}")
    meta = obj["metadata"]
    assert (meta["name"], meta["namespace"]) == ("x" if kind == "ray-cluster" else "demo", "research")
    assert meta["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    assert meta["labels"]["kueue.x-k8s.io/priority-class"] == "high"
    assert pod_of(obj)["spec"]["priorityClassName"] == "batch"
    # GKE's TPU webhook and KubeRay recognize their pods by this label.
    assert "app.kubernetes.io/name" not in pod_of(obj)["metadata"]["labels"]
    assert pod_of(obj)["spec"]["serviceAccountName"] == "research"
    other = render(kind, "team: {name: research, namespace: ns, serviceAccount: sa}\nqueue: {name: other}")
    assert other["metadata"]["namespace"] == "ns"
    assert other["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "other"
    assert pod_of(other)["spec"]["serviceAccountName"] == "sa"


@every_kind
def test_without_a_team_kueue_is_not_used(render: Renderer, kind: str) -> None:
    obj = render(kind)
    assert obj["metadata"]["namespace"] == "default"
    assert not [label for label in obj["metadata"]["labels"] if "kueue" in label]
    assert "priorityClassName" not in pod_of(obj)["spec"]
    assert "serviceAccountName" not in pod_of(obj)["spec"]


# --- The pod template -------------------------------------------------------------------------------------------


@every_kind
def test_hosts_are_the_accelerators(render: Renderer, kind: str) -> None:
    obj = render(kind)
    spec = pod_of(obj)["spec"]
    assert spec["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "4x4",
    }
    assert spec["tolerations"] == [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}]
    chips = {"google.com/tpu": "4"}
    assert container_of(obj)["resources"] == {"requests": chips, "limits": chips}
    assert environment(container_of(obj))["JAX_PLATFORMS"] == "tpu,cpu"
    assert environment(container_of(obj))["ENABLE_PJRT_COMPATIBILITY"] == "true"


def test_a_machine_type_is_selected(render: Renderer) -> None:
    keys = "slice: {topology: 2x4, machineType: ct6e-standard-8t}"
    assert pod_of(render("job-set", keys))["spec"]["nodeSelector"]["node.kubernetes.io/instance-type"] == (
        "ct6e-standard-8t"
    )


@every_kind
def test_gpus(render: Renderer, kind: str) -> None:
    obj = render(kind, "slice: {accelerator: h100-80gb, topology: '', hosts: 2}")
    spec = pod_of(obj)["spec"]
    assert spec["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}
    assert spec["tolerations"][0]["key"] == "nvidia.com/gpu"
    assert container_of(obj)["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert environment(container_of(obj))["JAX_PLATFORMS"] == "cuda,cpu"
    assert "ENABLE_PJRT_COMPATIBILITY" not in environment(container_of(obj))


@pytest.mark.parametrize(
    ("provisioning", "label", "toleration"),
    [
        ("{provisioning: spot}", {"cloud.google.com/gke-spot": "true"}, "cloud.google.com/gke-spot"),
        ("{provisioning: reservation, reservation: ours}", {"cloud.google.com/reservation-name": "ours"}, ""),
        ("{provisioning: flex-start}", {"cloud.google.com/gke-flex-start": "true"}, "cloud.google.com/gke-queued"),
    ],
)
def test_provisioning_selects_and_tolerates(render: Renderer, provisioning: str, label: Tree, toleration: str) -> None:
    spec = pod_of(render("job-set", f"slice: {provisioning}"))["spec"]
    assert label.items() <= spec["nodeSelector"].items()
    assert [each["key"] for each in spec["tolerations"]] == ["google.com/tpu", *([toleration] if toleration else [])]


def test_flex_start_with_a_deadline_asks_for_no_longer(render: Renderer) -> None:
    obj = render("ray-job", "slice: {provisioning: flex-start}\nrun: {deadlineSeconds: 3600}")
    assert obj["metadata"]["annotations"] == {"provreq.kueue.x-k8s.io/maxRunDurationSeconds": "3600"}


@every_kind
def test_environment_from_values_secrets_and_config_maps(render: Renderer, kind: str) -> None:
    keys = """
worker:
  env: {B: "2", A: "1", JAX_PLATFORMS: tpu}
  secretEnv: {HF_TOKEN: {name: hugging-face, key: token}}
  envFrom: {settings: ConfigMap, keys: Secret}
"""
    container = container_of(render(kind, keys))
    found = environment(container)
    assert (found["A"], found["B"], found["JAX_PLATFORMS"]) == ("1", "2", "tpu")
    assert found["HF_TOKEN"] == {"secretKeyRef": {"name": "hugging-face", "key": "token"}}
    assert container["envFrom"] == [{"secretRef": {"name": "keys"}}, {"configMapRef": {"name": "settings"}}]
    assert "envFrom" not in container_of(render(kind))
    if kind != "job-set":  # a head does not need them
        assert {"A", "B", "HF_TOKEN", "JAX_PLATFORMS"}.isdisjoint(
            each["name"] for each in container_of(render(kind, keys), head=True).get("env", [])
        )


@pytest.mark.parametrize("kind", ["ray-job", "job-set"])
def test_the_autoscaler_does_not_move_pods_of_a_run(render: Renderer, kind: str) -> None:
    key = "cluster-autoscaler.kubernetes.io/safe-to-evict"
    heads = (True, False) if kind == "ray-job" else (False,)
    for head in heads:
        assert pod_of(render(kind), head=head)["metadata"]["annotations"][key] == "false"
        moved = pod_of(render(kind, "run: {safeToEvict: true}"), head=head)
        assert key not in moved["metadata"].get("annotations", {})


def test_null_removes_a_default(render: Renderer) -> None:
    annotations = pod_of(render("job-set", "storage: {sidecarLimits: {cpu: null}}"))["metadata"]["annotations"]
    assert "gke-gcsfuse/cpu-limit" not in annotations
    assert annotations["gke-gcsfuse/memory-limit"] == "0"


@every_kind
def test_storage_in_a_bucket(render: Renderer, kind: str) -> None:
    obj = render(kind)
    annotations = pod_of(obj)["metadata"]["annotations"]
    assert {key: value for key, value in annotations.items() if "gcsfuse" in key} == {
        "gke-gcsfuse/volumes": "true",
        "gke-gcsfuse/cpu-limit": "0",
        "gke-gcsfuse/memory-limit": "0",
        "gke-gcsfuse/ephemeral-storage-limit": "0",
    }
    volumes = {volume.pop("name"): volume for volume in pod_of(obj)["spec"]["volumes"]}
    # A bucket has no file owners; without these options root would own the files.
    options = volumes["storage"]["csi"]["volumeAttributes"]
    assert volumes["storage"] == {"csi": {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": options}}
    assert options.keys() == {"bucketName", "mountOptions"}
    assert options["bucketName"] == "our-bucket"
    # No host may remember that another host's checkpoint is missing. Orbax renames the folder of a complete checkpoint.
    assert options["mountOptions"].split(",") == [
        "implicit-dirs",
        "metadata-cache:negative-ttl-secs:0",
        "metadata-cache:stat-cache-max-size-mb:-1",
        "metadata-cache:type-cache-max-size-mb:-1",
        "rename-dir-limit=200000",
        "uid=1000",
        "gid=1000",
    ]
    assert volumes["shared-memory"] == {"emptyDir": {"medium": "Memory"}}
    mounts = {mount["name"]: mount["mountPath"] for mount in container_of(obj)["volumeMounts"]}
    assert (mounts["storage"], mounts["shared-memory"]) == ("/data", "/dev/shm")


@every_kind
def test_a_bucket_with_text_is_mounted_read_only_with_caches(render: Renderer, kind: str) -> None:
    values = "storage: {kind: pvc, claim: ours, text: {bucket: texts, mountPath: /books, cacheSize: 100Gi}}"
    obj = render(kind, values)
    assert pod_of(obj)["metadata"]["annotations"]["gke-gcsfuse/volumes"] == "true"
    volumes = {volume.pop("name"): volume for volume in pod_of(obj)["spec"]["volumes"]}
    csi = volumes["text"]["csi"]
    assert (csi["driver"], csi["readOnly"]) == ("gcsfuse.csi.storage.gke.io", True)
    attributes = csi["volumeAttributes"]
    assert attributes.pop("mountOptions").endswith("file-system:kernel-list-cache-ttl-secs:-1,uid=1000,gid=1000")
    assert attributes == {"bucketName": "texts", "fileCacheCapacity": "100Gi", "fileCacheForRangeRead": "true"}
    assert volumes["gke-gcsfuse-cache"] == {"emptyDir": {"sizeLimit": "100Gi"}}
    mounts = {mount["name"]: mount for mount in container_of(obj)["volumeMounts"]}
    assert (mounts["text"]["mountPath"], mounts["text"]["readOnly"]) == ("/books", True)
    assert "gke-gcsfuse-cache" not in mounts  # the sidecar mounts it
    in_memory = pod_of(render(kind, values.replace("100Gi", "8Gi, cacheMedium: memory")))["spec"]["volumes"]
    assert {"name": "gke-gcsfuse-cache", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}} in in_memory
    uncached = pod_of(render(kind, "storage: {text: {bucket: texts}}"))["spec"]["volumes"]
    assert [volume["name"] for volume in uncached if "gcsfuse" in volume["name"]] == []


@every_kind
def test_storage_on_a_claim_has_one_source_and_no_sidecar(render: Renderer, kind: str) -> None:
    obj = render(kind, "storage: {kind: pvc, claim: ours, mountPath: /mnt/x}")
    [volume] = [volume for volume in pod_of(obj)["spec"]["volumes"] if volume["name"] == "storage"]
    assert volume == {"name": "storage", "persistentVolumeClaim": {"claimName": "ours"}}
    assert not [key for key in pod_of(obj)["metadata"].get("annotations", {}) if "gcsfuse" in key]
    assert container_of(obj)["volumeMounts"][0]["mountPath"] == "/mnt/x"


@every_kind
def test_image_and_pull_secrets(render: Renderer, kind: str) -> None:
    digest = "sha256:" + "a1" * 32
    obj = render(kind, f"image: {{tag: '', digest: '{digest}', pullPolicy: Always, pullSecrets: [a, b]}}")
    container = container_of(obj)
    assert container["image"] == f"registry.example.com/slipway@{digest}"
    assert container["imagePullPolicy"] == "Always"
    assert pod_of(obj)["spec"]["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    assert "imagePullSecrets" not in pod_of(render(kind))["spec"]
    assert container_of(render(kind))["image"] == "registry.example.com/slipway:v1"


@every_kind
def test_nothing_is_privileged_unless_requested(render: Renderer, kind: str) -> None:
    obj = render(kind)
    for head in (False,) if kind == "job-set" else (False, True):
        spec, container = pod_of(obj, head=head)["spec"], container_of(obj, head=head)
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert spec["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "dnsPolicy"} & set(spec)
    privileged = render(kind, "security: {hostNetwork: true, privileged: true, runAsUser: 0}")
    assert container_of(privileged)["securityContext"] == {"privileged": True}
    assert pod_of(privileged)["spec"]["hostNetwork"] is True
    assert pod_of(privileged)["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    [storage] = [volume for volume in pod_of(privileged)["spec"]["volumes"] if volume["name"] == "storage"]
    assert storage["csi"]["volumeAttributes"]["hostNetworkPodKSA"] == "true"
    assert "runAsNonRoot" not in pod_of(privileged)["spec"]["securityContext"]
    if kind != "job-set":  # these options apply to hosts, not to a head
        assert pod_of(privileged, head=True) == pod_of(obj, head=True) | {
            "metadata": pod_of(privileged, head=True)["metadata"]
        }


@every_kind
def test_a_pod_has_time_for_its_last_checkpoint(render: Renderer, kind: str) -> None:
    assert pod_of(render(kind))["spec"]["terminationGracePeriodSeconds"] == 120
    assert pod_of(render(kind, "run: {graceSeconds: 0}"))["spec"]["terminationGracePeriodSeconds"] == 0


def test_more_selectors_and_tolerations(render: Renderer) -> None:
    keys = """
head: {nodeSelector: {pool: heads}, tolerations: {b: {key: b}, a: {key: a, operator: Exists, effect: NoExecute}}}
worker: {nodeSelector: {pool: tpus}, tolerations: {w: {key: w, value: "1"}}}
"""
    obj = render("ray-job", keys)
    head, host = pod_of(obj, head=True)["spec"], pod_of(obj)["spec"]
    assert head["nodeSelector"] == {"pool": "heads"}
    assert head["tolerations"] == [{"key": "a", "operator": "Exists", "effect": "NoExecute"}, {"key": "b"}]
    assert host["nodeSelector"]["pool"] == "tpus"
    assert host["tolerations"][1] == {"key": "w", "value": "1"}


# --- The placement of slices ------------------------------------------------------------------------------------


def test_a_job_sets_slices_have_node_pools_of_their_own(render: Renderer) -> None:
    key = "alpha.jobset.sigs.k8s.io/exclusive-topology"
    assert render("job-set")["metadata"]["annotations"] == {key: "cloud.google.com/gke-nodepool"}
    # If each machine is one slice, a node pool has many slices; so do the pools of GPUs and of other machines.
    for keys in ("{topology: 2x2}", "{accelerator: h100-80gb, topology: '', hosts: 2}", "{placement: topology}"):
        assert "annotations" not in render("job-set", f"slice: {keys}")["metadata"]


def test_kueues_topology_request(render: Renderer) -> None:
    one = pod_of(render("job-set", "slice: {placement: topology}"))["metadata"]["annotations"]
    assert one["kueue.x-k8s.io/podset-required-topology"] == "cloud.google.com/gke-nodepool"
    two = pod_of(render("job-set", "slice: {placement: topology, count: 2}"))["metadata"]["annotations"]
    assert two["kueue.x-k8s.io/podset-slice-required-topology"] == "cloud.google.com/gke-nodepool"
    assert two["kueue.x-k8s.io/podset-slice-size"] == "4"
    cluster = cluster_of(render("ray-job", "slice: {placement: topology, count: 2}"))
    assert [group["groupName"] for group in cluster["workerGroupSpecs"]] == ["slice-0", "slice-1"]
    assert [group["replicas"] for group in cluster["workerGroupSpecs"]] == [1, 1]
    plain = cluster_of(render("ray-job", "slice: {count: 2}"))["workerGroupSpecs"]
    assert [(group["groupName"], group["replicas"], group["numOfHosts"]) for group in plain] == [("slice", 2, 4)]


# --- The Ray cluster --------------------------------------------------------------------------------------------


def test_a_head_takes_no_tasks_and_asks_for_a_token(render: Renderer) -> None:
    for kind in ("ray-job", "ray-cluster"):
        obj = render(kind)
        spec = cluster_of(obj)
        assert (spec["rayVersion"], spec["authOptions"]) == ("2.60.0", {"mode": "token"})
        assert spec["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}
        head = container_of(obj, head=True)
        assert {port["name"]: port["containerPort"] for port in head["ports"]} == {
            "gcs-server": 6379,
            "dashboard": 8265,
            "client": 10001,
        }
        memory = {"memory": "16Gi"}
        assert head["resources"] == {"requests": {"cpu": "8", **memory}, "limits": memory}
        for probe in ("readinessProbe", "livenessProbe"):
            assert head[probe]["httpGet"] == {"path": "/api/gcs_healthz", "port": 8265}
            assert container_of(obj)[probe]["httpGet"] == {"path": "/api/local_raylet_healthz", "port": 52365}
        assert cluster_of(render(kind, "security: {tokenAuth: false}"))["authOptions"] == {"mode": "disabled"}
        assert "enableInTreeAutoscaling" not in spec


def test_only_the_head_of_a_ray_job_has_the_path_of_its_pods_log(render: Renderer) -> None:
    assert environment(container_of(render("ray-job"), head=True))["SLIPWAY_POD_LOG"] == "/proc/1/fd/1"
    assert "SLIPWAY_POD_LOG" not in environment(container_of(render("ray-cluster"), head=True))
    for kind in ("ray-job", "job-set"):
        assert "SLIPWAY_POD_LOG" not in environment(container_of(render(kind)))


def test_a_long_lived_cluster_may_accept_kubernetes_tokens(render: Renderer) -> None:
    """KubeRay 1.5 does not have this key. From 1.6 on, long-lived clusters support it; a RayJob's cluster does not."""
    keys = "team: {name: ours}\nsecurity: {k8sTokenAuth: true}"
    obj = render("ray-cluster", keys)
    assert cluster_of(obj)["authOptions"] == {"mode": "token", "enableK8sTokenAuth": True}
    # Each of Ray's processes checks the tokens that it receives with the API server, as the pod's service account.
    for head in (True, False):
        pod = pod_of(obj, head=head)["spec"]
        assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("ours", True)
    assert [sentence.rpartition(" (")[2] for sentence in validate(obj)] == ["KubeRay 1.5.2)"]
    job = render("ray-job", keys)
    assert cluster_of(job)["authOptions"] == {"mode": "token"}
    assert pod_of(job)["spec"]["automountServiceAccountToken"] is False
    default = render("ray-cluster", "team: {name: ours}")
    assert pod_of(default)["spec"]["automountServiceAccountToken"] is False


def test_a_ray_cluster_may_have_the_collector_of_kuberays_history_server(render: Renderer) -> None:
    """Only KubeRay 1.7 has this key. check --live refuses a run in a cluster with an earlier one."""
    keys = "tracking: {historyServer: {image: quay.io/kuberay/collector:v1.7.0, bucket: history}}"
    for kind in ("ray-job", "ray-cluster"):
        obj = render(kind, keys)
        collector = cluster_of(obj)["historyServerOptions"]["collectorOptions"]
        assert (collector["image"], collector["imagePullPolicy"]) == (
            "quay.io/kuberay/collector:v1.7.0",
            "IfNotPresent",
        )
        env = {each["name"]: each["value"] for each in collector["env"]}
        assert env == {"STORAGE_BACKEND": "gcs", "GCS_BUCKET": "history"}
        # The launcher names what Kueue does not count (preflight.py).
        assert collector["resources"]["requests"] == {"cpu": "50m", "memory": "256Mi"}
        assert [sentence.rpartition(" (")[2] for sentence in validate(obj)] == ["KubeRay 1.5.2, KubeRay 1.6.2)"]
        assert "historyServerOptions" not in cluster_of(render(kind))


def test_pods_carry_run_and_team(render: Renderer) -> None:
    for kind in ("ray-job", "job-set"):
        obj = render(kind, "run: {name: demo}\nteam: {name: ours}")
        for head in (True, False) if kind == "ray-job" else (False,):
            labels = pod_of(obj, head=head)["metadata"]["labels"]
            assert labels.items() >= {"slipway.dev/run": "demo", "slipway.dev/team": "ours"}.items()


def test_groups_of_a_long_lived_cluster(render: Renderer) -> None:
    keys = """
worker: {cpu: "8", memory: 64Gi}
cluster:
  labels: {team: ours}
  groups:
    gpu: {accelerator: l4, count: 2}
    cpu: {accelerator: cpu, hosts: 3, cpu: "4", memory: 8Gi}
"""
    obj = render("ray-cluster", keys)
    groups = obj["spec"]["workerGroupSpecs"]
    shape = [(group["groupName"], group["replicas"], group["numOfHosts"]) for group in groups]
    assert shape == [("slice", 1, 4), ("cpu", 1, 3), ("gpu", 2, 1)]
    assert container_of(obj, group=1)["resources"]["requests"] == {"cpu": "4", "memory": "8Gi"}
    assert container_of(obj, group=2)["resources"]["requests"] == {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "1"}
    assert obj["metadata"]["labels"]["team"] == "ours"


def test_autoscaling(render: Renderer) -> None:
    obj = render("ray-cluster", "team: {name: t}\ncluster: {minSlices: 0, maxSlices: 3, idleSeconds: 60}")
    spec = obj["spec"]
    [group] = spec["workerGroupSpecs"]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (0, 0, 3)
    assert spec["enableInTreeAutoscaling"] is True
    options = spec["autoscalerOptions"]
    assert (options["version"], options["idleTimeoutSeconds"]) == ("v2", 60)
    assert options["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    # The autoscaler runs in the head's pod and calls the API server.
    assert pod_of(obj, head=True)["spec"]["automountServiceAccountToken"] is True
    assert pod_of(obj)["spec"]["automountServiceAccountToken"] is False
    assert obj["metadata"]["annotations"] == {"kueue.x-k8s.io/elastic-job": "true"}


def test_a_users_row_of_the_table(render: Renderer) -> None:
    keys = """
common: {accelerators: {l4: {machineTypes: {our-machine: 3}, defaultMachineType: our-machine}}}
slice: {accelerator: l4, topology: ""}
"""
    assert container_of(render("job-set", keys))["resources"]["limits"] == {"nvidia.com/gpu": "3"}


# --- Rejected values, and notes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("run.kind=local", "run.kind local runs on your machine; use launcher submit."),
        ("run.kind=ray-cluster", "launcher submit submits the run to the long-lived Ray cluster run.cluster"),
        ("run.nmae=x", "additional properties 'nmae' not allowed"),
        ("slice=null", "missing property 'slice'"),
        ("run.maxRestarts=-1", "maxRestarts"),
    ],
)
def test_it_rejects(helm: Path, base: Path, option: str, message: str) -> None:
    with pytest.raises(HelmError) as raised:
        template(helm, CHARTS / "run", [base], "--set", option)
    assert message in str(raised.value)


@every_kind
def test_notes_say_the_next_command(helm4: Path, base: Path, kind: str) -> None:
    chart = "ray-cluster" if kind == "ray-cluster" else "run"
    notes = dump_notes(helm4, CHARTS / chart, base, "--set", "team.name=research", *(
        () if kind == "ray-cluster" else ("--set", f"run.kind={kind}")
    ))  # fmt: skip
    name = {"ray-job": "rayjob demo", "job-set": "jobset demo", "ray-cluster": "raycluster/x"}[kind]
    assert f"{name} -n research" in notes
    assert len([line for line in notes.splitlines() if line.strip()]) == 3


def dump_notes(helm: Path, chart: Path, base: Path, *options: str) -> str:
    """Return NOTES.txt as `helm install` prints it. Helm 4's client-side dry run needs no cluster (Helm 3's does)."""
    command = [str(helm), "install", "x", str(chart), "-f", str(base), "--dry-run=client", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.partition("NOTES:\n")[2]


def test_a_ray_job_has_a_start_deadline_if_kuberay_supports_it(helm4: Path, render: Renderer, base: Path) -> None:
    """KubeRay 1.5 does not have the field. Helm and the launcher pass the cluster's API versions to the chart."""
    assert "preRunningDeadlineSeconds" not in render("ray-job")["spec"]

    def with_kuberay(extra: str = "{}") -> Tree:
        file = base.with_name("start.yaml")
        file.write_text(extra)
        kuberay = ("--set", "run.kind=ray-job", "--api-versions", "ray.io/v1/RayCronJob")
        obj: Tree = yaml.safe_load(template(helm4, CHARTS / "run", [base, file], *kuberay))
        assert all(
            "1.5" in sentence and "1.6" not in sentence and "1.7" not in sentence for sentence in validate(obj)
        ), validate(obj)
        spec: Tree = obj["spec"]
        return spec

    queued = "queue: {name: research}\n"
    assert with_kuberay(queued)["preRunningDeadlineSeconds"] == 3600
    assert with_kuberay(f"{queued}run: {{startDeadlineSeconds: 600}}")["preRunningDeadlineSeconds"] == 600
    assert "preRunningDeadlineSeconds" not in with_kuberay(f"{queued}run: {{startDeadlineSeconds: 0}}")
    assert "preRunningDeadlineSeconds" not in with_kuberay()


def test_the_pods_of_a_ray_job_stay_until_their_last_checkpoint_is_written(render: Renderer) -> None:
    obj = render("ray-job", "run: {graceSeconds: 15}")
    hook = ["python", "-m", "trainer.prestop", "--seconds", "15"]
    for head, command in ((False, hook), (True, [*hook, "--head"])):
        pod = pod_of(obj, head=head)
        (container,) = pod["spec"]["containers"]
        assert container["lifecycle"]["preStop"]["exec"]["command"] == command
        assert pod["spec"]["terminationGracePeriodSeconds"] == 15
    assert environment(pod_of(obj, head=True)["spec"]["containers"][0])["RAY_JOB_STOP_WAIT_TIME_S"] == "15"
