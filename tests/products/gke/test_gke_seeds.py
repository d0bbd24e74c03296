"""The presets of clusters compared, flag by flag, with the commands of the tutorials that they replace.

A flag of a tutorial is in our command with the same value, or `DIFFERENT` has the reason why it is not.
"""

from __future__ import annotations

import pytest

from launcher import api
from launcher.products.gke import commands
from launcher.products.gke.plan import Plan

# The flags of the tutorials "Train an LLM using JAX, Ray Train, and TPU Trillium on GKE" (seed 000) and "Orchestrate
# Multislice workloads using JobSet and Kueue" (seed 003), with the preset and the command that replace them.
TUTORIALS = {
    "000 Autopilot": (
        ("clusters/gke/v6e-autopilot",),
        "create-auto",
        {"--enable-ray-operator": "", "--machine-type": "n1-standard-16", "--location": "us-east5"},
    ),
    "000 Standard": (
        ("clusters/gke/v6e-standard",),
        "create",
        {
            "--addons": "RayOperator,GcsFuseCsiDriver",
            "--machine-type": "n1-standard-16",
            "--workload-pool": "demo-project.svc.id.goog",
            "--location": "us-east5-b",
        },
    ),
    "000 node pool": (
        ("clusters/gke/v6e-standard",),
        "v6e-16-1",
        {
            "--location": "us-east5-b",
            "--cluster": "slipway",
            "--machine-type": "ct6e-standard-4t",
            "--threads-per-core": "1",
            "--tpu-topology": "4x4",
            "--num-nodes": "4",
        },
    ),
    "003 Autopilot": (
        ("clusters/gke/v6e-autopilot",),
        "create-auto",
        {"--location": "us-east5", "--cluster-version": "1.29.2-gke.1521000", "--release-channel": "rapid"},
    ),
    "003 Standard": (("clusters/gke/multislice-v5e", "queues/multislice-v5e"), "create", {"--location": "us-west4-a"}),
    "003 node pool": (
        ("clusters/gke/multislice-v5e", "queues/multislice-v5e"),
        "vlp-24-1",
        {
            "--location": "us-west4-a",
            "--cluster": "multislice-cluster",
            "--node-locations": "us-west4-a",
            "--machine-type": "ct5lp-hightpu-4t",
            "--tpu-topology": "2x4",
            "--num-nodes": "2",
        },
    ),
}
DIFFERENT = {
    ("000 Autopilot", "--machine-type"): "gcloud refuses it: Autopilot chooses the machines",
    (
        "000 Standard",
        "--addons",
    ): "the tutorial repeats the flag, and gcloud takes the last one, so the cluster has no Ray "
    "operator; ours has both add-ons in one flag, and those that it would otherwise turn off",
    (
        "000 node pool",
        "--threads-per-core",
    ): "the training is bound by the chips; without SMT, the input pipeline has half of the threads",
    ("003 Autopilot", "--cluster-version"): "no longer offered: Slipway supports Kubernetes 1.33 to 1.36",
    ("003 Autopilot", "--release-channel"): "the regular channel has the versions that Slipway supports",
    ("003 node pool", "--node-locations"): "the cluster is in one zone, which is the zone of its nodes",
}


def _flags(plan: Plan, what: str) -> dict[str, str]:
    """Return the flags of our command: of the cluster (create, create-auto), or of the pool with this name."""
    pool = next((pool for pool in plan.pools if pool.name == what), None)
    command = commands.create_cluster(plan) if pool is None else commands.create_pool(plan, pool)
    assert pool is not None or command.arguments[2] == what
    parts = [argument.partition("=") for argument in command.arguments if argument.startswith("--")]
    return {name: value for name, _, value in parts}


@pytest.mark.parametrize("tutorial", TUTORIALS)
def test_each_flag_of_a_tutorial_is_ours_or_has_a_reason(tutorial: str) -> None:
    presets, what, theirs = TUTORIALS[tutorial]
    ours = _flags(api.plan_cluster(presets, ["gke.project=demo-project"]), what)
    differing = {flag for flag, value in theirs.items() if ours.get(flag) != value}
    assert differing == {flag for name, flag in DIFFERENT if name == tutorial}


def test_the_addons_of_the_tutorial_are_among_ours() -> None:
    theirs = set(TUTORIALS["000 Standard"][2]["--addons"].split(","))
    ours = _flags(api.plan_cluster(["clusters/gke/v6e-standard"], ["gke.project=demo-project"]), "create")
    assert theirs <= set(ours["--addons"].split(","))
