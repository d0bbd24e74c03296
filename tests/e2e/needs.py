"""What a test needs of a cluster, said where the test stands, and what of it a cluster lacks. Pure.

    @needs(kueue="0.16", jobset="0.10", image=True, nodes=1, cpu=2, memory_gib=8)

A test whose needs are not met is skipped, and the reason names each of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest

from launcher.diagnose.doctor import versions

Version = tuple[int, int]


class Whose(StrEnum):
    """Who can mend a lack: whoever starts the suite, by a setting, or whoever runs the cluster."""

    CLUSTER = "cluster"
    SETTING = "setting"


@dataclass(frozen=True)
class Lack:
    """One thing that is lacking, in words that stand after "needs"."""

    whose: Whose
    says: str


@dataclass(frozen=True)
class Controller:
    """A controller of the cluster. `version` "" where its image does not tell; `ready`: of its pods, one at least."""

    name: str
    version: str
    ready: bool
    namespace: str = ""


@dataclass(frozen=True)
class Facts:
    """What a cluster has, as far as tests need it.

    controllers by kueue, jobset, kuberay; `crds` are "plural.group/version" that are served; nodes, cpu (cores) and
    memory_gib count what ordinary pods may have of nodes that are ready, untainted and not simulated; `simulated`:
    why no nodes can be simulated, "" where they can; `storage`: why there is no storage that all hosts of a run may
    write to, "" where there is, of the class storage_class and the mode access_mode; `refused`: the rights that the
    user lacks, by the names of RIGHTS; `earlier`: why there are no earlier charts, "" where there are.
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
    kubernetes: str = ""


RIGHTS: Mapping[str, tuple[str, str, str]] = {
    "make namespaces": ("create", "", "namespaces"),
    "make queues": ("create", "kueue.x-k8s.io", "clusterqueues"),
    "make cluster roles": ("create", "rbac.authorization.k8s.io", "clusterroles"),
    "make admission policies": ("create", "admissionregistration.k8s.io", "validatingadmissionpolicies"),
    "make nodes": ("create", "", "nodes"),
    "end simulated pods": ("patch", "", "pods/status"),
    "delete pods": ("delete", "", "pods"),
    "keep releases": ("create", "", "secrets"),
    "list everything": ("list", "*", "*"),
}
"""A right by its name: verb, API group, resource."""

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
_QUEUES = ("make namespaces", "make queues", "make cluster roles", "make admission policies", "keep releases")
_SIMULATION = ("make nodes", "end simulated pods")


@dataclass(frozen=True)
class Needs:
    """Oldest versions of controllers ("" for none needed), and the rest as Facts has it."""

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
    rights: tuple[str, ...] = ()


def needs(**what: Any) -> pytest.MarkDecorator:
    """The mark of a test that needs `what`, as Needs has it."""
    return pytest.mark.needs(Needs(**what))


def lacking(what: Needs, facts: Facts) -> list[Lack]:
    """Everything that `what` asks for and `facts` does not have, in the order of Needs."""
    found: list[Lack] = []

    def lack(says: str, whose: Whose = Whose.CLUSTER) -> None:
        found.append(Lack(whose, says))

    for key, called in CONTROLLERS.items():
        if (oldest := getattr(what, key)) and (said := _controller(key, called, oldest, facts)):
            lack(said)
    for crd in what.crds:
        if crd not in facts.crds:
            lack(f"the kind {crd}, which the cluster does not serve")
    if what.simulated and facts.simulated:
        lack(f"simulated nodes ({facts.simulated})")
    if what.pods and facts.simulated and not facts.nodes:
        lack(f"one node that takes ordinary pods, or simulated ones ({facts.simulated}); it has none")
    if facts.nodes < what.nodes:
        lack(f"{_counted(what.nodes, 'node')} for ordinary pods, ready and without taints; it has {facts.nodes}")
    if facts.cpu < what.cpu:
        lack(f"{what.cpu:g} cores on such nodes; they have {facts.cpu:g}")
    if facts.memory_gib < what.memory_gib:
        lack(f"{what.memory_gib:g} GiB of memory on such nodes; they have {facts.memory_gib:.1f}")
    if what.image and not facts.image:
        lack("an image with the trainer; name it in SLIPWAY_E2E_IMAGE", Whose.SETTING)
    if what.storage and facts.storage:
        lack(f"storage that all hosts of a run may write to ({facts.storage})", Whose.SETTING)
    if what.earlier and facts.earlier:
        lack(f"the charts of an earlier release ({facts.earlier})", Whose.SETTING)
    for right in _rights(what, facts):
        if right in facts.refused:
            verb, group, resource = RIGHTS[right]
            lack(f"the right to {right} ({verb} {resource}{f'.{group}' if group else ''})")
    return found


def sentence(lacks: list[Lack]) -> str:
    """The reason of a skip."""
    return "needs " + "; ".join(lack.says for lack in lacks)


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
        return f"{called} {oldest} or later; its Deployment {there.namespace}/{there.name} has no pod that is ready"
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
