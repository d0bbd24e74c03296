"""The size of the admission policy of charts/queues with many teams. `make bench` measures the time that it adds."""

from __future__ import annotations

from pathlib import Path

from tests.charts.queues_chart import BASE, merged, render, tree
from tests.cluster.control_plane import ControlPlane
from tests.cluster.run_policy import TEAMS, installed, many_teams, without_queue
from tests.tools import tool


def test_200_teams_are_within_the_limits_of_cel(control_plane: ControlPlane, tmp_path: Path) -> None:
    many = many_teams()
    values = merged(merged(BASE, tree(TEAMS)), {"teams": many})
    policy = [obj for obj in render(tool("helm"), values, tmp_path) if obj["kind"] == "ValidatingAdmissionPolicy"]
    expressions = [
        part["expression"] for obj in policy if obj["metadata"]["name"] == "x-runs" for part in obj["spec"]["variables"]
    ]
    # The limit of CEL is 100,000 characters for an expression.
    assert max(map(len, expressions)) < 50_000
    with installed(control_plane, tmp_path, {"teams": many}) as found:
        assert "must be research" in found.attempt(found.alice, without_queue(found.objects["JobSet"]))
