"""terraform.py of the product gke declares valid resources of the provider, the same ones as the commands of gcloud."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from launcher.products.gke import commands, terraform
from launcher.products.gke.commands import Command
from launcher.products.gke.plan import Plan, Pool
from tests.products.gke.clusters import FILES, plan_of
from tests.products.gke.terraform_check import problems

Tree = dict[str, Any]
SCOPES = [
    "https://www.googleapis.com/auth/devstorage.read_only",
    "https://www.googleapis.com/auth/logging.write",
    "https://www.googleapis.com/auth/monitoring",
    "https://www.googleapis.com/auth/service.management.readonly",
    "https://www.googleapis.com/auth/servicecontrol",
    "https://www.googleapis.com/auth/trace.append",
]
SHIELDED = {"enable_secure_boot": True, "enable_integrity_monitoring": True}
MANAGED = {"auto_repair": True, "auto_upgrade": True}


def declared(name: str) -> Tree:
    """Return the document of a cluster as Terraform reads it."""
    document: Tree = json.loads(json.dumps(terraform.document(plan_of(name))))
    return document


# --- the schema of the provider ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_the_provider_accepts_the_document(name: str) -> None:
    assert problems(declared(name)) == []


def test_every_pool_of_the_plan_is_declared() -> None:
    names = {pool["name"] for pool in declared("every")["resource"]["google_container_node_pool"].values()}
    assert names == {"default-pool", *(pool.name for pool in plan_of("every").pools)}
    assert "google_container_node_pool" not in declared("autopilot")["resource"]


def _bad(path: str, value: Any) -> Tree:
    """Return the document of `small` with another value at a path of its resources; None removes the key."""
    document = declared("small")
    node = document["resource"]
    *above, last = path.split(".")
    for key in above:
        node = node[key]
    if value is None:
        del node[last]
    else:
        node[last] = copy.deepcopy(value)
    return document


CLUSTER = "google_container_cluster.cluster"
POOL = "google_container_node_pool.pool-v6e-4x4-1"
THIRD = POOL.replace("-1", "-3")  # has autoscaling
BUCKET = "google_storage_bucket.bucket-research"


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("google_container_pool", {"a": {}}, "google_container_pool.a: unknown type"),
        (f"{POOL}.topology", "4x4", f"{POOL}.topology: unknown argument"),
        (f"{POOL}.node_config.spott", True, f"{POOL}.node_config.spott: unknown argument"),
        (f"{CLUSTER}.endpoint", "192.0.2.1", f"{CLUSTER}.endpoint: unknown argument"),  # read-only
        (f"{POOL}.initial_node_count", "8", f"{POOL}.initial_node_count: '8' is not a number"),
        (f"{POOL}.initial_node_count", True, f"{POOL}.initial_node_count: True is not a number"),
        (f"{POOL}.node_config.spot", 1, f"{POOL}.node_config.spot: 1 is not a bool"),
        (f"{POOL}.node_locations", "us-east5-b", f"{POOL}.node_locations: 'us-east5-b' is not a list"),
        (f"{BUCKET}.labels.a", 1, f"{BUCKET}.labels.a: 1 is not a string"),
        (f"{BUCKET}.versioning", True, f"{BUCKET}.versioning: True is not a block"),
        (f"{POOL}.autoscaling", [{}, {}], f"{POOL}.autoscaling: more than 1 blocks"),
        (f"{BUCKET}.location", None, f"{BUCKET}.location: missing"),
        (f"{POOL}.placement_policy.type", None, f"{POOL}.placement_policy.type: missing"),
        (f"{CLUSTER}.master_auth", {}, f"{CLUSTER}.master_auth.client_certificate_config: missing"),
        (f"{THIRD}.lifecycle.ignore_changes", ["nodes"], f"{THIRD}.lifecycle: unknown nodes"),
        (f"{POOL}.cluster", "${google_container_cluster.c.name}", "google_container_cluster.c.name is not declared"),
        (f"{POOL}.cluster", f"${{{CLUSTER}.title}}", f"{CLUSTER}.title is not an attribute"),
        (f"{POOL}.cluster", "${var.cluster}", "var.cluster is not declared"),
        (f"{POOL}.cluster", f"${{{CLUSTER}.master_auth[0].key}}", f"{CLUSTER}.master_auth[0].key is not an attribute"),
        (f"{BUCKET}.depends_on", ["google_project_service.gcs"], "google_project_service.gcs is not declared"),
        (f"{CLUSTER}.network", "${google_container_node_pool.system.name}", "a cycle"),
    ],
)
def test_the_check_rejects_what_terraform_rejects(path: str, value: Any, problem: str) -> None:
    found = problems(_bad(path, value))
    assert len(found) == 1
    assert problem in found[0]


def test_terraform_does_not_evaluate_text_of_the_values() -> None:
    networks = declared("every")["resource"]["google_container_cluster"]["cluster"]["master_authorized_networks_config"]
    assert [block["display_name"] for block in networks["cidr_blocks"]] == ["office", "$${vpn}"]


def test_an_account_of_nodes_and_of_a_team_is_declared_once() -> None:
    plan = plan_of("small")
    values = {**plan.values, "nodeServiceAccount": {"name": "research", "create": True}}
    document = json.loads(json.dumps(terraform.document(dataclasses.replace(plan, values=values))))
    assert document["resource"]["google_service_account"].keys() == {"nodes", "product"}
    roles = document["resource"]["google_storage_bucket_iam_member"]
    assert roles["research"]["member"] == "${google_service_account.nodes.member}"
    assert problems(document) == []


def test_a_cluster_is_protected_from_deletion() -> None:
    for name in FILES:
        document = declared(name)
        assert document["resource"]["google_container_cluster"]["cluster"]["deletion_protection"] == (
            "${var.deletion_protection}"
        )
        assert document["variable"]["deletion_protection"]["default"] is True


def test_destroy_keeps_what_others_may_use() -> None:
    resources = declared("small")["resource"]
    buckets = resources["google_storage_bucket"]
    assert buckets.keys() == {"bucket-research", "bucket-product", "bucket-interns"}
    assert not any(bucket["force_destroy"] for bucket in buckets.values())
    assert not any(api["disable_on_destroy"] for api in resources["google_project_service"].values())


# --- the same as gcloud -----------------------------------------------------------------------------------------


def flags(command: Command) -> dict[str, str]:
    """Return the flags of a command with their values; "" for a flag without a value."""
    pairs = [argument[2:].partition("=") for argument in command.arguments if argument.startswith("--")]
    return {name: value for name, _, value in pairs if name not in ("project", "location", "quiet")}


def created(name: str) -> tuple[Plan, Tree]:
    """Return a plan, and the resources as they are created: with values in place of references."""
    plan, document = plan_of(name), declared(name)
    known = {
        "var.deletion_protection": "true",
        "data.google_project.project.number": commands.PROJECT_NUMBER,
        "google_compute_router.nat.name": plan.name,
        "google_container_cluster.cluster.name": plan.name,
        "google_artifact_registry_repository.registry.name": plan.registry,
        "google_artifact_registry_repository.registry.location": plan.registry_location,
    }
    for key, bucket in document["resource"].get("google_storage_bucket", {}).items():
        known[f"google_storage_bucket.{key}.name"] = bucket["name"]
    for key, account in document["resource"].get("google_service_account", {}).items():
        address = f"{account['account_id']}@{plan.project}.iam.gserviceaccount.com"
        found = {"email": address, "member": f"serviceAccount:{address}"}
        found["name"] = f"projects/{plan.project}/serviceAccounts/{address}"
        known |= {f"google_service_account.{key}.{attribute}": value for attribute, value in found.items()}
    text = re.sub(r"(?<!\$)\$\{([^}]*)\}", lambda match: known[match[1]], json.dumps(document["resource"]))
    resources: Tree = json.loads(re.sub(r"([$%])\1\{", r"\1{", text))
    for kind, objects in resources.items():
        for arguments in objects.values():
            if kind not in ("google_service_account_iam_member", "google_storage_bucket_iam_member"):
                assert arguments["project"] == plan.project, kind
            if kind != "google_project_iam_member":
                arguments.pop("project", None)
            arguments.pop("depends_on", None)
            arguments.pop("lifecycle", None)
    return plan, resources


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in text.split(","))


def put(tree: Tree, path: str, value: Any) -> None:
    *above, last = path.split(".")
    for key in above:
        tree = tree.setdefault(key, {})
    assert last not in tree
    tree[last] = value


def _accelerator(text: str) -> list[Tree]:
    found = _pairs(text)
    driver = {"gpu_driver_version": found["gpu-driver-version"].upper()}
    return [{"type": found["type"], "count": int(found["count"]), "gpu_driver_installation_config": driver}]


def _disk(text: str) -> list[Tree]:
    found = _pairs(text)
    return [{"disk_image": found["disk-image"], "mode": found["mode"]}]


def _taints(text: str) -> list[Tree]:
    effects = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}
    parts = [re.fullmatch(r"([^=]+)=(.*):(\w+)", taint) for taint in text.split(",")]
    return [{"key": part[1], "value": part[2], "effect": effects[part[3]]} for part in parts if part]


def _yes(_text: str) -> bool:
    return True


# Each flag of a pool, as the arguments that have its meaning.
POOL_FLAGS: dict[str, list[tuple[str, Callable[[str], Any]]]] = {
    "cluster": [("cluster", str)],
    "node-locations": [("node_locations", lambda text: text.split(","))],
    "machine-type": [("node_config.machine_type", str)],
    "tpu-topology": [("placement_policy.tpu_topology", str), ("placement_policy.type", lambda _: "COMPACT")],
    "placement-type": [("placement_policy.type", str)],
    "accelerator": [("node_config.guest_accelerator", _accelerator)],
    "num-nodes": [("initial_node_count", int)],
    "enable-autoscaling": [],
    "min-nodes": [("autoscaling.min_node_count", int)],
    "max-nodes": [("autoscaling.max_node_count", int)],
    "total-min-nodes": [("autoscaling.total_min_node_count", int)],
    "total-max-nodes": [("autoscaling.total_max_node_count", int)],
    "location-policy": [("autoscaling.location_policy", str)],
    "spot": [("node_config.spot", _yes)],
    "reservation-affinity": [
        (
            "node_config.reservation_affinity.consume_reservation_type",
            {"none": "NO_RESERVATION", "specific": "SPECIFIC_RESERVATION"}.__getitem__,
        )
    ],
    "reservation": [
        ("node_config.reservation_affinity.values", lambda text: [text]),
        ("node_config.reservation_affinity.key", lambda _: "compute.googleapis.com/reservation-name"),
    ],
    "flex-start": [("node_config.flex_start", _yes)],
    "enable-queued-provisioning": [("queued_provisioning.enabled", _yes)],
    "no-enable-autorepair": [("management.auto_repair", lambda _: False)],
    "max-run-duration": [("node_config.max_run_duration", str)],
    "secondary-boot-disk": [("node_config.secondary_boot_disks", _disk)],
    "enable-image-streaming": [("node_config.gcfs_config.enabled", _yes)],
    "node-labels": [("node_config.labels", _pairs)],
    "node-taints": [("node_config.taint", _taints)],
    "labels": [("node_config.resource_labels", _pairs)],
    "service-account": [("node_config.service_account", str)],
    "workload-metadata": [("node_config.workload_metadata_config.mode", str)],
    "shielded-secure-boot": [("node_config.shielded_instance_config.enable_secure_boot", _yes)],
    "shielded-integrity-monitoring": [("node_config.shielded_instance_config.enable_integrity_monitoring", _yes)],
}


def expected_pool(plan: Plan, pool: Pool) -> Tree:
    """Return the arguments of a pool from its command of gcloud, and what gcloud or GKE sets without a flag."""
    found: Tree = {"name": pool.name, "location": plan.location}
    for flag, text in flags(commands.create_pool(plan, pool)).items():
        for path, convert in POOL_FLAGS[flag]:
            put(found, path, convert(text))
    if "autoscaling" not in found:
        found["node_count"] = found.pop("initial_node_count")
    found["management"] = {**MANAGED, **found.get("management", {})}
    put(found, "node_config.oauth_scopes", SCOPES)
    return found


@pytest.mark.parametrize("name", FILES)
def test_pools_are_those_of_gcloud(name: str) -> None:
    plan, resources = created(name)
    for pool in plan.pools:
        found = resources["google_container_node_pool"][f"pool-{pool.name}"]
        assert found == expected_pool(plan, pool)


def test_the_clusters_of_the_tests_use_every_flag_of_a_pool() -> None:
    used = {
        flag
        for name in FILES
        for pool in plan_of(name).pools
        for flag in flags(commands.create_pool(plan_of(name), pool))
    }
    assert used == POOL_FLAGS.keys()


ADDONS: dict[str, tuple[str, Callable[[bool], Any]]] = {
    "GcePersistentDiskCsiDriver": ("gce_persistent_disk_csi_driver_config", lambda on: {"enabled": on}),
    "GcsFuseCsiDriver": ("gcs_fuse_csi_driver_config", lambda on: {"enabled": on}),
    "HorizontalPodAutoscaling": ("horizontal_pod_autoscaling", lambda on: {"disabled": not on}),
    "HttpLoadBalancing": ("http_load_balancing", lambda on: {"disabled": not on}),
    "RayOperator": ("ray_operator_config", lambda on: [{"enabled": on}]),
}


def _networks(plan: Plan, text: str) -> list[Tree]:
    names = {cidr: name for name, cidr in plan.values["network"]["authorized"].items()}
    return [{"cidr_block": cidr, "display_name": names[cidr]} for cidr in text.split(",")]


def expected_cluster(plan: Plan) -> tuple[Tree, Tree | None]:
    """Return the arguments of a cluster and of its system pool, from its command of gcloud."""
    given = flags(commands.create_cluster(plan))
    given |= {flag[2:].partition("=")[0]: flag.partition("=")[2] for flag in commands.maintenance_flags(plan)}
    account = given.pop("service-account")
    cluster: Tree = {
        "name": plan.name,
        "location": plan.location,
        "deletion_protection": "true",
        "release_channel": {"channel": given.pop("release-channel").upper()},
        "resource_labels": _pairs(given.pop("labels")),
        "master_auth": {"client_certificate_config": {"issue_client_certificate": False}},  # as gcloud's default
        "networking_mode": "VPC_NATIVE",
        "ip_allocation_policy": {},
    }
    for flag, path in {
        "cluster-version": "min_master_version",
        "network": "network",
        "subnetwork": "subnetwork",
        "security-group": "authenticator_groups_config.security_group",
        "maintenance-window-start": "maintenance_policy.recurring_window.start_time",
        "maintenance-window-end": "maintenance_policy.recurring_window.end_time",
        "maintenance-window-recurrence": "maintenance_policy.recurring_window.recurrence",
    }.items():
        if flag in given:
            put(cluster, path, given.pop(flag))
    if "enable-private-nodes" in given:
        given.pop("enable-private-nodes")
        cluster["private_cluster_config"] = {"enable_private_nodes": True, "enable_private_endpoint": False}
    if "enable-master-authorized-networks" in given:
        given.pop("enable-master-authorized-networks")
        networks = _networks(plan, given.pop("master-authorized-networks"))
        cluster["master_authorized_networks_config"] = {"cidr_blocks": networks}
    if plan.autopilot:
        ray = "enable-ray-operator" in given
        cluster |= {
            "enable_autopilot": True,
            "addons_config": {"ray_operator_config": [{"enabled": ray}]},
            "cluster_autoscaling": {"auto_provisioning_defaults": {"service_account": account, "oauth_scopes": SCOPES}},
        }
        assert given.keys() <= {"enable-ray-operator"}
        return cluster, None
    nodes: Tree = {
        "machine_type": given.pop("machine-type"),
        "service_account": account,
        "oauth_scopes": SCOPES,
        "workload_metadata_config": {"mode": given.pop("workload-metadata")},
        "shielded_instance_config": {
            "enable_secure_boot": given.pop("shielded-secure-boot") == "",
            "enable_integrity_monitoring": given.pop("shielded-integrity-monitoring") == "",
        },
    }
    streaming = given.pop("enable-image-streaming", None) == ""
    if streaming:
        nodes["gcfs_config"] = {"enabled": True}
    addons = given.pop("addons").split(",")
    assert set(addons) <= ADDONS.keys()
    cluster |= {
        "remove_default_node_pool": True,
        "initial_node_count": 1,
        "node_config": nodes,
        "node_pool_defaults": {"node_config_defaults": {"gcfs_config": {"enabled": streaming}}},
        "addons_config": {key: convert(addon in addons) for addon, (key, convert) in ADDONS.items()},
        "workload_identity_config": {"workload_pool": given.pop("workload-pool")},
        "datapath_provider": {"": "ADVANCED_DATAPATH"}[given.pop("enable-dataplane-v2")],
        "network_policy": {"enabled": False},
        "monitoring_config": {"managed_prometheus": {"enabled": given.pop("enable-managed-prometheus") == ""}},
        "enable_shielded_nodes": given.pop("enable-shielded-nodes") == "",
        "gateway_api_config": {"channel": f"CHANNEL_{given.pop('gateway-api', 'disabled').upper()}"},
        "cluster_autoscaling": {
            "enabled": "enable-autoprovisioning" in given,
            "autoscaling_profile": given.pop("autoscaling-profile").replace("-", "_").upper(),
        },
    }
    if "enable-autoprovisioning" in given:
        given.pop("enable-autoprovisioning")
        limits = {"cpu": int(given.pop("max-cpu")), "memory": int(given.pop("max-memory"))}
        chips = _pairs(given.pop("max-accelerator"))
        limits[chips["type"]] = int(chips["count"])
        cluster["cluster_autoscaling"] |= {
            "resource_limits": [{"resource_type": kind, "maximum": count} for kind, count in limits.items()],
            # In addition to gcloud: the shielded nodes of all other pools.
            "auto_provisioning_defaults": {
                "service_account": given.pop("autoprovisioning-service-account"),
                "oauth_scopes": SCOPES,
                "management": MANAGED,
                "shielded_instance_config": SHIELDED,
            },
        }
    system = {
        "name": "default-pool",
        "cluster": plan.name,
        "location": plan.location,
        "initial_node_count": int(given.pop("num-nodes")),
        "autoscaling": {"min_node_count": int(given.pop("min-nodes")), "max_node_count": int(given.pop("max-nodes"))},
        "management": MANAGED,
        "node_config": nodes,
    }
    assert given == {"enable-autoscaling": "", "enable-ip-alias": ""}
    return cluster, system


@pytest.mark.parametrize("name", FILES)
def test_the_cluster_is_that_of_gcloud(name: str) -> None:
    plan, resources = created(name)
    cluster, system = expected_cluster(plan)
    assert resources["google_container_cluster"] == {"cluster": cluster}
    assert resources.get("google_container_node_pool", {}).get("system") == system


def _granted(command: Command) -> tuple[str, str, str]:
    """Return who gets which role on what."""
    what = next(argument for argument in command.arguments[2:] if not argument.startswith(("-", "add-iam")))
    given = flags(command)
    return what.removeprefix("gs://"), given["role"], given["member"]


def test_cloud_nat_is_that_of_gcloud() -> None:
    plan, resources = created("every")
    wanted, router = flags(commands.create_router(plan)), resources["google_compute_router"]["nat"]
    assert {key: router[key] for key in ("region", "network", "description")} == wanted
    nat = resources["google_compute_router_nat"]["nat"]
    assert flags(commands.create_nat(plan)) == {
        "region": nat["region"],
        "router": nat["router"],
        "auto-allocate-nat-external-ips": "",
        "nat-all-subnet-ip-ranges": "",
    }
    assert nat["nat_ip_allocate_option"] == "AUTO_ONLY"
    assert nat["source_subnetwork_ip_ranges_to_nat"] == "ALL_SUBNETWORKS_ALL_IP_RANGES"
    # Nodes without Cloud NAT load no images.
    assert (
        "google_compute_router_nat.nat"
        in declared("every")["resource"]["google_container_cluster"]["cluster"]["depends_on"]
    )
    assert "google_compute_router" not in created("small")[1]


@pytest.mark.parametrize("name", FILES)
def test_accounts_and_roles_are_those_of_gcloud(name: str) -> None:
    plan, resources = created(name)
    expected = {_granted(commands.grant_identity(plan, member)) for member in plan.members if member.google_account}
    expected |= {
        _granted(commands.grant_bucket(plan, bucket, member)) for bucket in plan.buckets for member in bucket.members
    }
    expected |= {_granted(commands.grant_registry(plan))} if plan.registry else set()
    addresses = [*plan.google_accounts]
    if plan.values["nodeServiceAccount"]["create"]:
        expected.add(_granted(commands.grant_node_role(plan)))
        addresses.append(plan.node_account)
    kinds = {
        "google_project_iam_member": "project",
        "google_service_account_iam_member": "service_account_id",
        "google_storage_bucket_iam_member": "bucket",
        "google_artifact_registry_repository_iam_member": "repository",
    }
    granted = {
        (role[key].rpartition("/")[2], role["role"], role["member"])
        for kind, key in kinds.items()
        for role in resources.get(kind, {}).values()
    }
    assert granted == expected
    accounts = resources.get("google_service_account", {}).values()
    assert {(account["account_id"], account["description"]) for account in accounts} == {
        (address.partition("@")[0], flags(commands.create_account(plan, address))["description"])
        for address in addresses
    }


@pytest.mark.parametrize("name", FILES)
def test_bucket_registry_and_apis_are_those_of_gcloud(name: str) -> None:
    plan, resources = created(name)
    apis = {service["service"] for service in resources["google_project_service"].values()}
    assert apis - set(commands.APIS) == {"cloudresourcemanager.googleapis.com"}
    assert set(commands.APIS) <= apis
    buckets = resources.get("google_storage_bucket", {})
    assert {bucket["name"] for bucket in buckets.values()} == {bucket.name for bucket in plan.buckets}
    for wanted in plan.buckets:
        given = flags(commands.create_bucket(plan, wanted))
        bucket = {
            "name": wanted.name,
            "location": commands.create_bucket(plan, wanted).arguments[5].partition("=")[2].upper(),
            "labels": _pairs(flags(commands.label_bucket(plan, wanted))["update-labels"]),
            "force_destroy": False,
            "uniform_bucket_level_access": given["uniform-bucket-level-access"] == "",
            "public_access_prevention": {"": "enforced"}[given["public-access-prevention"]],
            "soft_delete_policy": {
                "retention_duration_seconds": int(given["soft-delete-duration"].removesuffix("d")) * 86400
            },
        }
        if "enable-hierarchical-namespace" in given:
            bucket["hierarchical_namespace"] = {"enabled": True}
        assert buckets[f"bucket-{wanted.team}" if wanted.team else "bucket"] == bucket
    if plan.registry:
        given = flags(commands.create_registry(plan))
        registry = {"repository_id": plan.registry, "location": plan.registry_location, "format": "DOCKER"}
        assert given["repository-format"] == "docker"
        assert resources["google_artifact_registry_repository"] == {
            "registry": {**registry, "labels": _pairs(given["labels"])}
        }
    else:
        assert "google_artifact_registry_repository" not in resources


def test_outputs_are_the_next_commands() -> None:
    outputs = declared("every")["output"]
    assert {name: output["value"] for name, output in outputs.items()} == {
        "credentials": (
            "gcloud container clusters get-credentials every --project=example-project --location=us-east5 --quiet"
        ),
        "next": "launcher cluster up",
        "name": f"${{{CLUSTER}.name}}",
        "location": f"${{{CLUSTER}.location}}",
        "endpoint": f"${{{CLUSTER}.endpoint}}",
        "ca_certificate": f"${{{CLUSTER}.master_auth[0].cluster_ca_certificate}}",
        "node_service_account": outputs["node_service_account"]["value"],
        "pools": [
            f"${{google_container_node_pool.{key}.name}}"
            for key in declared("every")["resource"]["google_container_node_pool"]
        ],
        "bucket": "${google_storage_bucket.bucket.url}",
    }
    assert declared("small")["output"]["node_service_account"]["value"] == "${google_service_account.nodes.email}"
    assert declared("autopilot")["output"]["pools"]["value"] == []


def test_a_module_with_a_provider_is_rejected() -> None:
    """Terraform refuses count, for_each and depends_on for such a module."""
    document = declared("small")
    assert problems({**document, "provider": {"google": {"project": "demo"}}}) == ["provider: unknown block"]
