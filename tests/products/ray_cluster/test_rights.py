"""Report of doctor on the dashboards of Ray clusters."""

from __future__ import annotations

from typing import Any, cast

from launcher.diagnose.doctor import permissions
from launcher.diagnose.doctor.inventory import Fetched
from launcher.k8s.rbac import Permission, Permissions
from launcher.products.ray_cluster import rights
from tests.unit.test_doctor import healthy


def test_ray_clusters_by_name() -> None:
    proxy = Permission("get", "services/proxy", "")
    names = ("ours-head-svc:8265", "http:ours-head-svc:8265", "b-head-svc:8265", "http:b-head-svc:8265")
    member = Permissions(frozenset(set(permissions.every_permission()) - {proxy}), {proxy: names}, queues=False)
    found = rights.examine(cast(Any, None), healthy(rights=Fetched(member)))
    sentences = {one.subject: one.says for one in found}
    assert sentences["dashboard"] == "you may reach b-head-svc and ours-head-svc."
