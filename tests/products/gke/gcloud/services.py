"""The parts of the stub other than GKE: policies, accounts, enabled APIs, buckets, Docker repositories, Compute."""

from __future__ import annotations

import re
from typing import Any

from tests.products.gke.gcloud.gke import CREATED
from tests.products.gke.gcloud.world import Object, Refusal, World, already_exists, chips_of_machine, invalid, not_found

COMPUTE = "https://www.googleapis.com/compute/v1"
# Regional quotas that Compute returns, by machine type. It does not return those of v5p, v6e and newer TPUs.
METRICS = {"TPU_LITE_PODSLICE_V5": "ct5lp-", "TPU_PODSLICE_V4": "ct4p-"}
MACHINE_TYPES = (
    *("ct5lp-hightpu-1t", "ct5lp-hightpu-4t", "ct5lp-hightpu-8t", "ct5p-hightpu-4t"),
    *("ct6e-standard-1t", "ct6e-standard-4t", "ct6e-standard-8t", "e2-standard-4", "n2-standard-16"),
)


class Policies:
    """The IAM policy of each resource. `accounts` are the service accounts, by email."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.accounts: dict[str, Object] = {}
        self.pools: set[str] = set()  # of Workload Identity, such as demo.svc.id.goog
        self._policies: dict[str, Object] = {}

    def get(self, resource: str) -> Object:
        return self._policies.setdefault(resource, {"version": 1, "etag": "Bw00000001A="})

    def set(self, resource: str, policy: Object) -> Object:
        """Replace a policy. Raises Refusal if it has changed since it was read, or names a missing member."""
        current = self.get(resource)
        if policy.get("etag", current["etag"]) != current["etag"]:
            raise Refusal(409, "ABORTED", "There were concurrent policy changes. Please retry the whole operation.")
        for member in (member for binding in policy.get("bindings", []) for member in binding["members"]):
            self._check_member(member)
        count = int(current["etag"][2:10]) + 1
        self._policies[resource] = {**policy, "etag": f"Bw{count:08}A="}  # valid base64: gcloud decodes and encodes it
        return self._policies[resource]

    def delete(self, resource: str) -> None:
        self._policies.pop(resource, None)

    def get_account(self, email: str) -> Object:
        if self.world.permissive and email not in self.accounts:
            self.create_account({"accountId": email.partition("@")[0]})
        if email not in self.accounts:
            raise Refusal(404, "NOT_FOUND", f"Unknown service account: {email}")
        return self.accounts[email]

    def create_account(self, body: Object) -> Object:
        project, name = self.world.project, body["accountId"]
        if not re.fullmatch(r"[a-z](?:[-a-z0-9]{4,28}[a-z0-9])", name) and not self.world.permissive:
            raise invalid(f'The account ID "{name}" is not 6 to 30 lowercase letters, digits and hyphens.')
        email = f"{name}@{project}.iam.gserviceaccount.com"
        if email in self.accounts:
            path = f"projects/{project}/serviceAccounts/{email}"
            raise Refusal(409, "ALREADY_EXISTS", f"Service account {name} already exists within project {path}.")
        self.accounts[email] = {
            **{"name": f"projects/{project}/serviceAccounts/{email}", "email": email, "projectId": project},
            **{"uniqueId": "1" * 21, "oauth2ClientId": "1" * 21, "etag": "MDEwMjE5MjA="},
            **body.get("serviceAccount", {}),
        }
        return self.accounts[email]

    def delete_account(self, email: str) -> Object:
        self.get_account(email)
        del self.accounts[email]
        self.delete(email)
        return {}

    def list_accounts(self) -> Object:
        return {"accounts": [account for _, account in sorted(self.accounts.items())]}

    def _check_member(self, member: str) -> None:
        kind, _, name = member.partition(":")
        if self.world.permissive or kind != "serviceAccount":
            return
        pool = re.fullmatch(r"(.+\.svc\.id\.goog)\[.+/.+\]", name)
        if pool and pool[1] not in self.pools:
            raise invalid(
                f"Identity Pool does not exist ({pool[1]}). Please check that you specified a valid resource."
            )
        if name.endswith(f"@{self.world.project}.iam.gserviceaccount.com") and name not in self.accounts:
            raise invalid(f"Service account {name} does not exist.")


class Buckets:
    """Cloud Storage. `objects` are the names of the objects of each bucket."""

    def __init__(self, world: World, policies: Policies) -> None:
        self.world, self.policies = world, policies
        self.buckets: dict[str, Object] = {}
        self.objects: dict[str, list[str]] = {}

    def get(self, name: str) -> Object:
        if self.world.permissive and name not in self.buckets:
            self.create({"name": name, "location": "US-EAST5"})
        if name not in self.buckets:
            raise Refusal(404, "NOT_FOUND", "The specified bucket does not exist.")
        return self.buckets[name]

    def list(self) -> Object:
        return {"kind": "storage#buckets", "items": [bucket for _, bucket in sorted(self.buckets.items())]}

    def create(self, body: Object) -> Object:
        name = body["name"]
        if name in self.buckets:
            message = "Your previous request to create the named bucket succeeded and you already own it."
            raise Refusal(409, "ALREADY_EXISTS", message)
        if body.get("hierarchicalNamespace", {}).get("enabled") and not body.get("iamConfiguration", {}).get(
            "uniformBucketLevelAccess", {}
        ).get("enabled"):
            raise invalid("Hierarchical namespace buckets must use uniform bucket-level access.")
        self.buckets[name] = {
            **{"kind": "storage#bucket", "id": name, "projectNumber": self.world.number, "metageneration": "1"},
            **{"storageClass": "STANDARD", "timeCreated": CREATED, "updated": CREATED, "etag": "CAE="},
            **body,
            **{"location": body.get("location", "US").upper(), "locationType": "region"},
        }
        self.objects.setdefault(name, [])
        return self.buckets[name]

    def update(self, name: str, body: Object) -> Object:
        """Change the fields of `body`; null removes a field or a label."""
        bucket = self.get(name)
        labels = {**bucket.get("labels", {}), **(body.get("labels") or {})}
        bucket.update(body, labels={key: value for key, value in labels.items() if value is not None})
        return bucket

    def delete(self, name: str) -> Object:
        self.get(name)
        if self.objects[name]:
            raise Refusal(409, "FAILED_PRECONDITION", "The bucket you tried to delete is not empty.")
        del self.buckets[name], self.objects[name]
        self.policies.delete(f"b/{name}")
        return {}

    def list_objects(self, name: str) -> Object:
        self.get(name)
        items = [{"name": each, "bucket": name, "size": "1", "generation": "1"} for each in self.objects[name]]
        return {"kind": "storage#objects", **({"items": items} if items else {})}

    def delete_object(self, name: str, item: str) -> Object:
        if item not in self.objects.get(name, []):
            raise Refusal(404, "NOT_FOUND", f"No such object: {name}/{item}")
        self.objects[name].remove(item)
        return {}


class Repositories:
    """Artifact Registry, by the whole name of a repository."""

    def __init__(self, world: World, policies: Policies) -> None:
        self.world, self.policies = world, policies
        self.repositories: dict[str, Object] = {}

    def get(self, name: str) -> Object:
        if self.world.permissive and name not in self.repositories:
            self.create(name, {"format": "DOCKER"})
        if name not in self.repositories:
            raise Refusal(404, "NOT_FOUND", "Requested entity was not found.")
        return self.repositories[name]

    def create(self, name: str, body: Object) -> Object:
        if name in self.repositories:
            raise already_exists(name)
        made = {**body, "name": name, "createTime": CREATED, "updateTime": CREATED, "mode": "STANDARD_REPOSITORY"}
        self.repositories[name] = made
        return self._done(name, made)

    def update(self, name: str, body: Object) -> Object:
        self.get(name).update(body)
        return self.get(name)

    def delete(self, name: str) -> Object:
        self.get(name)
        del self.repositories[name]
        self.policies.delete(name)
        return self._done(name, {})

    def list(self, parent: str) -> Object:
        found = [it for name, it in sorted(self.repositories.items()) if name.startswith(f"{parent}/")]
        return {"repositories": found}

    def _done(self, name: str, response: Object) -> Object:
        parent = name.partition("/repositories/")[0]
        return {"name": f"{parent}/operations/{name.rpartition('/')[2]}", "done": True, "response": response}


class Compute:
    """The answers of Compute about the project, and the routers that gcloud creates."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.made: dict[tuple[str, str], Object] = {}
        self.changed = ""  # the router of the last operation

    def reservation(self, zone: str, name: str) -> Object:
        found = self.world.reservations.get(name)
        if found is None or found.zone != zone:
            path = f"projects/{self.world.project}/zones/{zone}/reservations/{name}"
            raise Refusal(404, "NOT_FOUND", f"The resource '{path}' was not found")
        properties = {"machineType": found.machine_type}
        return {
            **{"kind": "compute#reservation", "name": name, "status": "READY", "creationTimestamp": CREATED},
            **{"zone": f"{COMPUTE}/projects/{self.world.project}/zones/{zone}", "specificReservationRequired": True},
            "specificReservation": {
                **{"count": str(found.count), "inUseCount": str(found.used), "assuredCount": str(found.count)},
                "instanceProperties": properties,
            },
        }

    def reservations(self) -> Object:
        items: Object = {}
        for name, found in self.world.reservations.items():
            zone = items.setdefault(f"zones/{found.zone}", {"reservations": []})
            zone["reservations"].append(self.reservation(found.zone, name))
        return {"kind": "compute#reservationAggregatedList", "items": items}

    def region(self, name: str) -> Object:
        zones = self.world.zones_of(name)
        if not zones and not self.world.permissive:
            path = f"projects/{self.world.project}/regions/{name}"
            raise Refusal(404, "NOT_FOUND", f"The resource '{path}' was not found")
        limit = float(self.world.chips.get(name, self.world.default_chips))
        quotas: list[Any] = [{"metric": metric, "limit": limit, "usage": 0.0} for metric in METRICS]
        links = [f"{COMPUTE}/projects/{self.world.project}/zones/{zone}" for zone in zones]
        return {"kind": "compute#region", "name": name, "status": "UP", "quotas": quotas, "zones": links}

    def machine_type(self, zone: str, name: str) -> Object:
        found: list[Object] = [each for each in self.machine_types(zone)["items"] if each["name"] == name]
        if not found:
            raise not_found(f"The resource 'projects/{self.world.project}/zones/{zone}/machineTypes/{name}'")
        return found[0]

    def machine_types(self, zone: str) -> Object:
        types = [name for name in MACHINE_TYPES if self.world.offers(zone, name)]
        items = [
            {"kind": "compute#machineType", "name": name, "zone": zone, "guestCpus": 4, "memoryMb": 16384}
            | ({"accelerators": [{"guestAcceleratorCount": chips_of_machine(name)}]} if chips_of_machine(name) else {})
            for name in types
        ]
        return {"kind": "compute#machineTypeList", "items": items}

    def all_machine_types(self) -> Object:
        items = {f"zones/{zone}": {"machineTypes": self.machine_types(zone)["items"]} for zone in self.world.zones}
        return {"kind": "compute#machineTypeAggregatedList", "items": items}

    def made_router(self, region: str, name: str) -> Object:
        if (region, name) not in self.made:
            if not self.world.permissive:
                raise not_found(f"projects/{self.world.project}/regions/{region}/routers/{name}")
            self.made[region, name] = {"name": name}
        return self.made[region, name]

    def create_router(self, region: str, body: Object) -> Object:
        self.changed = body["name"]
        self.made[region, body["name"]] = {"kind": "compute#router", **body}
        return self._done(region, body["name"])

    def change_router(self, region: str, name: str, body: Object) -> Object:
        self.changed = name
        self.made_router(region, name).update(body)
        return self._done(region, name)

    def delete_router(self, region: str, name: str) -> Object:
        self.changed = name
        self.made_router(region, name)
        del self.made[region, name]
        return self._done(region, name, "delete")

    def _done(self, region: str, name: str, verb: str = "insert") -> Object:
        path = f"{COMPUTE}/projects/{self.world.project}/regions/{region}"
        return {
            **{"kind": "compute#operation", "name": f"operation-{verb}", "status": "DONE", "progress": 100},
            **{"region": path, "selfLink": f"{path}/operations/operation-{verb}", "operationType": verb},
            "targetLink": f"{path}/routers/{name}",
        }

    def operation(self, region: str, name: str) -> Object:
        return self._done(region, self.changed, name.removeprefix("operation-"))

    def routers(self, region: str) -> Object:
        """A router for each network of the region that has Cloud NAT, one without it, and those that were created."""
        networks = [(name, [{"name": "nat"}]) for name, where in self.world.nats if where == region]
        items: list[Object] = [
            {
                **{"kind": "compute#router", "name": f"router-{name}"},
                "network": f"{COMPUTE}/projects/{self.world.project}/global/networks/{name}",
                **({"nats": nats} if nats else {}),
            }
            for name, nats in [*networks, ("default", [])]
        ]
        items += [router for (where, _), router in self.made.items() if where == region]
        return {"kind": "compute#routerList", "items": items}

    def network(self, kind: str, name: str) -> Object:
        if name != "default" and not self.world.permissive:
            raise not_found(f"projects/{self.world.project}/{kind}/{name}")
        return {"kind": f"compute#{kind}", "name": name, "selfLink": f"{COMPUTE}/projects/{self.world.project}/{name}"}
