"""The speeds of a chip, from its row of the accelerator table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launcher.products.planner.forecast.constants import FASTER_BY_TYPE, HOP


@dataclass(frozen=True)
class Chip:
    """The speeds of one JAX device, in bytes per second. For the links of a collective: in one direction."""

    name: str
    clock: float  # Hz of the TensorCore; the compiler counts cycles of this clock
    peak: float  # dense bf16 FLOP/s
    hbm: float
    ici: float  # per link
    dcn: float  # a device's share of its host's network bandwidth
    host: float  # to or from the host's memory
    matrix_unit: int  # rows (and columns) of a systolic array
    faster: Mapping[str, float]  # speedup over bf16, by the type of the operands
    latency: float  # seconds per hop of a collective


def chip_of(row: Mapping[str, Any], devices_per_chip: int) -> Chip | None:
    """Return a device's share of the speeds in an accelerator's row, or None if a speed is not known (0)."""
    speeds = row.get("speeds")
    if not speeds or not all(speeds.values()) or not row["peakTflops"]:
        return None
    giga = 1e9
    return Chip(
        name=str(row.get("name") or ""),
        clock=float(speeds["clockGHz"]) * giga,
        peak=float(row["peakTflops"]) * 1e12 / devices_per_chip,
        hbm=float(speeds["hbmGBps"]) * giga / devices_per_chip,
        ici=float(speeds["iciGBps"]) * giga,
        dcn=float(speeds["dcnGBps"]) * giga / devices_per_chip,
        host=float(speeds["hostGBps"]) * giga / devices_per_chip,
        matrix_unit=int(speeds["matrixUnit"]),
        faster=FASTER_BY_TYPE.get(str(row.get("name")), {}),
        latency=HOP,
    )
