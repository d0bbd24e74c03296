"""The steps from what exists to the plan, in the order in which `up` runs them; each can be repeated."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from launcher.products.gke import commands, kueue_config
from launcher.products.gke.actual import Actual, is_ours
from launcher.products.gke.commands import Command
from launcher.products.gke.plan import TEAM_LABEL, Bucket, Member, Plan, Pool

CREATE, CHANGE, DELETE = "create", "change", "delete"
_CONFIG = "Kueue's configuration"


@dataclass(frozen=True)
class Step:
    """One change: `action` is create, change or delete, `what` the resource, and `command` the command that does it.

    `detail` describes the resource or the change. `check` is a command that succeeds if the step is already done, for
    the shell script; commands without a check have no effect if they are repeated.
    """

    action: str
    what: str
    command: Command
    detail: str = ""
    check: Command | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "action": self.action,
            "resource": self.what,
            "detail": self.detail,
            "command": [self.command.program, *self.command.arguments],
        }


PoolUse = Mapping[str, Sequence[str]]
"""The runs in each node pool that has any, as "namespace/name"."""


def steps(plan: Plan, actual: Actual, use: PoolUse | None = None) -> list[Step]:
    """Return the steps in Google Cloud, without those inside the cluster (see `inside`) and `removed_pools`."""
    pools = _pools(plan, actual, use or {})
    return [*_accounts(plan, actual), *_nat(plan, actual), *_cluster(plan, actual), *pools, *_storage(plan, actual)]


def all_steps(plan: Plan) -> list[Step]:
    """Return the steps for an empty project, for the shell script."""
    return steps(plan, Actual(project_number=""))


def removed_pools(plan: Plan, actual: Actual, use: PoolUse) -> tuple[list[Step], dict[str, Sequence[str]]]:
    """Return the steps that delete the pools that no flavor needs, and the runs in those that are kept for them.

    They are the last steps, after the queues: until the quota is less, Kueue admits runs that need these pools.
    """
    names = {pool.name for pool in _placed(plan, actual, use)}
    extra = [
        name
        for name, found in actual.pools.items()
        if name not in names and name != "default-pool" and is_ours(found, plan.name)
    ]
    deleted = [
        Step(DELETE, f"node pool {name}", commands.delete_pool(plan, name), "no flavor needs it")
        for name in extra
        if name not in use
    ]
    return deleted, {name: use[name] for name in extra if name in use}


def conflicts(plan: Plan, actual: Actual, use: PoolUse | None = None) -> list[str]:
    """Return a sentence for each difference that Google Cloud cannot change in place."""
    pools = _pool_conflicts(plan, actual, use or {})
    return [*_cluster_conflicts(plan, actual), *pools, *_bucket_conflicts(plan, actual)]


@dataclass(frozen=True)
class Inside:
    """The state inside the cluster.

    `controllers` are the versions by name, and `images` the images. `queues` is what an install of the queues would
    change, or "", and `users` has a line for each run that uses what it removes.
    """

    context: bool = False
    controllers: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)
    namespace: bool = False
    classes: bool = False
    queues: str = "a new release"
    users: Sequence[str] = ()
    kueue: kueue_config.Live = field(default_factory=kueue_config.Live)


def inside(plan: Plan, state: Inside) -> list[Step]:
    """Return the steps inside the cluster: credentials, controllers, ComputeClasses, queues."""
    made = []
    if not state.context:
        made.append(Step(CREATE, "kubeconfig context", commands.get_credentials(plan), commands.context(plan)))
    for name, version in plan.values["controllers"].items():
        now = state.controllers.get(name, "")
        config = kueue_config.wanted(plan.values["kueueConfig"], state.kueue, upgrade=now != version)
        config = config if name == "kueue" else ""
        image = commands.controller_image(plan, name)
        image = "" if now == version and state.images.get(name) == image else image
        if now == version and not (config or image):
            continue
        what, action = f"controller {name}", CHANGE if now else CREATE
        if now != version:
            detail = f"{now} -> {version}" if now else version
            made.append(Step(action, what, commands.apply_controller(plan, name), detail))
        if image:
            made.append(Step(action, what, commands.set_controller_image(plan, name), image))
        if config:
            detail = ", ".join(plan.values["kueueConfig"]) or "edits are kept"
            made.append(Step(CHANGE, _CONFIG, commands.apply_kueue_config(plan, config), detail))
            made.append(Step(CHANGE, _CONFIG, commands.restart_kueue(plan, config), "restart Kueue"))
        made.append(Step(action, what, commands.wait_for_controller(plan, name), "until it is ready"))
    if plan.autopilot and not state.classes:
        names = ", ".join(each["metadata"]["name"] for each in commands.compute_classes(plan))
        made.append(Step(CREATE, "compute classes", commands.apply_classes(plan), names))
    if not state.namespace:
        made.append(Step(CREATE, f"namespace {commands.NAMESPACE}", commands.apply_namespace(plan)))
    if state.queues:
        made.append(Step(CHANGE if state.namespace else CREATE, "queues", commands.install_queues(plan), state.queues))
    return made


# --- accounts ---------------------------------------------------------------------------------------------------


def _accounts(plan: Plan, actual: Actual) -> Iterator[Step]:
    if not set(commands.APIS) <= actual.apis:
        missing = [api.removesuffix(".googleapis.com") for api in commands.APIS if api not in actual.apis]
        yield Step(CHANGE, f"project {plan.project}", commands.enable_apis(plan), f"enable APIs: {', '.join(missing)}")
    if plan.values["nodeServiceAccount"]["create"]:
        if actual.accounts.get(plan.node_account) is None:
            yield _account(plan, plan.node_account, "for nodes")
        if (f"serviceAccount:{plan.node_account}", commands.NODE_ROLE) not in actual.project_roles:
            yield Step(CREATE, "role of the nodes", commands.grant_node_role(plan), commands.NODE_ROLE)
    for address in plan.google_accounts:
        if actual.accounts.get(address) is None:
            yield _account(plan, address, "for a team")


def _account(plan: Plan, address: str, what: str) -> Step:
    check = commands.gcloud("iam", "service-accounts", "describe", address, f"--project={plan.project}")
    return Step(
        CREATE, f"service account {address.partition('@')[0]}", commands.create_account(plan, address), what, check
    )


def _nat(plan: Plan, actual: Actual) -> Iterator[Step]:
    """Yield the steps that create Cloud NAT, unless the network has one: Google Cloud refuses a second one."""
    if not plan.values["network"]["nat"] or any(router.get("nats") for router in actual.routers):
        return
    if router_of(plan, actual) is None:
        command, check = commands.create_router(plan), commands.describe_router(plan)
        yield Step(CREATE, f"router {plan.name}", command, f"{plan.region}, network {plan.network[1]}", check)
    command, check = commands.create_nat(plan), commands.describe_nat(plan)
    yield Step(CREATE, f"Cloud NAT {plan.name}", command, "for all subnetworks of the region", check)


def router_of(plan: Plan, actual: Actual) -> Mapping[str, Any] | None:
    """Return the router with the name of the cluster, or None."""
    return next((router for router in actual.routers if router.get("name") == plan.name), None)


# --- the cluster ------------------------------------------------------------------------------------------------


def _cluster(plan: Plan, actual: Actual) -> Iterator[Step]:
    if actual.cluster is None:
        kind = "Autopilot" if plan.autopilot else f"Standard, {plan.values['system']['machineType']} for controllers"
        check = commands.describe_cluster(plan)
        yield Step(CREATE, f"cluster {plan.name}", commands.create_cluster(plan), f"{plan.location}, {kind}", check)
        if plan.autopilot and commands.maintenance_flags(plan):
            yield Step(CHANGE, f"cluster {plan.name}", commands.set_maintenance(plan), "maintenance window")
        return
    window = plan.values["maintenance"]
    if window["start"] and not _same_window(window, actual.cluster):
        yield Step(CHANGE, f"cluster {plan.name}", commands.set_maintenance(plan), "maintenance window")
    if missing := _missing_addons(plan, actual.cluster):
        command = commands.enable_addons(plan, missing)
        yield Step(CHANGE, f"cluster {plan.name}", command, f"enable add-ons: {', '.join(missing)}")


def _same_window(window: Mapping[str, Any], cluster: Mapping[str, Any]) -> bool:
    now = ((cluster.get("maintenancePolicy") or {}).get("window") or {}).get("recurringWindow") or {}
    bounds = now.get("window") or {}
    wanted = (window["start"], window["end"], window["recurrence"])
    return wanted == (_utc(bounds.get("startTime")), _utc(bounds.get("endTime")), now.get("recurrence"))


def _utc(time: object) -> str:
    return str(time or "").replace("+00:00", "Z")


_ADDONS = {
    "GcsFuseCsiDriver": "gcsFuseCsiDriverConfig",
    "RayOperator": "rayOperatorConfig",
}


def _missing_addons(plan: Plan, cluster: Mapping[str, Any]) -> list[str]:
    config = cluster.get("addonsConfig") or {}
    wanted = [name for name in _ADDONS if name != "RayOperator" or plan.values["rayOperator"]]
    if plan.autopilot:  # Autopilot has the driver for buckets always
        wanted = [name for name in wanted if name == "RayOperator"]
    return [name for name in wanted if not (config.get(_ADDONS[name]) or {}).get("enabled")]


def _cluster_conflicts(plan: Plan, actual: Actual) -> Iterator[str]:
    cluster = actual.cluster
    if cluster is None:
        return
    is_autopilot = bool((cluster.get("autopilot") or {}).get("enabled"))
    if is_autopilot != plan.autopilot:
        mode = "Autopilot" if is_autopilot else "Standard"
        yield (
            f"gke.mode is {plan.values['mode']}, but the cluster {plan.name} is {mode}, which cannot change; use "
            "another gke.name."
        )
    if not plan.autopilot and not (cluster.get("workloadIdentityConfig") or {}).get("workloadPool"):
        yield (
            f"the cluster {plan.name} has no Workload Identity, so the teams cannot use the bucket; enable it: gcloud "
            f"container clusters update {plan.name} --workload-pool={plan.project}.svc.id.goog"
        )
    network = plan.values["network"]["name"]
    if network and str(cluster.get("network") or network) != network:
        yield f"gke.network.name is {network}, but the cluster is in {cluster['network']}, which cannot change."


# --- node pools -------------------------------------------------------------------------------------------------


def _placed(plan: Plan, actual: Actual, use: PoolUse) -> list[Pool]:
    """Return the pools of the plan, those of whole slices under the names of existing pools of their flavor.

    All pools of such a flavor are equal, so the plan needs a number of them, not certain ones. Pools with runs are
    taken first, then those with the lowest numbers.
    """
    placed: list[Pool] = []
    fixed = {pool.name for pool in plan.pools if not pool.whole_slice}
    groups: dict[str, list[Pool]] = {}
    for pool in plan.pools:
        groups.setdefault(pool.flavor, []).append(pool)
    for flavor, pools in groups.items():
        if not pools[0].whole_slice:
            placed += pools
            continue
        there = [
            name
            for name, found in actual.pools.items()
            if re.fullmatch(rf"{re.escape(flavor)}-[0-9]+", name) and name not in fixed and is_ours(found, plan.name)
        ]
        kept = sorted(there, key=lambda name: (name not in use, _number(name)))[: len(pools)]
        free = [pool.name for pool in pools if pool.name not in there]
        names = sorted([*kept, *free[: len(pools) - len(kept)]], key=_number)
        placed += [replace(pool, name=name) for pool, name in zip(pools, names, strict=True)]
    return placed


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])


def _pools(plan: Plan, actual: Actual, use: PoolUse) -> Iterator[Step]:
    existing = actual.pools
    for pool in _placed(plan, actual, use):
        live = existing.get(pool.name)
        if live is None:
            check = commands.describe_pool(plan, pool.name)
            yield Step(CREATE, f"node pool {pool.name}", commands.create_pool(plan, pool), describe(pool), check)
        elif not _immutable(pool, live) and (change := _scaling_change(pool, live)):
            if pool.whole_slice and pool.min_slices:  # first the nodes, so that this is repeated if it is interrupted
                yield Step(CHANGE, f"node pool {pool.name}", commands.resize_pool(plan, pool), "create its nodes")
            yield Step(CHANGE, f"node pool {pool.name}", commands.scale_pool(plan, pool), change)


def describe(pool: Pool) -> str:
    """Return a pool as text: "4 x ct6e-standard-4t, topology 4x4, spot, 0 or 4 nodes"."""
    parts = [f"{pool.hosts} x {pool.machine_type}" if pool.hosts > 1 else pool.machine_type]
    if pool.topology:
        parts.append(f"topology {pool.topology}")
    if pool.kind == "gpu":
        parts.append(f"{pool.chips_per_host} GPUs each")
    if pool.provisioning != "on-demand":
        parts.append(" ".join(filter(None, [pool.provisioning, pool.reservation])))
    if pool.min_nodes == pool.max_nodes:
        parts.append(f"{pool.max_nodes} nodes")
    else:
        parts.append(f"{pool.min_nodes} {'or' if pool.whole_slice else 'to'} {pool.max_nodes} nodes")
    return ", ".join(parts)


def _scaling_change(pool: Pool, live: Mapping[str, Any]) -> str:
    """Return what changes in the autoscaling of a pool, or ""."""
    scaling = live.get("autoscaling") or {}
    if not pool.whole_slice:
        now = (int(scaling.get("totalMinNodeCount") or 0), int(scaling.get("totalMaxNodeCount") or 0))
        wanted = (pool.min_nodes, pool.max_nodes)
        return "" if now == wanted else f"{now[0]} to {now[1]} nodes -> {wanted[0]} to {wanted[1]} nodes"
    if bool(scaling.get("enabled")) != bool(pool.min_slices):
        return ""
    return "the slice always runs" if pool.min_slices else f"0 or {pool.max_nodes} nodes, by autoscaling"


def _immutable(pool: Pool, live: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the differences that GKE cannot change in a pool: what, now, wanted."""
    config, placement = live.get("config") or {}, live.get("placementPolicy") or {}
    affinity = config.get("reservationAffinity") or {}
    reserved = affinity.get("values") if affinity.get("consumeReservationType") == "SPECIFIC_RESERVATION" else []
    pairs = [
        ("machine type", str(config.get("machineType") or ""), pool.machine_type),
        ("topology", str(placement.get("tpuTopology") or ""), pool.topology),
        ("spot", str(bool(config.get("spot"))), str(pool.provisioning == "spot")),
        ("flex-start", str(bool(config.get("flexStart"))), str(pool.provisioning == "flex-start")),
        ("reservation", ",".join(reserved or []), pool.reservation),
        ("queued provisioning", str(bool((live.get("queuedProvisioning") or {}).get("enabled"))), str(pool.queued)),
    ]
    return [pair for pair in pairs if pair[1] != pair[2]]


def _pool_conflicts(plan: Plan, actual: Actual, use: PoolUse) -> Iterator[str]:
    for pool in _placed(plan, actual, use):
        live = actual.pools.get(pool.name)
        if live is None:
            continue
        if differences := _immutable(pool, live):
            changed = ", ".join(
                f"{what} {now or 'none'} instead of {want or 'none'}" for what, now, want in differences
            )
            yield (
                f"the node pool {pool.name} has {changed}, which GKE cannot change. Delete it, and run up again: "
                f"gcloud container node-pools delete {pool.name} --cluster={plan.name} --project={plan.project} "
                f"--location={plan.location}"
            )
        elif live.get("status") == "ERROR":
            yield f"the node pool {pool.name} has the status ERROR: {live.get('statusMessage') or 'no message'}"


# --- bucket and registry ----------------------------------------------------------------------------------------


def _storage(plan: Plan, actual: Actual) -> Iterator[Step]:
    if plan.registry:
        if actual.registry is None:
            check = commands.describe_registry(plan)
            yield Step(
                CREATE, f"registry {plan.registry}", commands.create_registry(plan), plan.registry_location, check
            )
        if (f"serviceAccount:{plan.node_account}", commands.READER_ROLE) not in actual.registry_roles:
            yield Step(CREATE, "role of the nodes", commands.grant_registry(plan), commands.READER_ROLE)
    for bucket in plan.buckets:
        live = actual.buckets.get(bucket.name)
        if live is None:
            check = commands.describe_bucket(bucket)
            create = commands.create_bucket(plan, bucket)
            yield Step(CREATE, f"bucket {bucket.name}", create, plan.bucket_location, check)
        # A bucket that was created before, and not by Slipway, stays unlabelled, so that `down` never deletes it.
        if live is None or (not live.get("labels") and bucket.name in actual.empty_buckets):
            yield Step(CHANGE, f"bucket {bucket.name}", commands.label_bucket(plan, bucket), "labels")
        for member in bucket.members:
            yield from _grants(plan, actual, bucket, member)
    yield from _revocations(plan, actual)


def _grants(plan: Plan, actual: Actual, bucket: Bucket, member: Member) -> Iterator[Step]:
    what = f"role of team {member.team}"
    if member.google_account:
        identity = (commands.kubernetes_identity(plan, member), commands.IDENTITY_ROLE)
        if identity not in actual.account_roles.get(member.google_account, ()):
            yield Step(CREATE, what, commands.grant_identity(plan, member), commands.IDENTITY_ROLE)
    principal = _principal(plan, actual, member)
    if (principal, commands.BUCKET_ROLE) not in actual.bucket_roles.get(bucket.name, ()):
        yield Step(CREATE, what, commands.grant_bucket(plan, bucket, member), _role_on(bucket.name))


def _principal(plan: Plan, actual: Actual, member: Member) -> str:
    return commands.identity_of(plan, member).replace(commands.PROJECT_NUMBER, actual.project_number)


def _role_on(bucket: str) -> str:
    return f"{commands.BUCKET_ROLE} on gs://{bucket}"


def _revocations(plan: Plan, actual: Actual, *, keep: bool = True) -> Iterator[Step]:
    """Yield the steps that revoke roles on the buckets that Slipway made: of teams that are gone, or with the values.

    A role is revoked if it is that of the teams, and its principal is a Kubernetes service account of the project or a
    Google service account that Slipway made. Without `keep`, the roles of the plan's teams are revoked, too.
    """
    planned = {bucket.name: {_principal(plan, actual, m) for m in bucket.members} for bucket in plan.buckets}
    identities = commands.identities(plan, actual.project_number)
    accounts: set[str] = set()
    for name, bucket in actual.buckets.items():
        if bucket is None or not is_ours(bucket, plan.name):
            continue
        team = str((bucket.get("labels") or {}).get(TEAM_LABEL) or "")
        for member, role in sorted(actual.bucket_roles.get(name, ())):
            if role != commands.BUCKET_ROLE or (keep and member in planned.get(name, ())):
                continue
            address = member.removeprefix("serviceAccount:")
            account = actual.accounts.get(address)
            if account is not None and is_ours(account, plan.name):
                accounts.add(address)
            elif not member.startswith(identities):
                continue
            whose = team or member.removeprefix(identities).partition("/")[0].partition("@")[0]
            what = f"role of team {whose.removeprefix('serviceAccount:')}"
            yield Step(DELETE, what, commands.revoke_bucket(name, member), _role_on(name))
    for address in sorted(accounts - ({m.google_account for m in plan.members} if keep else set())):
        for member, role in sorted(actual.account_roles.get(address, ())):
            if role == commands.IDENTITY_ROLE and member.startswith(f"serviceAccount:{plan.project}.svc.id.goog["):
                what = f"role of service account {address.partition('@')[0]}"
                yield Step(DELETE, what, commands.revoke_identity(address, member), commands.IDENTITY_ROLE)


def _bucket_conflicts(plan: Plan, actual: Actual) -> Iterator[str]:
    """Yield a sentence for a bucket of all teams, if the values do not say that each team gets its own."""
    if plan.sharing_is_set or not plan.buckets:
        return
    teams = {_principal(plan, actual, member): member.team for member in plan.members}
    names = {bucket.name for bucket in plan.buckets}
    for name, bucket in actual.buckets.items():
        roles = actual.bucket_roles.get(name, ())
        using = sorted(teams[member] for member, role in roles if role == commands.BUCKET_ROLE and member in teams)
        if bucket is None or name in names or not using:
            continue
        ours = is_ours(bucket, plan.name)
        then = "up then revokes the roles on" if ours else "then revoke the roles yourself, as Slipway did not make"
        yield (
            f"{'the teams' if len(using) > 1 else 'the team'} {', '.join(using)} can use the bucket {name}, and "
            "gke.bucket.shared is not set. To keep it for "
            "all teams, set it to true. To separate them, copy the files of each team to its own bucket "
            f"({min(names)}), change storage.bucket of its runs, and set it to false; {then} {name}."
        )


# --- the end ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Removal:
    """The steps of `down`, and a sentence for each resource that it keeps."""

    steps: Sequence[Step]
    kept: Sequence[str]


def removal(plan: Plan, actual: Actual, *, bucket: bool) -> Removal:
    """Return the steps that delete what Slipway made for the cluster, found by its labels and descriptions."""
    removals: list[Step] = []
    kept: list[str] = []

    def one(what: str, resource: Mapping[str, Any] | None, command: Command, detail: str = "") -> None:
        if resource is None:
            return
        if is_ours(resource, plan.name):
            removals.append(Step(DELETE, what, command, detail))
        else:
            kept.append(f"the {what} was not made by Slipway for the cluster {plan.name}.")

    pools = len(actual.pools)
    one(f"cluster {plan.name}", actual.cluster, commands.delete_cluster(plan), f"with its {pools} node pools")
    if plan.values["network"]["nat"]:
        one(f"router {plan.name}", router_of(plan, actual), commands.delete_router(plan), "with Cloud NAT")
    if plan.registry:
        one(f"registry {plan.registry}", actual.registry, commands.delete_registry(plan), "with its images")
    there = {name: removals for name, removals in sorted(actual.buckets.items()) if removals is not None}
    if bucket:
        for name, existing in there.items():
            one(f"bucket {name}", existing, commands.delete_bucket(name), "with all checkpoints")
    else:
        removals += _revocations(plan, actual, keep=False)
        kept += [f"the bucket {name} with its checkpoints; to delete it, add --delete-bucket." for name in there]
    node_role = (f"serviceAccount:{plan.node_account}", commands.NODE_ROLE)
    account = actual.accounts.get(plan.node_account)
    if account is not None and is_ours(account, plan.name) and node_role in actual.project_roles:
        removals.append(Step(DELETE, "role of the nodes", commands.revoke_node_role(plan), commands.NODE_ROLE))
    for address, resource in actual.accounts.items():
        if address == plan.node_account or address in plan.google_accounts:
            one(f"service account {address.partition('@')[0]}", resource, commands.delete_account(plan, address))
    return Removal(removals, kept)
