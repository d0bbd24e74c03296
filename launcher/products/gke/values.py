"""The values of a cluster: the key `gke`, and the values of charts/queues."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from launcher.config.checks.problems import ERROR, CheckContext, Problem
from launcher.config.checks.schema import violations
from launcher.config.plan import CheckFailed
from launcher.config.values import files as values_files
from launcher.config.values.tree import Node, Values, with_defaults
from launcher.errors import LauncherError
from launcher.releases import values as release_values

_HERE = Path(__file__).parent
KEY = "gke"


@dataclass(frozen=True)
class ClusterValues:
    """The values of a cluster and of its queues; `user` has the files and lines of both."""

    user: Values
    cluster: Mapping[str, Any]
    """The effective values under `gke`."""
    queues_user: Values
    """The user's values for charts/queues."""
    queues_effective: Values
    """The effective values of charts/queues."""

    @property
    def queues(self) -> Mapping[str, Any]:
        """The same, as plain data."""
        return self.queues_effective.tree

    def problem(self, rule: str, path: Sequence[str], message: str, severity: str = ERROR) -> Problem:
        """Return a problem of a key, with its file and line."""
        return CheckContext(self.user, self.user).problem(rule, path, message, severity)


def load(files: Sequence[str], sets: Sequence[str]) -> ClusterValues:
    """Return the values. Raises CheckFailed, with file and line of each violation, if they violate a schema."""
    user = values_files.load(files, sets)
    if KEY not in user.tree:
        raise LauncherError(
            "The values have no key gke, which describes the GKE cluster.",
            "Use a values file with gke.project and gke.location: -f cluster.yaml -f queues.yaml.",
        )
    own = Values(Node({KEY: user.root.value[KEY]}, user.root.origin))
    others = release_values.without_cluster(user)
    effective = with_defaults(own, defaults())
    case = CheckContext(user, effective)
    problems = [release_values.problem_of(violation, schema(), case) for violation in violations(schema(), case.tree)]
    if problems:
        raise CheckFailed(problems)
    queues = release_values.effective_of("queues", others)
    return ClusterValues(user, effective.tree[KEY], others, queues)


@cache
def defaults() -> Values:
    """Return the defaults of the key `gke`."""
    return values_files.read_file(str(_HERE / "values.yaml"))


@cache
def schema() -> Mapping[str, Any]:
    """Return the JSON Schema of the effective values."""
    tree: Mapping[str, Any] = json.loads((_HERE / "values.schema.json").read_text(encoding="utf-8"))
    return tree
