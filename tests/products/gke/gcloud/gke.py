"""The part of the stub that is GKE: clusters, node pools and operations.

Bodies are parsed with the messages of google-cloud-container, so that an unknown field is an error. The texts of these
errors are GKE's own, as public reports quote them: the maximum node count of a TPU slice, flex-start and queued
provisioning, existing and missing names, quota. Other texts are similar.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from google.cloud import container_v1, container_v1beta1
from google.protobuf import json_format

from tests.products.gke.gcloud.world import (
    Object,
    Refusal,
    World,
    already_exists,
    chips_of_machine,
    chips_of_topology,
    invalid,
    not_found,
)

NAME = re.compile(r"[a-z](?:[-a-z0-9]{0,38}[a-z0-9])?")
CREATED = "2026-01-01T00:00:00+00:00"
# Fields of an UpdateNodePoolRequest that have the same name in the node pool; all others belong to its config.
OF_THE_POOL = {"locations", "upgradeSettings", "queuedProvisioning"}
WRAPPED = {"labels": "labels", "resourceLabels": "labels", "taints": "taints", "tags": "tags"}
NOT_FIELDS = {"name", "projectId", "zone", "clusterId", "nodePoolId", "etag", "nodeVersion", "imageType"}


class Place(NamedTuple):
    """The names in the path of a request. `version` is that of the API."""

    version: str
    project: str
    location: str
    cluster: str = ""
    pool: str = ""

    def __str__(self) -> str:
        kind = "zones" if self.location.count("-") == 2 else "locations"
        path = f"projects/{self.project}/{kind}/{self.location}"
        path += f"/clusters/{self.cluster}" if self.cluster else ""
        return path + (f"/nodePools/{self.pool}" if self.pool else "")


def parse(version: str, name: str, body: Object) -> Object:
    """The body as GKE reads it. Raises Refusal if it has a field that the message does not have, or a wrong value."""
    message = getattr({"v1": container_v1, "v1beta1": container_v1beta1}[version], name)
    read = message.pb(message())
    try:
        json_format.ParseDict(body, read)
    except json_format.ParseError as error:
        raise invalid(f"Invalid JSON payload received. {error}") from None
    parsed: Object = json_format.MessageToDict(read)
    return parsed


class Gke:
    """The clusters of a project, by location and name. A node pool is an entry of its cluster, as GKE returns it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clusters: dict[tuple[str, str], Object] = {}
        self.operations: dict[str, Object] = {}
        self.break_next = ""  # if not empty, the next operation ends with this error
        self._unfinished: list[tuple[float, Object, Callable[[], None]]] = []

    # Reading

    def get_cluster(self, at: Place) -> Object:
        found = self.clusters.get((at.location, at.cluster))
        if found is None and self.world.permissive:
            self._add_cluster(at, {"name": at.cluster, "nodePools": [{"name": "default-pool", "initialNodeCount": 1}]})
            found = self.clusters[at.location, at.cluster]
            self._settled(found)
        if found is None:
            raise not_found(str(at._replace(pool="")))
        return found

    def list_clusters(self, at: Place) -> Object:
        return {"clusters": [it for (place, _), it in sorted(self.clusters.items()) if at.location in ("-", place)]}

    def get_pool(self, at: Place) -> Object:
        pools = self.get_cluster(at).setdefault("nodePools", [])
        if self.world.permissive and not any(pool["name"] == at.pool for pool in pools):
            pools.append(self._filled_pool(at, {"name": at.pool}, "RUNNING"))
        for pool in pools:
            if pool["name"] == at.pool:
                found: Object = pool
                return found
        raise not_found(str(at))

    def list_pools(self, at: Place) -> Object:
        return {"nodePools": self.get_cluster(at).get("nodePools", [])}

    def get_operation(self, name: str) -> Object:
        if name not in self.operations:
            raise not_found(name)
        return self.operations[name]

    def server_config(self, at: Place) -> Object:
        self._known_location(at)
        channels = [
            {"channel": name, "defaultVersion": self.world.version, "validVersions": [self.world.version]}
            for name in ("RAPID", "REGULAR", "STABLE")
        ]
        return {"defaultClusterVersion": self.world.version, "channels": channels} | {
            f"valid{kind}Versions": [self.world.version] for kind in ("Master", "Node")
        }

    # Changes. Each returns an operation.

    def create_cluster(self, at: Place, body: Object) -> Object:
        cluster = parse(at.version, "CreateClusterRequest", body)["cluster"]
        at = at._replace(cluster=cluster.get("name", ""))
        self._known_location(at)
        self._check_name(at.cluster, "cluster")
        if (at.location, at.cluster) in self.clusters:
            raise already_exists(str(at))
        if not cluster.get("nodePools"):  # before there were node pools, a cluster had these fields of one
            config = {"config": cluster["nodeConfig"]} if "nodeConfig" in cluster else {}
            count = cluster.get("initialNodeCount", 3 if cluster.get("autopilot") else 0)
            cluster["nodePools"] = [{"name": "default-pool", "initialNodeCount": count, **config}]
        for pool in cluster["nodePools"]:
            self._check_pool(at, cluster.get("locations") or self.world.zones_of(at.location), pool)
        self._add_cluster(at, cluster)
        made = self.clusters[at.location, at.cluster]
        return self._operation(at, "CREATE_CLUSTER", made, partial(self._settled, made))

    def update_cluster(self, at: Place, body: Object) -> Object:
        update = parse(at.version, "UpdateClusterRequest", body)["update"]
        cluster = self._idle(at)
        pool_name = update.pop("desiredNodePoolId", "")
        for field, value in update.items():
            name = field.removeprefix("desired")
            name = name[0].lower() + name[1:]
            if name == "nodePoolAutoscaling":
                pool = self.get_pool(at._replace(pool=pool_name))
                self._check_pool(at, pool["locations"], {**pool, "autoscaling": value})
                pool["autoscaling"] = value
            elif name == "gatewayApiConfig":
                cluster.setdefault("networkConfig", {})[name] = value
            elif isinstance(value, dict):
                cluster[name] = {**cluster.get(name, {}), **value}
            else:
                cluster[name] = value
        return self._operation(at, "UPDATE_CLUSTER", cluster)

    def set_labels(self, at: Place, body: Object) -> Object:
        cluster = self._idle(at)
        cluster["resourceLabels"] = parse(at.version, "SetLabelsRequest", body).get("resourceLabels", {})
        return self._operation(at, "UPDATE_CLUSTER", cluster)

    def set_maintenance(self, at: Place, body: Object) -> Object:
        cluster = self._idle(at)
        cluster["maintenancePolicy"] = parse(at.version, "SetMaintenancePolicyRequest", body)["maintenancePolicy"]
        return self._operation(at, "UPDATE_CLUSTER", cluster)

    def delete_cluster(self, at: Place) -> Object:
        cluster = self._idle(at)
        cluster["status"] = "STOPPING"
        return self._operation(
            at, "DELETE_CLUSTER", cluster, lambda: bool(self.clusters.pop((at.location, at.cluster), None))
        )

    def create_pool(self, at: Place, body: Object) -> Object:
        pool = parse(at.version, "CreateNodePoolRequest", body)["nodePool"]
        cluster = self._idle(at)
        at = at._replace(pool=pool.get("name", ""))
        if cluster.get("autopilot", {}).get("enabled"):
            raise invalid("Autopilot clusters do not support mutating node pools.")
        self._check_name(at.pool, "node pool")
        if any(other["name"] == at.pool for other in cluster["nodePools"]):
            raise already_exists(str(at))
        self._check_pool(at, cluster["locations"], pool)
        made = self._filled_pool(at, {"locations": cluster["locations"], **pool}, "PROVISIONING")
        cluster["nodePools"].append(made)
        return self._operation(at, "CREATE_NODE_POOL", made, partial(made.update, status="RUNNING"))

    def update_pool(self, at: Place, body: Object) -> Object:
        update = parse(at.version, "UpdateNodePoolRequest", body)
        self._idle(at)
        pool = self.get_pool(at)
        for name, value in update.items():
            if name in OF_THE_POOL:
                pool[name] = value
            elif name not in NOT_FIELDS:
                pool["config"][name] = value.get(WRAPPED[name], {}) if name in WRAPPED else value
        return self._operation(at, "UPDATE_CLUSTER", pool)

    def set_pool_size(self, at: Place, body: Object) -> Object:
        count = parse(at.version, "SetNodePoolSizeRequest", body).get("nodeCount", 0)
        self._idle(at)
        pool = self.get_pool(at)
        self._check_pool(at, pool["locations"], {**pool, "initialNodeCount": count})
        pool["initialNodeCount"] = count
        return self._operation(at, "SET_NODE_POOL_SIZE", pool)

    def set_pool_autoscaling(self, at: Place, body: Object) -> Object:
        autoscaling = parse(at.version, "SetNodePoolAutoscalingRequest", body)["autoscaling"]
        self._idle(at)
        pool = self.get_pool(at)
        self._check_pool(at, pool["locations"], {**pool, "autoscaling": autoscaling})
        pool["autoscaling"] = autoscaling
        return self._operation(at, "UPDATE_CLUSTER", pool)

    def set_pool_management(self, at: Place, body: Object) -> Object:
        pool = self.get_pool(at)
        pool["management"] = parse(at.version, "SetNodePoolManagementRequest", body)["management"]
        return self._operation(at, "SET_NODE_POOL_MANAGEMENT", pool)

    def delete_pool(self, at: Place) -> Object:
        cluster = self._idle(at)
        pool = self.get_pool(at)
        pool["status"] = "STOPPING"
        return self._operation(at, "DELETE_NODE_POOL", pool, partial(cluster["nodePools"].remove, pool))

    # Operations

    def settle(self) -> None:
        """Finish the operations whose time is over. The stub calls it before each request."""
        now = time.monotonic()
        for entry in [entry for entry in self._unfinished if entry[0] <= now]:
            self._unfinished.remove(entry)
            _, operation, finish = entry
            finish()
            operation["status"] = "DONE"

    def _operation(self, at: Place, kind: str, target: Object, finish: Callable[[], Any] = lambda: None) -> Object:
        name = f"operation-{len(self.operations) + 1}"
        operation: Object = {
            **{"name": name, "operationType": kind, "status": "RUNNING", "location": at.location, "zone": at.location},
            **{"startTime": CREATED, "targetLink": _link(str(at)), "selfLink": _link(f"{at}/operations/{name}")},
        }
        self.operations[name] = operation
        if self.break_next:
            error: Object = {"code": 8, "message": self.break_next}
            finish = partial(target.update, status="ERROR", conditions=[{"code": "GCE_STOCKOUT", **error}])
            operation["error"] = error
            self.break_next = ""
        self._unfinished.append((time.monotonic() + self.world.delay, operation, finish))
        self.settle()
        return operation

    def _idle(self, at: Place) -> Object:
        """The cluster. Raises Refusal while an operation creates or deletes it."""
        cluster = self.get_cluster(at)
        if cluster["status"] in ("PROVISIONING", "STOPPING"):
            raise Refusal(
                400, "FAILED_PRECONDITION", f"Cluster is running incompatible operation {list(self.operations)[-1]}."
            )
        return cluster

    # Checks

    def _known_location(self, at: Place) -> None:
        if not self.world.permissive and not self.world.zones_of(at.location):
            raise invalid(f'Location "{at.location}" does not exist.')

    def _check_name(self, name: str, kind: str) -> None:
        if not NAME.fullmatch(name):
            raise invalid(
                f'Invalid value for field "{kind}.name": "{name}". Names must be at most 40 characters, start with a '
                "letter, and have only lowercase letters, digits and hyphens."
            )

    def _check_pool(self, at: Place, zones: list[str], pool: Object) -> None:
        """Raise Refusal if GKE would not create a node pool like this. It reads only the fields of the request."""
        if self.world.permissive:
            return
        zones = pool.get("locations") or zones
        config = pool.get("config", {})
        machine_type = config.get("machineType", "e2-medium")
        for zone in zones:
            if not self.world.offers(zone, machine_type):
                raise invalid(f'Machine type with name "{machine_type}" does not exist in zone "{zone}".')
        autoscaling = pool.get("autoscaling", {})
        count = pool.get("initialNodeCount", 0)
        _check_slice(machine_type, pool.get("placementPolicy", {}).get("tpuTopology", ""), count, autoscaling)
        for model, used in (
            ("Flex start", config.get("flexStart")),
            ("Queued provisioning", pool.get("queuedProvisioning", {}).get("enabled")),
        ):
            if used and not autoscaling.get("enabled"):
                raise invalid(f"{model} node pools require autoscaling enabled.")
            if used and count:
                raise invalid(f"{model} node pools require initial node count to be set to 0.")
        nodes = count * len(zones)
        chips = chips_of_machine(machine_type)
        affinity = config.get("reservationAffinity", {})
        consumed = affinity.get("consumeReservationType")
        if config.get("flexStart") and consumed != "NO_RESERVATION":
            raise invalid("Flex start node pools don't support reservations.")
        if pool.get("queuedProvisioning", {}).get("enabled") and chips and not config.get("flexStart"):
            raise invalid("Queued_provisioning doesn't support TPUs.")
        if consumed == "SPECIFIC_RESERVATION":
            for value in affinity.get("values", []):
                self._check_reservation(
                    re.sub(r"^projects/[^/]+/reservations/|/reservationBlocks/.*$", "", value),
                    zones,
                    machine_type,
                    nodes,
                )
        else:
            self._check_quota(at, zones[0], nodes * chips)

    def _check_reservation(self, name: str, zones: list[str], machine_type: str, nodes: int) -> None:
        found = self.world.reservations.get(name)
        if found is None or found.zone not in zones:
            path = f"projects/{self.world.project}/zones/{zones[0]}/reservations/{name}"
            raise invalid(f"The resource '{path}' was not found")
        if found.machine_type != machine_type:
            raise invalid(f'Reservation "{name}" has machines of type {found.machine_type}, not {machine_type}.')
        if nodes > found.count - found.used:
            raise invalid(f'Reservation "{name}" has {found.count - found.used} free machines, requested {nodes}.')

    def _check_quota(self, at: Place, zone: str, chips: int) -> None:
        """`chips` are those of the new or changed pool, `at`."""
        region = zone.rpartition("-")[0]
        used = sum(
            chips_of_machine(pool["config"]["machineType"]) * pool.get("initialNodeCount", 0) * len(pool["locations"])
            for cluster in self.clusters.values()
            for pool in cluster["nodePools"]
            if pool["locations"][0].startswith(region)
            and "values" not in pool["config"].get("reservationAffinity", {})
            and (cluster["location"], cluster["name"], pool["name"]) != (at.location, at.cluster, at.pool)
        )
        free = max(self.world.quota(zone) - used, 0)
        if chips > free:
            raise Refusal(
                403,
                "PERMISSION_DENIED",
                'Insufficient regional quota to satisfy request: resource "TPUS_PER_TPU_FAMILY": request requires '
                f"'{chips}.0' and is short '{chips - free}.0'. project has a quota of '{self.world.quota(zone)}.0' "
                f"with '{free}.0' available.",
            )

    # Defaults

    def _add_cluster(self, at: Place, cluster: Object) -> None:
        zones = cluster.get("locations") or self.world.zones_of(at.location) or [at.location]
        pools = [
            self._filled_pool(at._replace(pool=pool["name"]), {"locations": zones, **pool}, "PROVISIONING")
            for pool in cluster["nodePools"]
        ]
        version = cluster.get("initialClusterVersion", self.world.version)
        self.clusters[at.location, at.cluster] = {
            **{"network": "default", "subnetwork": "default", "releaseChannel": {"channel": "REGULAR"}},
            **cluster,
            **{"status": "PROVISIONING", "location": at.location, "zone": at.location, "locations": zones},
            # GKE adds the DNS endpoint. gcloud requires it if the values restrict the addresses of the control plane.
            "controlPlaneEndpointsConfig": {
                **cluster.get("controlPlaneEndpointsConfig", {}),
                "dnsEndpointConfig": {"endpoint": "gke-0.us-east5.gke.goog"},
            },
            **{"endpoint": self.world.endpoint, "masterAuth": {"clusterCaCertificate": "c3R1Yg=="}},
            **{"currentMasterVersion": version, "currentNodeVersion": version, "initialClusterVersion": version},
            "currentNodeCount": sum(pool.get("initialNodeCount", 0) * len(pool["locations"]) for pool in pools),
            **{"createTime": CREATED, "selfLink": _link(str(at)), "nodePools": pools},
        }

    def _settled(self, cluster: Object) -> None:
        """Mark the cluster and its first pools as running."""
        for each in (cluster, *cluster["nodePools"]):
            each["status"] = "RUNNING"

    def _filled_pool(self, at: Place, pool: Object, status: str) -> Object:
        given = pool.get("config", {})
        model = next((name for name, field in (("spot", "spot"), ("flex-start", "flexStart")) if given.get(field)), "")
        labels = {"goog-gke-node-pool-provisioning-model": model or "on-demand"}
        return {
            **{"locations": [at.location], "management": {"autoRepair": True, "autoUpgrade": True}},
            **pool,
            "config": {
                **{"machineType": "e2-medium", "diskSizeGb": 100, "diskType": "pd-balanced"},
                **{"imageType": "COS_CONTAINERD", "serviceAccount": "default"},
                **given,
                "resourceLabels": {**labels, **given.get("resourceLabels", {})},
            },
            **{"status": status, "version": self.world.version, "selfLink": _link(str(at))},
        }


def _check_slice(machine_type: str, topology: str, count: int, autoscaling: Object) -> None:
    """Check the sizes of a TPU slice. A pool of a slice with several machines has all of them or none.

    GKE compares the maximum of one zone, which is 0 if the request has only a maximum for all zones together.
    """
    if not topology:
        return
    per_machine = chips_of_machine(machine_type)
    if not per_machine:
        raise invalid(f'TPU topology "{topology}" is not supported by machine type "{machine_type}".')
    machines, rest = divmod(chips_of_topology(topology), per_machine)
    if rest or not machines:
        raise invalid(f'TPU topology "{topology}" is not a multiple of the {per_machine} chips of "{machine_type}".')
    if machines == 1:
        return
    sizes: list[tuple[str, int, tuple[int, ...]]] = [("Node count", count, (0, machines))]
    if autoscaling.get("enabled"):
        sizes.append(("Maximum node count", autoscaling.get("maxNodeCount", 0), (machines,)))
        sizes.append(("Minimum node count", autoscaling.get("minNodeCount", 0), (0,)))
    for what, size, valid in sizes:
        if size not in valid:
            raise invalid(f'{what} {size} is not a valid size of TPU pod slice with topology "{topology}".')


def _link(path: str) -> str:
    return f"https://container.googleapis.com/v1/{path}"
