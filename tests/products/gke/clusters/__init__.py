"""The clusters of the tests: values files, and the plans of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from launcher.config.checks.problems import has_errors
from launcher.products.gke import plan, values
from launcher.products.gke.plan import Plan
from launcher.products.gke.rules import problems

HERE = Path(__file__).parent
QUEUES = HERE.parents[3] / "values/queues/three-teams.yaml"
FILES = {
    "small": [HERE / "small.yaml", QUEUES],
    "every": [HERE / "every.yaml"],
    "provisioned": [HERE / "provisioned.yaml", QUEUES],
    "autopilot": [HERE / "autopilot.yaml", QUEUES],
}


@cache
def plan_of(name: str) -> Plan:
    """Return the plan of one of the clusters. Raises ValueError if its values have errors."""
    loaded = values.load([str(file) for file in FILES[name]], [])
    found = problems(loaded)
    if has_errors(found):
        raise ValueError("\n".join(problem.message for problem in found))
    return plan.make(loaded)
