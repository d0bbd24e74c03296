"""RBAC: the permissions that the launcher's verbs need, and Roles that grant them, as YAML."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

_SEEING = ("get", "list")


class Permission(NamedTuple):
    """A Kubernetes verb on a resource; a subresource follows after a slash."""

    verb: str
    resource: str
    group: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f" of {self.group}" if self.group else "")


@dataclass(frozen=True)
class VerbPermissions:
    """The permissions in the namespace that some verbs of the launcher need.

    `everyday`: a team member cannot work without them.
    """

    verbs: str
    rights: tuple[Permission, ...]
    without: str
    everyday: bool = True


def _rights(*texts: str) -> tuple[Permission, ...]:
    """Return the permissions of texts such as "get,list rayjobs.ray.io pods"."""
    lists = [(verbs.split(","), resources) for verbs, *resources in map(str.split, texts)]
    return tuple(
        Permission(verb, resource.partition(".")[0], resource.partition(".")[2])
        for verbs, resources in lists
        for resource in resources
        for verb in verbs
    )


_RUNS = "rayjobs.ray.io jobsets.jobset.x-k8s.io"
PERMISSIONS_BY_VERB = (
    VerbPermissions("submit", _rights(f"get,list,create,patch {_RUNS}"), "runs cannot be created"),
    VerbPermissions(
        "list, status, wait",
        _rights(f"get,list {_RUNS} workloads.kueue.x-k8s.io pods"),
        "runs cannot be listed or followed",
    ),
    VerbPermissions("logs", _rights("list pods", "get pods/log"), "the output of runs cannot be read"),
    VerbPermissions(
        "explain",
        _rights(
            "get,list workloads.kueue.x-k8s.io localqueues.kueue.x-k8s.io",
            "list events pods resourcequotas",
            "get localqueues/pendingworkloads.visibility.kueue.x-k8s.io",
        ),
        "explain shows only part of why a run waits",
        everyday=False,
    ),
    VerbPermissions("cancel", _rights(f"patch {_RUNS} workloads.kueue.x-k8s.io"), "runs cannot be cancelled"),
    VerbPermissions("delete", _rights(f"delete {_RUNS}"), "runs cannot be deleted"),
    VerbPermissions(
        "served models",
        _rights("get,list rayservices.ray.io"),
        "served models cannot be listed or followed",
        everyday=False,
    ),
)
# Optional: a user without these permissions is not an error.
INSTALL_PERMISSIONS = VerbPermissions(
    "install ray-cluster",
    _rights("get,list,create,update,delete secrets", "create,patch,delete rayclusters.ray.io"),
    "long-lived Ray clusters cannot be installed",
    everyday=False,
)


@dataclass(frozen=True)
class Permissions:
    """The user's permissions in the namespace.

    `all_of` applies to all objects, `by_name` only to the named objects. `queues`: whether the user may create
    ClusterQueues.
    """

    all_of: frozenset[Permission]
    by_name: Mapping[Permission, tuple[str, ...]]
    queues: bool

    def missing(self, rights: Iterable[Permission]) -> list[Permission]:
        return [right for right in rights if right not in self.all_of]


def role_around(right: Permission, namespace: str) -> str:
    """Return a Role with this permission and those that a team member needs with it.

    The Role allows reading runs, or reading, creating and changing them. Returns "" if the permission is not one of a
    member's permissions in the namespace.
    """
    all_of = [each for need in PERMISSIONS_BY_VERB for each in need.rights]
    seeing = [each for each in all_of if each.verb in _SEEING]
    if right in seeing:
        return role(seeing, namespace, "slipway-runs-read")
    return role(all_of, namespace) if right in all_of else ""


def role_for(right: Permission, namespace: str, object_name: str = "") -> str:
    """Return a Role with one permission, restricted to the object of that name if there is one."""
    return role([right], namespace, f"slipway-{right.verb}-{right.resource.replace('/', '-')}", object_name)


def indented_role(right: Permission, namespace: str, object_name: str = "") -> str:
    """Return the lines of `role_for`, indented by two spaces for a hint."""
    return "\n".join(f"  {line}" for line in role_for(right, namespace, object_name).splitlines())


def role(rights: Iterable[Permission], namespace: str, called: str = "", object_name: str = "") -> str:
    """Return a Role (without a namespace: a ClusterRole) with these permissions, as YAML for kubectl."""
    verbs: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for right in dict.fromkeys(rights):
        verbs[right.group, right.resource].append(right.verb)
    rules: defaultdict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (group, resource), some in verbs.items():
        rules[group, tuple(some)].append(resource)
    lines = [
        "apiVersion: rbac.authorization.k8s.io/v1",
        f"kind: {'Role' if namespace else 'ClusterRole'}",
        "metadata:",
        f"  name: {called or ('slipway-runs' if namespace else 'slipway-queues')}",
        *([f"  namespace: {namespace}"] if namespace else []),
        "rules:",
    ]
    for (group, some_verbs), resources in rules.items():
        lines += [
            f'  - apiGroups: ["{group}"]',
            f"    resources: [{', '.join(resources)}]",
            f"    verbs: [{', '.join(some_verbs)}]",
            *([f"    resourceNames: [{object_name}]"] if object_name else []),
        ]
    return "\n".join(lines)
