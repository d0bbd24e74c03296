"""Inputs of the rules on `train`: MaxText's keys, the devices that JAX will see, and the mesh for both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from launcher.config import accelerators
from launcher.config.checks.cluster_rules import contradictions
from launcher.config.checks.problems import CheckContext, table_of
from launcher.config.kinds import RunKind
from launcher.config.maxtext import models
from launcher.config.maxtext.mesh import Mesh, MeshError, devices_per_slice, mesh

SLICE = ("slice.accelerator", "slice.topology", "slice.machineType", "slice.hosts", "slice.count")
"""The keys that select a run's slices."""


@dataclass(frozen=True)
class Devices:
    """Slices of `each` devices; `words` describes one of them."""

    kind: str
    slices: int
    each: int
    words: str

    @property
    def total(self) -> int:
        return self.slices * self.each


def train_of(case: CheckContext) -> Mapping[str, Any] | None:
    """Return MaxText's keys if they are valid and the run trains; otherwise None.

    Without any key, the run trains MaxText's default model.
    """
    train = {key: value for key, value in case.tree["train"].items() if value is not None}
    if not case.train_valid or case.tree["run"]["command"] or not models.row_of(train):
        return None
    return train


def devices_of(case: CheckContext) -> Devices | None:
    """Return the devices that JAX will see; None if they are not known here."""
    part, table = case.tree["slice"], table_of(case.tree)
    if next(contradictions(case), None):
        return None
    try:
        spec = accelerators.resolve(part, table)
    except accelerators.SliceError:
        return None
    count = int(part["count"])
    if spec.kind == "tpu":
        devices = devices_per_slice(spec)
        chips = f" ({devices} devices)" if devices != spec.chips else ""
        plural = "s" if spec.chips != 1 else ""
        return Devices(
            "tpu", count, devices, f"a {spec.accelerator} slice of {spec.topology} has {spec.chips} chip{plural}{chips}"
        )
    if "xla_force_host_platform_device_count" in case.tree["worker"]["env"].get("XLA_FLAGS", ""):
        return None
    if case.kind is not RunKind.LOCAL and spec.hosts * count > 1:
        return None  # several machines without TPUs: JAX decides whether it sees one slice or one per machine
    devices = spec.chips * count
    plural = "s" if devices != 1 else ""
    return Devices(spec.kind, 1, devices, f"the run has {devices} device{plural}")


def mesh_of(train: Mapping[str, Any], devices: Devices) -> Mesh | None:
    try:
        return mesh(train, slices=devices.slices, devices=devices.each)
    except MeshError:
        return None


def path_of(case: CheckContext, keys: Sequence[str]) -> tuple[str, str]:
    """Return the path of the first of MaxText's `keys` that the user set; otherwise of the first key."""
    given = [key for key in keys if is_given(case, key)]
    return ("train", [*given, *keys][0])


def is_given(case: CheckContext, key: str) -> bool:
    return ("train", key) in case.user.origins
