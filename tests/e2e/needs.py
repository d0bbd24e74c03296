"""Declares what a test needs from a cluster, and compares it with what a cluster has. Pure functions.

    @needs(kueue="0.16", jobset="0.10", image=True, nodes=1, cpu=2, memory_gib=8)

A test with unmet needs is skipped. The reason names each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest

from launcher.config import versions

Version = tuple[int, int]


class FixedBy(StrEnum):
    """The fix of an unmet need: a change of the cluster by its administrator, or a setting of the suite."""

    CLUSTER = "cluster"
    SETTING = "setting"


@dataclass(frozen=True)
class UnmetNeed:
    """A need that a cluster does not meet; `text` follows the word "needs"."""

    fixed_by: FixedBy
    text: str


@dataclass(frozen=True)
class Controller:
    """A controller of the cluster; `version` is "" if its image does not have one; `ready`: at least one pod is."""

    name: str
    version: str
    ready: bool
    namespace: str = ""


@dataclass(frozen=True)
class Facts:
    """The parts of a cluster that tests need.

    controllers: by kueue, jobset, kuberay. crds: the served kinds, as "plural.group/version". nodes, cpu (cores),
    memory_gib: what ready nodes without taints, except simulated ones, have for ordinary pods. simulated: why no
    nodes can be simulated, or "". storage: why no storage is available that all hosts of a run can write to, or "";
    storage_class and access_mode belong to that storage. refused: the rights that the user does not have, by their
    names in RIGHTS. earlier: why the charts of an earlier release are not available, or "". ray: why no Ray runs in the
    pods, or "". restart_job: why JobSet does not accept its action RestartJob, or "".
    """

    controllers: Mapping[str, Controller] = field(default_factory=dict)
    crds: frozenset[str] = frozenset()
    nodes: int = 0
    cpu: float = 0
    memory_gib: float = 0
    node_addresses: tuple[str, ...] = ()
    simulated: str = "it was not looked for"
    storage: str = "it was not looked for"
    storage_class: str = ""
    access_mode: str = "ReadWriteMany"
    refused: frozenset[str] = frozenset()
    image: str = ""
    earlier: str = "they were not looked for"
    ray: str = ""
    restart_job: str = ""
    kubernetes: str = ""


RIGHTS: Mapping[str, tuple[str, str, str]] = {
    "make namespaces": ("create", "", "namespaces"),
    "make queues": ("create", "kueue.x-k8s.io", "clusterqueues"),
    "make cluster roles": ("create", "rbac.authorization.k8s.io", "clusterroles"),
    "make admission policies": ("create", "admissionregistration.k8s.io", "validatingadmissionpolicies"),
    "request tokens": ("create", "", "serviceaccounts/token"),
    "make nodes": ("create", "", "nodes"),
    "end simulated pods": ("patch", "", "pods/status"),
    "delete pods": ("delete", "", "pods"),
    "keep releases": ("create", "", "secrets"),
    "list everything": ("list", "*", "*"),
}
"""Rights by name: verb, API group, resource."""

CONTROLLERS = {"kueue": "Kueue", "jobset": "JobSet", "kuberay": "KubeRay"}
_CRDS = {
    "kueue": (
        "clusterqueues.kueue.x-k8s.io/v1beta2",
        "localqueues.kueue.x-k8s.io/v1beta2",
        "workloads.kueue.x-k8s.io/v1beta2",
    ),
    "jobset": ("jobsets.jobset.x-k8s.io/v1alpha2",),
    "kuberay": ("rayjobs.ray.io/v1", "rayclusters.ray.io/v1"),
}
_QUEUES = (
    *("make namespaces", "make queues", "make cluster roles", "make admission policies", "keep releases"),
    "request tokens",  # of the members
)
_SIMULATION = ("make nodes", "end simulated pods")


@dataclass(frozen=True)
class Needs:
    """kueue, jobset, kuberay: the oldest version of the controller that works, "" if the test does not need it.

    The other fields are as in Facts.
    """

    kueue: str = ""
    jobset: str = ""
    kuberay: str = ""
    crds: tuple[str, ...] = ()
    nodes: int = 0
    cpu: float = 0
    memory_gib: float = 0
    simulated: bool = False
    pods: bool = False  # nodes for small pods, simulated or not
    image: bool = False
    storage: bool = False
    earlier: bool = False
    ray: bool = False  # a Ray cluster that accepts jobs
    restart_job: bool = False
    rights: tuple[str, ...] = ()


def needs(**what: Any) -> pytest.MarkDecorator:
    """The marker of a test with these needs; the arguments are the fields of Needs."""
    return pytest.mark.needs(Needs(**what))


def unmet_needs(what: Needs, facts: Facts) -> list[UnmetNeed]:
    """The needs in `what` that `facts` do not meet, in the order of Needs."""
    found: list[UnmetNeed] = []

    def add(text: str, fixed_by: FixedBy = FixedBy.CLUSTER) -> None:
        found.append(UnmetNeed(fixed_by, text))

    for key, called in CONTROLLERS.items():
        if (oldest := getattr(what, key)) and (text := _controller(key, called, oldest, facts)):
            add(text)
    for crd in what.crds:
        if crd not in facts.crds:
            add(f"the kind {crd}, which the cluster does not serve")
    if what.simulated and facts.simulated:
        add(f"simulated nodes ({facts.simulated})")
    if what.pods and facts.simulated and not facts.nodes:
        add(f"one node that takes ordinary pods, or simulated ones ({facts.simulated}); it has none")
    if facts.nodes < what.nodes:
        add(f"{_counted(what.nodes, 'node')} for ordinary pods, ready and without taints; it has {facts.nodes}")
    if facts.cpu < what.cpu:
        add(f"{what.cpu:g} cores on such nodes; they have {facts.cpu:g}")
    if facts.memory_gib < what.memory_gib:
        add(f"{what.memory_gib:g} GiB of memory on such nodes; they have {facts.memory_gib:.1f}")
    if what.image and not facts.image:
        add("an image with the trainer; name it in SLIPWAY_E2E_IMAGE", FixedBy.SETTING)
    if what.storage and facts.storage:
        add(f"storage that all hosts of a run may write to ({facts.storage})", FixedBy.SETTING)
    if what.earlier and facts.earlier:
        add(f"the charts of an earlier release ({facts.earlier})", FixedBy.SETTING)
    if what.ray and facts.ray:
        add(f"a Ray cluster that accepts jobs ({facts.ray})", FixedBy.SETTING)
    if what.restart_job and facts.restart_job:
        add(f"JobSet 0.12 or later with its feature gate RestartJob ({facts.restart_job})", FixedBy.SETTING)
    for right in _rights(what, facts):
        if right in facts.refused:
            verb, group, resource = RIGHTS[right]
            add(f"the right to {right} ({verb} {resource}{f'.{group}' if group else ''})")
    return found


def skip_reason(unmet: list[UnmetNeed]) -> str:
    return "needs " + "; ".join(need.text for need in unmet)


def _controller(key: str, called: str, oldest: str, facts: Facts) -> str:
    there = facts.controllers.get(key)
    absent = [crd for crd in _CRDS[key] if crd not in facts.crds]
    if there is None and len(absent) == len(_CRDS[key]):
        return f"{called} {oldest} or later, which is not installed"
    if absent:
        return f"{called} {oldest} or later; the cluster does not serve {', '.join(absent)}"
    if there is None:
        return f"{called} {oldest} or later; its kinds are served, and no controller of its kind runs"
    if not there.ready:
        return f"{called} {oldest} or later; its Deployment {there.namespace}/{there.name} has no ready pod"
    if there.version and (_version(there.version) or (0, 0)) < (_version(oldest) or (0, 0)):
        return f"{called} {oldest} or later; it is {there.version}"
    return ""


def _rights(what: Needs, facts: Facts) -> list[str]:
    rights = [*(_QUEUES if what.kueue else ()), *what.rights]
    if what.simulated or (what.pods and not facts.simulated):
        rights += _SIMULATION
    return list(dict.fromkeys(rights))


def _version(text: str) -> Version | None:
    return versions.parse(text)


def _counted(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
