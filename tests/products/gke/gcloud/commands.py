"""The plans whose gcloud commands are recorded: those of the tests, the presets, and each kind of pool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from launcher import api
from launcher.config.values.writer import dumps
from launcher.products.gke import commands, steps
from launcher.products.gke.actual import Actual
from launcher.products.gke.commands import PROJECT_NUMBER, Command
from launcher.products.gke.plan import MANAGED_LABEL, Plan
from tests.products.gke.clusters import FILES, plan_of

PRESETS = (
    ["clusters/gke/v6e-standard"],
    ["clusters/gke/v6e-autopilot"],
    ["clusters/gke/multislice-v5e", "queues/multislice-v5e"],
)
NUMBER = "123456789012"
"""The number of the stub's project."""


FORMER = "former-team"
"""A team with a bucket and a role, which is not in the values."""


def values(slices: int = 2, **gke: object) -> dict[str, Any]:
    """Return the values of ../cluster/test_gke.py. Other tests with the same API server have other names."""
    return {
        "gke": {"project": "demo-project", "location": "us-east5-b", "bucket": {"name": "demo-bucket"}, **gke},
        "flavors": {"gke-tpu": {"accelerator": "v6e", "topology": "4x4"}, "gke-cpu": {"accelerator": "cpu"}},
        "clusterQueues": {
            "gke-all": {"quota": {"gke-tpu": {"slices": slices}, "gke-cpu": {"cpu": "12", "memory": "40Gi"}}}
        },
        "teams": {"chip-team": {"clusterQueue": "gke-all", "members": {"a@example.com": "User"}}},
        "priorities": {"low": None, "normal": None, "high": None, "gke-normal": {"value": 5, "description": "x"}},
        "policies": {"runs": False, "tokens": False},
    }


SMALLER: dict[str, Any] = {"slices": 1, "pools": {"gke-tpu": {"minSlices": 1}}}
"""One slice, which always runs."""
TESTED: tuple[dict[str, Any], ...] = ({}, {"slices": 1}, SMALLER, {"location": "us-east5-a"})
SHARED = {"bucket": {"name": "demo-bucket", "shared": True}}


def plans() -> Iterator[Plan]:
    with TemporaryDirectory() as folder:
        for number, changed in enumerate((*TESTED, SHARED)):
            file = Path(folder) / f"{number}.yaml"
            file.write_text(dumps(values(**changed)), encoding="utf-8")
            yield api.plan_cluster([str(file)])
    for names in PRESETS:
        yield api.plan_cluster(names, ["gke.project=demo-project"])
    # The tutorial, which ../cluster/test_gke.py follows: the cluster, and with the flavor of the served model.
    tutorial = ["gke.project=demo-project", "gke.bucket.name=demo-project-slipway"]
    yield api.plan_cluster(PRESETS[0], tutorial)
    flavor = {"accelerator": "v6e", "topology": "2x4", "machineType": "ct6e-standard-8t"}
    served = [f"flavors.v6e-8.{key}={value}" for key, value in flavor.items()]
    yield api.plan_cluster(PRESETS[0], [*tutorial, *served, "clusterQueues.research.quota.v6e-8.slices=2"])
    yield from map(plan_of, FILES)


def arguments() -> list[list[str]]:
    """Return the arguments of each command that changes something, without --quiet, sorted."""
    found = set()
    for plan in plans():
        for command in _of(plan):
            if command.program == "gcloud":
                given = [each.replace(PROJECT_NUMBER, NUMBER) for each in command.arguments if each != "--quiet"]
                found.add(tuple(given))
    return sorted(map(list, found))


def _of(plan: Plan) -> Iterator[Command]:
    yield from (step.command for step in steps.all_steps(plan))
    for pool in plan.pools:
        yield commands.scale_pool(plan, pool)
        yield commands.delete_pool(plan, pool.name)
        if pool.min_slices:
            yield commands.resize_pool(plan, pool)
    there = existing(plan)
    yield from (step.command for step in steps.removal(plan, there, bucket=True).steps)
    yield from (step.command for step in steps.removal(plan, there, bucket=False).steps)
    if plan.project == "demo-project":
        former = steps.steps(plan, existing(plan, (FORMER,)))
        yield from (step.command for step in former if step.action == steps.DELETE)
        yield commands.delete_bucket(f"demo-bucket-{FORMER}")


def existing(plan: Plan, former: tuple[str, ...] = ()) -> Actual:
    """Return what exists after `up` with the plan and with more teams, which are no longer in it."""
    labels = {"labels": {MANAGED_LABEL: plan.name}}
    ours = {"description": f"{commands.DESCRIPTION}{plan.name}."}
    granted = {
        bucket.name: [commands.identity_of(plan, member).replace(PROJECT_NUMBER, NUMBER) for member in bucket.members]
        for bucket in plan.buckets
    }
    granted |= {f"demo-bucket-{team}": [f"{commands.identities(plan, NUMBER)}{team}/sa/{team}"] for team in former}
    identities = {
        member.google_account: {(commands.kubernetes_identity(plan, member), commands.IDENTITY_ROLE)}
        for member in plan.members
    }
    return Actual(
        NUMBER,
        apis=frozenset(commands.APIS),
        project_roles=frozenset({(f"serviceAccount:{plan.node_account}", commands.NODE_ROLE)}),
        cluster={"resourceLabels": labels["labels"]},
        buckets=dict.fromkeys(granted, labels),
        bucket_roles={name: frozenset((who, commands.BUCKET_ROLE) for who in found) for name, found in granted.items()},
        routers=({"name": plan.name, **ours},),
        registry=labels,
        accounts={plan.node_account: ours, **dict.fromkeys(plan.google_accounts, ours)},
        account_roles={address: frozenset(roles) for address, roles in identities.items() if address},
    )
