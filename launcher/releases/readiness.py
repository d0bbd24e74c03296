"""Readiness of a release's objects, by the conditions that Kueue and KubeRay set. Helm does not check them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from launcher import hooks
from launcher.k8s import objects
from launcher.k8s.client import CLUSTER_QUEUE, LOCAL_QUEUE, RAY_CLUSTER, RAY_SERVICE
from launcher.k8s.kueue.queues import Queue
from launcher.k8s.objects import Manifest

if TYPE_CHECKING:
    from launcher.k8s.client import Cluster, Kind

SECONDS = {"queues": 30.0, "ray-cluster": 900.0, "serve": 1800.0}
"""The default wait per chart. Kueue is ready within moments; a Ray cluster's nodes must be created first, and a served
model is also loaded and compiled."""


_FINAL_SECONDS = 10.0
"""How long the wait continues after an object has failed: the failure can be that of the previous values."""


class Final(str):
    """A sentence about an object that does not become ready by waiting."""

    __slots__ = ()


def wait(cluster: Cluster, rendered: Sequence[Manifest], say: Callable[[str], None], seconds: float) -> list[str]:
    """Wait until all objects are ready; return what is not ready at the end. Reports each change to `say`.

    Ends early if an object cannot become ready.
    """
    deadline, before, last_hope = time.monotonic() + seconds, "", time.monotonic()
    while missing := not_ready(cluster, rendered):
        left = deadline - time.monotonic()
        if not any(isinstance(each, Final) for each in missing):
            last_hope = time.monotonic()
        if left <= 0 or time.monotonic() - last_hope > _FINAL_SECONDS:
            break
        now = missing[0]
        if len(missing) > 1:
            now = f"{now.rstrip('.')}, and {len(missing) - 1} more."
        if now != before:
            say(f"Waiting: {now}")
            before = now
        time.sleep(min(1.0, left))
    return missing


def not_ready(cluster: Cluster, rendered: Sequence[Manifest]) -> list[str]:
    """Return a sentence for each object of the release that is not ready."""

    looks = {
        CLUSTER_QUEUE.kind: (CLUSTER_QUEUE, _queue),
        LOCAL_QUEUE.kind: (LOCAL_QUEUE, _queue),
        RAY_CLUSTER.kind: (RAY_CLUSTER, _asked),
        RAY_SERVICE.kind: (RAY_SERVICE, _asked),
    }
    missing = []
    for obj in rendered:
        if obj["kind"] in looks:
            kind, look = looks[obj["kind"]]
            missing.append(look(cluster, kind, cluster.get(kind, objects.name(obj), objects.namespace(obj) or None)))
    return [sentence for sentence in missing if sentence]


def _queue(_cluster: Cluster, kind: Kind, live: Manifest | None) -> str:
    if live is None:
        return f"A {kind.kind} of the release no longer exists."
    called = objects.title({"kind": kind.kind, **live})
    queue = Queue(live)
    if queue.stopped:  # by its values
        return ""
    active = queue.condition("Active")
    if not active:
        return f"{called}: Kueue has not processed it yet."
    return "" if active.is_true else f"{called} is not active: {active.message.rstrip('.')}."


def _asked(cluster: Cluster, kind: Kind, live: Manifest | None) -> str:
    if live is None:
        return f"The {kind.kind} of the release no longer exists."
    return hooks.not_ready(cluster, kind.kind, live)
