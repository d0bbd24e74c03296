"""Read the resources of a plan that exist in Google Cloud."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from launcher.products.gke import commands
from launcher.products.gke.google import Google, GoogleError
from launcher.products.gke.plan import MANAGED_LABEL, Plan

type Found = Mapping[str, Any] | None
_REQUESTS = 8
_FORBIDDEN = 403


@dataclass(frozen=True)
class Actual:
    """The resources as the APIs return them; None for a resource that does not exist.

    `missing` has a sentence for each thing that the plan needs and that only Google Cloud has, such as a reservation.
    """

    project_number: str
    apis: frozenset[str] = frozenset()
    project_roles: frozenset[tuple[str, str]] = frozenset()
    cluster: Found = None
    buckets: Mapping[str, Found] = field(default_factory=dict)
    """The buckets of the plan, gke.bucket.name itself, and those that Slipway made for the cluster, by name."""
    empty_buckets: frozenset[str] = frozenset()
    """Those of the plan that have no objects."""
    bucket_roles: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    registry: Found = None
    registry_roles: frozenset[tuple[str, str]] = frozenset()
    accounts: Mapping[str, Found] = field(default_factory=dict)
    """The service accounts of the plan, and those of this project with a role on a bucket, by address."""
    account_roles: Mapping[str, frozenset[tuple[str, str]]] = field(default_factory=dict)
    routers: tuple[Mapping[str, Any], ...] = ()
    """The Cloud Routers of the cluster's network in its region, if its nodes are private."""
    missing: tuple[tuple[str, str], ...] = ()
    """Each with the name of the flavor (or "" for the system pool) and a sentence."""
    notes: tuple[str, ...] = ()
    """What could not be checked, and what the plan does not fit: a mark (? or !), and a sentence."""

    @property
    def pools(self) -> dict[str, Mapping[str, Any]]:
        """The cluster's node pools, by name."""
        return {str(pool["name"]): pool for pool in (self.cluster or {}).get("nodePools") or ()}


def without_pool(actual: Actual, name: str) -> Actual:
    """Return the same after the deletion of a node pool."""
    pools = [pool for each, pool in actual.pools.items() if each != name]
    return replace(actual, cluster={**(actual.cluster or {}), "nodePools": pools})


def is_ours(resource: Mapping[str, Any], name: str) -> bool:
    """Return whether Slipway made this cluster, pool, bucket, repository or account for the cluster `name`."""
    config = resource.get("config")
    labels = resource.get("resourceLabels") or resource.get("labels") or {}
    if isinstance(config, dict):
        labels = config.get("resourceLabels") or {}
    described = str(resource.get("description") or "") == f"{commands.DESCRIPTION}{name}."
    return described or (isinstance(labels, dict) and labels.get(MANAGED_LABEL) == name)


def read(plan: Plan, google: Google | None = None) -> Actual:
    """Return what exists. Raises GoogleError if the project does not exist or cannot be read."""
    google = google or Google()
    google.prepare()
    project = f"projects/{plan.project}"
    addresses = [
        plan.node_account,
        *sorted({member.google_account for member in plan.members if member.google_account}),
    ]
    calls: dict[str, Callable[[], Any]] = {
        "project": lambda: google.get("CLOUDRESOURCEMANAGER", f"v1/{project}"),
        "project roles": lambda: google.post("CLOUDRESOURCEMANAGER", f"v1/{project}:getIamPolicy", {}),
        "apis": lambda: google.get(
            "SERVICEUSAGE", f"v1/{project}/services", {"filter": "state:ENABLED", "pageSize": "200"}
        ),
        "cluster": lambda: google.get("CONTAINER", f"v1/{project}/locations/{plan.location}/clusters/{plan.name}"),
        "clusters": lambda: google.get("CONTAINER", f"v1/{project}/locations/-/clusters"),
    }
    for address in addresses:
        calls[f"account {address}"] = partial(google.get, "IAM", f"v1/{_account(address)}")
    for address in addresses[1:]:
        calls[f"roles {address}"] = partial(google.post, "IAM", f"v1/{_account(address)}:getIamPolicy", {})
    calls["buckets"] = partial(_buckets, google, plan.project)
    for bucket in _named(plan):
        path = f"storage/v1/b/{bucket}"
        calls[f"bucket {bucket}"] = partial(google.get, "STORAGE", path)
        calls[f"objects {bucket}"] = partial(google.get, "STORAGE", f"{path}/o", {"maxResults": "1"})
        calls[f"roles of {bucket}"] = partial(google.get, "STORAGE", f"{path}/iam")
    if plan.registry:
        registry = f"v1/{project}/locations/{plan.registry_location}/repositories/{plan.registry}"
        calls["registry"] = partial(google.get, "ARTIFACTREGISTRY", registry)
        calls["registry roles"] = partial(google.get, "ARTIFACTREGISTRY", f"{registry}:getIamPolicy")
    if plan.values["network"]["privateNodes"]:
        routers = f"compute/v1/projects/{plan.network[0]}/regions/{plan.region}/routers"
        calls["routers"] = partial(google.get, "COMPUTE", routers)
    for key, path in _needed(plan).items():
        calls[f"need {key}"] = partial(google.get, "COMPUTE", path)
    results = _all(calls)
    actual = _from(plan, results, addresses)
    return _with_former_teams(plan, actual, google)


def _named(plan: Plan) -> list[str]:
    """Return the names of the plan's buckets, and gke.bucket.name, which may be the bucket of all teams."""
    return [*dict.fromkeys(filter(None, [plan.values["bucket"]["name"], *(bucket.name for bucket in plan.buckets)]))]


def _all(calls: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """Return the result, or the error, of each request; they run in parallel."""
    with ThreadPoolExecutor(_REQUESTS) as pool:
        return dict(zip(calls, pool.map(_quietly, calls.values()), strict=True))


def _buckets(google: Google, project: str) -> list[Mapping[str, Any]]:
    """Return the buckets of the project."""
    buckets: list[Mapping[str, Any]] = []
    query = {"project": project, "maxResults": "1000"}
    while True:
        page = google.get("STORAGE", "storage/v1/b", query) or {}
        buckets += page.get("items") or []
        if not page.get("nextPageToken"):
            return buckets
        query["pageToken"] = str(page["nextPageToken"])


def _with_former_teams(plan: Plan, actual: Actual, google: Google) -> Actual:
    """Add the roles on buckets that are not in the plan, and the service accounts that have a role on any bucket."""
    calls: dict[str, Callable[[], Any]] = {
        bucket: partial(google.get, "STORAGE", f"storage/v1/b/{bucket}/iam")
        for bucket in actual.buckets
        if bucket not in actual.bucket_roles
    }
    bucket_roles = {**actual.bucket_roles, **{name: _roles(_raised(policy)) for name, policy in _all(calls).items()}}
    domain = f"@{plan.project}.iam.gserviceaccount.com"
    addresses = {
        member.removeprefix("serviceAccount:")
        for roles in bucket_roles.values()
        for member, role in roles
        if role == commands.BUCKET_ROLE and member.endswith(domain)
    } - actual.accounts.keys()
    calls = {address: partial(google.get, "IAM", f"v1/{_account(address)}") for address in addresses}
    accounts = {**actual.accounts, **{address: _raised(account) for address, account in _all(calls).items()}}
    former = [address for address in addresses if (account := accounts[address]) and is_ours(account, plan.name)]
    calls = {address: partial(google.post, "IAM", f"v1/{_account(address)}:getIamPolicy", {}) for address in former}
    account_roles = {
        **actual.account_roles,
        **{address: _roles(_raised(policy)) for address, policy in _all(calls).items()},
    }
    return replace(actual, bucket_roles=bucket_roles, accounts=accounts, account_roles=account_roles)


def _raised(result: Any) -> Any:
    if isinstance(result, GoogleError):
        raise result
    return result


def _quietly(call: Callable[[], Any]) -> Any:
    """Return the result, or the error: an API that is not enabled answers 403, for example."""
    try:
        return call()
    except GoogleError as error:
        return error


def _from(plan: Plan, results: Mapping[str, Any], addresses: Sequence[str]) -> Actual:
    project = results["project"]
    if isinstance(project, GoogleError):
        raise project
    if project is None:
        raise GoogleError(
            f"The project {plan.project} does not exist, or you may not read it.",
            "Check gke.project, and the account: gcloud auth list",
        )
    unread = results["apis"] if isinstance(results["apis"], GoogleError) else None
    enabled = _apis(results["apis"])
    notes = [f"? which APIs are enabled is not known, and up enables all: {unread.message}"] if unread else []

    def found(key: str, api: str) -> Any:
        result = results.get(key)
        if not isinstance(result, GoogleError):
            return result
        # Before the API is enabled, nothing of it exists.
        if result.status == _FORBIDDEN and unread is None and f"{api}.googleapis.com" not in enabled:
            return None
        raise result

    cluster = found("cluster", "container")
    if cluster is None:
        notes += _elsewhere(plan, results["clusters"])
    needs = {key: results[f"need {key}"] for key in _needed(plan)}
    notes += _unchecked(needs, "compute.googleapis.com" in enabled or unread is not None)
    notes += _reserved(plan, needs)
    routers = _routers(plan, results.get("routers"))
    if "routers" in results:
        notes += _without_nat(plan, results["routers"], routers)
    named = _named(plan)
    listed = {str(bucket.get("name")): bucket for bucket in found("buckets", "storage") or ()}
    buckets = {name: bucket for name, bucket in listed.items() if is_ours(bucket, plan.name)}
    buckets |= {name: found(f"bucket {name}", "storage") for name in named}
    return Actual(
        project_number=str(project.get("projectNumber") or ""),
        apis=enabled,
        routers=routers,
        project_roles=_roles(found("project roles", "cloudresourcemanager")),
        cluster=cluster,
        buckets=buckets,
        empty_buckets=frozenset(name for name in named if _is_empty(found(f"objects {name}", "storage"))),
        bucket_roles={name: _roles(found(f"roles of {name}", "storage")) for name in named},
        registry=found("registry", "artifactregistry"),
        registry_roles=_roles(found("registry roles", "artifactregistry")),
        accounts={address: found(f"account {address}", "iam") for address in addresses},
        account_roles={address: _roles(found(f"roles {address}", "iam")) for address in addresses[1:]},
        missing=tuple(_missing(plan, needs)),
        notes=tuple(notes),
    )


def _account(address: str) -> str:
    return f"projects/{commands.project_of(address)}/serviceAccounts/{address}"


def _apis(answer: Any) -> frozenset[str]:
    services = answer.get("services") if isinstance(answer, dict) else None
    return frozenset(
        str(service["name"]).rpartition("/")[2]
        for service in services or ()
        if isinstance(service, dict) and service.get("state") == "ENABLED"
    )


def _is_empty(listed: Any) -> bool:
    return isinstance(listed, dict) and not listed.get("items") and not listed.get("nextPageToken")


def _roles(policy: Any) -> frozenset[tuple[str, str]]:
    """Return the pairs of member and role of an IAM policy, without conditional ones."""
    bindings = policy.get("bindings") if isinstance(policy, dict) else None
    return frozenset(
        (str(member), str(binding.get("role")))
        for binding in bindings or ()
        if isinstance(binding, dict) and not binding.get("condition")
        for member in binding.get("members") or ()
    )


# --- what only Google Cloud has ---------------------------------------------------------------------------------


def _needed(plan: Plan) -> dict[tuple[str, str, str], str]:
    """Return the paths of the machine types and reservations of the plan, by flavor, kind and name."""
    needed: dict[tuple[str, str, str], str] = {}
    zone = f"compute/v1/projects/{plan.project}/zones/{plan.zone}"
    if not plan.zone:
        return {}
    for pool in plan.pools:
        needed[pool.flavor, "machine type", pool.machine_type] = f"{zone}/machineTypes/{pool.machine_type}"
        if pool.provisioning == "reservation" and pool.reservation:
            needed[pool.flavor, "reservation", pool.reservation] = _reservation(pool.reservation, zone, plan.zone)
    return needed


def _reservation(reservation: str, zone: str, zone_name: str) -> str:
    """Return the path of NAME, or of projects/PROJECT/reservations/NAME; parts of it, such as a block, are left out."""
    parts = reservation.split("/")
    if parts[0] == "projects" and len(parts) >= 4:
        return f"compute/v1/projects/{parts[1]}/zones/{zone_name}/reservations/{parts[3]}"
    return f"{zone}/reservations/{parts[0]}"


def _missing(plan: Plan, needs: Mapping[tuple[str, str, str], Any]) -> list[tuple[str, str]]:
    missing = []
    for (flavor, kind, name), result in needs.items():
        if result is None and kind == "machine type":
            missing.append((flavor, f"the zone {plan.zone} has no machine type {name}; choose another gke.location."))
        elif result is None:
            missing.append((flavor, f"the reservation {name} does not exist in the zone {plan.zone}."))
    return missing


def _unchecked(needs: Mapping[tuple[str, str, str], Any], enabled: bool) -> list[str]:
    """Return a note for each reason for which machine types and reservations could not be read."""
    unread: dict[str, list[str]] = {}
    for (_, kind, name), result in needs.items():
        if isinstance(result, GoogleError):
            off = result.status == _FORBIDDEN and not enabled
            reason = "the API compute.googleapis.com is not enabled" if off else result.message.rstrip(".")
            unread.setdefault(reason, []).append(f"{kind} {name}")
    return [
        f"? not checked, whether the zone has these: {', '.join(dict.fromkeys(names))} ({reason})"
        for reason, names in unread.items()
    ]


def _reserved(plan: Plan, needs: Mapping[tuple[str, str, str], Any]) -> list[str]:
    """Return a note for each reservation that has fewer machines than the plan's pools have nodes."""
    nodes: dict[str, dict[str, int]] = {}
    for pool in plan.pools:
        if pool.provisioning == "reservation" and pool.reservation:
            flavors = nodes.setdefault(pool.reservation, {})
            flavors[pool.flavor] = flavors.get(pool.flavor, 0) + pool.max_nodes
    notes = []
    for name, flavors in nodes.items():
        reservation = needs.get((next(iter(flavors)), "reservation", name))
        if not isinstance(reservation, dict):  # missing, or not readable: reported as such
            continue
        count = (reservation.get("specificReservation") or {}).get("count")
        if count is None:
            notes.append(f"? not checked, whether the reservation {name} is large enough: it has no number of machines")
        elif int(count) < sum(flavors.values()):
            wanted = " and ".join(f"{number} for flavors.{flavor}" for flavor, number in flavors.items())
            notes.append(
                f"! the reservation {name} has {count} machines, and the quota needs {wanted}: runs of the rest "
                "wait for nodes; lower the quota, or extend the reservation"
            )
    return notes


def _elsewhere(plan: Plan, answer: Any) -> list[str]:
    """Return a note for each cluster with the name of the plan in another location of the project."""
    if isinstance(answer, GoogleError):  # before the API is enabled, or without the right to list clusters
        return [] if answer.status == _FORBIDDEN else [f"? clusters in other locations: {answer.message.rstrip('.')}"]
    answer = answer or {}
    places = [str(each.get("location")) for each in answer.get("clusters") or () if each.get("name") == plan.name]
    unread = ", ".join(map(str, answer.get("missingZones") or ()))
    return [
        *(
            f"! a cluster {plan.name} exists in {place}, and up creates a second one in {plan.location}: "
            f"set gke.location to {place}, or give this one another gke.name"
            for place in places
            if place != plan.location
        ),
        *([f"? not checked, whether a cluster {plan.name} is in: {unread} (these zones do not answer)"] * bool(unread)),
    ]


def _routers(plan: Plan, answer: Any) -> tuple[Mapping[str, Any], ...]:
    """Return the routers of the cluster's network in its region; none if they cannot be read."""
    if answer is None or isinstance(answer, GoogleError):
        return ()
    project, network = plan.network
    end = f"projects/{project}/global/networks/{network}"
    return tuple(router for router in answer.get("items") or () if str(router.get("network")).endswith(end))


def _without_nat(plan: Plan, answer: Any, routers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a note if the network of private nodes has no Cloud NAT in the region, or if that is not known."""
    network = plan.network[1]
    if isinstance(answer, GoogleError):
        return [f"? not checked, whether the network {network} has Cloud NAT: {answer.message.rstrip('.')}"]
    wanted = plan.values["network"]["nat"] or plan.values["controllerImages"]
    if wanted or any(router.get("nats") for router in routers):
        return []
    return [
        f"! nodes have no public address (gke.network.privateNodes), and the network {network} has no Cloud NAT in "
        f"{plan.region}: they cannot load the images of Kueue and JobSet from registry.k8s.io, and up waits for these "
        "until it fails; set gke.network.nat to true, or gke.controllerImages, or create Cloud NAT first"
    ]
