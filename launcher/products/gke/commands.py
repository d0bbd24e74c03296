"""The gcloud and kubectl commands that create, change and delete the resources of a plan.

Source of the flags: the reference of gcloud 528, and the requests that it sends (tests/products/gke/gcloud).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.config import accelerators
from launcher.products.gke import kueue_config
from launcher.products.gke.plan import TEAM_LABEL, Bucket, Member, Plan, Pool

PROJECT_NUMBER = "${PROJECT_NUMBER}"
"""In the arguments of a command: the number of the project, which only Google Cloud knows."""

APIS = (
    "artifactregistry.googleapis.com",
    "compute.googleapis.com",
    "container.googleapis.com",
    "iam.googleapis.com",
    "storage.googleapis.com",
)
NAMESPACE = "slipway"
NODE_ROLE = "roles/container.defaultNodeServiceAccount"
BUCKET_ROLE = "roles/storage.objectUser"
IDENTITY_ROLE = "roles/iam.workloadIdentityUser"
READER_ROLE = "roles/artifactregistry.reader"
DESCRIPTION = "Made by Slipway for the cluster "
"""The description of a service account, which has no labels; the name of the cluster follows."""
_MANIFESTS = {
    "jobset": "https://github.com/kubernetes-sigs/jobset/releases/download/v{}/manifests.yaml",
    "kueue": "https://github.com/kubernetes-sigs/kueue/releases/download/v{}/manifests.yaml",
}
_DEPLOYMENTS = {
    "jobset": ("jobset-system", "jobset-controller-manager"),
    "kueue": ("kueue-system", "kueue-controller-manager"),
}


@dataclass(frozen=True)
class Command:
    """One command. `program` is gcloud, kubectl or launcher; `stdin` is its standard input."""

    program: str
    arguments: tuple[str, ...]
    stdin: str = ""


def gcloud(*arguments: str) -> Command:
    return Command("gcloud", (*arguments, "--quiet"))


# --- the cluster ------------------------------------------------------------------------------------------------


def enable_apis(plan: Plan) -> Command:
    return gcloud("services", "enable", *APIS, f"--project={plan.project}")


def create_cluster(plan: Plan) -> Command:
    """Return the command that creates the cluster with its system pool, or an Autopilot cluster."""
    values = plan.values
    shared = [
        plan.name,
        *_place(plan),
        f"--release-channel={values['releaseChannel']}",
        *([f"--cluster-version={values['version']}"] if values["version"] else []),
        f"--labels={_labels(plan)}",
        f"--service-account={plan.node_account}",
        *_network(values["network"]),
        *([f"--security-group={values['securityGroup']}"] if values["securityGroup"] else []),
    ]
    if plan.autopilot:
        return gcloud(
            *("container", "clusters", "create-auto"),
            *shared,
            *(["--enable-ray-operator"] if values["rayOperator"] else []),
        )
    system = values["system"]
    # gcloud takes the last --addons only, and disables every add-on that the list lacks.
    addons = ["GcsFuseCsiDriver", "GcePersistentDiskCsiDriver"]
    addons += ["HorizontalPodAutoscaling", "HttpLoadBalancing"] if values["serving"] else []
    addons += ["RayOperator"] if values["rayOperator"] else []
    return gcloud(
        *("container", "clusters", "create"),
        *shared,
        f"--machine-type={system['machineType']}",
        f"--num-nodes={system['nodes']}",
        "--enable-autoscaling",
        f"--min-nodes={system['nodes']}",
        f"--max-nodes={system['maxNodes']}",
        f"--addons={','.join(sorted(addons))}",
        f"--workload-pool={plan.project}.svc.id.goog",
        "--workload-metadata=GKE_METADATA",
        "--enable-ip-alias",
        "--enable-dataplane-v2",  # enforces the NetworkPolicies of charts/queues
        "--enable-managed-prometheus",
        "--enable-shielded-nodes",
        "--shielded-secure-boot",
        "--shielded-integrity-monitoring",
        "--autoscaling-profile=optimize-utilization",
        *(["--enable-image-streaming"] if values["imageStreaming"] else []),
        *(["--gateway-api=standard"] if values["serving"] else []),
        *_auto_provisioning(plan),
        *maintenance_flags(plan),
    )


def describe_cluster(plan: Plan) -> Command:
    return gcloud("container", "clusters", "describe", plan.name, *_place(plan))


def enable_addons(plan: Plan, addons: Sequence[str]) -> Command:
    flag = f"--update-addons={','.join(f'{addon}=ENABLED' for addon in addons)}"
    return gcloud("container", "clusters", "update", plan.name, *_place(plan), flag)


def set_maintenance(plan: Plan) -> Command:
    return gcloud("container", "clusters", "update", plan.name, *_place(plan), *maintenance_flags(plan))


def create_router(plan: Plan) -> Command:
    return _router(plan, "create", f"--network={plan.network[1]}", f"--description={DESCRIPTION}{plan.name}.")


def describe_router(plan: Plan) -> Command:
    return _router(plan, "describe")


def delete_router(plan: Plan) -> Command:
    return _router(plan, "delete")


def create_nat(plan: Plan) -> Command:
    """Return the command that creates Cloud NAT for all subnetworks of the region."""
    return _nat(plan, "create", "--auto-allocate-nat-external-ips", "--nat-all-subnet-ip-ranges")


def describe_nat(plan: Plan) -> Command:
    return _nat(plan, "describe")


def _router(plan: Plan, verb: str, *more: str) -> Command:
    place = [f"--project={plan.project}", f"--region={plan.region}"]
    return gcloud("compute", "routers", verb, plan.name, *place, *more)


def _nat(plan: Plan, verb: str, *more: str) -> Command:
    place = [f"--project={plan.project}", f"--region={plan.region}", f"--router={plan.name}"]
    return gcloud("compute", "routers", "nats", verb, plan.name, *place, *more)


def delete_cluster(plan: Plan) -> Command:
    return gcloud("container", "clusters", "delete", plan.name, *_place(plan))


def get_credentials(plan: Plan) -> Command:
    return gcloud("container", "clusters", "get-credentials", plan.name, *_place(plan))


def _place(plan: Plan) -> list[str]:
    return [f"--project={plan.project}", f"--location={plan.location}"]


def _labels(plan: Plan) -> str:
    return _pairs(plan.labels)


def _pairs(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _network(network: Mapping[str, Any]) -> Iterator[str]:
    if network["name"]:
        yield f"--network={network['name']}"
    if network["subnetwork"]:
        yield f"--subnetwork={network['subnetwork']}"
    if network["privateNodes"]:
        yield "--enable-private-nodes"
    if network["authorized"]:
        yield "--enable-master-authorized-networks"
        yield f"--master-authorized-networks={','.join(network['authorized'].values())}"


def _auto_provisioning(plan: Plan) -> Iterator[str]:
    if not plan.limits:
        return
    limits = plan.values["autoProvisioning"]
    yield "--enable-autoprovisioning"
    yield f"--autoprovisioning-service-account={plan.node_account}"
    yield f"--max-cpu={limits['maxCpu']}"
    yield f"--max-memory={limits['maxMemoryGiB']}"
    for accelerator, count in sorted(plan.limits.items()):
        yield f"--max-accelerator=type={accelerator},count={count}"


def maintenance_flags(plan: Plan) -> list[str]:
    window = plan.values["maintenance"]
    if not window["start"]:
        return []
    return [
        f"--maintenance-window-start={window['start']}",
        f"--maintenance-window-end={window['end']}",
        f"--maintenance-window-recurrence={window['recurrence']}",
    ]


# --- node pools -------------------------------------------------------------------------------------------------


def create_pool(plan: Plan, pool: Pool) -> Command:
    return gcloud(
        "container", "node-pools", "create", pool.name, f"--cluster={plan.name}", *_place(plan), *_pool(plan, pool)
    )


def _pool(plan: Plan, pool: Pool) -> Iterator[str]:
    values = plan.values
    if plan.zone and plan.zone != plan.location:
        yield f"--node-locations={plan.zone}"
    yield f"--machine-type={pool.machine_type}"
    if pool.topology:
        yield f"--tpu-topology={pool.topology}"
    if pool.kind == "gpu":
        yield f"--accelerator=type={pool.gpu_label},count={pool.chips_per_host},gpu-driver-version=default"
    yield f"--num-nodes={pool.min_nodes}"
    yield from scaling(pool)
    if not (pool.whole_slice and pool.min_slices):
        yield f"--location-policy={'BALANCED' if pool.kind == 'cpu' else 'ANY'}"
    if pool.provisioning == "spot":
        yield "--spot"
    elif pool.provisioning == "reservation":
        yield "--reservation-affinity=specific"
        yield f"--reservation={pool.reservation}"
    elif pool.provisioning == "flex-start":
        yield "--flex-start"
        if pool.queued:
            yield "--enable-queued-provisioning"
        yield "--reservation-affinity=none"
        yield "--no-enable-autorepair"
        yield f"--max-run-duration={pool.seconds}s"
    if pool.compact:
        yield "--placement-type=COMPACT"
    if pool.disk:
        yield f"--secondary-boot-disk=disk-image={pool.disk},mode=CONTAINER_IMAGE_CACHE"
    if values["imageStreaming"]:
        yield "--enable-image-streaming"
    if pool.node_labels:
        yield f"--node-labels={','.join(f'{key}={value}' for key, value in sorted(pool.node_labels.items()))}"
    if pool.taints:
        yield f"--node-taints={','.join(pool.taints)}"
    yield f"--labels={_labels(plan)}"
    yield f"--service-account={plan.node_account}"
    yield "--workload-metadata=GKE_METADATA"
    yield "--shielded-secure-boot"
    yield "--shielded-integrity-monitoring"


def scaling(pool: Pool) -> list[str]:
    """Return the flags of a pool's autoscaling.

    GKE adds and removes a slice of several hosts as a whole: its pool has 0 or all nodes. A slice that always runs has
    no autoscaling.
    """
    if not pool.whole_slice:
        return ["--enable-autoscaling", f"--total-min-nodes={pool.min_nodes}", f"--total-max-nodes={pool.max_nodes}"]
    return [] if pool.min_slices else ["--enable-autoscaling", "--min-nodes=0", f"--max-nodes={pool.max_nodes}"]


def describe_pool(plan: Plan, name: str) -> Command:
    return gcloud("container", "node-pools", "describe", name, f"--cluster={plan.name}", *_place(plan))


def scale_pool(plan: Plan, pool: Pool) -> Command:
    """Return the command that changes the autoscaling of a pool."""
    flags = scaling(pool) or ["--no-enable-autoscaling"]
    return gcloud("container", "node-pools", "update", pool.name, f"--cluster={plan.name}", *_place(plan), *flags)


def resize_pool(plan: Plan, pool: Pool) -> Command:
    """Return the command that gives a pool the nodes that always run."""
    size = [f"--node-pool={pool.name}", f"--num-nodes={pool.min_nodes}"]
    return gcloud("container", "clusters", "resize", plan.name, *_place(plan), *size)


def delete_pool(plan: Plan, name: str) -> Command:
    return gcloud("container", "node-pools", "delete", name, f"--cluster={plan.name}", *_place(plan))


# --- accounts, bucket, registry ---------------------------------------------------------------------------------


def create_account(plan: Plan, address: str) -> Command:
    name = address.partition("@")[0]
    return gcloud(
        *("iam", "service-accounts", "create", name, f"--project={plan.project}"),
        f"--description={DESCRIPTION}{plan.name}.",
    )


def delete_account(plan: Plan, address: str) -> Command:
    return gcloud("iam", "service-accounts", "delete", address, f"--project={plan.project}")


def grant_node_role(plan: Plan) -> Command:
    return gcloud(
        *("projects", "add-iam-policy-binding", plan.project),
        *(f"--member=serviceAccount:{plan.node_account}", f"--role={NODE_ROLE}", "--condition=None"),
    )


def revoke_node_role(plan: Plan) -> Command:
    return gcloud(
        *("projects", "remove-iam-policy-binding", plan.project),
        *(f"--member=serviceAccount:{plan.node_account}", f"--role={NODE_ROLE}", "--condition=None"),
    )


def identities(plan: Plan, project_number: str) -> str:
    """Return what the principals of the Kubernetes service accounts of the project's clusters begin with."""
    pool = f"projects/{project_number}/locations/global/workloadIdentityPools/{plan.project}.svc.id.goog"
    return f"principal://iam.googleapis.com/{pool}/subject/ns/"


def identity_of(plan: Plan, member: Member) -> str:
    """Return the principal of a team: its Google service account, or its Kubernetes service account itself."""
    if member.google_account:
        return f"serviceAccount:{member.google_account}"
    return f"{identities(plan, PROJECT_NUMBER)}{member.namespace}/sa/{member.account}"


def kubernetes_identity(plan: Plan, member: Member) -> str:
    """Return the member that acts as the Google service account of a team."""
    return f"serviceAccount:{plan.project}.svc.id.goog[{member.namespace}/{member.account}]"


def grant_identity(plan: Plan, member: Member) -> Command:
    account = member.google_account
    return gcloud(
        *("iam", "service-accounts", "add-iam-policy-binding", account, f"--project={project_of(account)}"),
        *(f"--member={kubernetes_identity(plan, member)}", f"--role={IDENTITY_ROLE}", "--condition=None"),
    )


def revoke_identity(account: str, member: str) -> Command:
    return gcloud(
        *("iam", "service-accounts", "remove-iam-policy-binding", account, f"--project={project_of(account)}"),
        *(f"--member={member}", f"--role={IDENTITY_ROLE}", "--condition=None"),
    )


def project_of(account: str) -> str:
    """Return the project of a service account's address: the part between @ and the domain."""
    return account.partition("@")[2].partition(".")[0]


def create_bucket(plan: Plan, bucket: Bucket) -> Command:
    values = plan.values["bucket"]
    return gcloud(
        *("storage", "buckets", "create", f"gs://{bucket.name}", f"--project={plan.project}"),
        f"--location={plan.bucket_location}",
        "--uniform-bucket-level-access",
        "--public-access-prevention",
        f"--soft-delete-duration={values['softDeleteDays']}d",
        *(["--enable-hierarchical-namespace"] if values["hierarchicalNamespace"] else []),
    )


def describe_bucket(bucket: Bucket) -> Command:
    return gcloud("storage", "buckets", "describe", f"gs://{bucket.name}")


def bucket_labels(plan: Plan, bucket: Bucket) -> dict[str, str]:
    return {**plan.labels, **({TEAM_LABEL: bucket.team} if bucket.team else {})}


def label_bucket(plan: Plan, bucket: Bucket) -> Command:
    """Return the command that labels the bucket; its creation takes no labels."""
    labels = _pairs(bucket_labels(plan, bucket))
    return gcloud("storage", "buckets", "update", f"gs://{bucket.name}", f"--update-labels={labels}")


def grant_bucket(plan: Plan, bucket: Bucket, member: Member) -> Command:
    return gcloud(
        *("storage", "buckets", "add-iam-policy-binding", f"gs://{bucket.name}"),
        *(f"--member={identity_of(plan, member)}", f"--role={BUCKET_ROLE}"),
    )


def revoke_bucket(bucket: str, member: str) -> Command:
    return gcloud(
        *("storage", "buckets", "remove-iam-policy-binding", f"gs://{bucket}"),
        *(f"--member={member}", f"--role={BUCKET_ROLE}"),
    )


def delete_bucket(bucket: str) -> Command:
    return gcloud("storage", "rm", "--recursive", f"gs://{bucket}")


def create_registry(plan: Plan) -> Command:
    return gcloud(
        *("artifacts", "repositories", "create", plan.registry, f"--project={plan.project}"),
        *(f"--location={plan.registry_location}", "--repository-format=docker", f"--labels={_labels(plan)}"),
    )


def describe_registry(plan: Plan) -> Command:
    place = [f"--project={plan.project}", f"--location={plan.registry_location}"]
    return gcloud("artifacts", "repositories", "describe", plan.registry, *place)


def grant_registry(plan: Plan) -> Command:
    return gcloud(
        *("artifacts", "repositories", "add-iam-policy-binding", plan.registry, f"--project={plan.project}"),
        *(f"--location={plan.registry_location}", f"--member=serviceAccount:{plan.node_account}"),
        f"--role={READER_ROLE}",
    )


def delete_registry(plan: Plan) -> Command:
    place = [f"--project={plan.project}", f"--location={plan.registry_location}"]
    return gcloud("artifacts", "repositories", "delete", plan.registry, *place)


# --- inside the cluster -----------------------------------------------------------------------------------------


def context(plan: Plan) -> str:
    """Return the context that gcloud writes into the kubeconfig."""
    return f"gke_{plan.project}_{plan.location}_{plan.name}"


def apply_controller(plan: Plan, name: str) -> Command:
    address = _MANIFESTS[name].format(plan.values["controllers"][name])
    return _kubectl(plan, "apply", "--server-side", "--force-conflicts", "-f", address)


def controller_image(plan: Plan, name: str) -> str:
    """Return the image of a controller in the registry of the values; "" if its manifests have the image."""
    registry, version = plan.values["controllerImages"], plan.values["controllers"][name]
    return f"{registry}/{name}/{name}:v{version}" if registry else ""


def set_controller_image(plan: Plan, name: str) -> Command:
    namespace, deployment = _DEPLOYMENTS[name]
    image = f"*={controller_image(plan, name)}"
    return _kubectl(plan, "set", "image", f"deployment/{deployment}", image, "-n", namespace)


def wait_for_controller(plan: Plan, name: str) -> Command:
    namespace, deployment = _DEPLOYMENTS[name]
    return _kubectl(plan, "rollout", "status", f"deployment/{deployment}", "-n", namespace, "--timeout=10m")


def apply_kueue_config(plan: Plan, text: str) -> Command:
    arguments = ("apply", "--server-side", "--force-conflicts", "--field-manager=slipway", "-f", "-")
    return _kubectl(plan, *arguments, stdin=json.dumps(kueue_config.config_map(text), indent=2))


def restart_kueue(plan: Plan, text: str) -> Command:
    """Restart Kueue, unless it has read this configuration."""
    namespace, deployment = _DEPLOYMENTS["kueue"]
    annotations = {kueue_config.ANNOTATION: kueue_config.digest(text)}
    patch = json.dumps({"spec": {"template": {"metadata": {"annotations": annotations}}}})
    return _kubectl(plan, "patch", f"deployment/{deployment}", "-n", namespace, "--type=merge", f"--patch={patch}")


def deployment_of(name: str) -> tuple[str, str]:
    """Return the namespace and the Deployment of a controller."""
    return _DEPLOYMENTS[name]


def apply_classes(plan: Plan) -> Command:
    classes = {"apiVersion": "v1", "kind": "List", "items": list(compute_classes(plan))}
    return _kubectl(plan, "apply", "--server-side", "-f", "-", stdin=json.dumps(classes, indent=2))


def _specific(name: str, over: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reservation of a ComputeClass, with its project, block and sub-block if the values name them."""
    reservation: dict[str, Any] = {"name": name}
    if over.get("reservationProject"):
        reservation["project"] = over["reservationProject"]
    if over.get("reservationBlock"):
        reservation["reservationBlock"] = {"name": over["reservationBlock"]}
        if over.get("reservationSubBlock"):
            reservation["reservationBlock"]["reservationSubBlock"] = {"name": over["reservationSubBlock"]}
    return reservation


def compute_classes(plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield the ComputeClass of each flavor with accelerators: on Autopilot, GKE makes nodes by it."""
    for name, flavor in plan.queues["flavors"].items():
        if flavor is None or not flavor.get("create", True):
            continue
        slice_ = accelerators.of_flavor(flavor, plan.queues)
        row = plan.queues["common"]["accelerators"][slice_.accelerator]
        if slice_.kind == "cpu":
            continue
        rule: dict[str, Any] = (
            {"tpu": {"type": row["label"], "count": slice_.chips_per_host, "topology": slice_.topology}}
            if slice_.kind == "tpu"
            else {"gpu": {"type": row["label"], "count": slice_.chips_per_host}, "machineType": slice_.machine_type}
        )
        provisioning = flavor.get("provisioning") or "on-demand"
        if provisioning == "spot":
            rule["spot"] = True
        elif provisioning == "reservation":
            specific = _specific(flavor["reservation"], plan.values["pools"].get(name) or {})
            rule["reservations"] = {"affinity": "Specific", "specific": [specific]}
        elif provisioning == "flex-start":
            rule["flexStart"] = {"enabled": True}
        yield {
            "apiVersion": "cloud.google.com/v1",
            "kind": "ComputeClass",
            "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "slipway"}},
            "spec": {
                "priorities": [rule],
                "nodePoolAutoCreation": {"enabled": True},
                "whenUnsatisfiable": "DoNotScaleUp",
            },
        }


def apply_namespace(plan: Plan) -> Command:
    """Return the command that creates the namespace of the release of the queues."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    return _kubectl(plan, "apply", "--server-side", "-f", "-", stdin=json.dumps(namespace))


def install_queues(plan: Plan) -> Command:
    options = ("--context", context(plan), "-n", NAMESPACE, "--yes", "-f", "-")
    return Command("launcher", ("install", "queues", *options), json.dumps(dict(plan.queues_user), indent=2))


def _kubectl(plan: Plan, *arguments: str, stdin: str = "") -> Command:
    return Command("kubectl", ("--context", context(plan), *arguments), stdin)
