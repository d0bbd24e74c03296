"""The check against schemas accepts what real API servers accepted, and reports every kind of mistake."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.charts import schemas
from tests.cluster import recordings
from tests.tools import openapi

POD = """
      metadata: {labels: {app: demo}}
      spec:
        restartPolicy: Never
        tolerations: [{key: google.com/tpu, operator: Exists, effect: NoSchedule}]
        volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 1Gi}}]
        containers:
          - name: main
            image: example.com/image:1
            ports: [{containerPort: 8471}]
            volumeMounts: [{name: shm, mountPath: /dev/shm}]
            resources: {limits: {google.com/tpu: 4, cpu: 1500m}, requests: {google.com/tpu: 4}}
            readinessProbe: {httpGet: {path: /, port: 8265}, periodSeconds: 5}
"""
RAY_CLUSTER = f"""
  headGroupSpec:
    rayStartParams: {{}}
    template: {POD.replace(chr(10), chr(10) + "  ")}
  workerGroupSpecs:
  - groupName: slices
    replicas: 1
    minReplicas: 0
    maxReplicas: 1
    numOfHosts: 4
    rayStartParams: {{}}
    template: {POD.replace(chr(10), chr(10) + "  ")}
"""
GOOD = {
    "RayCluster": "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: a}\nspec:" + RAY_CLUSTER,
    "RayJob": (
        "apiVersion: ray.io/v1\nkind: RayJob\nmetadata: {name: a}\n"
        "spec:\n  entrypoint: python x\n  backoffLimit: 1\n  submissionMode: HTTPMode\n  rayClusterSpec:"
        + RAY_CLUSTER.replace("\n", "\n  ")
    ),
    "JobSet": (
        "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: a}\n"
        "spec:\n  failurePolicy: {maxRestarts: 4}\n  replicatedJobs:\n  - name: slice\n    replicas: 2\n"
        "    template:\n      spec:\n        parallelism: 4\n        completions: 4\n        backoffLimit: 0\n"
        "        template:" + POD.replace("\n", "\n      ")
    ),
    "ResourceFlavor": """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: v5e}
spec:
  nodeLabels: {cloud.google.com/gke-tpu-topology: 2x4}
  topologyName: tpu
  tolerations: [{key: google.com/tpu, operator: Exists}]
""",
    "ClusterQueue": """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: all}
spec:
  namespaceSelector: {}
  cohortName: all
  preemption: {reclaimWithinCohort: Any, withinClusterQueue: LowerPriority}
  resourceGroups:
    - coveredResources: [google.com/tpu]
      flavors: [{name: v5e, resources: [{name: google.com/tpu, nominalQuota: 24, borrowingLimit: 8}]}]
""",
    "LocalQueue": "{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: a, namespace: b},"
    " spec: {clusterQueue: all}}",
    "Cohort": "{apiVersion: kueue.x-k8s.io/v1beta2, kind: Cohort, metadata: {name: a}, spec: {parentName: all}}",
    "Topology": "{apiVersion: kueue.x-k8s.io/v1beta2, kind: Topology, metadata: {name: a},"
    " spec: {levels: [{nodeLabel: block}, {nodeLabel: kubernetes.io/hostname}]}}",
    "WorkloadPriorityClass": "{apiVersion: kueue.x-k8s.io/v1beta2, kind: WorkloadPriorityClass, metadata: {name: a},"
    " value: 100}",
    "AdmissionCheck": "{apiVersion: kueue.x-k8s.io/v1beta2, kind: AdmissionCheck, metadata: {name: a},"
    " spec: {controllerName: kueue.x-k8s.io/provisioning-request,"
    " parameters: {apiGroup: kueue.x-k8s.io, kind: ProvisioningRequestConfig, name: a}}}",
    "Namespace": "{apiVersion: v1, kind: Namespace, metadata: {name: a, labels: {x: y}}}",
    "ServiceAccount": "{apiVersion: v1, kind: ServiceAccount, metadata: {name: a},"
    " automountServiceAccountToken: false}",
    "ResourceQuota": "{apiVersion: v1, kind: ResourceQuota, metadata: {name: a}, spec: {hard: {pods: 10, cpu: 1.5}}}",
    "Role": "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: a},"
    " rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]}",
    "RoleBinding": "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a},"
    " subjects: [{kind: ServiceAccount, name: a}],"
    " roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: a}}",
    "PriorityClass": "{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: a}, value: 5}",
    "NetworkPolicy": """
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: a}
spec:
  podSelector: {}
  policyTypes: [Ingress, Egress]
  ingress: [{from: [{podSelector: {}}]}]
  egress: [{ports: [{port: 53, protocol: UDP}, {port: https}]}]
""",
    "Pod": "apiVersion: v1\nkind: Pod" + POD.replace("metadata: {", "metadata: {name: a, ").replace("\n      ", "\n"),
}
HEAD = "spec.headGroupSpec.template"
WORKER = "spec.rayClusterSpec.workerGroupSpecs.0.template.spec"
JOB_POD = "spec.replicatedJobs.0.template.spec.template.spec"
QUEUE = "spec.resourceGroups.0.flavors.0.resources.0"
REMOVED: Any = object()
# (kind, path and new value of the broken field, a text that one of the sentences must contain)
BROKEN: list[tuple[str, str, Any, str]] = [
    (
        "RayCluster",
        f"{HEAD}.spec.containers.0.imagePullPolice",
        "Always",
        "imagePullPolice is an unknown field; near: ",
    ),
    ("RayCluster", f"{HEAD}.metadata.lables", {}, "template.metadata.lables is an unknown field; near: labels."),
    ("RayCluster", f"{HEAD}.spec.containers.0.image", REMOVED, "containers main has no image."),
    ("RayCluster", f"{HEAD}.spec.containers.0.name", REMOVED, "containers[0] lacks name."),
    ("RayCluster", f"{HEAD}.spec.volumes.0.hostPath", {"path": "/"}, "volumes has shm with 2 sources; it takes one."),
    ("RayCluster", f"{HEAD}.spec.containers.0.volumeMounts.0.name", "sh", "mounts sh, which is no volume of the pod."),
    ("RayCluster", "spec.headGroupSpec", REMOVED, "spec lacks headGroupSpec."),
    ("RayCluster", "spec.workerGroupSpecs.0.numOfHosts", "4", "numOfHosts is '4', not of type integer."),
    ("RayCluster", "spec.workerGroupSpecs.0.replicas", 2**31, "replicas is 2147483648; its maximum is 2147483647."),
    ("RayCluster", "spec.workerGroupSpecs.0.rayStartParams", {"a": 1}, "rayStartParams.a is 1, not of type string."),
    ("RayCluster", "metadata.finalizer", [], "metadata.finalizer is an unknown field; near: finalizers."),
    ("RayCluster", "metadata.labels", {"a": "b c"}, "metadata.labels.a is 'b c', which is no label's value."),
    ("RayCluster", "metadata.annotations", {"a": 1}, "metadata.annotations.a is 1, not of type string."),
    ("RayCluster", "spec.managedBy", "me", "spec.managedBy breaks a rule: "),
    ("RayJob", f"{WORKER}.containers.0.resources.limits.cpu", "1 core", "cpu is '1 core'; its pattern is "),
    (
        "RayJob",
        f"{WORKER}.containers.0.resources.limits",
        {"google.com/tpu": 8},
        "requests 4 of google.com/tpu and limi",
    ),
    ("RayJob", f"{WORKER}.restartPolicy", "Sometimes", "restartPolicy is 'Sometimes', not one of Always"),
    ("RayJob", f"{WORKER}.tolerations.0.effect", "NoScheduling", "tolerations[0].effect is 'NoScheduling', not one"),
    ("RayJob", f"{WORKER}.imagePullSecrets", None, "imagePullSecrets is None, not of type array."),
    ("RayJob", "spec.deletionStrategy", {}, "spec.deletionStrategy breaks a rule: "),
    ("RayJob", "spec.suspend", "no", "spec.suspend is 'no', not of type boolean."),
    ("JobSet", "spec.replicatedJobs.0.template.spec.paralelism", 1, "paralelism is an unknown field; near: parallel"),
    ("JobSet", "spec.failurePolicy.maxRestarts", "4", "maxRestarts is '4', not of type integer."),
    (
        "JobSet",
        f"{JOB_POD}.containers.0.ports.0.containerPort",
        "8471",
        "containerPort is '8471', not of type integer.",
    ),
    ("JobSet", f"{JOB_POD}.containers.0.image", "", "containers main has no image."),
    ("JobSet", "metadata.name", "A_b", "metadata.name is 'A_b', not a name"),
    ("ResourceFlavor", "spec.nodeLabels", {}, "spec breaks a rule: "),
    ("ResourceFlavor", "spec.tolerations.0.value", "x", "spec.tolerations breaks a rule: "),
    ("ClusterQueue", "spec.cohortName", REMOVED, "spec breaks a rule: "),
    ("ClusterQueue", "spec.cohort", "all", "spec.cohort is an unknown field; near: cohortName."),
    ("ClusterQueue", "spec.preemption", {"withinClusterQueue": "Lower"}, "withinClusterQueue is 'Lower', not one of"),
    ("ClusterQueue", f"{QUEUE}.nominalQuota", REMOVED, "resources[0] lacks nominalQuota."),
    ("ClusterQueue", f"{QUEUE}.nominalQuota", [24], "nominalQuota is [24], not of type integer or string."),
    (
        "ClusterQueue",
        "spec.resourceGroups.0.coveredResources",
        ["cpu", "google.com/tpu"],
        "spec.resourceGroups[0] breaks a rule: ",
    ),
    ("LocalQueue", "spec.clusterQueue", "A b", "spec.clusterQueue is 'A b'; its pattern is "),
    (
        "LocalQueue",
        "apiVersion",
        "kueue.x-k8s.io/v1",
        "is no kind that it serves as kueue.x-k8s.io/v1. (Kueue 0.16.9, ",
    ),
    ("Cohort", "spec.parent", "all", "spec.parent is an unknown field; near: parentName."),
    ("Topology", "spec.levels", [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "b"}], "breaks a rule: "),
    ("WorkloadPriorityClass", "value", REMOVED, "it lacks value."),
    ("AdmissionCheck", "spec.parameters.name", REMOVED, "spec.parameters lacks name."),
    ("Namespace", "metadata", REMOVED, "metadata is missing."),
    ("Namespace", "spec", {"finalizer": []}, "spec.finalizer is an unknown field; near: finalizers."),
    ("ServiceAccount", "automountServiceAccountToken", "false", "is 'false', not of type boolean."),
    ("ResourceQuota", "spec.hard.pods", "ten", "spec.hard.pods is 'ten', no quantity."),
    ("Role", "rules.0.verbs", REMOVED, "rules[0] lacks verbs."),
    ("Role", "rules.0.resource", ["pods"], "rules[0].resource is an unknown field; near: resources."),
    ("RoleBinding", "roleRef.kind", "role", "roleRef.kind is 'role', not one of ClusterRole, Role."),
    ("RoleBinding", "roleRef", REMOVED, "it lacks roleRef."),
    ("PriorityClass", "value", 2**40, "value is 1099511627776; its maximum is 2147483647."),
    ("NetworkPolicy", "spec.egress.0.ports.0.protocol", "udp", "protocol is 'udp', not one of SCTP, TCP, UDP."),
    ("NetworkPolicy", "spec.ingress.0.from.0.podSelectors", {}, "podSelectors is an unknown field; near: podSelector."),
    ("Pod", "spec.hostnetwork", True, "spec.hostnetwork is an unknown field; near: hostNetwork."),
    ("Pod", "spec.containers.0.env", [{"name": "A"}, {"name": "A"}], "env holds the same item twice: {'name': 'A'}."),
    (
        "Pod",
        "kind",
        "Pot",
        "is no kind that it serves as v1. (Kubernetes 1.33, Kubernetes 1.34, Kubernetes 1.35, Kubernetes 1.36)",
    ),
]


def good(kind: str) -> Any:
    (obj,) = schemas.objects(GOOD[kind])
    return obj


@pytest.mark.parametrize("kind", GOOD)
def test_a_good_object_passes(kind: str) -> None:
    assert schemas.validate(good(kind)) == []


@pytest.mark.parametrize(("kind", "path", "value", "message"), BROKEN)
def test_a_broken_object_is_reported(kind: str, path: str, value: Any, message: str) -> None:
    obj = good(kind)
    set_field(obj, path, value)
    sentences = schemas.validate(obj)
    assert any(message in sentence for sentence in sentences), sentences


def test_every_kind_is_broken_in_some_way() -> None:
    assert {kind for kind, *_ in BROKEN} == set(GOOD)


def set_field(obj: Any, path: str, value: Any) -> None:
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in parents:
        obj = obj[part]
    if value is REMOVED:
        del obj[last]
    else:
        obj[last] = value


def test_rules_apply_to_the_defaults() -> None:
    """The defaults break Kueue's rule on preemption; the object without its defaults would not."""
    queue = good("ClusterQueue")
    queue["spec"]["preemption"] = {"borrowWithinCohort": {"policy": "LowerPriority"}}
    (sentence,) = schemas.validate(queue)
    assert "spec.preemption breaks a rule: " in sentence
    assert "(Kueue 0.16.9, Kueue 0.17.8, Kueue 0.18.6, Kueue 0.19.2)" in sentence


def test_it_reports_which_versions_reject() -> None:
    cluster = good("RayCluster")
    cluster["spec"]["workerGroupSpecs"][0]["priority"] = 5
    (sentence,) = schemas.validate(cluster)
    assert sentence.endswith("priority is an unknown field. (KubeRay 1.5.2, KubeRay 1.6.2)")


def test_objects_of_real_servers_pass() -> None:
    """The recordings are from a cluster with the newest version of each project; older versions lack one field."""
    kinds = set()
    for name in recordings.names():
        latest = {}
        for change in recordings.read(name):
            for obj in recorded(change.obj):
                latest[obj["kind"], obj["metadata"]["name"]] = obj
        for obj in latest.values():
            kinds.add(obj["kind"])
            spec = {key: value for key, value in obj.items() if key != "status"}
            sentences = schemas.validate(spec)
            assert all("priority is an unknown field. (KubeRay 1.5.2, KubeRay 1.6.2)" in it for it in sentences), (
                sentences
            )
    assert kinds >= {"RayJob", "RayCluster", "JobSet", "ClusterQueue", "LocalQueue", "Workload", "Pod", "Job"}


def recorded(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict) and "spec" in node and "name" in node.get("metadata", {}) and "kind" in node:
        yield copy.deepcopy(node)
    elif isinstance(node, (dict, list)):
        for child in node.values() if isinstance(node, dict) else node:
            yield from recorded(child)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("---\n# a comment\n---\n{a: 2024-01-01}\n", [{"a": "2024-01-01"}]),
        ("a: 1\n---\nb: 010\n", [{"a": 1}, {"b": 8}]),
    ],
)
def test_manifests_are_read_as_kubernetes_reads_them(text: str, found: list[Any]) -> None:
    assert schemas.objects(text) == found


def test_a_duplicate_key_is_an_error() -> None:
    with pytest.raises(yaml.YAMLError, match="a key is given twice"):
        schemas.objects("a: {b: 1, c: 2, b: 3}")


def test_the_supported_versions_are_those_of_the_folders() -> None:
    assert set(schemas.supported()) == {"KubeRay", "Kueue", "JobSet", "Kubernetes"}
    for group, project in schemas.PROJECTS.items():
        lowest, highest = schemas.supported()[project]
        assert {lowest, highest} <= set(schemas.versions(group))
    assert schemas.supported()["Kubernetes"] == ("1.33", "1.36")


def test_a_module_other_than_the_pinned_one_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path))
    monkeypatch.setitem(openapi.VERSIONS, "1.36", ("v1.36.2", "h1:another"))
    with pytest.raises(RuntimeError, match=r"v1\.36\.2 is not the module that was pinned"):
        openapi.swagger("1.36")


def test_every_set_of_values_belongs_to_a_field() -> None:
    for minor in openapi.VERSIONS:
        fields = {
            (name.rpartition(".")[2], key)
            for name, schema in openapi.definitions(minor).items()
            for key in schema.get("properties", {})
        }
        assert set(schemas.ENUMS) <= fields
