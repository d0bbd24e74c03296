"""`explain` of runs that were admitted and do not start, in situations that were not recorded.

Each test changes a recording to what the upstream project would write; a docstring names the source of the text (k8s =
the source of Kubernetes 1.36.2). In tests/cluster/test_explain.py the real scheduler and controllers write the texts
that they can produce there.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from launcher.backends.kubernetes.run_object import RunObject
from launcher.diagnose.explain.finding import Explanation
from launcher.diagnose.explain.rule_order import explain
from launcher.diagnose.explain.situation import Situation
from tests.unit import recorded
from tests.unit.recorded import Recorded, event, stamp

Object = dict[str, Any]
RUN = "no-nodes"


def admitted() -> Recorded:
    """Return a JobSet of 4 hosts of v5e 4x4 that is admitted, but has no nodes (admitted-but-no-nodes)."""
    return recorded.at("admitted-but-no-nodes", 40)


def pods(cluster: Recorded) -> list[Object]:
    return [obj for obj in cluster.objects if obj["kind"] == "Pod"]


def explain_run(cluster: Recorded, name: str = RUN, kind: str = "JobSet", *, later: float = 0) -> Explanation:
    return explain(
        Situation(RunObject.parse(cluster.find(kind, name)), cluster, cluster.now + timedelta(seconds=later))
    )


def placed(cluster: Recorded, waiting: Object | None = None, **container: Any) -> Recorded:
    """Give all pods a node for 20 s; their container is in the state `waiting`, or has the given fields."""
    since = stamp(cluster.now - timedelta(seconds=20))
    for pod in pods(cluster):
        pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": since}]
        state = {"state": {"waiting": waiting}} if waiting else {}
        entry = {"name": "trainer", "image": "example.invalid/trainer:1", "restartCount": 0, **state, **container}
        pod["status"]["containerStatuses"] = [entry]
    return cluster


def unschedulable(cluster: Recorded, message: str) -> Recorded:
    """Set the scheduler's condition on all pods (k8s pkg/scheduler: PodScheduled, reason Unschedulable)."""
    for pod in pods(cluster):
        at = stamp(cluster.now - timedelta(seconds=39))
        pod["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": message,
                "lastTransitionTime": at,
            }
        ]
    return cluster


def slices(cluster: Recorded, taints: list[Object], chips: str = "4", count: int = 4) -> Recorded:
    """Add the nodes of a v5e 4x4 slice."""
    labels = recorded.FLAVORS["v5e-4x4"]
    return cluster.add(
        *(recorded.node(f"big-{index}", labels, taints, {"google.com/tpu": chips}) for index in range(count))
    )


# --- images and settings ------------------------------------------------------------------------------------------

IMAGE = "example.invalid/trainer:1"
BACK_OFF = f'Back-off pulling image "{IMAGE}"'


@pytest.mark.parametrize(
    ("reason", "message", "why", "suggestion"),
    [
        # messages of containerd 2.1 inside those of k8s pkg/kubelet/images/image_manager.go
        (
            "ErrImagePull",
            f'failed to pull and unpack image "{IMAGE}": failed to resolve image: {IMAGE}: not found',
            "the registry has no such image",
            "Correct image.repository, image.tag or image.digest",
        ),
        (
            "ImagePullBackOff",
            f"{BACK_OFF}: ErrImagePull: failed to authorize: failed to fetch oauth token: 403 Forbidden",
            "the registry denies access, and no pull secret is set",
            "image.pullSecrets",
        ),
        (
            "ImagePullBackOff",
            f"{BACK_OFF}: ErrImagePull: dial tcp: lookup example.invalid on 10.96.0.10:53: no such host",
            "the registry's name cannot be resolved",
            "Correct image.repository",
        ),
        (
            "InvalidImageName",
            'Failed to apply default image tag "Trainer:1": couldn\'t parse image name',
            "its name is not valid",
            "Correct image.repository",
        ),
        (
            "ErrImageNeverPull",
            f'Container image "{IMAGE}" is not present with pull policy of Never',
            "it is not on the node, and image.pullPolicy is Never",
            "image.pullPolicy: IfNotPresent",
        ),
    ],
)
def test_an_image_that_cannot_be_pulled(reason: str, message: str, why: str, suggestion: str) -> None:
    explanation = explain_run(placed(admitted(), {"reason": reason, "message": message}))
    assert explanation.headline == f"no-nodes cannot start because the image {IMAGE} cannot be pulled: {why}."
    assert suggestion in explanation.suggestions[0]
    assert explanation.evidence[1].says == "4 of 4 pods wait for it."


def test_an_image_whose_back_off_does_not_say_why() -> None:
    """Older kubelets report only that they wait; the event of the pull has the cause."""
    cluster = placed(admitted(), {"reason": "ImagePullBackOff", "message": BACK_OFF})
    cluster.add(event(cluster, pods(cluster)[0], "Failed", f'Failed to pull image "{IMAGE}": 401 Unauthorized'))
    assert "the registry denies access" in explain_run(cluster).headline


def test_an_image_with_a_wrong_secret() -> None:
    cluster = placed(admitted(), {"reason": "ErrImagePull", "message": "pull access denied"})
    for pod in pods(cluster):
        pod["spec"]["imagePullSecrets"] = [{"name": "registry"}]
    missing = "Unable to retrieve some image pull secrets (registry); attempting to pull the image may not succeed."
    cluster.add(event(cluster, pods(cluster)[0], "FailedToRetrieveImagePullSecret", missing))
    explanation = explain_run(cluster)
    assert "the registry denies access with the pull secrets registry" in explanation.headline
    assert "(missing: registry)" in explanation.suggestions[0]


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ('secret "hugging-face" not found', "there is no Secret hugging-face in the namespace research"),
        ('configmap "settings" not found', "there is no ConfigMap settings in the namespace research"),
        (
            "couldn't find key token in Secret research/hugging-face",
            "the Secret research/hugging-face has no key token",
        ),
    ],
)
def test_missing_settings(message: str, what: str) -> None:
    """k8s pkg/kubelet/kuberuntime: CreateContainerConfigError."""
    explanation = explain_run(placed(admitted(), {"reason": "CreateContainerConfigError", "message": message}))
    assert explanation.headline == f"no-nodes cannot start because the container trainer cannot be created: {what}."


# --- nodes --------------------------------------------------------------------------------------------------------

NO_MATCH = (
    "0/8 nodes are available: 8 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, "
    "preemption: 0/8 nodes are available: 8 Preemption is not helpful for scheduling."
)


def test_a_node_pool_that_grows() -> None:
    """cluster-autoscaler 1.33, processors/status/eventing_scale_up_processor.go."""
    cluster = admitted()
    pod = pods(cluster)[0]
    group = "https://www.googleapis.com/compute/v1/projects/p/zones/z/instanceGroups/gke-c-v5e-4x4-grp"
    cluster.add(
        event(cluster, pod, "NotTriggerScaleUp", "pod didn't trigger scale-up: ", warning=False, ago=5),
        event(
            cluster,
            pod,
            "TriggeredScaleUp",
            f"pod triggered scale-up: [{{{group} 0->4 (max: 4)}}]",
            warning=False,
            ago=30,
        ),
    )
    explanation = explain_run(cluster)
    assert explanation.headline == (
        "no-nodes waits for nodes: 30 s ago the cluster began to add nodes for it (node pool group gke-c-v5e-4x4-grp "
        "from 0 to 4)."
    )


@pytest.mark.parametrize(
    ("reason", "message", "why"),
    [
        (
            "NotTriggerScaleUp",
            "pod didn't trigger scale-up: 2 node(s) didn't match Pod's node affinity/selector, 1 max node group size "
            "reached",
            "its node pool has its maximum number of nodes",
        ),
        (
            "NotTriggerScaleUp",
            "pod didn't trigger scale-up: 3 node(s) didn't match Pod's node affinity/selector",
            "no node pool has machines that fit its pods",
        ),
        (
            "NotTriggerScaleUp",
            "pod didn't trigger scale-up: 1 in backoff after failed scale-up",
            "the cloud has no such machines available, or the project has no quota for them",
        ),
        (
            "FailedScaleUp",
            "Node scale up in zones us-east5-b associated with this pod failed: GCE out of resources.",
            "the cloud has no such machines available, or the project has no quota for them",
        ),
    ],
)
def test_a_node_pool_that_does_not_grow(reason: str, message: str, why: str) -> None:
    cluster = admitted()
    cluster.add(event(cluster, pods(cluster)[0], reason, message, warning=False))
    assert (
        explain_run(cluster).headline == "no-nodes has its quota, but its pods cannot "
        f"be scheduled, and the cluster adds no nodes: {why}."
    )


def test_a_taint_that_is_not_tolerated() -> None:
    """k8s 1.36 does not name the taint ("node(s) had untolerated taint(s)"), so `explain` reads it from the nodes."""
    cluster = unschedulable(
        admitted(), "0/12 nodes are available: 4 node(s) had untolerated taint(s), 8 node(s) didn't match"
    )
    slices(cluster, [recorded.TPU_TAINT, {"key": "team", "value": "search", "effect": "NoSchedule"}])
    explanation = explain_run(cluster)
    assert explanation.headline == (
        "no-nodes has its quota, but its pods cannot be scheduled: they do not tolerate the taint "
        "team=search:NoSchedule of 4 of the 4 matching nodes."
    )
    assert "worker.tolerations.NAME: {key: team, operator: Exists, effect: NoSchedule}" in explanation.suggestions[0]


def test_nodes_that_are_not_ready() -> None:
    cluster = slices(
        unschedulable(admitted(), NO_MATCH), [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    )
    assert explain_run(cluster).headline == (
        "no-nodes has its quota, but its pods cannot be scheduled: 4 of the 4 matching nodes are not usable and have "
        "the taint node.kubernetes.io/not-ready:NoSchedule."
    )


def test_nodes_that_are_in_use() -> None:
    message = (
        "0/12 nodes are available: 4 Insufficient google.com/tpu, 8 node(s) didn't match Pod's node affinity/selector."
    )
    cluster = slices(unschedulable(admitted(), message), [recorded.TPU_TAINT])
    assert explain_run(cluster).headline == (
        "no-nodes has its quota, but its pods cannot be scheduled: none of the 4 matching nodes has enough chips left."
    )


def test_nodes_that_are_too_small() -> None:
    message = (
        "0/12 nodes are available: 4 Insufficient google.com/tpu, 8 node(s) didn't match Pod's node affinity/selector."
    )
    cluster = slices(unschedulable(admitted(), message), [recorded.TPU_TAINT], chips="1")
    assert explain_run(cluster).headline == (
        "no-nodes has its quota, but its pods cannot be scheduled: a pod requests 4 chips, and the largest of the 4 "
        "matching nodes has 1 chip."
    )


def test_another_reason_of_the_scheduler() -> None:
    message = "0/12 nodes are available: 4 node(s) didn't satisfy existing pods anti-affinity rules. preemption: none."
    cluster = slices(unschedulable(admitted(), message), [recorded.TPU_TAINT])
    assert explain_run(cluster).headline == (
        "no-nodes has its quota, but its pods cannot be scheduled: the scheduler finds no node (0/12 nodes are "
        "available: 4 node(s) didn't satisfy existing pods anti-affinity rules)."
    )


def test_nodes_without_permission() -> None:
    cluster = admitted()
    cluster.hidden = {("nodes", "")}
    explanation = explain_run(cluster)
    assert explanation.headline.startswith(
        "no-nodes has its quota, but its pods cannot be scheduled: the scheduler finds no node (0/8"
    )
    assert explanation.evidence[-1].says == "you may not read the Nodes, so this explanation does not include them."


# --- storage ------------------------------------------------------------------------------------------------------


def with_claim(cluster: Recorded, name: str = "checkpoints") -> Recorded:
    for pod in pods(cluster):
        pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    return cluster


def claim(phase: str, name: str = "checkpoints") -> Object:
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "research", "uid": f"uid-{name}"},
        "spec": {"storageClassName": "filestore"},
        "status": {"phase": phase},
    }


def test_a_claim_without_a_volume() -> None:
    """k8s pkg/scheduler/framework/plugins/volumebinding, and the persistent volume controller's event."""
    message = "0/8 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
    cluster = with_claim(unschedulable(admitted(), message)).add(claim("Pending"))
    held = cluster.find("PersistentVolumeClaim", "checkpoints")
    cluster.add(event(cluster, held, "ProvisioningFailed", 'storageclass.storage.k8s.io "filestore" not found'))
    explanation = explain_run(cluster)
    assert explanation.headline == (
        "no-nodes cannot start: its storage, the PersistentVolumeClaim checkpoints, has no volume."
    )
    assert explanation.evidence[1].says == (
        'is Pending, with the storage class filestore: storageclass.storage.k8s.io "filestore" not found.'
    )


def test_a_missing_claim() -> None:
    message = '0/8 nodes are available: persistentvolumeclaim "checkpoints" not found. preemption: none'
    explanation = explain_run(with_claim(unschedulable(admitted(), message)).add(claim("Bound", "data")))
    assert explanation.headline == (
        "no-nodes cannot start: its storage, the PersistentVolumeClaim checkpoints, does not exist."
    )
    assert explanation.suggestions == ("Correct storage.claim (research has data), or create the claim.",)


def test_a_bucket_that_cannot_be_mounted() -> None:
    """The error of the gcsfuse CSI driver, which k8s pkg/kubelet reports (FailedMount)."""
    cluster = placed(admitted(), {"reason": "ContainerCreating"})
    message = (
        'MountVolume.SetUp failed for volume "data" : rpc error: code = PermissionDenied desc = failed to get GCS '
        'bucket "b": googleapi: Error 403: does not have storage.objects.list access'
    )
    explanation = explain_run(cluster.add(event(cluster, pods(cluster)[0], "FailedMount", message)))
    assert explanation.headline == "no-nodes cannot start: its pods cannot mount the volume data."
    assert "roles/storage.objectUser" in explanation.suggestions[0]


# --- crashes ------------------------------------------------------------------------------------------------------


def test_out_of_memory() -> None:
    ended = {"exitCode": 137, "reason": "OOMKilled"}
    cluster = placed(
        admitted(),
        {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"},
        lastState={"terminated": ended},
        restartCount=4,
    )
    explanation = explain_run(cluster)
    assert explanation.headline == (
        "no-nodes does not start: its container trainer needs more memory than its limit and is killed (4 times so "
        "far)."
    )
    assert explanation.suggestions[0].startswith("Increase worker.memory")


def test_a_crash_loop() -> None:
    ended = {"exitCode": 1, "reason": "Error", "message": "Error: no space left on /data\n"}
    cluster = placed(admitted(), {"reason": "CrashLoopBackOff"}, lastState={"terminated": ended}, restartCount=2)
    assert explain_run(cluster).headline == (
        "no-nodes does not start: trainer ended with exit code 1: no space left on /data (2 times so far), and is "
        "restarted."
    )


def test_a_config_that_the_trainer_rejects() -> None:
    """The chart's failure policy ends a JobSet whose trainer exits with 2; the termination message has the reason."""
    cluster = recorded.at("run-fails-after-restarts", 20)
    for pod in pods(cluster):
        ended = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        ended.update(exitCode=2, message="Error: train.steps has to be more than 0.")
    explanation = explain_run(cluster, "fails")
    assert explanation.headline == "fails failed after 1 restart: train.steps has to be more than 0."
    assert explanation.suggestions[0].startswith("The trainer rejects its values")


# --- pods that the API server rejects -----------------------------------------------------------------------------


def rejected_pods(message: str, **more: Any) -> Recorded:
    """Remove the pods and add the Job controller's event (k8s pkg/controller/controller_utils.go: FailedCreate)."""
    cluster = admitted().drop("Pod")
    return cluster.add(
        event(cluster, cluster.find("Job", "no-nodes-slice-0"), "FailedCreate", f"Error creating: {message}")
    )


def test_the_quota_of_the_namespace() -> None:
    """k8s staging/src/k8s.io/apiserver resourcequota admission."""
    cluster = rejected_pods(
        'pods "no-nodes-slice-0-0-abcde" is forbidden: exceeded quota: team, requested: pods=1, used: pods=2, limited: '
        "pods=2"
    )
    quota = {"kind": "ResourceQuota", "metadata": {"name": "team", "namespace": "research", "uid": "q"}, "spec": {}}
    cluster.add({**quota, "status": {"hard": {"pods": "2"}, "used": {"pods": "2"}}})
    explanation = explain_run(cluster)
    assert explanation.headline == (
        "no-nodes has its quota in the queue, but its pods would exceed the ResourceQuota team of the namespace "
        "research: they request pods=1 more, pods=2 is in use, and the limit is pods=2."
    )
    assert explanation.evidence[1].says == "in use: pods 2 of 2."


def test_pod_security() -> None:
    """k8s staging/src/k8s.io/pod-security-admission/admission."""
    explanation = explain_run(
        rejected_pods(
            'pods "no-nodes-slice-0-0-abcde" is forbidden: violates PodSecurity "baseline:latest": privileged '
            '(container "trainer" must not set securityContext.privileged=true), host namespaces (hostNetwork=true)'
        )
    )
    assert explanation.headline == (
        "no-nodes cannot start: the namespace research allows only baseline pods, and its pods violate this "
        "(privileged "
        '(container "trainer" must not set securityContext.privileged=true), host namespaces (hostNetwork=true)).'
    )
    assert (
        explanation.suggestions[0]
        == "Set security.privileged: false and security.hostNetwork: false, and submit it again."
    )


def test_a_webhook_that_does_not_answer() -> None:
    """k8s staging/src/k8s.io/apiserver/pkg/util/webhook/error.go."""
    explanation = explain_run(
        rejected_pods(
            'Internal error occurred: failed calling webhook "vtpu.kb.io": failed to call webhook: Post '
            '"https://tpu-webhook.kube-system.svc:443/mutate?timeout=10s": no endpoints available for service '
            '"tpu-webhook"'
        )
    )
    assert explanation.headline == (
        "no-nodes cannot start: the admission webhook vtpu.kb.io does not answer, so the API server creates no pods "
        "for it."
    )
    assert "kubectl -n kube-system get pods,endpointslices (Service tpu-webhook)" in explanation.suggestions[0]


NO_ACCOUNT = (
    'pods "x" is forbidden: error looking up service account research/research: serviceaccount "research" not found'
)


def test_a_service_account_that_is_missing() -> None:
    """k8s plugin/pkg/admission/serviceaccount."""
    explanation = explain_run(rejected_pods(NO_ACCOUNT))
    assert explanation.headline.startswith(
        'no-nodes cannot start: the API server rejects its pods: pods "x" is forbidden: error looking up'
    )
    assert explanation.suggestions[0].startswith("The service account research is missing: set team.serviceAccount")


def test_an_old_rejection_does_not_count_after_the_pods_were_created() -> None:
    cluster = admitted()
    job = cluster.find("Job", "no-nodes-slice-0")
    cluster.add(event(cluster, job, "FailedCreate", "Error creating: exceeded quota: team, requested: pods=1"))
    assert "no node of the cluster has" in explain_run(cluster).headline


# --- controllers that do not run ----------------------------------------------------------------------------------


def test_no_job_set_controller() -> None:
    cluster = admitted().drop("Pod").drop("Job").drop("Event")
    cluster.find("JobSet", RUN)["status"] = {}
    explanation = explain_run(cluster)
    assert explanation.headline == (
        "no-nodes has been ready to start for 39 s, but JobSet's controller has not processed it and does not seem to "
        "be running."
    )
    assert "kubectl -n jobset-system get pods" in explanation.suggestions[0]


def test_no_kuberay() -> None:
    cluster = recorded.at("rayjob-admitted", 2).drop("Pod").drop("RayCluster").drop("Event")
    cluster.find("RayJob", "rayjob")["status"] = {}
    explanation = explain_run(cluster, "rayjob", "RayJob", later=120)
    assert explanation.headline == (
        "rayjob has been ready to start for 2 min 1 s, but KubeRay's operator has not processed it and does not seem "
        "to be running."
    )


def test_a_cluster_without_nodes() -> None:
    """k8s pkg/scheduler/framework/types.go: NoNodeAvailableMsg of an empty cluster."""
    cluster = unschedulable(admitted().drop("Node"), "no nodes available to schedule pods")
    explanation = explain_run(cluster)
    assert explanation.headline == (
        "no-nodes has its quota, but its pods cannot be scheduled: no node of the cluster has "
        "cloud.google.com/gke-tpu-accelerator=tpu-v5-lite-podslice and cloud.google.com/gke-tpu-topology=4x4."
    )
    assert ("Node", "the cluster has 0 nodes, none with TPUs.") in [
        (item.kind, item.says) for item in explanation.evidence
    ]
