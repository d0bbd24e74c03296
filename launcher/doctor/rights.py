"""What the user may do in the namespace, verb by verb of the launcher."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from launcher.doctor.finding import RIGHTS, Finding, Level, listed

if TYPE_CHECKING:
    from launcher.cluster import Cluster
    from launcher.doctor.sight import Look, Sight

_RAY, _JOB_SET, _KUEUE, _VISIBILITY = "ray.io", "jobset.x-k8s.io", "kueue.x-k8s.io", "visibility.kueue.x-k8s.io"
_MEMBERS = "charts/queues gives it to a team's members (teams.NAME.members)."
_READY = "a ready Role"
_SEEING = ("get", "list")


class Right(NamedTuple):
    """A verb of Kubernetes on a resource, with its subresource after a slash."""

    verb: str
    resource: str
    group: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}" + (f" of {self.group}" if self.group else "")


@dataclass(frozen=True)
class Need:
    """What some verbs of the launcher need in the namespace. `everyday`: a member of a team is stuck without it."""

    verbs: str
    rights: tuple[Right, ...]
    without: str
    everyday: bool = True


def _each(verbs: str, resources: str, group: str = "") -> tuple[Right, ...]:
    return tuple(Right(verb, resource, group) for resource in resources.split() for verb in verbs.split())


NEEDS = (
    Need(
        "submit",
        (*_each("get list create patch", "rayjobs", _RAY), *_each("get list create patch", "jobsets", _JOB_SET)),
        "no run can be made here",
    ),
    Need(
        "list, status, wait",
        (
            *_each("get list", "rayjobs", _RAY),
            *_each("get list", "jobsets", _JOB_SET),
            *_each("get list", "workloads", _KUEUE),
            *_each("get list", "pods"),
        ),
        "runs cannot be seen or followed",
    ),
    Need("logs", (*_each("list", "pods"), *_each("get", "pods/log")), "what runs print cannot be read"),
    Need(
        "explain",
        (
            *_each("get list", "workloads localqueues", _KUEUE),
            *_each("list", "events pods resourcequotas"),
            *_each("get", "localqueues/pendingworkloads", _VISIBILITY),
        ),
        "why a run waits is told in part only",
        everyday=False,
    ),
    Need(
        "cancel",
        (
            *_each("patch", "rayjobs", _RAY),
            *_each("patch", "jobsets", _JOB_SET),
            *_each("patch", "workloads", _KUEUE),
        ),
        "a run cannot be stopped",
    ),
    Need(
        "delete",
        (*_each("delete", "rayjobs", _RAY), *_each("delete", "jobsets", _JOB_SET)),
        "a run's record cannot be removed",
    ),
)
# For everybody a choice, of which none is a fault.
_INSTALL = Need(
    "install ray-cluster",
    (
        *_each("get list create update delete", "secrets"),
        *_each("create patch delete", "rayclusters", _RAY),
    ),
    "a standing Ray cluster is for others to install",
    everyday=False,
)
_PROXY = Right("get", "services/proxy", "")
_QUEUES = Right("create", "clusterqueues", _KUEUE)


@dataclass(frozen=True)
class Rights:
    """What this user may do in the namespace: `all_of` with no name given, `by_name` of some objects only.
    `queues`: whether it may create ClusterQueues."""

    all_of: frozenset[Right]
    by_name: Mapping[Right, tuple[str, ...]]
    queues: bool

    def missing(self, rights: Iterable[Right]) -> list[Right]:
        return [right for right in rights if right not in self.all_of]


def every() -> list[Right]:
    """All rights that are asked for, each once."""
    asked = [right for need in (*NEEDS, _INSTALL) for right in need.rights]
    return list(dict.fromkeys([*asked, _PROXY]))


def read(cluster: Cluster) -> Rights:
    """The user's rights: by one review of its rules; where the API server says that those are not all (GKE's own
    permissions are no rules), also by a review of each right that they lack."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": cluster.namespace},
    }
    answer = cluster.request(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        body=json.dumps(review).encode(),
        headers={"Content-Type": "application/json"},
    )
    status = answer.json().get("status") or {}
    allowed, by_name = from_rules(status.get("resourceRules") or [], every())
    missing = [right for right in every() if right not in allowed] if status.get("incomplete") else []
    with ThreadPoolExecutor(8) as pool:
        queues = pool.submit(_may, cluster, _QUEUES, "")
        answers = list(pool.map(lambda right: _may(cluster, right, None), missing))
        more = {right for right, may in zip(missing, answers, strict=True) if may}
        return Rights(frozenset(allowed | more), by_name, queues.result())


def from_rules(rules: Iterable[Mapping[str, Any]], rights: Iterable[Right]) -> tuple[set[Right], dict[Right, Any]]:
    """Which of the rights a SelfSubjectRulesReview's rules give: for all objects, and for those of some names."""
    allowed: set[Right] = set()
    by_name: dict[Right, tuple[str, ...]] = {}
    rights = list(rights)
    for rule in rules:
        verbs, groups, resources = (set(rule.get(key) or []) for key in ("verbs", "apiGroups", "resources"))
        names = tuple(rule.get("resourceNames") or [])
        for right in rights:
            sub = "*/" + right.resource.partition("/")[2] if "/" in right.resource else ""
            if (
                verbs & {right.verb, "*"}
                and groups & {right.group, "*"}
                and resources & ({right.resource, "*"} | ({sub} if sub else set()))
            ):
                if names:
                    by_name[right] = (*by_name.get(right, ()), *names)
                else:
                    allowed.add(right)
    return allowed, by_name


def _may(cluster: Cluster, right: Right, namespace: str | None) -> bool:
    resource, _, subresource = right.resource.partition("/")
    return cluster.can(right.verb, resource, right.group, namespace, subresource=subresource)


# --- findings --------------------------------------------------------------------------------------------------------


def examine(sight: Sight) -> Iterator[Finding]:
    """A line for each group of the launcher's verbs, then a Role with all that is missing."""
    look: Look[Rights] = sight.rights
    if look.seen is None:
        yield Finding(RIGHTS, Level.UNKNOWN, "your rights", f"{look.says}.")
        return
    mine = look.seen
    asked: list[Right] = []
    worst = Level.WARNING
    for need in NEEDS:
        # Rights to what the cluster does not have are not missed.
        missing = [right for right in mine.missing(need.rights) if _is_served(sight, right)]
        asked += missing
        if not missing:
            yield Finding(RIGHTS, Level.OK, need.verbs, f"you may, in the namespace {sight.namespace}.")
            continue
        level = Level.PROBLEM if need.everyday else Level.WARNING
        worst = Level.PROBLEM if need.everyday else worst
        yield Finding(
            RIGHTS,
            level,
            need.verbs,
            f"{need.without}: in the namespace {sight.namespace} you may not {_spelled(missing)}.",
            _MEMBERS,
        )
    yield from _cluster_wide(sight)
    yield _ray_clusters(sight, mine)
    yield _install(mine)
    if asked:
        says = f"has what is missing in the namespace {sight.namespace}; a platform engineer can apply and bind it."
        yield Finding(RIGHTS, worst, _READY, says, role(asked, sight.namespace))


def _is_served(sight: Sight, right: Right) -> bool:
    return not (right.group in sight.served and sight.served[right.group].seen == {})


def _cluster_wide(sight: Sight) -> Iterator[Finding]:
    """What explain reads beyond the namespace; the doctor has tried it."""
    looks = {
        "clusterqueues": sight.cluster_queues,
        "cohorts": sight.cohorts,
        "resourceflavors": sight.flavors,
        "nodes": sight.nodes,
    }
    missing = [
        Right("list", resource, "" if resource == "nodes" else _KUEUE)
        for resource, look in looks.items()
        if look.forbidden
    ]
    if missing:
        yield Finding(
            RIGHTS,
            Level.WARNING,
            "explain (queues)",
            f"who holds the quota, and which nodes there are, cannot be told: you may not {_spelled(missing)}.",
            f"{_MEMBERS} Or a platform engineer applies and binds this:\n{role(missing, '')}",
        )


def _ray_clusters(sight: Sight, mine: Rights) -> Finding:
    subject = "dashboard"
    if _PROXY in mine.all_of:
        return Finding(RIGHTS, Level.OK, subject, f"you may reach every Service of the namespace {sight.namespace}.")
    # RBAC has the name as it stands in the URL, with scheme and port; one Service has several.
    names = {name.removeprefix("http:").rpartition(":")[0] or name for name in mine.by_name.get(_PROXY, ())}
    if names:
        return Finding(RIGHTS, Level.OK, subject, f"you may reach {listed(sorted(names))}.")
    says = f"no standing Ray cluster of the namespace {sight.namespace} is for you to reach (services/proxy)."
    return Finding(RIGHTS, Level.OK, subject, says, "If there is one: teams.NAME.clusters in charts/queues.")


def _install(mine: Rights) -> Finding:
    may = [
        what for what, there in (("queues", mine.queues), ("ray-cluster", not mine.missing(_INSTALL.rights))) if there
    ]
    if may:
        return Finding(RIGHTS, Level.OK, "install", f"you may install {listed(may)}.")
    says = "not for you, which is how it is meant for members of a team (Helm keeps releases in Secrets)."
    return Finding(RIGHTS, Level.OK, "install", says)


def role_around(right: Right, namespace: str) -> str:
    """A Role with all that a member needs who wants to use this right: to see runs, or to make and change them, too;
    "" where it is none of a member's rights in the namespace."""
    all_of = [each for need in NEEDS for each in need.rights]
    seeing = [each for each in all_of if each.verb in _SEEING]
    if right in seeing:
        return role(seeing, namespace, "slipway-runs-read")
    return role(all_of, namespace) if right in all_of else ""


def role(rights: Iterable[Right], namespace: str, called: str = "") -> str:
    """A Role (a ClusterRole without a namespace) with these rights, as YAML ready for kubectl."""
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
        ]
    return "\n".join(lines)


def _spelled(rights: Iterable[Right]) -> str:
    """ "create or patch rayjobs of ray.io, or delete jobsets of jobset.x-k8s.io"."""
    by: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for right in dict.fromkeys(rights):
        by[right.resource, right.group].append(right.verb)
    words = [
        " or ".join(verbs) + f" {resource}" + (f" of {group}" if group else "")
        for (resource, group), verbs in by.items()
    ]
    return ", nor ".join(words)
