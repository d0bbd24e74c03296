"""Nodes as typed values, with their taints, and the tolerations of pods and flavors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import NamedTuple

from launcher.k8s.objects import ApiObject, Object, quantity


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration of a pod. An empty effect or key matches any, and the operator Exists matches any value."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


class Taint(NamedTuple):  # a named tuple, because thousands of nodes have taints
    """A taint of a node or of a flavor. As text, it is in kubectl's form: key=value:effect."""

    key: str
    value: str
    effect: str

    def __str__(self) -> str:
        return f"{self.key}{f'={self.value}' if self.value else ''}:{self.effect}"

    @property
    def repels(self) -> bool:
        """Whether pods that do not tolerate it are not scheduled to the node."""
        return self.effect in ("NoSchedule", "NoExecute")

    def tolerated(self, tolerations: Iterable[Toleration]) -> bool:
        """Return whether one of these tolerations matches it."""
        return any(toleration.tolerates(self) for toleration in tolerations)


class Node(ApiObject):
    """A node."""

    @property
    def ready(self) -> bool:
        return self.is_true("Ready")

    @property
    def cordoned(self) -> bool:
        return bool(self.spec.get("unschedulable"))

    @cached_property
    def taints(self) -> tuple[Taint, ...]:
        return taints(self.spec.get("taints"))

    def has(self, labels: Mapping[str, str]) -> bool:
        """Return whether it has all these labels."""
        return labels.items() <= self.labels.items()

    def allocatable(self, resource: str) -> Decimal:
        """Return how much of a resource all its pods together can request."""
        amount = (self.status.get("allocatable") or {}).get(resource)
        return quantity(amount) if amount else Decimal()


def taints(entries: Iterable[Object] | None) -> tuple[Taint, ...]:
    return tuple([Taint(entry["key"], entry.get("value") or "", entry.get("effect") or "") for entry in entries or ()])


def tolerations(spec: Object) -> tuple[Toleration, ...]:
    """Return the tolerations in the spec of a pod or of a flavor."""
    return tuple(
        Toleration(
            entry.get("key") or "", entry.get("operator") or "", entry.get("value") or "", entry.get("effect") or ""
        )
        for entry in spec.get("tolerations") or ()
    )
