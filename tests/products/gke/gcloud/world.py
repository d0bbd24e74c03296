"""The state of a stub of Google's APIs before the first request, and the errors that its parts raise."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]

EVERYWHERE = ("us-east5-a", "us-east5-b", "us-east5-c", "europe-west4-a", "europe-west4-b")
TPU_ZONES: Mapping[str, tuple[str, ...]] = {
    "ct5lp-": ("europe-west4-b",),
    "ct5p-": ("us-east5-a", "europe-west4-b"),
    "ct6e-": ("us-east5-b", "us-east5-c", "europe-west4-a"),
}


class Refusal(Exception):
    """An error of Google's API. `code` is that of HTTP, `status` is Google's name, such as ALREADY_EXISTS."""

    def __init__(self, code: int, status: str, message: str) -> None:
        super().__init__(message)
        self.code, self.status, self.message = code, status, message

    def body(self) -> Object:
        """The JSON that Google returns."""
        reason = {"message": self.message, "domain": "global", "reason": self.status}
        return {"error": {"code": self.code, "message": self.message, "status": self.status, "errors": [reason]}}


def not_found(name: str) -> Refusal:
    return Refusal(404, "NOT_FOUND", f"Not found: {name}.")


def already_exists(name: str) -> Refusal:
    return Refusal(409, "ALREADY_EXISTS", f"Already exists: {name}.")


def invalid(message: str) -> Refusal:
    return Refusal(400, "INVALID_ARGUMENT", message)


@dataclass(frozen=True)
class Reservation:
    """Machines that a project has reserved in one zone. `count` and `used` are numbers of machines."""

    zone: str
    machine_type: str
    count: int
    used: int = 0


@dataclass
class World:
    """The project of a stub.

    zones: all zones. tpu_zones: the zones of the machine types that start with the key; other types are in all zones.
    chips: the quota of TPU chips of each region; the default is `default_chips`. Reservations need no quota.
    nats: the networks with Cloud NAT of other owners, each with a region.
    permissive: read, change and delete what does not exist, and check nothing but the fields of the bodies. Recordings
    are made this way, because each command runs alone.
    delay: seconds until an operation of GKE is done.
    """

    project: str = "demo"
    number: str = "123456789012"
    zones: tuple[str, ...] = EVERYWHERE
    tpu_zones: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: dict(TPU_ZONES))
    chips: Mapping[str, int] = field(default_factory=dict)
    default_chips: int = 256
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    nats: frozenset[tuple[str, str]] = frozenset()
    version: str = "1.36.3-gke.1519000"
    endpoint: str = "127.0.0.1"
    permissive: bool = False
    delay: float = 0

    def zones_of(self, location: str) -> list[str]:
        """The zones of a region, or the zone itself; empty if there is no such location."""
        return [zone for zone in self.zones if zone == location or zone.rpartition("-")[0] == location]

    def offers(self, zone: str, machine_type: str) -> bool:
        """Whether the zone has the machine type."""
        special = next((zones for prefix, zones in self.tpu_zones.items() if machine_type.startswith(prefix)), None)
        return zone in (self.zones if special is None else special)

    def quota(self, zone: str) -> int:
        """The TPU chips that the project may have in the region of `zone`."""
        return self.chips.get(zone.rpartition("-")[0], self.default_chips)


def chips_of_machine(machine_type: str) -> int:
    """The TPU chips of one machine, which Google writes at the end of the type; 0 if it has none."""
    match = re.fullmatch(r"(?:ct\w+|tpu\w+)-\w+-(\d+)t", machine_type)
    return int(match[1]) if match else 0


def chips_of_topology(topology: str) -> int:
    """The chips of a slice: 2x4 has 8."""
    return math.prod(int(side) for side in topology.split("x"))
