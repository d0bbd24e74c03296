"""A check of `launcher doctor`: whether the user may reach the dashboards of Ray clusters."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.diagnose.doctor.finding import RIGHTS, Finding, Level, join_words
from launcher.diagnose.doctor.inventory import ClusterInventory
from launcher.diagnose.doctor.permissions import PROXY
from launcher.k8s.client import Cluster


def examine(_: Cluster, sight: ClusterInventory) -> Iterator[Finding]:
    """Return a finding on the dashboards; none if the user's rights are unknown."""
    mine, hint = sight.rights.seen, ""
    if mine is None:
        return
    # RBAC uses the name from the URL, with scheme and port; one Service has several such names.
    names = {name.removeprefix("http:").rpartition(":")[0] or name for name in mine.by_name.get(PROXY, ())}
    says = f"you may reach {join_words(sorted(names))}."
    if PROXY in mine.all_of:
        says = f"you may reach every Service of the namespace {sight.namespace}."
    elif not names:
        says = f"you may not reach any long-lived Ray cluster of the namespace {sight.namespace} (services/proxy)."
        hint = "If the namespace has one, set teams.NAME.clusters in charts/queues."
    yield Finding(RIGHTS, Level.OK, "dashboard", says, hint)
