"""Objects that no honest run has: each is an honest object with one change, which the policy of charts/queues refuses.

The message has the path of the field, so that a member who made a mistake knows what to change.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from tests.cluster.attacks import (
    HEAD,
    JOB,
    OF_HEAD,
    OF_JOB,
    OF_WORKER,
    RAY,
    WORKER,
    YEAR,
    Attack,
    add,
    both,
    container,
    groups,
    job,
    of,
    on_service,
    replicas,
)
from tests.cluster.control_plane import ControlPlane
from tests.cluster.pod_attacks import POD_ATTACKS
from tests.cluster.run_policy import Users, installed, set_at, without


@pytest.fixture(scope="module")
def users(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Users]:
    with installed(control_plane, tmp_path_factory.mktemp("attacks")) as found:
        yield found


ATTACKS = [
    # Chips that Kueue does not count.
    Attack("S1 RayJob", "RayJob", replicas(*WORKER, counts=(0, 3, 3)), ".maxReplicas must be equal to replicas"),
    Attack(
        "S1 RayCluster",
        "RayCluster",
        replicas("spec", "workerGroupSpecs", 0, counts=(0, 3, 3)),
        "spec.workerGroupSpecs[0].maxReplicas must be equal",
    ),
    Attack(
        "S1 RayService",
        "RayService",
        replicas("spec", "rayClusterConfig", "workerGroupSpecs", 0, counts=(0, 3, 3)),
        "spec.rayClusterConfig.workerGroupSpecs[0].maxReplicas must be equal",
    ),
    of("RayJob", *WORKER, "maxReplicas", value=40, why=".maxReplicas must be equal to replicas"),
    of("RayJob", *WORKER, "minReplicas", value=0, why=".minReplicas must be equal to replicas"),
    Attack("no maxReplicas", "RayJob", without(*WORKER, "maxReplicas"), ".maxReplicas"),
    of("RayJob", *WORKER, "scaleStrategy", value={"workersToDelete": ["a"]}),
    of("RayJob", *WORKER, "idleTimeoutSeconds", value=1),
    of("RayJob", *WORKER, "suspend", value=True),
    of("RayJob", *WORKER, "priority", value=3),
    of("RayJob", *WORKER, "rayStartParams", value={"num-tpus": "64"}),
    of("RayJob", *WORKER, "rayStartParams", value={"resources": '"{\\"TPU\\": 4}"'}),
    of("RayJob", *WORKER, "resources", value={"TPU": "4"}),
    of("RayJob", *WORKER, "labels", value={"a": "b"}),
    of("RayJob", *HEAD, "rayStartParams", value={"num-cpus": "64"}),
    of("RayJob", *HEAD, "rayStartParams", value={}),
    of("RayJob", *HEAD, "resources", value={"CPU": "4"}),
    of(
        "RayJob",
        *OF_HEAD,
        "containers",
        0,
        "resources",
        "requests",
        "google.com/tpu",
        value="4",
        why="[google.com/tpu]",
    ),
    of("RayJob", *OF_HEAD, "containers", 0, "resources", "limits", "google.com/tpu", value="4", why="[google.com/tpu]"),
    # Numbers that Kueue's sums do not bear.
    Attack("negative replicas", "RayJob", replicas(*WORKER, counts=(-4, -4, -4)), "must be equal to replicas"),
    of("RayJob", *WORKER, "numOfHosts", value=-1, why=".numOfHosts must be 1 or more"),
    Attack(
        "hosts of more than 32 bits",
        "RayJob",
        both(replicas(*WORKER, counts=(65536, 65536, 65536)), set_at(*WORKER, "numOfHosts", value=65536)),
        ".numOfHosts must be 1 or more, and at most 100000 in all slices",
    ),
    of("JobSet", "spec", "replicatedJobs", 0, "replicas", value=200_000, why="must be 0 to 100000"),
    Attack(
        "pods of more than 32 bits",
        "JobSet",
        both(
            set_at("spec", "replicatedJobs", 0, "replicas", value=65536),
            set_at(*JOB, "parallelism", value=65536),
            set_at(*JOB, "completions", value=65536),
        ),
        ".parallelism must be 0 or more, and at most 100000 in all slices",
    ),
    *(
        of(
            "RayJob",
            *OF_HEAD,
            "containers",
            0,
            "resources",
            value={"requests": {"cpu": cpu, "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
            name=f"cpu {cpu}",
            why=".requests[cpu] must be more than 0",
        )
        for cpu in ("0", "-1", "1e12", "0." + 40 * "0" + "1")
    ),
    Attack("no resources", "RayJob", without(*OF_HEAD, "containers", 0, "resources"), ".resources is missing"),
    of(
        "RayJob",
        *OF_HEAD,
        "containers",
        0,
        "resources",
        value={"requests": {"cpu": "1", "memory": "1Gi"}},
        name="no limit",
        why=".resources must have requests",
    ),
    # Objects that are large in other places.
    container("ports", 0, "name", value=900 * "x" + 900 * "y", why=".ports[0].name must have at most 15"),
    container("readinessProbe", value={"httpGet": {"path": 2000 * "x", "port": 80}}, why=".httpGet must have only"),
    job("tolerations", 0, "value", value=2000 * "x", why=".tolerations[0].operator must be Exists or Equal, and not"),
    # S2: chips after the end.
    of("RayJob", "spec", "ttlSecondsAfterFinished", value=YEAR),
    of("RayJob", "spec", "ttlSecondsAfterFinished", value=601),
    of("RayJob", "spec", "shutdownAfterJobFinishes", value=False),
    Attack("no shutdown", "RayJob", without("spec", "shutdownAfterJobFinishes"), "spec.shutdownAfterJobFinishes"),
    of(
        "RayJob",
        "spec",
        "deletionStrategy",
        value={"onSuccess": {"policy": "DeleteNone"}, "onFailure": {"policy": "DeleteNone"}},
    ),
    on_service("rayClusterDeletionDelaySeconds", value=YEAR),
    # S3: chips during the end.
    job("terminationGracePeriodSeconds", value=YEAR),
    of("RayJob", *OF_HEAD, "terminationGracePeriodSeconds", value=601),
    of("RayJob", *OF_WORKER, "terminationGracePeriodSeconds", value=601),
    container("lifecycle", value={"preStop": {"exec": {"command": ["sleep", "infinity"]}}}),
    of("RayJob", *OF_WORKER, "containers", 0, "lifecycle", value={"preStop": {"sleep": {"seconds": 600}}}),
    of(
        "RayJob",
        *OF_WORKER,
        "containers",
        0,
        "lifecycle",
        "postStart",
        value={"tcpSocket": {"host": "169.254.169.254", "port": 80}},
        why=".lifecycle must have only",
    ),
    of("RayJob", *OF_WORKER, "containers", 0, "livenessProbe", "terminationGracePeriodSeconds", value=YEAR),
    # S4.
    of("JobSet", "spec", "suspend", value=False, why="spec.suspend must not be set to false"),
    of("RayJob", "spec", "suspend", value=False, why="spec.suspend must not be set to false"),
    of("RayCluster", "spec", "suspend", value=False, why="spec.suspend must not be set to false"),
    of("RayJob", *RAY, "suspend", value=True),
    on_service(
        "rayClusterConfig", "suspend", value=False, why="spec.rayClusterConfig.suspend must not be set to false"
    ),
    # S7: large objects.
    Attack(
        "large value",
        "JobSet",
        add(*OF_JOB, "containers", 0, "env", item={"name": "X", "value": 600_000 * "x"}),
        "spec: the pod templates of the JobSet have",
    ),
    Attack(
        "large environment",
        "JobSet",
        add(*OF_JOB, "containers", 0, "env", item={"name": "X", "value": 70_000 * "x"}),
        ".containers[0].env must have at most 65536",
    ),
    Attack(
        "many variables",
        "JobSet",
        set_at(*OF_JOB, "containers", 0, "env", value=[{"name": f"X{n}", "value": "y"} for n in range(400)]),
        ".env must have at most 300 items",
    ),
    *(
        Attack(f"large worker groups of a {kind}", kind, groups(*keys), "spec: the pod templates of the")
        for kind, keys in (
            ("RayJob", RAY),
            ("RayCluster", ("spec",)),
            ("RayService", ("spec", "rayClusterConfig")),
        )
    ),
    *(
        Attack(
            f"large {name}",
            "JobSet",
            both(
                set_at(*OF_JOB, "containers", 0, "env", value=[{"name": "X", "value": 60_000 * "x"}]),
                set_at(*OF_JOB, "containers", 0, "command", value=["sh", "-c", 60_000 * "x"]),
                set_at(*JOB, "template", "metadata", "annotations", "slipway.dev/run-config", value=110_000 * "x"),
                set_at(*OF_JOB, *keys, value=value),
            ),
            "spec: the pod templates of the JobSet have",
        )
        for name, keys, value in (
            (
                "secrets",
                ("containers", 0, "env"),
                [
                    {"name": f"{190 * 'x'}{n}", "valueFrom": {"secretKeyRef": {"name": 200 * "x", "key": 200 * "x"}}}
                    for n in range(300)
                ],
            ),
            (
                "affinity",
                ("affinity",),
                {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [
                                        {"key": "example.com/pool", "operator": "In", "values": [60 * "x"] * 32}
                                    ]
                                }
                            ]
                            * 60
                        }
                    }
                },
            ),
        )
    ),
    container("command", value=["sh", "-c", 70_000 * "x"], why=".command must have at most"),
    container("args", value=["x"]),
    of(
        "JobSet",
        *JOB,
        "template",
        "metadata",
        "annotations",
        "slipway.dev/run-config",
        value=130_000 * "x",
        why="annotations[slipway.dev/run-config]",
    ),
    of(
        "JobSet",
        "metadata",
        "annotations",
        value={"slipway.dev/sweep-values": 130_000 * "x"},
        why="metadata.annotations[slipway.dev/sweep-values]",
    ),
    of(
        "JobSet",
        *JOB,
        "template",
        "metadata",
        "labels",
        value={f"a{n}": "b" for n in range(100)},
        why="labels must have at most 64 keys",
    ),
    on_service("serveConfigV2", value=130_000 * "x"),
    of("RayJob", "spec", "entrypoint", value=5000 * "x"),
    # S8: claims.
    of(
        "JobSet",
        "spec",
        "volumeClaimPolicies",
        value=[
            {
                "templates": [
                    {
                        "metadata": {"name": "x"},
                        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "500Ti"}}},
                    }
                ],
                "retentionPolicy": {"whenDeleted": "Retain"},
            }
        ],
    ),
    # Labels and annotations that controllers and policies read.
    of(
        "JobSet",
        *JOB,
        "template",
        "metadata",
        "labels",
        "app.kubernetes.io/component",
        value="kuberay-operator",
        why="labels[app.kubernetes.io/component]",
    ),
    of(
        "JobSet",
        *JOB,
        "template",
        "metadata",
        "labels",
        "slipway.dev/team",
        value="product",
        why="labels[slipway.dev/team]",
    ),
    of(
        "JobSet",
        *JOB,
        "template",
        "metadata",
        "labels",
        "slipway.dev/run",
        value="other",
        why="labels[slipway.dev/run]",
    ),
    of(
        "RayJob",
        *HEAD,
        "template",
        "metadata",
        "labels",
        "ray.io/node-type",
        value="worker",
        why="labels[ray.io/node-type]",
    ),
    of(
        "JobSet",
        *JOB,
        "template",
        "metadata",
        "annotations",
        "kueue.x-k8s.io/podset-preferred-topology",
        value="x",
        why="[kueue.x-k8s.io/podset-preferred-topology]",
    ),
    of(
        "JobSet",
        *JOB,
        "template",
        "metadata",
        "annotations",
        "kueue.x-k8s.io/podset-required-topology",
        value="kubernetes.io/hostname",
        why="[kueue.x-k8s.io/podset-required-topology]",
    ),
    of(
        "JobSet",
        *JOB,
        "template",
        "metadata",
        "annotations",
        "gke-gcsfuse/volumes",
        value="false",
        why="[gke-gcsfuse/volumes]",
    ),
    of(
        "JobSet",
        *JOB,
        "template",
        "metadata",
        "annotations",
        "container.apparmor.security.beta.kubernetes.io/trainer",
        value="unconfined",
        why="annotations[",
    ),
    of("JobSet", *JOB, "template", "metadata", "finalizers", value=["example.com/x"]),
    of("RayJob", *HEAD, "template", "metadata", "namespace", value="policy-product"),
    of("JobSet", "metadata", "labels", "slipway.dev/team", value="product", why="metadata.labels[slipway.dev/team]"),
    of("JobSet", "metadata", "labels", "kueue.x-k8s.io/prebuilt-workload-name", value="x", why="prebuilt-workload"),
    of("JobSet", "metadata", "labels", "kueue.x-k8s.io/max-exec-time-seconds", value="1", why="max-exec-time"),
    of(
        "JobSet",
        "metadata",
        "labels",
        "app.kubernetes.io/component",
        value="kuberay-operator",
        why="metadata.labels[app.kubernetes.io/component]",
    ),
    of(
        "JobSet",
        "metadata",
        "annotations",
        value={"kueue.x-k8s.io/elastic-job": "true"},
        why="metadata.annotations[kueue.x-k8s.io/elastic-job]",
    ),
    of(
        "RayCluster",
        "metadata",
        "annotations",
        value={"kueue.x-k8s.io/elastic-job": "true"},
        why="metadata.annotations[kueue.x-k8s.io/elastic-job]",
    ),
    of(
        "JobSet",
        "metadata",
        "annotations",
        value={"alpha.jobset.sigs.k8s.io/exclusive-topology": "kubernetes.io/hostname"},
        why="exclusive-topology",
    ),
    of(
        "RayJob",
        "metadata",
        "annotations",
        value={"ray.io/ft-enabled": "true"},
        why="metadata.annotations[ray.io/ft-enabled]",
    ),
    of(
        "RayCluster",
        "metadata",
        "annotations",
        value={"ray.io/overwrite-container-cmd": "true"},
        why="overwrite-container-cmd",
    ),
    of("JobSet", "metadata", "finalizers", value=["example.com/x"]),
    Attack(
        "generateName",
        "JobSet",
        both(set_at("metadata", "generateName", value="x-"), without("metadata", "name")),
        "metadata.generateName must be absent",
    ),
    # Other fields of a JobSet.
    of("JobSet", "spec", "managedBy", value="example.com/x"),
    of("JobSet", "spec", "network", value={"enableDNSHostnames": False}),
    of("JobSet", "spec", "network", value={"subdomain": "other"}),
    of("JobSet", "spec", "successPolicy", value={"operator": "Any"}),
    of("JobSet", "spec", "startupPolicy", value={"startupPolicyOrder": "InOrder"}),
    of("JobSet", "spec", "coordinator", value={"replicatedJob": "slice"}),
    of("JobSet", "spec", "failurePolicy", "maxRestarts", value=2000000000),
    of("JobSet", "spec", "failurePolicy", "restartStrategy", value="BlockingRecreate"),
    of(
        "JobSet",
        "spec",
        "failurePolicy",
        "rules",
        value=[{"name": "again", "action": "RestartJobSetAndIgnoreMaxRestarts"}],
    ),
    *(
        of("JobSet", "spec", "failurePolicy", "rules", value=[rule])
        for rule in (
            {"name": "failed", "action": "RestartJobAndIgnoreMaxRestarts"},
            {"name": "failed", "action": "RestartJobSetAndIgnoreMaxRestarts"},
            {"name": "failed", "action": "RestartJob", "targetReplicatedJobs": ["slice"]},
            {"name": "preempted", "action": "RestartJobAndIgnoreMaxRestarts"},
            {
                "name": "preempted",
                "action": "RestartJobAndIgnoreMaxRestarts",
                "onJobFailureReasons": ["BackoffLimitExceeded"],
                "onJobFailureMessagePatterns": ["has condition DisruptionTarget matching"],
            },
        )
    ),
    of("JobSet", "spec", "replicatedJobs", 0, "name", value="other"),
    of("JobSet", "spec", "replicatedJobs", 0, "groupName", value="other"),
    of("JobSet", "spec", "replicatedJobs", 0, "dependsOn", value=[{"name": "slice", "status": "Ready"}]),
    of("JobSet", "spec", "replicatedJobs", 0, "template", "metadata", value={"labels": {"a": "b"}}),
    Attack(
        "two jobs",
        "JobSet",
        lambda obj: obj["spec"]["replicatedJobs"].append({**obj["spec"]["replicatedJobs"][0], "name": "b"}),
        "replicatedJobs must have at most 1 items",
    ),
    of("JobSet", *JOB, "completions", value=1),
    of("JobSet", *JOB, "completionMode", value="NonIndexed"),
    of("JobSet", *JOB, "backoffLimit", value=1000),
    of("JobSet", *JOB, "backoffLimitPerIndex", value=1000),
    of("JobSet", *JOB, "maxFailedIndexes", value=1),
    of("JobSet", *JOB, "suspend", value=True),
    of("JobSet", *JOB, "podReplacementPolicy", value="Failed"),
    of(
        "JobSet",
        *JOB,
        "podFailurePolicy",
        value={"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]},
    ),
    of("JobSet", *JOB, "successPolicy", value={"rules": [{"succeededIndexes": "0"}]}),
    of("JobSet", *JOB, "managedBy", value="example.com/x"),
    of("JobSet", *JOB, "manualSelector", value=True),
    of("JobSet", *JOB, "ttlSecondsAfterFinished", value=YEAR),
    of("JobSet", *JOB, "activeDeadlineSeconds", value=2000000000),
    # Other fields of a RayJob.
    Attack(
        "clusterSelector",
        "RayJob",
        set_at("spec", "clusterSelector", value={"ray.io/cluster": "other"}),
        "spec.clusterSelector must be absent",
    ),
    of("RayJob", "spec", "managedBy", value="kueue.x-k8s.io/multikueue"),
    of("RayJob", "spec", "submissionMode", value="K8sJobMode"),
    of("RayJob", "spec", "submissionMode", value="SidecarMode"),
    Attack("no submissionMode", "RayJob", without("spec", "submissionMode"), "spec.submissionMode"),
    of("RayJob", "spec", "submitterPodTemplate", value={"spec": {"containers": [{"name": "x"}]}}),
    of("RayJob", "spec", "submitterConfig", value={"backoffLimit": 9}),
    of("RayJob", "spec", "entrypointResources", value='{"TPU": 4}'),
    of("RayJob", "spec", "entrypointNumCpus", value=4),
    of("RayJob", "spec", "entrypointNumGpus", value=4),
    of("RayJob", "spec", "runtimeEnvYAML", value="pip: [x]"),
    of("RayJob", "spec", "jobId", value="x"),
    of("RayJob", "spec", "metadata", value={"a": "b"}),
    of("RayJob", "spec", "backoffLimit", value=10),
    of("RayJob", "spec", "activeDeadlineSeconds", value=2000000000),
    of("RayJob", "spec", "preRunningDeadlineSeconds", value=2000000000),
    # Other fields of a Ray cluster.
    of("RayJob", *RAY, "enableInTreeAutoscaling", value=True),
    of("RayCluster", "spec", "enableInTreeAutoscaling", value=True),
    of("RayJob", *RAY, "autoscalerOptions", value={"image": "example.invalid/mine"}, why=".autoscalerOptions.image"),
    of(
        "RayJob",
        *RAY,
        "autoscalerOptions",
        value={"resources": {"limits": {"google.com/tpu": "4"}}},
        why=".autoscalerOptions.resources",
    ),
    of(
        "RayJob",
        *RAY,
        "autoscalerOptions",
        value={"volumeMounts": [{"name": "a", "mountPath": "/b"}]},
        why=".autoscalerOptions.volumeMounts",
    ),
    of("RayJob", *RAY, "gcsFaultToleranceOptions", value={"redisAddress": "redis:6379"}),
    of("RayJob", *RAY, "managedBy", value="kueue.x-k8s.io/multikueue"),
    of("RayJob", *RAY, "networkPolicy", value={"mode": "DenyAll"}),
    of("RayJob", *RAY, "headServiceAnnotations", value={"a": "b"}),
    of("RayJob", *RAY, "upgradeStrategy", value={"type": "Recreate"}),
    of("RayJob", *RAY, "authOptions", "enableK8sTokenAuth", value=True),
    of("RayJob", *HEAD, "serviceType", value="NodePort"),
    of("RayJob", *HEAD, "enableIngress", value=True),
    of("RayJob", *HEAD, "headService", value={"spec": {"externalIPs": ["10.0.0.10"]}}),
    # Other fields of a RayService.
    on_service("serveService", value={"spec": {"type": "LoadBalancer"}}),
    on_service(
        "upgradeStrategy",
        value={
            "type": "NewClusterWithIncrementalUpgrade",
            "clusterUpgradeOptions": {"gatewayClassName": "other", "stepSizePercent": 5, "intervalSeconds": 10},
        },
        why=".clusterUpgradeOptions.gatewayClassName must be",
    ),
    on_service("rayClusterConfig", "headGroupSpec", "serviceType", value="LoadBalancer"),
    on_service("rayClusterConfig", "enableInTreeAutoscaling", value=True),
    on_service("managedBy", value="kueue.x-k8s.io/multikueue"),
    *POD_ATTACKS,
]


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.name for attack in ATTACKS])
def test_a_member_cannot_create(users: Users, attack: Attack) -> None:
    obj = copy.deepcopy(users.objects[attack.kind])
    attack.change(obj)
    refusal = users.attempt(users.alice, obj)
    assert "ValidatingAdmissionPolicy 'x-runs'" in refusal, refusal
    assert attack.why in refusal
