"""charts/serve against KubeRay's sample for vLLM on TPU v6e: every field, and a reason for every one that differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.charts.parity_compare import ABSENT, ANYTHING, Row, faults, under
from tests.charts.parity_kuberay import MOUNT_OPTIONS, ray_service
from tests.charts.test_parity import renamed, render

VARIABLES = {
    "image": "registry.example.com/vllm:v1",
    "account": "vllm",
    "bucket": "models",
    "model": "meta-llama/Llama-3.1-70B",
    "length": "8192",
    "dtype": "bfloat16",
}
OURS = f"""
team: {{namespace: default, serviceAccount: vllm}}
slice: {{accelerator: v6e, topology: 2x4, machineType: ct6e-standard-8t}}
image: {{repository: registry.example.com/vllm, tag: v1}}
storage: {{bucket: models, mountOptions: "{MOUNT_OPTIONS}"}}
head: {{cpu: "2", memory: 8G}}
worker:
  cpu: "100"
  memory: 200G
  env: {{JAX_PLATFORMS: tpu, VLLM_XLA_CACHE_PATH: /data}}
  secretEnv: {{HUGGING_FACE_HUB_TOKEN: {{name: hf-secret, key: hf_api_token}}}}
serve: {{model: "hf:meta-llama/Llama-3.1-70B", contextLength: 8192, dtype: bfloat16, apiKey: {{name: vllm-api-key}}}}
"""
RENAMED = {
    # theirs: ours, and why a name may differ
    "llm": "model",  # the application of a release serves one model
    "VLLMDeployment": "Model",  # the engine is a value
    "tpu-group": "slice",  # the group that slice describes
    "gcs-fuse-csi-ephemeral": "storage",  # it may be a claim, too
    "dshm": "shared-memory",
    "gcs": "gcs-server",  # KubeRay's own name of the port
}
APPLICATION = "spec.serveConfigV2.applications[model]"
DEPLOYMENT = f"{APPLICATION}.deployments[Model]"
HEAD, GROUP = "spec.rayClusterConfig.headGroupSpec", "spec.rayClusterConfig.workerGroupSpecs[slice]"
PODS = (f"{HEAD}.template", f"{GROUP}.template")
HEAD_CONTAINER = f"{HEAD}.template.spec.containers[ray-head]"
HOST_CONTAINER = f"{GROUP}.template.spec.containers[ray-worker]"
TOKEN = {"name": "HUGGING_FACE_HUB_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf-secret", "key": "hf_api_token"}}}

TABLE = [
    Row("metadata.namespace", ABSENT, "default", "The sample's is that of kubectl."),
    Row("metadata.labels", ABSENT, ANYTHING, "Helm's and Kubernetes' recommended labels, and those of the launcher."),
    Row("spec.excludeHeadPodFromServeSvc", ABSENT, True, "The head has no replica; a request to it takes another hop."),
    Row("spec.rayClusterDeletionDelaySeconds", ABSENT, 60, "KubeRay's default, written out."),
    Row("spec.upgradeStrategy", ABSENT, {"type": "NewCluster"}, "KubeRay's default, written out."),
    Row("spec.rayClusterConfig.rayVersion", ABSENT, "2.60.0", "KubeRay chooses the probes by it."),
    Row("spec.rayClusterConfig.authOptions", ABSENT, {"mode": "token"}, "Ray's ports accept only its token."),
    # --- Ray Serve
    Row("spec.serveConfigV2.proxy_location", ABSENT, "EveryNode", "Ray Serve's default, written out."),
    Row("spec.serveConfigV2.http_options", ABSENT, {"host": "0.0.0.0", "port": 8000}, "The same port, written out."),
    Row(
        f"{APPLICATION}.import_path",
        "ray-operator.config.samples.vllm.serve_tpu:model",
        "trainer.serving.app:build",
        "The application has OpenAI's API with streaming and a key; the sample's has /v1/generate.",
    ),
    Row(f"{APPLICATION}.route_prefix", ABSENT, "/", "Ray Serve's default, written out."),
    Row(
        f"{APPLICATION}.runtime_env",
        {
            "working_dir": "https://github.com/ray-project/kuberay/archive/master.zip",
            "env_vars": {
                "MODEL_ID": "meta-llama/Llama-3.1-70B",
                "MAX_MODEL_LEN": "8192",
                "DTYPE": "bfloat16",
                "TOKENIZER_MODE": "auto",
                "TPU_CHIPS": "8",
            },
        },
        ABSENT,
        "The image contains the application, so a pod downloads no code when it starts.",
    ),
    Row(
        f"{APPLICATION}.args",
        ABSENT,
        {
            "model": "meta-llama/Llama-3.1-70B",
            "context_length": 8192,
            "dtype": "bfloat16",
            "tensor_parallel_size": 8,
            "hosts": 1,
            "engine": "vllm",
            "engine_args": {},
            "name": "vllm-tpu",
            "max_requests": 64,
            "require_api_key": True,
        },
        "The sample's variables, as arguments. The tokenizer mode auto is vLLM's default.",
    ),
    Row(
        f"{DEPLOYMENT}.ray_actor_options",
        ABSENT,
        {"num_cpus": 1, "resources": {"TPU": 8}},
        "The sample's code requests the chips as a placement group, which its replica does not wait for.",
    ),
    Row(f"{DEPLOYMENT}.max_ongoing_requests", ABSENT, 64, "Ray Serve's default of 5 leaves the chips idle."),
    Row(f"{DEPLOYMENT}.max_queued_requests", ABSENT, 256, "Without a limit, an overload answers nobody in time."),
    Row(f"{DEPLOYMENT}.health_check_period_s", ABSENT, 10, "Ray Serve's default, written out."),
    Row(f"{DEPLOYMENT}.health_check_timeout_s", ABSENT, 30, "Ray Serve's default, written out."),
    Row(f"{DEPLOYMENT}.graceful_shutdown_timeout_s", ABSENT, 60, "An answer can take longer than the default of 20 s."),
    # --- Both pods
    *under(
        PODS,
        [
            Row("metadata.labels", ABSENT, {"slipway.dev/model": "vllm-tpu"}, "The monitors select pods by it."),
            Row(
                "metadata.annotations.cluster-autoscaler.kubernetes.io/safe-to-evict",
                ABSENT,
                "false",
                "An evicted pod interrupts the requests of a replica that takes minutes to start.",
            ),
            Row(
                "metadata.annotations.slipway.dev/model-arguments",
                ABSENT,
                ANYTHING,
                "Another model starts a new cluster next to the old one; in the sample, it restarts the replica.",
            ),
            Row("spec.automountServiceAccountToken", ABSENT, False, "No process calls the API server."),
            Row("spec.enableServiceLinks", ABSENT, False, "Each Service of the namespace would add variables."),
            Row("spec.terminationGracePeriodSeconds", ABSENT, 120, "Requests can take longer than 30 s to finish."),
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
                "Pod Security's level restricted.",
            ),
            Row(
                "spec.volumes[gke-gcsfuse-cache]",
                {"name": "gke-gcsfuse-cache", "emptyDir": {"medium": "Memory"}},
                ABSENT,
                "Without the volume, gcsfuse's cache of files is on the node's disk, and the memory is the model's.",
            ),
            Row(
                "spec.volumes[storage].csi.volumeAttributes.mountOptions",
                MOUNT_OPTIONS,
                f"{MOUNT_OPTIONS},uid=1000,gid=1000",
                "The files belong to the pod's user, which is not root.",
            ),
        ],
    ),
    *(
        Row(f"{pod}.spec.volumes[shared-memory].emptyDir.sizeLimit", ABSENT, size, "A limit of the pod's own memory.")
        for pod, size in zip(PODS, ("8G", "200G"), strict=True)
    ),
    *under(
        (HEAD_CONTAINER, HOST_CONTAINER),
        [
            Row("lifecycle", ABSENT, ANYTHING, "A pod that must end finishes its requests first."),
            Row("livenessProbe", ABSENT, ANYTHING, "KubeRay's own values, without a shell and wget."),
            Row("readinessProbe", ABSENT, ANYTHING, "A head answers; a host's proxy has a replica, as KubeRay checks."),
            Row(
                "securityContext",
                ABSENT,
                {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                "Pod Security's level restricted.",
            ),
            Row("resources.limits.cpu", ANYTHING, ABSENT, "A pod can use idle cores of its node."),
        ],
    ),
    # --- The head
    Row(f"{HEAD}.rayStartParams.num-cpus", ABSENT, "0", "A replica must run on a host with chips."),
    Row(f"{HEAD_CONTAINER}.env[HUGGING_FACE_HUB_TOKEN]", TOKEN, ABSENT, "The head loads no model."),
    Row(
        f"{HEAD_CONTAINER}.env[VLLM_XLA_CACHE_PATH]",
        {"name": "VLLM_XLA_CACHE_PATH", "value": "/data"},
        ABSENT,
        "The head compiles nothing.",
    ),
    Row(f"{HEAD_CONTAINER}.env[RAY_JOB_STOP_WAIT_TIME_S]", ABSENT, ANYTHING, "For jobs; a served model has none."),
    # --- The host
    Row(
        f"{GROUP}.template.spec.nodeSelector.node.kubernetes.io/instance-type",
        ABSENT,
        "ct6e-standard-8t",
        "GKE also has 2x4 as two hosts of four chips, on which a pod with eight never starts.",
    ),
    Row(
        f"{GROUP}.template.spec.tolerations",
        ABSENT,
        [{"effect": "NoSchedule", "key": "google.com/tpu", "operator": "Exists"}],
        "GKE adds it to pods that request chips; written out.",
    ),
    Row(
        f"{HOST_CONTAINER}.ports", ABSENT, [{"name": "serve", "containerPort": 8000}], "NetworkPolicies name the port."
    ),
    Row(
        f"{HOST_CONTAINER}.env[ENABLE_PJRT_COMPATIBILITY]",
        ABSENT,
        {"name": "ENABLE_PJRT_COMPATIBILITY", "value": "true"},
        "libtpu may be of another release than JAX.",
    ),
    Row(f"{HOST_CONTAINER}.env[SLIPWAY_NODE]", ABSENT, ANYTHING, "All hosts know the name of their node."),
    Row(
        f"{HOST_CONTAINER}.env[HF_HOME]",
        ABSENT,
        {"name": "HF_HOME", "value": "/data/huggingface"},
        "A second replica finds the download of the first; the sample's code passes its cache folder instead.",
    ),
    Row(f"{HOST_CONTAINER}.env[RAY_LOG_TO_STDERR]", ABSENT, ANYTHING, "The pod's log has the replicas' output."),
    Row(f"{HOST_CONTAINER}.env[RAY_BACKEND_LOG_LEVEL]", ABSENT, ANYTHING, "This log has only warnings of Ray itself."),
    Row(f"{HOST_CONTAINER}.env[SLIPWAY_API_KEY]", ABSENT, ANYTHING, "The sample's API has no key."),
    *(
        Row(f"{HOST_CONTAINER}.resources.{part}.ephemeral-storage", "40G", ABSENT, "Kueue would need a quota for it.")
        for part in ("requests", "limits")
    ),
]


def test_the_service_of_kuberays_sample(helm4: Path, tmp_path: Path) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(OURS)
    ours = render(helm4, "vllm-tpu", "serve", file)
    ours["spec"]["serveConfigV2"] = yaml.safe_load(ours["spec"]["serveConfigV2"])
    theirs: dict[str, Any] = renamed(ray_service(VARIABLES), RENAMED)
    assert faults(theirs, ours, TABLE) == []
