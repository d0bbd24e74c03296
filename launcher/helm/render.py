"""Render a plan without a cluster: its manifests, or the run config of a run that creates no object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from launcher.config.kinds import RunKind
from launcher.config.plan import LaunchPlan
from launcher.config.values.writer import dumps


@dataclass(frozen=True)
class Rendering:
    """A rendered plan: `text` is YAML, `data` the same as plain data.

    `message` is set if the plan creates no object.
    """

    text: str
    data: Any
    message: str = ""


def render(plan: LaunchPlan) -> Rendering:
    """Return the manifest that a submit would create; the run config for a run that creates none. Requires Helm."""
    if plan.kind.has_object:
        from launcher.helm import client as helm

        text = helm.run_manifest(plan)
        (obj,) = helm.load_all(text)
        return Rendering(text, obj)

    if plan.kind is RunKind.RAY_CLUSTER:
        cluster = plan.config["run"]["cluster"]
        message = (
            "A ray-cluster run creates no Kubernetes object. launcher submit sends this run config to the Ray cluster "
            f"{cluster} (namespace {plan.namespace}) as a Ray job."
        )
    else:
        message = (
            "A local run creates no Kubernetes object. launcher submit starts the trainer on this machine with this "
            "run config."
        )
    return Rendering(dumps(plan.config), plan.config, message)
