"""Pods as typed values, with the states of their containers, and the Jobs that create them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property

from launcher.k8s.objects import ApiObject, Condition, Object, parse_time


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container has not started, as the kubelet reports it."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Termination:
    """The end of a container. `message` is what it wrote to its termination log."""

    exit_code: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Container:
    """The state of a container: `waiting`, or `ended`, or None of both if it runs.

    `ended_before` is the end before its last restart, and `restarts` how often it was restarted in its pod.
    """

    name: str
    image: str
    restarts: int
    waiting: Waiting | None
    ended: Termination | None
    ended_before: Termination | None


class Pod(ApiObject):
    """A pod."""

    @property
    def phase(self) -> str:
        return self.status.get("phase") or ""

    @property
    def address(self) -> str:
        """Its IP address, or "" before it has one."""
        return self.status.get("podIP") or ""

    @property
    def node(self) -> str:
        """The name of its node, or "" before it has one."""
        return self.spec.get("nodeName") or ""

    @property
    def deletion_requested(self) -> str:
        """When its deletion was requested (RFC 3339), or "".

        The deletion timestamp is the end of the grace period, which starts at the request.
        """
        meta = self.raw["metadata"]
        ends = meta.get("deletionTimestamp")
        if not ends:
            return ""
        try:
            return (parse_time(ends) - timedelta(seconds=meta.get("deletionGracePeriodSeconds") or 0)).isoformat()
        except OverflowError:  # in the first years that Python knows
            return str(ends)

    @property
    def ready(self) -> bool:
        return self.is_true("Ready")

    @property
    def scheduled(self) -> Condition:
        return self.condition("PodScheduled")

    @property
    def unschedulable(self) -> bool:
        """Whether the scheduler has tried, and found no node for it."""
        return self.scheduled.is_false and self.scheduled.reason == "Unschedulable"

    @property
    def preparing(self) -> bool:
        """Whether it has a node, but its containers do not run yet."""
        return self.scheduled.is_true and self.phase == "Pending"

    @cached_property
    def init_containers(self) -> tuple[Container, ...]:
        return tuple(map(_container, self.status.get("initContainerStatuses") or ()))

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        """Its containers without the init containers; () before the kubelet has reported them."""
        return tuple(map(_container, self.status.get("containerStatuses") or ()))

    @property
    def all_containers(self) -> tuple[Container, ...]:
        """Its containers, the init containers first."""
        return (*self.init_containers, *self.containers)

    @property
    def restarts(self) -> int:
        """The restarts of the container that was restarted most often."""
        return max((container.restarts for container in self.containers), default=0)

    @property
    def container_names(self) -> list[str]:
        """The names of its containers without the init containers, from its spec."""
        return [container["name"] for container in self.spec.get("containers") or ()]


class Job(ApiObject):
    """A Job of a JobSet."""

    @property
    def parallelism(self) -> int:
        """The number of pods that it runs at the same time."""
        return self.spec.get("parallelism") or 1


def pods(listed: Iterable[Object]) -> list[Pod]:
    return list(map(Pod, listed))


def newest(those: Iterable[Pod]) -> Pod | None:
    """Return the pod that was created last, or None."""
    return max(those, key=lambda pod: pod.created, default=None)


def _container(entry: Object) -> Container:
    state, before = entry.get("state") or {}, entry.get("lastState") or {}
    waiting = state.get("waiting")
    return Container(
        entry["name"],
        entry.get("image") or "",
        entry.get("restartCount") or 0,
        Waiting(waiting.get("reason") or "", waiting.get("message") or "") if waiting else None,
        _termination(state.get("terminated")),
        _termination(before.get("terminated")),
    )


def _termination(entry: Object | None) -> Termination | None:
    if not entry:
        return None
    return Termination(entry.get("exitCode") or 0, entry.get("reason") or "", entry.get("message") or "")
