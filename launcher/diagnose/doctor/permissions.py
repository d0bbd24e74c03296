"""Check what the user may do in the namespace, for each command of the launcher."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from launcher.diagnose.doctor.finding import RIGHTS, Finding, Level, join_words
from launcher.k8s.rbac import INSTALL_PERMISSIONS, PERMISSIONS_BY_VERB, Permission, Permissions, role
from launcher.k8s.shapes import Shape, fault, text

if TYPE_CHECKING:
    from launcher.diagnose.doctor.inventory import ClusterInventory, Fetched
    from launcher.k8s.client import Cluster

_KUEUE = "kueue.x-k8s.io"
_MEMBERS = "charts/queues grants this to the members of a team (teams.NAME.members)."
_READY = "Role to apply"


PROXY = Permission("get", "services/proxy", "")
_REVIEW: Shape = {
    "status": {
        "resourceRules": [{"verbs": [text], "apiGroups": [text], "resources": [text], "resourceNames": [text]}],
    }
}
_QUEUES = Permission("create", "clusterqueues", _KUEUE)


def every_permission() -> list[Permission]:
    """Return all permissions to check, each once."""
    asked = [right for need in (*PERMISSIONS_BY_VERB, INSTALL_PERMISSIONS) for right in need.rights]
    return list(dict.fromkeys([*asked, PROXY]))


def read(cluster: Cluster) -> Permissions:
    """Return the user's permissions, from one SelfSubjectRulesReview.

    If the API server reports that its rules are incomplete (GKE's own permissions are not rules), each missing
    permission is reviewed separately.
    """
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
    body = answer.json()
    status = {} if fault(body, _REVIEW) else body.get("status") or {}
    allowed, by_name = from_rules(status.get("resourceRules") or [], every_permission())
    missing = [right for right in every_permission() if right not in allowed] if status.get("incomplete") else []
    with ThreadPoolExecutor(8) as pool:
        queues = pool.submit(_may, cluster, _QUEUES, "")
        answers = list(pool.map(lambda right: _may(cluster, right, None), missing))
        more = {right for right, may in zip(missing, answers, strict=True) if may}
        return Permissions(frozenset(allowed | more), by_name, queues.result())


def from_rules(
    rules: Iterable[Mapping[str, Any]], rights: Iterable[Permission]
) -> tuple[set[Permission], dict[Permission, Any]]:
    """Return the permissions that a SelfSubjectRulesReview grants: for all objects, and for certain names."""
    allowed: set[Permission] = set()
    by_name: dict[Permission, tuple[str, ...]] = {}
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


def _may(cluster: Cluster, right: Permission, namespace: str | None) -> bool:
    resource, _, subresource = right.resource.partition("/")
    return cluster.can(right.verb, resource, right.group, namespace, subresource=subresource)


# --- findings --------------------------------------------------------------------------------------------------------


def examine(sight: ClusterInventory) -> Iterator[Finding]:
    """Return a finding for each group of commands, then a Role with all missing permissions."""
    look: Fetched[Permissions] = sight.rights
    if look.seen is None:
        yield Finding(RIGHTS, Level.UNKNOWN, "your rights", f"{look.says}.")
        return
    mine = look.seen
    asked: list[Permission] = []
    worst = Level.WARNING
    for need in PERMISSIONS_BY_VERB:
        # Permissions for an API that the cluster does not serve are not missing.
        missing = [right for right in mine.missing(need.rights) if _is_served(sight, right)]
        asked += missing
        if not missing:
            yield Finding(RIGHTS, Level.OK, need.verbs, f"allowed in the namespace {sight.namespace}.")
            continue
        level = Level.PROBLEM if need.everyday else Level.WARNING
        worst = Level.PROBLEM if need.everyday else worst
        yield Finding(
            RIGHTS,
            level,
            need.verbs,
            f"{need.without}: in the namespace {sight.namespace} you may not {_as_text(missing)}.",
            _MEMBERS,
        )
    yield from _cluster_wide(sight)
    yield _install(mine)
    if asked:
        says = f"grants what is missing in the namespace {sight.namespace}; a platform engineer can apply and bind it."
        yield Finding(RIGHTS, worst, _READY, says, role(asked, sight.namespace))


def _is_served(sight: ClusterInventory, right: Permission) -> bool:
    return not (right.group in sight.served and sight.served[right.group].seen == {})


def _cluster_wide(sight: ClusterInventory) -> Iterator[Finding]:
    """Report what `explain` may not read outside the namespace, from the doctor's own requests."""
    looks: dict[str, Fetched[Any]] = {
        "clusterqueues": sight.cluster_queues,
        "cohorts": sight.cohorts,
        "resourceflavors": sight.flavors,
        "nodes": sight.nodes,
    }
    missing = [
        Permission("list", resource, "" if resource == "nodes" else _KUEUE)
        for resource, look in looks.items()
        if look.forbidden
    ]
    if missing:
        yield Finding(
            RIGHTS,
            Level.WARNING,
            "explain (queues)",
            f"explain cannot show who holds the quota and which nodes exist: you may not {_as_text(missing)}.",
            f"{_MEMBERS} Or a platform engineer can apply and bind this:\n{role(missing, '')}",
        )


def _install(mine: Permissions) -> Finding:
    may = [
        what
        for what, there in (("queues", mine.queues), ("ray-cluster", not mine.missing(INSTALL_PERMISSIONS.rights)))
        if there
    ]
    if may:
        return Finding(RIGHTS, Level.OK, "install", f"you may install {join_words(may)}.")
    says = "you may not install releases, as intended for members of a team (Helm keeps releases in Secrets)."
    return Finding(RIGHTS, Level.OK, "install", says)


def _as_text(rights: Iterable[Permission]) -> str:
    """Return permissions as text: "create or patch rayjobs of ray.io, nor delete jobsets of jobset.x-k8s.io"."""
    by: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for right in dict.fromkeys(rights):
        by[right.resource, right.group].append(right.verb)
    words = [
        " or ".join(verbs) + f" {resource}" + (f" of {group}" if group else "")
        for (resource, group), verbs in by.items()
    ]
    return ", nor ".join(words)
