"""The tutorials' presets against the tutorials themselves: every field, and a reason for every one that differs."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.config.plan import plan_launch
from launcher.config.values.files import chart_defaults, load
from launcher.paths import charts_dir, presets_dir
from tests.charts import parity_seeds as seeds
from tests.charts.helm import KUBE_VERSION
from tests.charts.parity_compare import ABSENT, ANYTHING, Row, differences, faults, under
from tests.charts.schemas import objects
from trainer import config as trainer_config
from trainer import loop, maxtext_keys
from trainer.ray_driver import scaling_config

LLAMA = presets_dir() / "tutorials" / "llama3-8b-v6e-16.yaml"
MULTISLICE = presets_dir() / "tutorials" / "multislice-v5e.yaml"
RUN_CONFIG = "slipway.dev/run-config"
EVICTION = "cluster-autoscaler.kubernetes.io/safe-to-evict"

RENAMED = {
    # theirs: ours, and why a name may differ
    "tpu-group": "slice",  # the group that slice describes; others are named in cluster.groups
    "gcs-fuse-csi-ephemeral": "storage",  # it may be a claim or a folder too
    "dshm": "shared-memory",
}
RENAMED_JOB_SET = {"jax-tpu": "trainer"}  # podFailurePolicy finds the container by this name

# --- The tables -----------------------------------------------------------------------------------------------------

POD = [
    Row(
        "spec.automountServiceAccountToken",
        ABSENT,
        False,
        "Neither Ray nor the trainer speaks to Kubernetes; workload identity needs no mounted token.",
    ),
    Row("spec.enableServiceLinks", ABSENT, False, "Else every service of the namespace adds variables to the pods."),
]
UNPRIVILEGED = Row(
    "securityContext",
    ABSENT,
    {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    "What Pod Security's restricted asks for; training needs no privilege.",
)
RAY_POD = [
    *POD,
    Row("metadata.labels", ABSENT, {"slipway.dev/cluster": "maxtext-tpu-cluster"}, "To find a cluster's pods by."),
    Row(
        "spec.terminationGracePeriodSeconds",
        ABSENT,
        120,
        "Kubernetes gives 30 s, which can be too short for a last checkpoint; run.graceSeconds.",
    ),
    Row(
        "spec.securityContext",
        ABSENT,
        {
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "runAsNonRoot": True,
            "fsGroup": 1000,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "What Pod Security's restricted asks for; 1000 is the user of Ray's images.",
    ),
    Row(
        "spec.volumes[gcs-fuse-cache]",
        {"name": "gcs-fuse-cache", "emptyDir": {"medium": "Memory"}},
        ABSENT,
        "Nothing mounts it: gcsfuse's sidecar knows a volume gke-gcsfuse-cache, spelt otherwise.",
    ),
    Row(
        "spec.volumes[shared-memory].emptyDir.sizeLimit",
        ABSENT,
        ANYTHING,
        "The memory of its container, which pays for it.",
    ),
    Row(
        "spec.volumes[storage].csi.volumeAttributes.mountOptions",
        "implicit-dirs",
        "implicit-dirs,metadata-cache:negative-ttl-secs:0,metadata-cache:stat-cache-max-size-mb:-1,"
        "metadata-cache:type-cache-max-size-mb:-1,rename-dir-limit=200000,uid=1000,gid=1000",
        "A bucket knows no owners; without them the files would be root's, and the pods' user could not write. The "
        "others are for checkpoints: no stale answers that a file is missing, and folders that can be renamed.",
    ),
]
RAY_CONTAINER = [
    UNPRIVILEGED,
    Row(
        "image",
        "us-east5-docker.pkg.dev/my-project/my-registry/ray-maxtext:latest",
        "us-east5-docker.pkg.dev/my-project/my-registry/ray-maxtext:v1",
        "A tag latest changes under a run; the charts refuse it.",
    ),
    Row("livenessProbe", ABSENT, ANYTHING, "KubeRay's own probes run a shell and wget; these ask the same by HTTP."),
    Row("readinessProbe", ABSENT, ANYTHING, "As the liveness probe."),
]
ATTEMPT = {
    "name": "SLIPWAY_ATTEMPT",
    "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['slipway.dev/attempt']"}},
}
NODE = {"name": "SLIPWAY_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
NOTIFY = {
    "name": "SLIPWAY_NOTIFY",
    "valueFrom": {"secretKeyRef": {"name": "slipway-notify", "key": "addresses", "optional": True}},
}
IN_THE_PODS = "The script gives it to the job's workers, which run in these pods; one file serves cluster and job."
HOSTS_ENVIRONMENT = [
    Row("env[SLIPWAY_NODE]", ABSENT, NODE, "The trainer names the node of a slow host."),
    Row(
        "env[JAX_PLATFORMS].value",
        "tpu",
        "tpu,cpu",
        "The TPU first, and the CPU beside it, which offloading to the host and Orbax's checkpoints use.",
    ),
    *(
        Row(f"env[{name}]", ABSENT, {"name": name, "value": value}, IN_THE_PODS)
        for name, value in {
            "TPU_SLICE_BUILDER_DUMP_CHIP_FORCE": "true",
            "TPU_SLICE_BUILDER_DUMP_ICI": "true",
            "XLA_FLAGS": "--xla_dump_to=/tmp/xla_dump_file --xla_dump_hlo_as_proto",
        }.items()
    ),
]
TOLERATION = Row(
    "spec.tolerations",
    ABSENT,
    [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}],
    "GKE adds it to pods that ask for TPUs; Kueue, which looks for it before there are pods, does not see that one.",
)
RAY_CLUSTER = [
    Row("metadata.namespace", ABSENT, "default", "Theirs is made in kubectl's namespace; NAMESPACE=default."),
    Row(
        "metadata.labels",
        ABSENT,
        {
            "app.kubernetes.io/name": "maxtext-tpu-cluster",
            "app.kubernetes.io/instance": "maxtext-tpu-cluster",
            "app.kubernetes.io/component": "ray-cluster",
            "app.kubernetes.io/part-of": "slipway",
            "app.kubernetes.io/managed-by": "Helm",
            "helm.sh/chart": "slipway-ray-cluster",
        },
        "Helm's and Kubernetes' recommended labels.",
    ),
    *under(
        ("spec.headGroupSpec.template", "spec.workerGroupSpecs[slice].template"),
        [Row(f"metadata.annotations.{EVICTION}", ABSENT, "false", "An evicted pod restarts the training.")],
    ),
    Row("spec.rayVersion", ABSENT, "2.60.0", "KubeRay chooses by it what it starts; theirs is 2.49.1, in the image."),
    Row("spec.authOptions", ABSENT, {"mode": "token"}, "Else whoever reaches the dashboard runs code in the cluster."),
    Row(
        "spec.headGroupSpec.rayStartParams.num-cpus",
        ABSENT,
        "0",
        "No tasks on the head, which has 16 GiB and is no host of the slice.",
    ),
    Row("spec.workerGroupSpecs[slice].minReplicas", ABSENT, 1, "No autoscaling: as many as replicas."),
    Row("spec.workerGroupSpecs[slice].maxReplicas", ABSENT, 1, "No autoscaling: as many as replicas."),
    *under(("spec.headGroupSpec.template", "spec.workerGroupSpecs[slice].template"), RAY_POD),
    *under(
        ("spec.headGroupSpec.template.spec.containers[ray-head]",),
        [
            *RAY_CONTAINER,
            Row(
                "env",
                ABSENT,
                {"[RAY_JOB_STOP_WAIT_TIME_S]": {"name": "RAY_JOB_STOP_WAIT_TIME_S", "value": "120"}},
                "A job that is stopped has time for one more checkpoint; Ray's own patience is 3 seconds.",
            ),
            Row("lifecycle", ABSENT, ANYTHING, "A head that is told to end has its jobs save a checkpoint first."),
        ],
    ),
    *under(("spec.workerGroupSpecs[slice].template",), [TOLERATION]),
    *under(
        ("spec.workerGroupSpecs[slice].template.spec.containers[ray-worker]",),
        [
            *RAY_CONTAINER,
            *HOSTS_ENVIRONMENT,
            Row("lifecycle", ABSENT, ANYTHING, "A host that is told to end tells Ray, so that a checkpoint is saved."),
            Row(
                "ports",
                ABSENT,
                {"[9464]": {"name": "train-metrics", "containerPort": 9464}},
                "The trainer's metrics, for Prometheus.",
            ),
        ],
    ),
]

SCALING = [
    Row("placement_strategy", "SPREAD", "PACK", "A worker takes all chips of a host, so each has a host to itself."),
]
WORKER_ENVIRONMENT = [
    Row("JAX_PLATFORMS", "tpu", "tpu,cpu", "As in the pods."),
    Row("ENABLE_PJRT_COMPATIBILITY", "true", ABSENT, "It is in the pods already, where workers inherit it."),
]
OURS_ALONE = "Theirs leaves MaxText's default. "
MAXTEXT = [
    Row("program", "/app/maxtext_ray_trainer.py", "trainer", "The bundled trainer in place of the script."),
    Row(
        "config",
        "/app/maxtext/src/MaxText/configs/base.yml",
        "maxtext/configs/base.yml",
        "The same file, from MaxText's package in place of a clone.",
    ),
    Row("base_output_directory", "/data/", "/data", "The same folder."),
    Row("hardware", ABSENT, "tpu", "MaxText's default, said for every accelerator."),
    Row(
        "skip_jax_distributed_system",
        ABSENT,
        True,
        OURS_ALONE + "Ray Train has set jax.distributed up before MaxText starts; MaxText then leaves it alone anyway.",
    ),
    Row("enable_single_controller", ABSENT, False, "MaxText's default, said: the other one is not for Ray Train."),
    Row("use_sft", ABSENT, False, "MaxText's default, said: tuning.method selects the training."),
    Row("use_dpo", ABSENT, False, "As use_sft."),
    Row("lora", ABSENT, {"enable_lora": False}, "As use_sft."),
    Row("sft_train_on_completion_only", ABSENT, True, "As use_sft."),
    Row("num_slices", ABSENT, -1, "MaxText's default, said: counted from the devices."),
    Row("metrics_file", ABSENT, "", "MaxText's default, said: the trainer writes metrics.jsonl itself."),
    Row("prometheus_port", ABSENT, 0, "MaxText's default, said: it is of its inference; tracking.metricsPort is ours."),
    Row("gcs_metrics", ABSENT, False, "MaxText's default, said: metrics.jsonl is in the bucket."),
    Row("enable_wandb", ABSENT, False, "MaxText's default, said: tracking.wandb goes on where MaxText's ends the run."),
    Row("wandb_project_name", ABSENT, "", "As enable_wandb."),
    Row("wandb_run_name", ABSENT, "", "As enable_wandb."),
    Row("tokenizer_type", ABSENT, "sentencepiece", "MaxText's default, said."),
    Row(
        "tokenizer_path",
        ABSENT,
        "maxtext/assets/tokenizers/tokenizer.llama2",
        "MaxText's default when the tutorial was written, no default since; synthetic data reads none.",
    ),
    Row(
        "jax_cache_dir",
        ABSENT,
        "/data/.jax_cache",
        "Beside the runs, where a restarted one finds what it compiled; MaxText's default is in the pod.",
    ),
    Row("log_config", ABSENT, False, OURS_ALONE + "1,100 lines of log."),
    Row("save_checkpoint_on_completion", ABSENT, True, "MaxText's default, said: the last step is always kept."),
    Row(
        "enable_autocheckpoint",
        ABSENT,
        True,
        OURS_ALONE + "hosts that stop for one that is told to end keep their work.",
    ),
]

JOB = "spec.replicatedJobs[slice].template.spec"
JOB_POD = f"{JOB}.template"
JOB_CONTAINER = f"{JOB_POD}.spec.containers[trainer]"
JOB_SET = [
    Row("metadata.namespace", ABSENT, "default", "Theirs is made in kubectl's namespace, where the queue is: default."),
    *(
        Row(f"metadata.labels.{key}", ABSENT, value, "Helm's and Kubernetes' recommended labels.")
        for key, value in {
            "app.kubernetes.io/name": "NAME",
            "app.kubernetes.io/instance": "x",
            "app.kubernetes.io/component": "run",
            "app.kubernetes.io/part-of": "slipway",
            "app.kubernetes.io/managed-by": "Helm",
            "helm.sh/chart": "slipway-run",
        }.items()
    ),
    Row("metadata.labels.slipway.dev/run", ABSENT, "NAME", "By which launcher finds its runs."),
    Row(
        "spec.failurePolicy.rules",
        ABSENT,
        [
            {
                "name": "preempted",
                "action": "RestartJobSetAndIgnoreMaxRestarts",
                "onJobFailureReasons": ["PodFailurePolicy"],
                "onJobFailureMessagePatterns": ["has condition DisruptionTarget matching"],
            }
        ],
        "maxRestarts counts failures, and no preemptions; theirs gives up after five of either.",
    ),
    Row("spec.ttlSecondsAfterFinished", ABSENT, 2592000, "A finished run expires after run.keepFinishedDays, 30 days."),
    Row(f"{JOB}.completionMode", ABSENT, "Indexed", "The JobSet controller's default, said."),
    Row(
        f"{JOB}.podFailurePolicy",
        ABSENT,
        {
            "rules": [
                {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ]
        },
        "By it the rule above knows a preemption.",
    ),
    Row(
        f"{JOB_POD}.metadata",
        ABSENT,
        {"labels": {"slipway.dev/run": "NAME"}, "annotations": {EVICTION: "false", RUN_CONFIG: "the run config"}},
        "A run is one object, and its config travels inside it.",
    ),
    *under((JOB_POD,), [*POD, TOLERATION]),
    Row(f"{JOB_POD}.spec.restartPolicy", ABSENT, "Never", "A Job with a podFailurePolicy takes no other."),
    Row(f"{JOB_POD}.spec.terminationGracePeriodSeconds", ABSENT, 30, "Kubernetes' default, said."),
    Row(
        f"{JOB_POD}.spec.securityContext",
        ABSENT,
        {"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}},
        "The image's own user, root, said, for the sake of pip; and the container runtime's list of system calls.",
    ),
    Row(
        f"{JOB_POD}.spec.volumes",
        ABSENT,
        [
            {"name": "storage", "emptyDir": {}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
            {
                "name": "run-config",
                "downwardAPI": {
                    "items": [
                        {
                            "path": "run.json",
                            "fieldRef": {"fieldPath": "metadata.annotations['slipway.dev/run-config']"},
                        }
                    ]
                },
            },
        ],
        "Every host has a folder for what it writes, shared memory and the run config; here it uses none of them.",
    ),
    *under(
        (JOB_CONTAINER,),
        [
            Row("imagePullPolicy", ABSENT, "IfNotPresent", "Kubernetes' default for a tag that is not latest, said."),
            Row("ports[8471].name", ABSENT, "tpu", "Names tell what a port is for."),
            Row("ports[8080].name", ABSENT, "multislice", "Names tell what a port is for."),
            Row(
                "ports[8476]",
                ABSENT,
                {"name": "coordinator", "containerPort": 8476},
                "Where jax.distributed meets if the trainer runs.",
            ),
            Row(
                "env",
                ABSENT,
                [
                    {
                        "name": "JOB_INDEX",
                        "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['jobset.sigs.k8s.io/job-index']"}},
                    },
                    {"name": "SLIPWAY_COORDINATOR", "value": "NAME-slice-0-0.NAME:8476"},
                    ATTEMPT,
                    NODE,
                    {"name": "ENABLE_PJRT_COMPATIBILITY", "value": "true"},
                    {"name": "JAX_PLATFORMS", "value": "tpu,cpu"},
                    NOTIFY,
                ],
                "What a host is told about its place and its chips; JAX fails without chips, rather than count CPUs.",
            ),
            Row(
                "resources.requests",
                ABSENT,
                {"google.com/tpu": "4"},
                "Kubernetes' default, said: what is limited is requested.",
            ),
            Row(
                "volumeMounts",
                ABSENT,
                [
                    {"name": "storage", "mountPath": "/data"},
                    {"name": "shared-memory", "mountPath": "/dev/shm"},
                    {"name": "run-config", "mountPath": "/etc/slipway", "readOnly": True},
                ],
                "As the volumes.",
            ),
        ],
    ),
]
INSTALL = 'pip install "jax[tpu]" -f https://storage.googleapis.com/jax-releases/libtpu_releases.html'
COUNT = """python -c 'import jax; print("Global device count:", jax.device_count())'"""
COMMAND = {
    name: [
        Row(
            f"{JOB_CONTAINER}.command[2]",
            theirs,
            f"{INSTALL} {COUNT} sleep 60",
            "All three count the chips and sleep for 60 seconds, says the tutorial's text; its 2-slice JobSet does.",
        )
    ]
    for name, theirs in {
        "multislice-1slice": f"{INSTALL} {COUNT}",
        "multislice-3slice": "sleep 60",
        "low-priority": "sleep 60",
    }.items()
}
VARIANTS = {
    # each with its own options and rows
    "Autopilot": ([], under((JOB_CONTAINER,), [UNPRIVILEGED])),
    "Standard": (["security.hostNetwork=true", "security.privileged=true"], []),
}
JOB_SETS = {
    "multislice-1slice": ["slice.count=1"],
    "multislice-2slice": ["slice.count=2"],
    "multislice-3slice": ["slice.count=3"],
    "low-priority": ["slice.count=1", "queue.podPriority=low-priority"],
}

# --- The tests ------------------------------------------------------------------------------------------------------


def render(helm: Path, release: str, chart: str, file: Path, *sets: str) -> dict[str, Any]:
    """The one object that a chart makes of a preset; without the chart's version, which changes with every release."""
    command = [str(helm), "template", release, str(charts_dir() / chart), "--kube-version", KUBE_VERSION]
    command += ["-f", str(file), *(word for option in sets for word in ("--set", option))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (obj,) = objects(done.stdout)
    labels = obj["metadata"]["labels"]
    labels["helm.sh/chart"] = labels["helm.sh/chart"].rpartition("-")[0]
    return obj


def renamed(tree: Any, names: Mapping[str, str]) -> Any:
    """The seed's object with our names for its parts; a name that it does not have is a mistake here."""
    used: set[str] = set()

    def rename(value: Any) -> Any:
        if isinstance(value, list):
            return [rename(item) for item in value]
        if not isinstance(value, dict):
            return value
        changed = {key: rename(item) for key, item in value.items()}
        for key in ("name", "groupName"):
            if changed.get(key) in names:
                used.add(changed[key])
                changed[key] = names[changed[key]]
        return changed

    tree = rename(tree)
    assert used == set(names)
    return tree


def llama_variables() -> dict[str, str]:
    """The seed's variables, as the preset fills them in."""
    given = load([str(LLAMA)]).tree
    host, project, registry, name = given["image"]["repository"].split("/")
    image = seeds.image_template()
    assert image.template.endswith(f"/{name}:latest")
    filled = image.substitute(
        REGION=host.removesuffix("-docker.pkg.dev"), PROJECT_ID=project, ARTIFACT_REGISTRY=registry
    )
    return {
        "DOCKER_IMAGE": filled,
        "KSA_NAME": given["team"]["serviceAccount"],
        "GS_BUCKET": given["storage"]["bucket"],
    }


def test_a_table_that_knows_too_little_or_too_much_is_found_out() -> None:
    theirs = {"a": 1, "pods": [{"name": "x", "cpu": "8"}, {"name": "y"}]}
    ours = {"a": True, "pods": [{"name": "y"}, {"name": "x", "cpu": "4", "env": {}}]}
    row = Row("pods[x].cpu", "8", "4", "Less is enough.")
    env = Row("pods[x].env", ABSENT, ANYTHING, "More is better.")
    a = Row("a", 1, True, "The one.")
    assert faults(theirs, ours, [row, env, a]) == []
    assert faults(theirs, ours, [row, env]) == ["a: theirs 1, ours true; the table does not know it"]
    assert faults(theirs, ours, [row._replace(ours="2"), env, a]) == [
        'pods[x].cpu: theirs "8", ours "4"; the table says "8" and "2"'
    ]
    assert faults(theirs, theirs, [row]) == ["pods[x].cpu: the same in both; the table says it differs"]
    assert faults(theirs, ours, [row, env, a, a]) == ["a is in the table twice"]
    assert faults(theirs, ours, [row, env, a._replace(reason=" ")]) == ["a: the table gives no reason"]
    assert [path for path, _, _ in differences(theirs, ours)] == ["a", "pods[x].cpu", "pods[x].env"]


def test_the_ray_cluster_of_the_tutorial(helm: Path) -> None:
    theirs = seeds.ray_cluster(llama_variables())
    ours = render(helm, theirs["metadata"]["name"], "ray-cluster", LLAMA)
    assert faults(renamed(theirs, RENAMED), ours, RAY_CLUSTER) == []


def test_a_ray_job_brings_the_same_ray_cluster(helm4: Path) -> None:
    job = render(helm4, "x", "run", LLAMA)["spec"]["rayClusterSpec"]
    standing = render(helm4, "maxtext-tpu-cluster", "ray-cluster", LLAMA)["spec"]
    head, worker = "headGroupSpec.template", "workerGroupSpecs[slice].template"
    rows = under(
        (head, worker),
        [
            Row("metadata.labels.slipway.dev/cluster", "maxtext-tpu-cluster", ABSENT, "A standing cluster's."),
            Row("metadata.labels.slipway.dev/run", ABSENT, "rayjob-8b-4096-tp4-4x4", "A run's."),
            Row(f"metadata.annotations.{RUN_CONFIG}", ABSENT, ANYTHING, "A standing cluster's run brings its own."),
            Row("spec.volumes[run-config]", ABSENT, ANYTHING, "As the annotation."),
        ],
    )
    pod_log = {"name": "SLIPWAY_POD_LOG", "value": "/proc/1/fd/1"}
    key = f"{head}.spec.containers[ray-head].env[SLIPWAY_POD_LOG]"
    rows += [Row(key, ABSENT, pod_log, "A run's driver prints to its pod's log.")]
    attempt = f"{head}.spec.containers[ray-head].env[SLIPWAY_ATTEMPT]"
    rows += [Row(attempt, ABSENT, ATTEMPT, "The output of each attempt is kept in a folder of its own.")]
    rows += under(
        (f"{head}.spec.containers[ray-head]", f"{worker}.spec.containers[ray-worker]"),
        [
            Row(
                "env[RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S]",
                ABSENT,
                {"name": "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", "value": "0"},
                "A run's own cluster ends as soon as its hooks have; a long-lived one may have other jobs to wait for.",
            )
        ],
    )
    rows += under(
        (f"{head}.spec.containers[ray-head]", f"{worker}.spec.containers[ray-worker]"),
        [
            Row("volumeMounts[/etc/slipway]", ABSENT, ANYTHING, "As the volume."),
            Row("env[SLIPWAY_NOTIFY]", ABSENT, NOTIFY, "The addresses of notifications; the Secret may be missing."),
        ],
    )
    assert faults(standing, job, rows) == []


@pytest.fixture(scope="module", params=["ray-job", "ray-cluster"])
def run_config(
    request: pytest.FixtureRequest, helm4: Path, tmp_path_factory: pytest.TempPathFactory
) -> trainer_config.RunConfig:
    """Return the preset's run config: from the RayJob, and as the launcher submits it to a long-lived cluster."""
    if request.param == "ray-job":
        spec = render(helm4, "x", "run", LLAMA)["spec"]["rayClusterSpec"]
        written = spec["headGroupSpec"]["template"]["metadata"]["annotations"][RUN_CONFIG]
    else:
        user = load([str(LLAMA)], ["run.kind=ray-cluster", "run.cluster=maxtext-tpu-cluster"])
        written = json.dumps(plan_launch(user, chart_defaults("run")).config)
    path = tmp_path_factory.mktemp("parity") / "run.json"
    path.write_text(written)
    return trainer_config.read(path)


def test_the_scaling_config_of_the_script(run_config: trainer_config.RunConfig) -> None:
    from ray.train import ScalingConfig

    theirs = ScalingConfig(**seeds.script_call("ScalingConfig"))
    assert faults(dataclasses.asdict(theirs), dataclasses.asdict(scaling_config(run_config)), SCALING) == []


def test_the_worker_environment_of_the_script(run_config: trainer_config.RunConfig) -> None:
    theirs = seeds.script_call("RunConfig")["worker_runtime_env"]["env_vars"]
    assert faults(theirs, loop.environment(run_config), WORKER_ENVIRONMENT) == []


def test_the_maxtext_arguments_of_the_submitted_job(run_config: trainer_config.RunConfig) -> None:
    def named(argv: list[str]) -> dict[str, Any]:
        program, config, *pairs = argv
        keys = dict(pair.split("=", 1) for pair in pairs)
        assert len(keys) == len(pairs)
        return {"program": program, "config": config, **{key: yaml.safe_load(text) for key, text in keys.items()}}

    spec = importlib.util.find_spec("maxtext")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    packages = str(Path(spec.submodule_search_locations[0]).parent) + "/"
    ours = [word.replace(packages, "") for word in maxtext_keys.maxtext_argv(run_config)]
    assert faults(named(seeds.maxtext_arguments()), named(ours), MAXTEXT) == []


def plain(job_set: dict[str, Any]) -> dict[str, Any]:
    """A JobSet with quantities as Kubernetes writes them, commands on one line, as the seed's text has them, and a
    name for its run config."""
    (job,) = job_set["spec"]["replicatedJobs"]
    pod = job["template"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    container["command"] = [" ".join(word.split()) for word in container["command"]]
    for resources in container["resources"].values():
        resources.update({key: str(amount) for key, amount in resources.items()})
    annotations = pod.get("metadata", {}).get("annotations", {})
    if RUN_CONFIG in annotations:
        assert json.loads(annotations[RUN_CONFIG])["run"]["name"] == job_set["metadata"]["name"]
        annotations[RUN_CONFIG] = "the run config"
    return job_set


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", JOB_SETS)
def test_the_job_sets_of_the_tutorial(helm: Path, name: str, variant: str) -> None:
    theirs = seeds.job_sets(variant)
    assert set(theirs) == set(JOB_SETS)
    options, rows = VARIANTS[variant]
    ours = render(helm, "x", "run", MULTISLICE, f"run.name={name}", *JOB_SETS[name], *options)
    rows = [*JOB_SET, *rows, *COMMAND.get(name, [])]
    rows = [
        row._replace(ours=json.loads(json.dumps(row.ours).replace("NAME", name))) if _has_name(row) else row
        for row in rows
    ]
    assert faults(plain(renamed(theirs[name], RENAMED_JOB_SET)), plain(ours), rows) == []


def _has_name(row: Row) -> bool:
    return not isinstance(row.ours, type(ABSENT)) and "NAME" in json.dumps(row.ours)
