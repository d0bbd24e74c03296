"""The objects of upstream's installations that the doctor reads, and queues and nodes.

They are like those of Kueue 0.19.2 (config/default, config/components/manager, .../webhook), JobSet 0.12.0
(config/components), KubeRay 1.7.0 (helm-chart/kuberay-operator) and the GKE TPU webhook 1.3 (helm-chart). Their
controllers are not available here: KWOK simulates the pods of the Deployments.
"""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]

# The relevant part of Kueue 0.19.2's controller_manager_config.yaml, with waitForPodsReady and fairSharing set.
KUEUE_CONFIG = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health:
  healthProbeBindAddress: :8081
waitForPodsReady:
  timeout: 2h
fairSharing:
  preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]
integrations:
  frameworks:
  - "batch/job"
  - "ray.io/rayjob"
  - "ray.io/raycluster"
  - "jobset.x-k8s.io/jobset"
  - "pod"
"""


def named(kind: str, api_version: str, name: str, namespace: str = "", **fields: Any) -> Object:
    place = {"namespace": namespace} if namespace else {}
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **place}, **fields}


def deployment(name: str, namespace: str, image: str, *, version: str = "", **pod: Any) -> Object:
    """A controller's Deployment; version: its version label; pod: more fields of the pod's spec."""
    labels = {"app": name}
    own = {"app.kubernetes.io/version": version} if version else {}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": {**labels, **own}},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "manager", "image": image}], **pod},
            },
        },
    }


def kueue(version: str = "v0.19.2", **pod: Any) -> Object:
    volumes = [{"name": "manager-config", "configMap": {"name": "kueue-manager-config"}}]
    image = f"registry.k8s.io/kueue/kueue:{version}"
    return deployment("kueue-controller-manager", "kueue-system", image, volumes=volumes, **pod)


def job_set(version: str = "v0.12.0") -> Object:
    # Upstream's own kustomization has the label of an older version.
    return deployment(
        "jobset-controller-manager", "jobset-system", f"registry.k8s.io/jobset/jobset:{version}", version="0.8.1"
    )


def kuberay(version: str = "v1.7.0", namespace: str = "gke-managed-ray-operator") -> Object:
    return deployment("kuberay-operator", namespace, f"quay.io/kuberay/operator:{version}")


def tpu_webhook() -> Object:
    image = "us-docker.pkg.dev/ai-on-gke/kuberay-tpu-webhook/tpu-webhook:v1.3.5-gke.0@sha256:" + 64 * "0"
    return deployment("kuberay-tpu-webhook", "ray-system", image)


CONTROLLERS = (kueue, job_set, kuberay, tpu_webhook)
# The names of the configurations, and the Services of their webhooks.
HOOKS = {
    ("kueue-mutating-webhook-configuration", "Mutating"): ("kueue-system", "kueue-webhook-service"),
    ("kueue-validating-webhook-configuration", "Validating"): ("kueue-system", "kueue-webhook-service"),
    ("jobset-mutating-webhook-configuration", "Mutating"): ("jobset-system", "jobset-webhook-service"),
    ("jobset-validating-webhook-configuration", "Validating"): ("jobset-system", "jobset-webhook-service"),
    ("kuberay-tpu-webhook-mutating", "Mutating"): ("ray-system", "kuberay-tpu-webhook"),
}


def webhooks() -> list[Object]:
    """Webhook configurations as upstream's, except that their rules match nothing, because no webhook would answer."""
    made = []
    for (name, kind), (namespace, service) in HOOKS.items():
        hook = {
            "name": "m.kb.io",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "clientConfig": {"service": {"namespace": namespace, "name": service, "path": "/"}, "caBundle": _CA},
            "rules": [
                {
                    "apiGroups": ["fake.invalid"],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["nothings"],
                }
            ],
        }
        made.append(named(f"{kind}WebhookConfiguration", "admissionregistration.k8s.io/v1", name, webhooks=[hook]))
    return made


def services() -> list[Object]:
    """The webhooks' Services, which select the pods of the Deployments."""
    behind = {made["metadata"]["namespace"]: made["metadata"]["name"] for made in (build() for build in CONTROLLERS)}
    return [
        named(
            "Service",
            "v1",
            service,
            namespace,
            spec={"ports": [{"port": 443, "targetPort": 9443}], "selector": {"app": behind[namespace]}},
        )
        for namespace, service in sorted(set(HOOKS.values()))
    ]


def config_map(text: str = KUEUE_CONFIG) -> Object:
    return named(
        "ConfigMap", "v1", "kueue-manager-config", "kueue-system", data={"controller_manager_config.yaml": text}
    )


# --- queues, by Kueue's API v1beta2 ----------------------------------------------------------------------------------


def flavor(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    given = {"nodeLabels": labels} if labels else {}
    return named("ResourceFlavor", "kueue.x-k8s.io/v1beta2", name, spec={**given, **spec})


def tpu_flavor(name: str, accelerator: str, topology: str, **spec: Any) -> Object:
    labels = {"cloud.google.com/gke-tpu-accelerator": accelerator, "cloud.google.com/gke-tpu-topology": topology}
    return flavor(name, labels, **spec)


def cluster_queue(name: str, quota: dict[str, dict[str, str]], *, active: str = "", **spec: Any) -> Object:
    """A ClusterQueue with quota by flavor and resource; active: "True", or the reason why not; "": no condition."""
    covered: dict[tuple[str, ...], list[Object]] = {}
    for name_of_flavor, amounts in quota.items():
        entry = {
            "name": name_of_flavor,
            "resources": [{"name": resource, "nominalQuota": amount} for resource, amount in amounts.items()],
        }
        covered.setdefault(tuple(amounts), []).append(entry)
    groups = [{"coveredResources": list(resources), "flavors": entries} for resources, entries in covered.items()]
    made = named(
        "ClusterQueue",
        "kueue.x-k8s.io/v1beta2",
        name,
        spec={"namespaceSelector": {}, "resourceGroups": groups, **spec},
    )
    if active:
        status, _, message = active.partition(": ")
        given = {"type": "Active", "status": "True" if active == "True" else "False"}
        made["status"] = {"conditions": [{**given, "reason": status, "message": message}]}
    return made


def local_queue(name: str, namespace: str, queue: str, active: str = "True") -> Object:
    condition = {"type": "Active", "status": active, "reason": "Ready", "message": "Can submit new workloads"}
    return named(
        "LocalQueue",
        "kueue.x-k8s.io/v1beta2",
        name,
        namespace,
        spec={"clusterQueue": queue},
        status={"conditions": [condition]},
    )


_CA = "Q0E="
