"""Slices of accelerators: chips and hosts for a name and a topology, from the table in charts/common.

The host count of a TPU slice is computed: the topology's chips divided by the machine type's chips per host.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from launcher.config.suggest import join_or
from launcher.errors import LauncherError

_SHAPE = re.compile(r"[1-9][0-9]{0,8}(x[1-9][0-9]{0,8}){1,8}")
_PRODUCT = re.compile(r"(?P<name>[a-z0-9]+)-(?P<count>[1-9][0-9]{0,8})")
_ALIASES = {
    "v5litepod": "v5e",
    "v5-lite": "v5e",
    "v5lite": "v5e",
    "ironwood": "tpu7x",
    "v7x": "tpu7x",
    "trillium": "v6e",
}


TPU_LABEL, GPU_LABEL = "cloud.google.com/gke-tpu-accelerator", "cloud.google.com/gke-accelerator"
"""GKE's node labels for the accelerator."""
TPU_RESOURCE, NVIDIA_RESOURCE, AMD_RESOURCE = "google.com/tpu", "nvidia.com/gpu", "amd.com/gpu"
CHIPS = (TPU_RESOURCE, NVIDIA_RESOURCE, AMD_RESOURCE)


def resource(row: Mapping[str, Any]) -> str:
    """Return the extended resource of a row's chips, as common.resource in charts/common; "" for cpu."""
    default = {"tpu": TPU_RESOURCE, "gpu": NVIDIA_RESOURCE}.get(row["kind"], "")
    return str(row.get("resource") or default) if row["kind"] == "gpu" else default


def label_key(row: Mapping[str, Any]) -> str:
    """Return the node label whose value is the row's label; "" for cpu."""
    default = {"tpu": TPU_LABEL, "gpu": GPU_LABEL}.get(row["kind"], "")
    return str(row.get("labelKey") or default) if row["kind"] == "gpu" else default


class SliceError(LauncherError):
    """An invalid slice; `key` is the key under `slice` to fix."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


@dataclass(frozen=True)
class Slice:
    """One slice: `chips` in total on `hosts` machines of `machine_type` with `chips_per_host` each.

    `resource` is the extended resource of the chips, "" for cpu.

    For gpu a chip is a GPU; for cpu it is a host (JAX sees one device per process). `topology` is empty for both.
    """

    accelerator: str
    kind: str
    topology: str
    machine_type: str
    chips_per_host: int
    hosts: int
    resource: str = ""

    @property
    def chips(self) -> int:
        return self.hosts * self.chips_per_host


def resolve(wanted: Mapping[str, Any], table: Mapping[str, Any]) -> Slice:
    """Return the slice that `wanted` (the values under the key `slice`, for a single slice) describes, from `table`.

    Raises SliceError with a sentence that names the available choices.
    """
    name = wanted["accelerator"]
    row = table.get(name)
    if row is None:
        raise SliceError("accelerator", _no_accelerator(name, table))
    if row["kind"] == "tpu":
        return _tpu(name, row, wanted)
    if wanted["topology"]:
        raise SliceError("topology", f"only TPU slices have a topology; for {name}, set slice.hosts instead.")
    machine = wanted["machineType"] or row.get("defaultMachineType", "")
    machines = row["machineTypes"]
    if row["kind"] == "cpu":
        return Slice(name, "cpu", "", machine, machines.get(machine, 1), wanted["hosts"] or 1)
    if machine not in machines:
        message = f'"{machine}" is not a machine type of {name}; use {join_or(sorted(machines))}.'
        raise SliceError("machineType", message)
    return Slice(name, row["kind"], "", machine, machines[machine], wanted["hosts"] or 1, resource(row))


def _tpu(name: str, row: Mapping[str, Any], wanted: Mapping[str, Any]) -> Slice:
    topology = wanted["topology"]
    if wanted["hosts"]:
        raise SliceError("hosts", f"the topology of a {name} slice determines its hosts; remove slice.hosts.")
    machines = machine_types(row, topology)
    if not machines:
        raise SliceError("topology", _no_topology(name, row, topology))
    machine = wanted["machineType"] or machines[0]
    if machine not in machines:
        message = f'"{machine}" is not a machine type of a {name} slice of {topology}; use {join_or(machines)}.'
        raise SliceError("machineType", message)
    per_host = row["machineTypes"][machine]
    return Slice(name, "tpu", topology, machine, per_host, chips(topology) // per_host, resource(row))


def chips(topology: str) -> int:
    """Return the number of chips in a shape: the product of its sides."""
    return math.prod(map(int, topology.split("x")))


def machine_types(row: Mapping[str, Any], topology: str) -> list[str]:
    """Return the machine types that a TPU row lists for a shape, default first; empty if the row lacks the shape."""
    listed: list[str] | None = row.get("topologies", {}).get(topology)
    if listed is not None:
        return listed
    larger = row.get("larger")
    if larger is None or not _SHAPE.fullmatch(topology):
        return []
    sides = [int(side) for side in topology.split("x")]
    fits = (
        len(sides) == row["dimensions"]
        and all(side % 4 == 0 and side <= larger["maxSide"] for side in sides)
        and math.prod(sides) <= larger["maxCubes"] * 64
        and (not larger["ordered"] or sides == sorted(sides))
    )
    machines: list[str] = larger["machineTypes"] if fits else []
    return machines


def topologies(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield every shape of a TPU row: the listed shapes, then those that its rule generates."""
    yield from row.get("topologies", {})
    larger = row.get("larger")
    if larger is None:
        return
    cubes, side = larger["maxCubes"], larger["maxSide"] // 4  # in cubes of 4x4x4
    for x in range(1, min(cubes, side) + 1):
        for y in range(x if larger["ordered"] else 1, min(cubes // x, side) + 1):
            for z in range(y if larger["ordered"] else 1, min(cubes // (x * y), side) + 1):
                yield f"{4 * x}x{4 * y}x{4 * z}"


def best_shapes(row: Mapping[str, Any]) -> dict[int, str]:
    """Map each number of chips, in ascending order, to the shape that is nearest to a cube or a square."""
    best: dict[int, str] = {}
    for shape in topologies(row):
        count = chips(shape)
        if count not in best or _longest(shape) < _longest(best[count]):
            best[count] = shape
    return dict(sorted(best.items()))


def _longest(shape: str) -> tuple[list[int], list[int]]:
    """Return a sort key: the sides with the longest first, then the sides as written."""
    sides = [int(side) for side in shape.split("x")]
    return sorted(sides, reverse=True), sides


def _no_accelerator(name: str, table: Mapping[str, Any]) -> str:
    product = _PRODUCT.fullmatch(name.lower())
    known = _ALIASES.get(product["name"], product["name"]) if product else ""
    if product and known in table and table[known]["kind"] == "tpu":
        wanted = int(product["count"]) // table[known]["coresPerChip"]
        shape = best_shapes(table[known]).get(wanted)
        if shape:
            return f'unknown accelerator "{name}"; use slice.accelerator: {known} and slice.topology: {shape}.'
        return f'unknown accelerator "{name}"; use slice.accelerator: {known}. {_no_count(known, table[known], wanted)}'
    # The value of GKE's node label, or a machine type.
    labelled = [row for row in table if name in (table[row].get("label"), *table[row].get("machineTypes", ()))]
    alias = labelled[0] if labelled else _ALIASES.get(name.lower())
    begins = [row for row in table if row.startswith(name.lower())]
    near = [alias] if alias in table else begins or get_close_matches(name.lower(), list(table), n=1)
    guess = f" Did you mean {near[0]}?" if near else ""
    return (
        f'unknown accelerator "{name}"; use one of {", ".join(sorted(table))}, or add it to common.accelerators.{guess}'
    )


def _no_topology(name: str, row: Mapping[str, Any], topology: str) -> str:
    best = best_shapes(row)
    if not topology:
        some = list(best.values())
        more = " …" if len(some) > 8 else ""
        return f"a {name} slice requires a topology: {', '.join(some[:8])}{more}."
    product = _PRODUCT.fullmatch(topology.lower())
    wrong = f'"{topology}" is not a topology of {name}'
    written = re.sub(r"\s*[x\u00d7*]\s*", "x", topology.strip().lower())
    if written != topology and machine_types(row, written):
        return f"{wrong}; write it as {written}."
    if product and (product["name"] == name or _ALIASES.get(product["name"]) == name):
        wanted = int(product["count"]) // row["coresPerChip"]
        if wanted in best:
            return f"{wrong}; use {best[wanted]}."
    elif re.fullmatch(r"[1-9][0-9]{0,8}", topology):
        wanted = int(topology)
    elif _SHAPE.fullmatch(topology.lower()):
        wanted = chips(topology.lower())
    else:
        return f"{wrong}; use a shape such as {list(best.values())[:5][-1]}."
    if wanted in best:
        return f"{wrong}; for {wanted} chip{'s' if wanted != 1 else ''}, use {best[wanted]}."
    return f"{wrong}. {_no_count(name, row, wanted)}"


def _no_count(name: str, row: Mapping[str, Any], wanted: int) -> str:
    best = best_shapes(row)
    below = [count for count in best if count < wanted]
    above = [count for count in best if count > wanted]
    near = [f"{best[count]} ({count})" for count in below[-1:] + above[:1]]
    are = "the nearest are" if len(near) > 1 else "the nearest is"
    return f"No {name} slice has {wanted} chip{'s' if wanted != 1 else ''}; {are} {' and '.join(near)}."


def of_flavor(flavor: Mapping[str, Any], queues: Mapping[str, Any]) -> Slice:
    """Return the slice of a flavor of the queues' values. Raises SliceError if it is not valid."""
    keys = {"topology": "", "machineType": "", "hosts": 0, **{k: v for k, v in flavor.items() if v is not None}}
    return resolve(keys, queues["common"]["accelerators"])
