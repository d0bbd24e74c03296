"""Install and remove Helm releases: of a platform or a team, and compare a run with the cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from launcher.config.checks.problems import Problem
    from launcher.config.plan import LaunchPlan
    from launcher.helm.diff import ObjectChange
    from launcher.helm.render import Rendering
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
    """Return what `install` of a chart (queues, ray-cluster) with these values would change. Changes nothing.

    `recover` treats an unfinished operation of another helm command as failed, even if it began a moment ago.
    """
    from launcher.releases import install as releases

    return releases.plan(chart, name, files, sets, target, recover=recover)


def check_release(
    chart: str, files: Sequence[str], sets: Sequence[str] = (), *, name: str | None = None
) -> Sequence[Problem]:
    """Return the problems of the values of a chart (queues, ray-cluster). Requires Helm, but no cluster."""
    from launcher.releases import offline

    return offline.check(chart, name, files, sets)


def render_release(chart: str, files: Sequence[str], sets: Sequence[str] = (), *, name: str | None = None) -> Rendering:
    """Return the manifests that `install` would apply to a new cluster. Requires Helm, but no cluster."""
    from launcher.releases import offline

    return offline.render(chart, name, files, sets)


def install(
    plan: ReleasePlan,
    say: Callable[[str], None] = lambda _: None,
    *,
    force: bool = False,
    seconds: float | None = None,
) -> list[str]:
    """Install or upgrade the release, and wait at most `seconds` until it is ready (0: do not wait).

    Returns a sentence for each part that is not ready yet; these parts are kept. If Kubernetes rejects an object, rolls
    back all changes and raises the error.
    Raises LauncherError if runs use what the plan removes, unless `force` is set.
    """
    from launcher.releases import install as releases

    return releases.install(plan, say, force=force, seconds=seconds)


def plan_removal(name: str, *, target: Target = DEFAULT_TARGET) -> Removal:
    """Return what `uninstall` of a release would remove, and the runs that need it. Changes nothing."""
    from launcher.releases import removal

    return removal.plan_removal(name, target)


def uninstall(
    removal: Removal, say: Callable[[str], None] = lambda _: None, *, force: bool = False, seconds: float = 60
) -> list[str]:
    """Remove the release. Return a sentence for each object that still exists after `seconds`.

    Raises LauncherError if runs need the release, unless `force` is set.
    """
    from launcher.releases.removal import uninstall

    return uninstall(removal, say, force=force, seconds=seconds)


def diff_run(plan: LaunchPlan, *, target: Target = DEFAULT_TARGET) -> list[ObjectChange]:
    """Return what `submit` would create, or how the existing run differs; [] for kinds without an object."""
    from launcher.helm import diff

    return diff.run(plan, target)
