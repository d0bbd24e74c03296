"""Serve checkpoints on a cluster."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from launcher.k8s.target import DEFAULT_TARGET, Target
from launcher.products.models.inference import on_cluster
from launcher.releases import install as releases
from launcher.releases.install import ReleasePlan


def plan_serving(
    name: str,
    files: Sequence[str],
    sets: Sequence[str] = (),
    *,
    step: str | int | None = None,
    model: str | None = None,
    release: str | None = None,
    target: Target = DEFAULT_TARGET,
    recover: bool = False,
    warn: Callable[[str], None] = lambda _: None,
) -> ReleasePlan:
    """Return what `install` of a served model would change in a cluster: charts/serve with these values. Changes
    nothing.

    `name` is a run of the cluster whose checkpoint `step` (a number, "best", or "last", the default) was exported,
    hf:ORG/NAME, or a folder of the storage in the values. `model` is its name in requests, and `release` the name of
    the release (default: that of the run or of the folder). Calls `warn` with a sentence if it is not known whether the
    export exists. Raises LauncherError if it is known not to.
    """
    source = on_cluster.select(name, None if step is None else str(step), files, sets, target)
    for sentence in source.warnings:
        warn(sentence)
    chosen = [*sets, *source.sets, *([f"serve.name={model}"] if model else [])]
    return releases.plan_release("serve", files, chosen, name=release or source.release, target=target, recover=recover)
