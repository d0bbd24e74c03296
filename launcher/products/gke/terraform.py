"""The same resources as commands.py, as Terraform's JSON (main.tf.json), for Terraform and OpenTofu.

What is inside the cluster (Kueue, JobSet, ComputeClasses, queues) is not in it: `launcher cluster up`, with the same
values, finds the resources and installs the rest.

Source of the names: the schema of the provider's release 6.50.0 (tests/products/gke/provider-schema.json). The
provider's upgrade guide to 7.0.0 lists one change of a resource used here, the default of disable_on_destroy, which is
set here.

The document is a module without a provider block, because Terraform refuses count, for_each and depends_on for modules
with one. Each resource names its project, so that it does not depend on the caller's provider either.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from launcher.products.gke import commands
from launcher.products.gke.plan import Bucket, Member, Plan, Pool

FILE = "main.tf.json"
PROVIDER = ">= 6.50.0, < 8.0.0"
SYSTEM_POOL = "default-pool"
"""The name of the system pool: gcloud gives this name to the pool that it creates with a cluster."""
APIS = (*commands.APIS, "cloudresourcemanager.googleapis.com")
"""Terraform reads the project's number and its IAM policy with the project's own Cloud Resource Manager API."""
# gcloud's alias gke-default, which gcloud sends if --scopes is not set.
_SCOPES = tuple(
    f"https://www.googleapis.com/auth/{name}"
    for name in (
        "devstorage.read_only",
        "logging.write",
        "monitoring",
        "service.management.readonly",
        "servicecontrol",
        "trace.append",
    )
)
_EFFECTS = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}
_SHIELDED = {"enable_secure_boot": True, "enable_integrity_monitoring": True}
_CLUSTER = "google_container_cluster.cluster"
_REGISTRY = "google_artifact_registry_repository.registry"
_NODE_ROLE = "google_project_iam_member.nodes"
_NAT = "google_compute_router_nat.nat"
_WITHOUT_PROJECT = {"google_service_account_iam_member", "google_storage_bucket_iam_member"}
_DAY = 86400
_TEMPLATE = re.compile(r"([$%])\{")


class Expression(str):
    """A text that Terraform evaluates. Terraform would evaluate ${…} in other texts, too, so these are escaped."""

    __slots__ = ()


def document(plan: Plan) -> dict[str, Any]:
    """Return the content of main.tf.json."""
    parts = {
        "//": f"{commands.DESCRIPTION}{plan.name}. Change the values, not this file.",
        "terraform": {"required_providers": {"google": {"source": "hashicorp/google", "version": PROVIDER}}},
        "variable": {
            "deletion_protection": {
                "type": "bool",
                "default": True,
                "description": (
                    "Whether Terraform refuses to delete the cluster. To delete it, apply with "
                    "-var deletion_protection=false, then destroy."
                ),
            }
        },
        "data": {"google_project": {"project": {"project_id": plan.project, "depends_on": [_api(APIS[-1])]}}},
        "resource": {kind: _in_project(plan, kind, found) for kind, found in _resources(plan).items() if found},
        "output": _outputs(plan),
    }
    escaped: dict[str, Any] = _escaped(parts)
    return escaped


def _in_project(plan: Plan, kind: str, resources: Mapping[str, Any]) -> dict[str, Any]:
    """Return the resources of a kind with the argument `project`, if the kind has it."""
    own = {} if kind in _WITHOUT_PROJECT else {"project": plan.project}
    return {name: {**own, **arguments} for name, arguments in resources.items()}


def _escaped(node: Any) -> Any:
    """Return the node with plain strings for Terraform: ${ and %{ of the values are escaped, expressions are not."""
    if isinstance(node, Expression):
        return str(node)
    if isinstance(node, str):
        return _TEMPLATE.sub(r"\1\1{", node)
    if isinstance(node, Mapping):
        return {_escaped(key): _escaped(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [_escaped(item) for item in node]
    return node


def _joined(*parts: str) -> Expression:
    """Return texts and expressions as one expression."""
    return Expression("".join(_escaped(part) for part in parts))


def _resources(plan: Plan) -> dict[str, dict[str, Any]]:
    accounts = {key: _account(plan, address) for address, key in _accounts(plan).items()}
    members = {_key(member.team): member for member in plan.members}
    with_account = {key: member for key, member in members.items() if member.google_account}
    return {
        "google_project_service": {_key(api.partition(".")[0]): _service(api) for api in APIS},
        "google_service_account": accounts,
        "google_project_iam_member": _node_role(plan),
        "google_compute_router": {"nat": _router(plan)} if plan.values["network"]["nat"] else {},
        "google_compute_router_nat": {"nat": _nat(plan)} if plan.values["network"]["nat"] else {},
        "google_container_cluster": {"cluster": _autopilot(plan) if plan.autopilot else _standard(plan)},
        "google_container_node_pool": {} if plan.autopilot else _pools(plan),
        "google_service_account_iam_member": {key: _identity(plan, member) for key, member in with_account.items()},
        "google_storage_bucket": {_bucket_key(bucket): _bucket(plan, bucket) for bucket in plan.buckets},
        "google_storage_bucket_iam_member": {
            _key(member.team): _bucket_role(plan, bucket, member)
            for bucket in plan.buckets
            for member in bucket.members
        },
        "google_artifact_registry_repository": {"registry": _registry(plan)} if plan.registry else {},
        "google_artifact_registry_repository_iam_member": {"nodes": _reader(plan)} if plan.registry else {},
    }


def _key(name: str) -> str:
    """Return a name for Terraform: letters, digits, - and _; it begins with a letter or _."""
    name = re.sub(r"[^A-Za-z0-9_-]", "-", name)
    return name if name[0].isalpha() or name[0] == "_" else f"_{name}"


# --- APIs and accounts ------------------------------------------------------------------------------------------


def _service(api: str) -> dict[str, Any]:
    # Other users of the project may need the API, so destroy does not disable it.
    return {"service": api, "disable_on_destroy": False}


def _api(api: str) -> str:
    return f"google_project_service.{_key(api.partition('.')[0])}"


def _accounts(plan: Plan) -> dict[str, str]:
    """Return the accounts that Terraform creates: the name of the resource by the account's address."""
    by_address = {address: _key(address.partition("@")[0]) for address in plan.google_accounts}
    if plan.values["nodeServiceAccount"]["create"]:
        by_address[plan.node_account] = "nodes"  # no team's account has this name: names have at least 6 letters
    return by_address


def _reference(plan: Plan, address: str, attribute: str, default: str) -> str:
    """Return the attribute of an account, as a reference if Terraform creates the account, so that it comes first."""
    key = _accounts(plan).get(address)
    return Expression(f"${{google_service_account.{key}.{attribute}}}") if key else default


def _account(plan: Plan, address: str) -> dict[str, Any]:
    return {
        "account_id": address.partition("@")[0],
        "description": f"{commands.DESCRIPTION}{plan.name}.",
        "depends_on": [_api("iam.googleapis.com")],
    }


def _node_role(plan: Plan) -> dict[str, Any]:
    # commands.py, too, leaves the roles of an account that it did not create to the user.
    if not plan.values["nodeServiceAccount"]["create"]:
        return {}
    return {
        "nodes": {
            "role": commands.NODE_ROLE,
            "member": _joined("serviceAccount:", _node_account(plan)),
            "depends_on": [_api(APIS[-1])],
        }
    }


def _node_account(plan: Plan) -> str:
    return _reference(plan, plan.node_account, "email", plan.node_account)


def _identity(plan: Plan, member: Member) -> dict[str, Any]:
    address = member.google_account
    name = f"projects/{commands.project_of(address)}/serviceAccounts/{address}"
    return {
        "service_account_id": _reference(plan, address, "name", name),
        "role": commands.IDENTITY_ROLE,
        "member": commands.kubernetes_identity(plan, member),
        "depends_on": [_CLUSTER],  # the first cluster of a project creates its workload identity pool
    }


# --- the cluster ------------------------------------------------------------------------------------------------


def _router(plan: Plan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "region": plan.region,
        "network": plan.network[1],
        "description": f"{commands.DESCRIPTION}{plan.name}.",
        "depends_on": [_api("compute.googleapis.com")],
    }


def _nat(plan: Plan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "region": plan.region,
        "router": Expression("${google_compute_router.nat.name}"),
        "nat_ip_allocate_option": "AUTO_ONLY",
        "source_subnetwork_ip_ranges_to_nat": "ALL_SUBNETWORKS_ALL_IP_RANGES",
    }


def _shared(plan: Plan) -> dict[str, Any]:
    """Return the arguments of a cluster that both modes have."""
    values = plan.values
    network = values["network"]
    created = values["nodeServiceAccount"]["create"]
    arguments: dict[str, Any] = {
        "name": plan.name,
        "location": plan.location,
        "deletion_protection": Expression("${var.deletion_protection}"),
        "release_channel": {"channel": values["releaseChannel"].upper()},
        "resource_labels": plan.labels,
        "networking_mode": "VPC_NATIVE",
        "ip_allocation_policy": {},  # GKE chooses the ranges
        "master_auth": {"client_certificate_config": {"issue_client_certificate": False}},
        "depends_on": [
            *map(_api, commands.APIS),
            *([_NODE_ROLE] if created else []),
            *([_NAT] if network["nat"] else []),  # the nodes load images when the cluster starts
        ],
    }
    if values["version"]:
        arguments["min_master_version"] = values["version"]
    if network["name"]:
        arguments["network"] = network["name"]
    if network["subnetwork"]:
        arguments["subnetwork"] = network["subnetwork"]
    if network["privateNodes"]:
        # As with gcloud, the control plane keeps its public address.
        arguments["private_cluster_config"] = {"enable_private_nodes": True, "enable_private_endpoint": False}
    if network["authorized"]:
        blocks = [{"cidr_block": cidr, "display_name": name} for name, cidr in network["authorized"].items()]
        arguments["master_authorized_networks_config"] = {"cidr_blocks": blocks}
    if values["securityGroup"]:
        arguments["authenticator_groups_config"] = {"security_group": values["securityGroup"]}
    window = values["maintenance"]
    if window["start"]:
        arguments["maintenance_policy"] = {
            "recurring_window": {
                "start_time": window["start"],
                "end_time": window["end"],
                "recurrence": window["recurrence"],
            }
        }
    return arguments


def _autopilot(plan: Plan) -> dict[str, Any]:
    return {
        **_shared(plan),
        "enable_autopilot": True,
        "cluster_autoscaling": {
            "auto_provisioning_defaults": {"service_account": _node_account(plan), "oauth_scopes": _SCOPES}
        },
        "addons_config": {"ray_operator_config": [{"enabled": plan.values["rayOperator"]}]},
    }


def _standard(plan: Plan) -> dict[str, Any]:
    values = plan.values
    return {
        **_shared(plan),
        # The provider cannot change a pool inside google_container_cluster without a new cluster, so each pool is a
        # resource of its own. GKE creates no cluster without a pool: Terraform deletes this one at once, and the
        # arguments of its only node apply to nothing later.
        "remove_default_node_pool": True,
        "initial_node_count": 1,
        "node_config": _node_config(plan, values["system"]["machineType"]),
        "lifecycle": {"ignore_changes": ["initial_node_count", "node_config"]},
        "workload_identity_config": {"workload_pool": f"{plan.project}.svc.id.goog"},
        "datapath_provider": "ADVANCED_DATAPATH",  # enforces the NetworkPolicies of charts/queues
        "network_policy": {"enabled": False},  # this is Calico, which Dataplane V2 replaces
        "enable_shielded_nodes": True,
        "monitoring_config": {"managed_prometheus": {"enabled": True}},
        "cluster_autoscaling": _autoscaling(plan),
        "addons_config": {
            "gcs_fuse_csi_driver_config": {"enabled": True},
            "gce_persistent_disk_csi_driver_config": {"enabled": True},
            "horizontal_pod_autoscaling": {"disabled": not values["serving"]},
            "http_load_balancing": {"disabled": not values["serving"]},
            "ray_operator_config": [{"enabled": values["rayOperator"]}],
        },
        "node_pool_defaults": {"node_config_defaults": {"gcfs_config": {"enabled": values["imageStreaming"]}}},
        "gateway_api_config": {"channel": "CHANNEL_STANDARD" if values["serving"] else "CHANNEL_DISABLED"},
    }


def _autoscaling(plan: Plan) -> dict[str, Any]:
    arguments: dict[str, Any] = {"enabled": bool(plan.limits), "autoscaling_profile": "OPTIMIZE_UTILIZATION"}
    if plan.limits:
        limits = plan.values["autoProvisioning"]
        maxima = {"cpu": limits["maxCpu"], "memory": limits["maxMemoryGiB"], **dict(sorted(plan.limits.items()))}
        arguments["resource_limits"] = [{"resource_type": kind, "maximum": count} for kind, count in maxima.items()]
        arguments["auto_provisioning_defaults"] = {
            "service_account": _node_account(plan),
            "oauth_scopes": _SCOPES,
            "management": {"auto_repair": True, "auto_upgrade": True},
            "shielded_instance_config": _SHIELDED,
        }
    return arguments


# --- node pools -------------------------------------------------------------------------------------------------


def _pools(plan: Plan) -> dict[str, Any]:
    return {"system": _system(plan), **{f"pool-{pool.name}": _pool(plan, pool) for pool in plan.pools}}


def _system(plan: Plan) -> dict[str, Any]:
    system = plan.values["system"]
    return {
        "name": SYSTEM_POOL,
        "cluster": Expression(f"${{{_CLUSTER}.name}}"),
        "location": plan.location,
        "initial_node_count": system["nodes"],
        # In a region, these are nodes of each zone, as is system.nodes.
        "autoscaling": {"min_node_count": system["nodes"], "max_node_count": system["maxNodes"]},
        "management": {"auto_repair": True, "auto_upgrade": True},
        "node_config": _node_config(plan, system["machineType"]),
        "lifecycle": {"ignore_changes": ["initial_node_count"]},
    }


def _pool(plan: Plan, pool: Pool) -> dict[str, Any]:
    flex = pool.provisioning == "flex-start"
    arguments: dict[str, Any] = {
        "name": pool.name,
        "cluster": Expression(f"${{{_CLUSTER}.name}}"),
        "location": plan.location,
        **_size(pool),
        # A cluster with a release channel needs auto_upgrade.
        "management": {"auto_repair": not flex, "auto_upgrade": True},
        "node_config": _pool_config(plan, pool),
    }
    if plan.zone and plan.zone != plan.location:
        arguments["node_locations"] = [plan.zone]
    if pool.topology:
        arguments["placement_policy"] = {"type": "COMPACT", "tpu_topology": pool.topology}
    elif pool.compact:
        arguments["placement_policy"] = {"type": "COMPACT"}
    if pool.queued:
        arguments["queued_provisioning"] = {"enabled": True}
    return arguments


def _size(pool: Pool) -> dict[str, Any]:
    """Return the number of nodes and the autoscaling of a pool; see commands.scaling."""
    if pool.whole_slice and pool.min_slices:
        return {"node_count": pool.min_nodes}
    total = "" if pool.whole_slice else "total_"
    return {
        "initial_node_count": pool.min_nodes,
        "autoscaling": {
            f"{total}min_node_count": pool.min_nodes,
            f"{total}max_node_count": pool.max_nodes,
            "location_policy": "BALANCED" if pool.kind == "cpu" else "ANY",
        },
        # The provider replaces a pool whose initial_node_count changes. The autoscaler uses the bounds only.
        "lifecycle": {"ignore_changes": ["initial_node_count"]},
    }


def _pool_config(plan: Plan, pool: Pool) -> dict[str, Any]:
    arguments = _node_config(plan, pool.machine_type)
    arguments["resource_labels"] = plan.labels
    if pool.node_labels:
        arguments["labels"] = dict(sorted(pool.node_labels.items()))
    if pool.taints:
        arguments["taint"] = [_taint(text) for text in pool.taints]
    if pool.kind == "gpu":
        driver = {"gpu_driver_version": "DEFAULT"}
        arguments["guest_accelerator"] = [
            {"type": pool.gpu_label, "count": pool.chips_per_host, "gpu_driver_installation_config": driver}
        ]
    if pool.disk:
        arguments["secondary_boot_disks"] = [{"disk_image": pool.disk, "mode": "CONTAINER_IMAGE_CACHE"}]
    if pool.provisioning == "spot":
        arguments["spot"] = True
    elif pool.provisioning == "reservation":
        arguments["reservation_affinity"] = {
            "consume_reservation_type": "SPECIFIC_RESERVATION",
            "key": "compute.googleapis.com/reservation-name",
            "values": [pool.reservation],
        }
    elif pool.provisioning == "flex-start":
        arguments["flex_start"] = True
        arguments["max_run_duration"] = f"{pool.seconds}s"
        arguments["reservation_affinity"] = {"consume_reservation_type": "NO_RESERVATION"}
    return arguments


def _node_config(plan: Plan, machine_type: str) -> dict[str, Any]:
    """Return what the nodes of all pools have."""
    arguments: dict[str, Any] = {
        "machine_type": machine_type,
        "service_account": _node_account(plan),
        "oauth_scopes": _SCOPES,
        "workload_metadata_config": {"mode": "GKE_METADATA"},
        "shielded_instance_config": _SHIELDED,
    }
    if plan.values["imageStreaming"]:
        arguments["gcfs_config"] = {"enabled": True}
    return arguments


def _taint(text: str) -> dict[str, str]:
    """Return a taint from its form in flags, key=value:effect."""
    key, _, rest = text.partition("=")
    value, _, effect = rest.rpartition(":")
    return {"key": key, "value": value, "effect": _EFFECTS[effect]}


# --- bucket and registry ----------------------------------------------------------------------------------------


def _bucket_key(bucket: Bucket) -> str:
    return _key(f"bucket-{bucket.team}") if bucket.team else "bucket"


def _reference_to(bucket: Bucket, attribute: str) -> Expression:
    return Expression(f"${{google_storage_bucket.{_bucket_key(bucket)}.{attribute}}}")


def _bucket(plan: Plan, bucket: Bucket) -> dict[str, Any]:
    values = plan.values["bucket"]
    arguments: dict[str, Any] = {
        "name": bucket.name,
        "location": plan.bucket_location.upper(),  # as the API returns it
        "labels": commands.bucket_labels(plan, bucket),
        "force_destroy": False,  # destroy fails while the bucket has objects, such as checkpoints
        "uniform_bucket_level_access": True,
        "public_access_prevention": "enforced",
        "soft_delete_policy": {"retention_duration_seconds": values["softDeleteDays"] * _DAY},
        "depends_on": [_api("storage.googleapis.com")],
    }
    if values["hierarchicalNamespace"]:
        arguments["hierarchical_namespace"] = {"enabled": True}
    return arguments


def _bucket_role(plan: Plan, bucket: Bucket, member: Member) -> dict[str, Any]:
    arguments: dict[str, Any] = {"bucket": _reference_to(bucket, "name"), "role": commands.BUCKET_ROLE}
    identity = commands.identity_of(plan, member)
    if member.google_account:
        return {**arguments, "member": _reference(plan, member.google_account, "member", identity)}
    before, _, after = identity.partition(commands.PROJECT_NUMBER)
    arguments["depends_on"] = [_CLUSTER]  # the first cluster of a project creates its workload identity pool
    return {**arguments, "member": _joined(before, Expression("${data.google_project.project.number}"), after)}


def _registry(plan: Plan) -> dict[str, Any]:
    return {
        "repository_id": plan.registry,
        "location": plan.registry_location,
        "format": "DOCKER",
        "labels": plan.labels,
        "depends_on": [_api("artifactregistry.googleapis.com")],
    }


def _reader(plan: Plan) -> dict[str, Any]:
    return {
        "location": Expression(f"${{{_REGISTRY}.location}}"),
        "repository": Expression(f"${{{_REGISTRY}.name}}"),
        "role": commands.READER_ROLE,
        "member": _joined("serviceAccount:", _node_account(plan)),
    }


# --- outputs ----------------------------------------------------------------------------------------------------


def _outputs(plan: Plan) -> dict[str, Any]:
    command = commands.get_credentials(plan)
    outputs = {
        "credentials": {
            "description": "The command that adds the cluster to the kubeconfig.",
            "value": shlex.join([command.program, *command.arguments]),
            "depends_on": [_CLUSTER],
        },
        "next": {
            "description": "The command that installs the controllers and the queues. Add the values files.",
            "value": "launcher cluster up",
            "depends_on": [_CLUSTER],
        },
        "name": {"description": "The name of the cluster.", "value": Expression(f"${{{_CLUSTER}.name}}")},
        "location": {"description": "Its zone or region.", "value": Expression(f"${{{_CLUSTER}.location}}")},
        "endpoint": {
            "description": "The address of its API server, without https://.",
            "value": Expression(f"${{{_CLUSTER}.endpoint}}"),
        },
        "ca_certificate": {
            "description": "The certificate of its certificate authority, in base64.",
            "value": Expression(f"${{{_CLUSTER}.master_auth[0].cluster_ca_certificate}}"),
        },
        "node_service_account": {
            "description": "The address of the nodes' service account.",
            "value": _node_account(plan),
        },
        "pools": {
            "description": "The names of the node pools.",
            "value": [
                Expression(f"${{google_container_node_pool.{key}.name}}")
                for key in ({} if plan.autopilot else _pools(plan))
            ],
        },
    }
    for bucket in plan.buckets:
        whose = f"The bucket of the team {bucket.team}" if bucket.team else "The bucket"
        outputs[_bucket_key(bucket)] = {
            "description": f"{whose} for text and checkpoints.",
            "value": _reference_to(bucket, "url"),
        }
    return outputs
