"""The backend of a plan: with the checks that need the cluster (launcher.diagnose.preflight)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from launcher.backends import lookup
from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from launcher.backends.base import Backend
    from launcher.backends.kubernetes.snapshot import Snapshot
    from launcher.config.checks.problems import Problem
    from launcher.config.plan import LaunchPlan


def backend_for(plan: LaunchPlan, target: Target = DEFAULT_TARGET) -> Backend:
    """Return the backend for a run of the plan's kind. Raises LauncherError if `target` and the plan conflict."""
    return lookup.backend_for(plan, target, _preflight)


def _preflight(plan: LaunchPlan, obj: Mapping[str, Any], snapshot: Snapshot) -> Sequence[Problem]:
    from launcher.diagnose import preflight  # slow to import, and not needed by local runs

    return preflight.problems(plan, obj, snapshot)
