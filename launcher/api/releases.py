"""The Helm releases of a platform or a team, and how a cluster differs from what is wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from launcher.config.plan import LaunchPlan
    from launcher.helm.diff import ObjectChange
    from launcher.releases.install import ReleasePlan
    from launcher.releases.removal import Removal


def plan_release(
    chart: str,
    files: Sequence[str],
    sets: Sequence[str] = (),
    *,
    name: str | None = None,
    target: Target = DEFAULT_TARGET,
    recover: bool = False,
) -> ReleasePlan:
    """What `install` of a chart (queues, ray-cluster) with these values would change. Changes nothing.

    `recover` takes an operation that another helm has begun and not ended for dead, however young it is.
    """
    from launcher.releases import install as releases

    return releases.plan(chart, name, files, sets, target, recover=recover)


def install(
    plan: ReleasePlan, say: Callable[[str], None] = lambda _: None, *, seconds: float | None = None
) -> list[str]:
    """Install or upgrade the release, and wait until it works, at most `seconds` (0: do not wait).

    Returns what does not work yet, a sentence each; that stays. What Kubernetes refuses is taken back as a whole, and
    raised.
    """
    from launcher.releases import install as releases

    return releases.install(plan, say, seconds=seconds)


def plan_removal(name: str, *, target: Target = DEFAULT_TARGET) -> Removal:
    """What `uninstall` of a release would remove, and which runs need that. Changes nothing."""
    from launcher.releases import removal

    return removal.plan_removal(name, target)


def uninstall(
    removal: Removal, say: Callable[[str], None] = lambda _: None, *, force: bool = False, seconds: float = 60
) -> list[str]:
    """Remove the release; what is still there after `seconds`, a sentence each.

    Raises LauncherError where runs need it, unless `force`.
    """
    from launcher.releases.removal import uninstall

    return uninstall(removal, say, force=force, seconds=seconds)


def diff_run(plan: LaunchPlan, *, target: Target = DEFAULT_TARGET) -> list[ObjectChange]:
    """What `submit` would make in the cluster, or how the run of that name there differs; [] for other kinds."""
    from launcher.helm import diff

    return diff.run(plan, target)
