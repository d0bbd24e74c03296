"""The time that the admission policy of charts/queues adds to a create, and its size, with many teams."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from tests.charts.queues_chart import BASE, merged, render, tree
from tests.cluster.control_plane import ControlPlane
from tests.cluster.run_policy import TEAMS, installed, without_queue
from tests.tools import tool

TEAM_COUNT, MILLISECONDS = 200, 20


def test_200_teams_cost_little(control_plane: ControlPlane, tmp_path: Path) -> None:
    """A create takes less than 20 ms longer than without the policy. An administrator has the same path without it."""
    many = {
        f"team-number-{n}": {
            "clusterQueue": "research",
            "members": {f"user-{n}": "User"},
            "priorities": ["low"] if n % 2 else [],
            "allow": {"buckets": [f"bucket-of-team-{n}"], "queues": [f"night-{n}"], "serviceAccounts": [f"loader-{n}"]},
        }
        for n in range(TEAM_COUNT)
    }
    values = merged(merged(BASE, tree(TEAMS)), {"teams": many})
    policy = [obj for obj in render(tool("helm"), values, tmp_path) if obj["kind"] == "ValidatingAdmissionPolicy"]
    expressions = [
        part["expression"] for obj in policy if obj["metadata"]["name"] == "x-runs" for part in obj["spec"]["variables"]
    ]
    # The limit of CEL is 100,000 characters for an expression.
    assert max(map(len, expressions)) < 50_000
    with installed(control_plane, tmp_path, {"teams": many}) as found:
        duration: dict[str, float] = {}
        for name, user in (("admin", found.admin), ("alice", found.alice)):
            times = []
            for kind in ("JobSet", "RayJob") * 20:
                start = time.perf_counter()
                assert found.attempt(user, found.objects[kind]) == ""
                times.append(time.perf_counter() - start)
            duration[name] = statistics.median(times)
        assert (duration["alice"] - duration["admin"]) * 1000 < MILLISECONDS
        assert "must be research" in found.attempt(found.alice, without_queue(found.objects["JobSet"]))
