"""The fields of KubeRay's sample for vLLM on one host of TPU v6e, as facts to compare with.

The sample is ray-operator/config/samples/vllm/ray-service.vllm-tpu-v6e-singlehost.yaml of KubeRay. This has
its fields and values, and not its text. serveConfigV2 is parsed. A variable of its tutorial ($VLLM_IMAGE) is filled in.
"""

from __future__ import annotations

from typing import Any

_GCSFUSE = {
    "gke-gcsfuse/volumes": "true",
    "gke-gcsfuse/cpu-limit": "0",
    "gke-gcsfuse/memory-limit": "0",
    "gke-gcsfuse/ephemeral-storage-limit": "0",
}
_OPTIONS = (
    "implicit-dirs",
    "file-cache:enable-parallel-downloads:true",
    "file-cache:parallel-downloads-per-file:100",
    "file-cache:max-parallel-downloads:-1",
    "file-cache:download-chunk-size-mb:10",
    "file-cache:max-size-mb:-1",
)
MOUNT_OPTIONS = ",".join(_OPTIONS)


def _pod(variables: dict[str, str], **container: Any) -> dict[str, Any]:
    hugging_face = {"secretKeyRef": {"name": "hf-secret", "key": "hf_api_token"}}
    env = [
        *container.pop("env", []),
        {"name": "HUGGING_FACE_HUB_TOKEN", "valueFrom": hugging_face},
        {"name": "VLLM_XLA_CACHE_PATH", "value": "/data"},
    ]
    bucket = {"bucketName": variables["bucket"], "mountOptions": MOUNT_OPTIONS}
    return {
        "metadata": {"annotations": dict(_GCSFUSE)},
        "spec": {
            "serviceAccountName": variables["account"],
            "containers": [
                {
                    "image": variables["image"],
                    "imagePullPolicy": "IfNotPresent",
                    "env": env,
                    "volumeMounts": [
                        {"name": "gcs-fuse-csi-ephemeral", "mountPath": "/data"},
                        {"name": "dshm", "mountPath": "/dev/shm"},
                    ],
                    **container,
                }
            ],
            "volumes": [
                {"name": "gke-gcsfuse-cache", "emptyDir": {"medium": "Memory"}},
                {"name": "dshm", "emptyDir": {"medium": "Memory"}},
                {
                    "name": "gcs-fuse-csi-ephemeral",
                    "csi": {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": bucket},
                },
            ],
        },
    }


def ray_service(variables: dict[str, str]) -> dict[str, Any]:
    """Return the RayService; `variables` has image, account, bucket, model, length and dtype."""
    head_amounts = {"cpu": "2", "memory": "8G"}
    host_amounts = {"cpu": "100", "google.com/tpu": "8", "ephemeral-storage": "40G", "memory": "200G"}
    ports = {"gcs": 6379, "dashboard": 8265, "client": 10001, "serve": 8000}
    head = _pod(
        variables,
        name="ray-head",
        ports=[{"name": name, "containerPort": port} for name, port in ports.items()],
        resources={"requests": dict(head_amounts), "limits": dict(head_amounts)},
    )
    host = _pod(
        variables,
        name="ray-worker",
        env=[{"name": "JAX_PLATFORMS", "value": "tpu"}],
        resources={"requests": dict(host_amounts), "limits": dict(host_amounts)},
    )
    host["spec"]["nodeSelector"] = {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "2x4",
    }
    environment = {
        "MODEL_ID": variables["model"],
        "MAX_MODEL_LEN": variables["length"],
        "DTYPE": variables["dtype"],
        "TOKENIZER_MODE": "auto",
        "TPU_CHIPS": "8",
    }
    application = {
        "name": "llm",
        "import_path": "ray-operator.config.samples.vllm.serve_tpu:model",
        "deployments": [{"name": "VLLMDeployment", "num_replicas": 1}],
        "runtime_env": {
            "working_dir": "https://github.com/ray-project/kuberay/archive/master.zip",
            "env_vars": environment,
        },
    }
    group = {
        "groupName": "tpu-group",
        "replicas": 1,
        "minReplicas": 1,
        "maxReplicas": 1,
        "numOfHosts": 1,
        "rayStartParams": {},
        "template": host,
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"name": "vllm-tpu"},
        "spec": {
            "serveConfigV2": {"applications": [application]},
            "rayClusterConfig": {
                "headGroupSpec": {"rayStartParams": {}, "template": head},
                "workerGroupSpecs": [group],
            },
        },
    }
