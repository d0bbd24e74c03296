"""Find in the values what Google Cloud would refuse, some of it only after minutes. Makes no request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from launcher.config import accelerators, versions
from launcher.config.accelerators import SliceError
from launcher.config.checks.problems import WARNING, Problem
from launcher.config.plan import CheckFailed
from launcher.config.suggest import closest, join_or
from launcher.config.values.tree import dotted
from launcher.helm.errors import NoHelm
from launcher.products.gke import plan as plans
from launcher.products.gke.values import ClusterValues
from launcher.releases import offline

# Sources: the references of the APIs (projects, GKE, Cloud Storage, Artifact Registry, IAM).
_PROJECT = re.compile(r"([a-z][a-z0-9.-]*:)?[a-z][a-z0-9-]{4,28}[a-z0-9]")
_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_NAME_LIMIT = 40
_LOCATION = re.compile(r"[a-z]+-[a-z]+[0-9]+(-[a-z])?")
_BUCKET = re.compile(r"[a-z0-9][-_a-z0-9]{1,61}[a-z0-9]")
_REGISTRY = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_IMAGES = re.compile(r"[a-z0-9][a-z0-9.-]*(:[0-9]+)?(/[a-z0-9._-]+)*")
_ACCOUNT = re.compile(r"[a-z][-a-z0-9]{4,28}[a-z0-9]")
_LABEL = re.compile(r"[a-z][-_a-z0-9]{0,62}=[-_a-z0-9]{0,63}")
_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")
_LONGEST_FLEX_START = 7 * 86400
# Kinds that the charts create, by Kueue's names.
_FRAMEWORKS = ("ray.io/rayjob", "ray.io/raycluster", "jobset.x-k8s.io/jobset")
# The network interfaces for traffic between GPUs of several hosts, and what uses them, by machine type. Source:
# https://cloud.google.com/compute/docs/gpus/gpu-network-bandwidth
_GPU_NETWORKS = {
    "a3-highgpu-8g": (4, "GPUDirect-TCPX"),
    "a3-megagpu-8g": (8, "GPUDirect-TCPXO"),
    "a3-ultragpu-8g": (8, "GPUDirect RDMA"),
    "a4-highgpu-8g": (8, "GPUDirect RDMA"),
}


def problems(values: ClusterValues) -> list[Problem]:
    """Return all problems, in the order of the file."""
    parts = (_names, _windows, _flavors, _controllers, _kueue, _groups)
    all_problems = [problem for part in parts for problem in part(values)]
    return sorted(all_problems, key=lambda problem: (problem.file is None, problem.file or "", problem.line or 0))


def of_queues(values: ClusterValues) -> list[Problem]:
    """Return what the chart of the queues would refuse, which is otherwise found only after the cluster exists.

    Without Helm, which evaluates the chart's rules, returns one warning.
    """
    try:
        offline.render_values("queues", None, values.queues_user, values.queues_effective)
    except NoHelm as error:
        return [Problem("helm", WARNING, f"The values of the queues are not checked: {error.message}", None, None, "")]
    except CheckFailed as error:
        return list(error.problems)
    return []


def _network(values: ClusterValues) -> Iterator[Problem]:
    network, key = values.cluster["network"], ("gke", "network", "nat")
    if not network["nat"]:
        return
    if not network["privateNodes"]:
        message = "gke.network.nat is for nodes without a public address; set gke.network.privateNodes to true, too."
        yield values.problem("network", key, message)
    elif str(network["name"]).startswith("projects/"):
        message = (
            f"gke.network.nat creates a router in gke.project, but the network is {network['name']}; create Cloud NAT "
            "in the network's project."
        )
        yield values.problem("network", key, message)


def _names(values: ClusterValues) -> Iterator[Problem]:
    cluster = values.cluster
    checks: list[tuple[str, str, re.Pattern[str], str]] = [
        (
            "project",
            cluster["project"],
            _PROJECT,
            "the id of a project: 6 to 30 lower-case letters, digits and hyphens",
        ),
        ("location", cluster["location"], _LOCATION, "a region such as us-east5, or a zone such as us-east5-b"),
        ("name", cluster["name"], _NAME, "lower-case letters, digits and hyphens, and begin with a letter"),
    ]
    if cluster["zone"]:
        checks.append(("zone", cluster["zone"], re.compile(r"[a-z]+-[a-z]+[0-9]+-[a-z]"), "a zone, such as us-east5-b"))
    if cluster["bucket"]["name"]:
        checks.append(
            ("bucket.name", cluster["bucket"]["name"], _BUCKET, "3 to 63 lower-case letters, digits, - and _")
        )
    if cluster["registry"]["name"]:
        checks.append(
            ("registry.name", cluster["registry"]["name"], _REGISTRY, "1 to 63 lower-case letters, digits and hyphens")
        )
    if cluster["controllerImages"]:
        checks.append(("controllerImages", cluster["controllerImages"], _IMAGES, "a registry and path, without a tag"))
    yield from _buckets(values)
    checks.append(
        (
            "nodeServiceAccount.name",
            cluster["nodeServiceAccount"]["name"],
            _ACCOUNT,
            "6 to 30 lower-case letters, digits and hyphens",
        )
    )
    for key, text, pattern, expected in checks:
        path = ("gke", *key.split("."))
        if not text:
            yield values.problem("missing-key", path, f"gke.{key} is not set; it must be {expected}.")
        elif not pattern.fullmatch(text):
            yield values.problem("name", path, f'gke.{key} is "{text}"; it must be {expected}.')
    if len(cluster["name"]) > _NAME_LIMIT:
        yield values.problem("name", ("gke", "name"), _too_long(f"gke.name {cluster['name']!r}"))
    for key, value in cluster["labels"].items():
        if not _LABEL.fullmatch(f"{key}={value}"):
            message = f"gke.labels.{key}: Google Cloud's labels have lower-case letters, digits, - and _ only."
            yield values.problem("label", ("gke", "labels", key), message)
    yield from _network(values)
    region = plans.region_of(cluster["location"])
    if not _LOCATION.fullmatch(cluster["location"]):
        return  # a problem of its own, from which the others would follow
    if cluster["zone"] and plans.region_of(cluster["zone"]) != region:
        message = f"gke.zone {cluster['zone']} is not in the region {region} of gke.location."
        yield values.problem("zone", ("gke", "zone"), message)
    if cluster["mode"] == "autopilot" and plans.is_zone(cluster["location"]):
        message = f"gke.location is the zone {cluster['location']}; an Autopilot cluster needs a region: {region}."
        yield values.problem("location", ("gke", "location"), message)
    elif cluster["mode"] == "standard" and not plans.is_zone(cluster["location"]) and not cluster["zone"]:
        message = (
            f"gke.location is the region {cluster['location']}, so gke.zone must name the zone of the "
            "accelerators: no slice spans zones."
        )
        yield values.problem("zone", ("gke", "location"), message)


def _buckets(values: ClusterValues) -> Iterator[Problem]:
    name = str(values.cluster["bucket"]["name"])
    teams = [team for team, entry in values.queues["teams"].items() if entry is not None]
    if values.cluster["bucket"]["shared"]:
        if name and len(teams) > 1:
            message = (
                f"gke.bucket.shared: each of the teams {', '.join(teams)} can read, replace and delete the checkpoints "
                f"of all others in the bucket {name}; without this key, each team has a bucket of its own."
            )
            yield values.problem("shared-bucket", ("gke", "bucket", "shared"), message, WARNING)
        return
    for team in teams:
        bucket = plans.bucket_of(name, team)
        if name and _BUCKET.fullmatch(name) and not _BUCKET.fullmatch(bucket):
            message = (
                f'the bucket of the team {team} is called "{bucket}" (gke.bucket.name and the name of the team); it '
                "must have 3 to 63 lower-case letters, digits, - and _."
            )
            yield values.problem("name", ("gke", "bucket", "name"), message)


def _too_long(what: str) -> str:
    return f"{what} is longer than {_NAME_LIMIT} characters, the limit of GKE."


def _windows(values: ClusterValues) -> Iterator[Problem]:
    window = values.cluster["maintenance"]
    path = ("gke", "maintenance")
    if bool(window["start"]) != bool(window["end"]):
        yield values.problem("maintenance", path, "gke.maintenance needs both start and end, or neither.")
    elif window["start"]:
        try:
            start, end = (datetime.fromisoformat(str(window[key])) for key in ("start", "end"))
            if (end - start).total_seconds() < 4 * 3600:
                message = "gke.maintenance: GKE needs windows of at least 4 hours; end is earlier than that."
                yield values.problem("maintenance", (*path, "end"), message)
        except (ValueError, TypeError):
            message = "gke.maintenance: start and end must be times such as 2026-01-03T04:00:00Z."
            yield values.problem("maintenance", path, message)
    days = values.cluster["bucket"]["softDeleteDays"]
    if 0 < days < 7:
        message = f"gke.bucket.softDeleteDays is {days}; it must be 0, or 7 to 90."
        yield values.problem("soft-delete", ("gke", "bucket", "softDeleteDays"), message)
    system = values.cluster["system"]
    if system["maxNodes"] < system["nodes"]:
        message = f"gke.system.maxNodes is {system['maxNodes']}, less than gke.system.nodes ({system['nodes']})."
        yield values.problem("system", ("gke", "system", "maxNodes"), message)


def _flavors(values: ClusterValues) -> Iterator[Problem]:
    flavors = values.queues["flavors"]
    if not flavors:
        message = "the values have no flavors, so node pools are deleted; add the values of the queues: -f FILE."
        yield values.problem("flavors", ("gke",), message, WARNING)
    for name in values.cluster["pools"]:
        if name not in flavors:
            near = closest(name, list(flavors))
            guess = f"; did you mean {near[0]}?" if near else f"; the flavors are {', '.join(flavors) or 'missing'}."
            yield values.problem("pools", ("gke", "pools", name), f"gke.pools.{name} is not a flavor{guess}")
    for name, flavor in flavors.items():
        if flavor is not None and flavor.get("create", True):
            yield from _flavor(name, flavor, values)


def _flavor(name: str, flavor: Mapping[str, Any], values: ClusterValues) -> Iterator[Problem]:
    path = ("flavors", name)
    if not flavor.get("accelerator"):
        yield values.problem("missing-key", path, f"flavors.{name}.accelerator is not set.")
        return
    try:
        slice_ = accelerators.of_flavor(flavor, values.queues)
    except SliceError as error:
        yield values.problem("slice", (*path, error.key), f"flavors.{name}.{error.key}: {error.message}")
        return
    over = values.cluster["pools"].get(name) or {}
    pool = ("gke", "pools", name)
    provisioning = flavor.get("provisioning") or "on-demand"
    machine = slice_.machine_type or values.cluster["cpu"]["machineType"]
    if slice_.kind == "cpu":
        quota = plans.cpu_nodes(name, values.queues, machine)
        if not plans.machine_size(machine)[0] and over.get("maxSlices") is None:
            message = (
                f"the size of {machine} is not known, so the number of nodes for the quota of {name} cannot be "
                f"computed; set gke.pools.{name}.maxSlices."
            )
            yield values.problem("machine-type", path, message)
    else:
        quota = plans.quota_slices(name, values.queues)
    if provisioning == "reservation" and not flavor.get("reservation"):
        message = f"flavors.{name}.reservation is not set; provisioning: reservation needs its name."
        yield values.problem("reservation", path, message)
    if slice_.hosts > 1 and machine in _GPU_NETWORKS:
        count, technology = _GPU_NETWORKS[machine]
        message = (
            f"flavors.{name}: slices of {slice_.hosts} hosts of {machine} use the ordinary network of the nodes, not "
            f"the {count} network interfaces for {technology}, so training on several hosts is slow; use slices of "
            "one host."
        )
        yield values.problem("gpu-network", path, message, WARNING)
    slices = quota if over.get("maxSlices") is None else over["maxSlices"]
    if quota and slices < quota:
        message = f"gke.pools.{name}.maxSlices is {slices}, but the quota of the queues is {quota} slices."
        yield values.problem("quota", (*pool, "maxSlices"), message, WARNING)
    kept = over.get("minSlices") or 0
    if kept > slices:
        message = f"gke.pools.{name}.minSlices is {kept}, more than the {slices} slices of the pools."
        yield values.problem("quota", (*pool, "minSlices"), message)
    longest = f"{name}-{slices}" if slice_.kind == "tpu" and slice_.hosts > 1 else name
    if len(longest) > _NAME_LIMIT:
        yield values.problem("name", path, _too_long(f"flavors.{name}: the name of its node pool {longest}"))
    elif not _NAME.fullmatch(longest):
        message = (
            f"flavors.{name}: the name of a node pool must have lower-case letters, digits and hyphens, and begin "
            "with a letter."
        )
        yield values.problem("name", path, message)
    if over.get("secondaryBootDisk") and not values.cluster["imageStreaming"]:
        message = f"gke.pools.{name}.secondaryBootDisk needs gke.imageStreaming: true."
        yield values.problem("image-streaming", (*pool, "secondaryBootDisk"), message)
    yield from _durations(name, provisioning, over, values)
    for key in ("reservationProject", "reservationBlock", "reservationSubBlock"):
        if over.get(key) and provisioning != "reservation":
            message = f"gke.pools.{name}.{key} applies only to provisioning: reservation; {name} is {provisioning}."
            yield values.problem("reservation", (*pool, key), message)
    if over.get("reservationSubBlock") and not over.get("reservationBlock"):
        message = f"gke.pools.{name}.reservationSubBlock needs gke.pools.{name}.reservationBlock, which contains it."
        yield values.problem("reservation", (*pool, "reservationSubBlock"), message)
    if values.cluster["mode"] == "autopilot" and (kept or over.get("compactPlacement")):
        message = f"gke.pools.{name}: Autopilot has no node pools; remove minSlices and compactPlacement."
        yield values.problem("autopilot", pool, message)


def _durations(name: str, provisioning: str, over: Mapping[str, Any], values: ClusterValues) -> Iterator[Problem]:
    pool = ("gke", "pools", name)
    flex = provisioning == "flex-start"
    if flex and over.get("minSlices"):
        message = f"gke.pools.{name}.minSlices: a flex-start pool begins with 0 nodes; remove the key."
        yield values.problem("flex-start", (*pool, "minSlices"), message)
    for key in ("maxRunDuration", "queuedProvisioning"):
        if over.get(key) is not None and not flex:
            message = f"gke.pools.{name}.{key} applies only to flex-start; {name} is {provisioning}."
            yield values.problem("flex-start", (*pool, key), message)
    text = over.get("maxRunDuration") or ""
    try:
        too_long = plans.seconds(text) > _LONGEST_FLEX_START
    except ValueError:
        message = f'gke.pools.{name}.maxRunDuration is "{text}"; it must be a duration such as 7d, 36h or 90m.'
        yield values.problem("flex-start", (*pool, "maxRunDuration"), message)
        return
    if too_long:
        message = f"gke.pools.{name}.maxRunDuration is {text}; flex-start nodes run for at most 7 days."
        yield values.problem("flex-start", (*pool, "maxRunDuration"), message)


def _groups(values: ClusterValues) -> Iterator[Problem]:
    if values.cluster["securityGroup"]:
        return
    for team, entry in values.queues["teams"].items():
        people = {role: (entry or {}).get(role) or {} for role in ("members", "leads", "viewers")}
        for role, name, kind in ((role, *each) for role, those in people.items() for each in those.items()):
            if kind == "Group":
                path = ("teams", team, role, name)
                message = (
                    f"{dotted(path)} is a Group, and GKE knows groups only with gke.securityGroup, such "
                    "as gke-security-groups@example.com; without it, its members have no rights."
                )
                yield values.problem("groups", path, message, WARNING)


def _controllers(values: ClusterValues) -> Iterator[Problem]:
    for name, version in values.cluster["controllers"].items():
        path = ("gke", "controllers", name)
        supported = versions.supported(name)
        parsed = versions.parse(version) if _VERSION.fullmatch(version) else None
        if parsed is None:
            message = f'gke.controllers.{name} is "{version}"; it must be a version such as 0.19.2.'
            yield values.problem("version", path, message)
        elif not supported.oldest <= parsed <= supported.newest:
            message = f"gke.controllers.{name} is {version}; Slipway supports {supported}."
            yield values.problem("version", path, message)


def _kueue(values: ClusterValues) -> Iterator[Problem]:
    """Yield what gke.kueueConfig takes from the runs, and keys of the queues that have no effect without it."""
    config = values.cluster["kueueConfig"]
    listed = (config.get("integrations") or {}).get("frameworks")
    path = ("gke", "kueueConfig", "integrations", "frameworks")
    if missing := [each for each in _FRAMEWORKS if listed is not None and each not in listed]:
        message = f"{'.'.join(path)} replaces Kueue's list, so it must contain {join_or(missing, 'and')}."
        yield values.problem("kueue", path, message)
    for key, of in (("fairWeight", "fairSharing"), ("admissionFairSharing", "admissionFairSharing")):
        owners = [
            (section, *each) for section in ("clusterQueues", "cohorts") for each in values.queues[section].items()
        ]
        set_in = [(section, name, key) for section, name, entry in owners if (entry or {}).get(key)]
        needs = f"{of}.usageHalfLifeTime" if of == "admissionFairSharing" else of
        half_life = str((config.get("admissionFairSharing") or {}).get("usageHalfLifeTime", ""))
        if set_in and (of not in config or (needs != of and not half_life.strip("0.hms"))):
            names = join_or([f"{section}.{name}" for section, name, _ in set_in], "and")
            message = (
                f"{key} of {names} has no effect unless Kueue's configuration has {needs}: set gke.kueueConfig.{needs}."
            )
            yield values.problem("kueue", set_in[0], message, WARNING)
