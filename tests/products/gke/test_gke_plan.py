"""The plan of a GKE cluster: node pools from flavors and quota, what GKE would refuse, and the commands."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from launcher import api
from launcher.config.plan import CheckFailed
from launcher.config.values.writer import dumps
from launcher.products.gke import commands, cost, steps, up
from launcher.products.gke.actual import Actual, is_ours
from launcher.products.gke.plan import Plan, Pool
from tests.tools.go_tools import tool

GKE = {"project": "demo-project", "location": "us-east5-b", "bucket": {"name": "demo-bucket"}}
ONE = {
    "flavors": {"tpu": {"accelerator": "v6e", "topology": "4x4"}, "cpu": {"accelerator": "cpu"}},
    "clusterQueues": {"all": {"quota": {"tpu": {"slices": 2}, "cpu": {"cpu": "30", "memory": "40Gi"}}}},
    "teams": {"research": {"clusterQueue": "all"}},
}


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        key: merged(first[key], value) for key, value in second.items() if isinstance(first.get(key), dict) and value
    }
    return {**first, **second, **both}


@pytest.fixture(autouse=True)
def _helm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_HELM", str(tool("helm")))


@pytest.fixture
def plan(tmp_path: Path) -> Any:
    def make(gke: Mapping[str, Any] | None = None, **queues: Any) -> Plan:
        file = tmp_path / "cluster.yaml"
        file.write_text(dumps({"gke": merged(GKE, gke or {}), **merged(ONE, queues)}), encoding="utf-8")
        planned: Plan = api.plan_cluster([str(file)])
        return planned

    return make


def flags(plan: Plan, pool: Pool) -> set[str]:
    return set(commands.create_pool(plan, pool).arguments)


def test_a_pool_for_each_slice_of_several_hosts(plan: Any) -> None:
    made = plan()
    assert [(pool.name, pool.min_nodes, pool.max_nodes) for pool in made.pools] == [
        ("tpu-1", 0, 4),
        ("tpu-2", 0, 4),
        ("cpu", 0, 2),  # 30 cores on two machines of 16
    ]
    found = flags(made, made.pools[0])
    assert {"--machine-type=ct6e-standard-4t", "--tpu-topology=4x4", "--num-nodes=0", "--max-nodes=4"} <= found
    assert "--enable-autoscaling" in found
    kept = plan({"pools": {"tpu": {"minSlices": 1}}})
    assert {"--num-nodes=4"} <= flags(kept, kept.pools[0])
    assert "--enable-autoscaling" not in flags(kept, kept.pools[0])
    assert "--enable-autoscaling" in flags(kept, kept.pools[1])


@pytest.mark.parametrize(
    ("flavor", "over", "expected", "pools"),
    [
        ({"topology": "2x2"}, {}, {"--total-max-nodes=2", "--location-policy=ANY"}, 1),
        ({"provisioning": "spot"}, {}, {"--spot"}, 2),
        (
            {"provisioning": "reservation", "reservation": "ours"},
            {},
            {"--reservation-affinity=specific", "--reservation=ours"},
            2,
        ),
        (
            {"provisioning": "reservation", "reservation": "ours"},
            {"reservationProject": "owner", "reservationBlock": "b1", "reservationSubBlock": "s2"},
            {"--reservation=projects/owner/reservations/ours/reservationBlocks/b1/reservationSubBlocks/s2"},
            2,
        ),
        (
            {"provisioning": "flex-start"},
            {"maxRunDuration": "36h"},
            {"--flex-start", "--enable-queued-provisioning", "--max-run-duration=129600s", "--no-enable-autorepair"},
            2,
        ),
        ({"nodeLabels": {"a": "b"}, "taints": {"x": {"key": "k", "value": "v", "effect": "NoExecute"}}}, {},
         {"--node-labels=a=b", "--node-taints=k=v:NoExecute"}, 2),
        (
            {"accelerator": "h100-80gb", "topology": "", "hosts": 2},
            {},
            {"--placement-type=COMPACT", "--accelerator=type=nvidia-h100-80gb,count=8,gpu-driver-version=default",
             "--total-max-nodes=4"},
            1,
        ),
        ({"accelerator": "v5p", "topology": "2x2x1"}, {}, {"--tpu-topology=2x2x1", "--total-max-nodes=2"}, 1),
    ],
)  # fmt: skip
def test_the_pools_of_a_flavor(
    plan: Any, flavor: dict[str, Any], over: dict[str, Any], expected: set[str], pools: int
) -> None:
    made = plan({"pools": {"tpu": over}}, flavors={"tpu": flavor})
    of_flavor = [pool for pool in made.pools if pool.flavor == "tpu"]
    assert len(of_flavor) == pools
    assert expected <= flags(made, of_flavor[0])


@pytest.mark.parametrize(
    ("gke", "queues", "message"),
    [
        ({"project": ""}, {}, "gke.project is not set"),
        ({"name": "x" * 41}, {}, "longer than 40 characters"),
        ({"location": "us-east5"}, {}, "gke.zone must name the zone of the accelerators"),
        ({"location": "us-east5", "zone": "us-west4-a"}, {}, "is not in the region us-east5"),
        ({"mode": "autopilot"}, {}, "an Autopilot cluster needs a region: us-east5"),
        ({"bucket": {"name": "No"}}, {}, 'gke.bucket.name is "No"'),
        ({"bucket": {"softDeleteDays": 3}}, {}, "it must be 0, or 7 to 90"),
        ({"controllers": {"kueue": "0.12.0"}}, {}, "Slipway supports 0.16 to 0.19"),
        ({"controllerImages": "https://mirror.example/k8s"}, {}, "it must be a registry and path, without a tag"),
        ({"maintenance": {"start": "2026-01-03T04:00:00Z"}}, {}, "needs both start and end"),
        ({"maintenance": {"start": "2026-01-03T04:00:00Z", "end": "2026-01-03T05:00:00Z"}}, {}, "at least 4 hours"),
        ({"pools": {"tpuu": {}}}, {}, "gke.pools.tpuu is not a flavor; did you mean tpu?"),
        ({"pools": {"tpu": {"minSlices": 3}}}, {}, "more than the 2 slices"),
        ({"pools": {"tpu": {"maxRunDuration": "1d"}}}, {}, "applies only to flex-start"),
        ({"pools": {"tpu": {"maxRunDuration": "8d"}}}, {"flavors": {"tpu": {"provisioning": "flex-start"}}}, "7 days"),
        ({"pools": {"tpu": {"reservationBlock": "b"}}}, {}, "applies only to provisioning: reservation"),
        ({"pools": {"tpu": {"reservationSubBlock": "s"}}},
         {"flavors": {"tpu": {"provisioning": "reservation", "reservation": "r"}}}, "reservationBlock, which contains"),
        ({"imageStreaming": False, "pools": {"tpu": {"secondaryBootDisk": "x"}}}, {}, "needs gke.imageStreaming: true"),
        ({"naem": "x"}, {}, "unknown key gke.naem; did you mean gke.name?"),
        ({}, {"flavors": {"tpu": {"topology": "4x5"}}}, '"4x5" is not a topology of v6e'),
        ({}, {"flavors": {"tpu": {"provisioning": "reservation"}}}, "provisioning: reservation needs its name"),
        ({}, {"flavors": {"t" * 40: {"accelerator": "v6e", "topology": "4x4"}}}, "longer than 40 characters"),
        ({"labels": {"Team": "A B"}}, {}, "labels have lower-case letters"),
    ],
)  # fmt: skip
def test_what_gke_would_refuse_is_reported_with_file_and_line(
    plan: Any, gke: dict[str, Any], queues: dict[str, Any], message: str
) -> None:
    with pytest.raises(CheckFailed) as caught:
        plan(gke, **queues)
    found = [problem for problem in caught.value.problems if message in problem.message]
    assert found, caught.value.problems
    assert found[0].file is not None
    assert found[0].line is not None


def test_what_the_chart_of_the_queues_would_refuse_is_reported(plan: Any) -> None:
    with pytest.raises(
        CheckFailed, match=r"teams.research.namespace: gke-x is a namespace of the cluster's controllers"
    ):
        plan(teams={"research": {"namespace": "gke-x"}})


def test_without_helm_the_queues_are_not_checked(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_HELM", "/nowhere/helm")
    (warning,) = plan().warnings
    assert "The values of the queues are not checked: SLIPWAY_HELM is /nowhere/helm" in warning.message


@pytest.mark.parametrize(
    ("flavor", "says"),
    [
        ({"accelerator": "h100-80gb", "hosts": 2}, "a3-highgpu-8g use the ordinary network of the nodes, not the 4 "),
        ({"accelerator": "h100-mega", "hosts": 2}, "not the 8 network interfaces for GPUDirect-TCPXO, so "),
        ({"accelerator": "h100-80gb"}, ""),
    ],
)
def test_hosts_of_gpus_without_gpudirect_are_a_warning(plan: Any, flavor: Mapping[str, Any], says: str) -> None:
    quota = {"gpu": {"slices": 2}, "cpu": {"cpu": "30", "memory": "40Gi"}}
    flavors = {"tpu": None, "gpu": flavor}
    found = plan(flavors=flavors, clusterQueues={"all": {"quota": {"tpu": None, **quota}}}).warnings
    assert [says in str(warning) for warning in found] == ([True] if says else [])


def test_values_without_flavors_are_a_warning(plan: Any) -> None:
    (warning,) = plan(flavors={}, clusterQueues={}, teams={}).warnings
    assert "the values have no flavors, so node pools are deleted; add the values of the queues" in str(warning)


def test_fewer_slices_than_the_quota_are_a_warning(plan: Any) -> None:
    made = plan({"pools": {"tpu": {"maxSlices": 1}}})
    assert [str(problem).partition(": ")[2] for problem in made.warnings] == [
        "gke.pools.tpu.maxSlices is 1, but the quota of the queues is 2 slices."
    ]


def test_one_sentence_for_a_location_that_is_none(plan: Any) -> None:
    for location in ("", "mars-1a"):
        with pytest.raises(CheckFailed) as caught:
            plan({"location": location})
        assert len(caught.value.problems) == 1


@pytest.mark.parametrize("role", ["members", "leads", "viewers"])
def test_groups_need_the_group_of_gke(plan: Any, role: str) -> None:
    team = {"research": {role: {"r@example.com": "Group"}}}
    (warning,) = plan(teams=team).warnings
    assert f'teams.research.{role}."r@example.com" is a Group, and GKE knows groups only with gke.' in warning.message
    made = plan({"securityGroup": "gke-security-groups@example.com"}, teams=team)
    assert made.warnings == ()
    assert "--security-group=gke-security-groups@example.com" in commands.create_cluster(made).arguments


@pytest.mark.parametrize(
    ("config", "says"),
    [  # Kueue reads its configuration strictly: with any of these, it does not start
        ({"fairSharing": {"enable": True}}, "unknown key gke.kueueConfig.fairSharing.enable"),
        ({"waitForPodsReady": {"timeOut": "2h"}}, "did you mean gke.kueueConfig.waitForPodsReady.timeout?"),
        ({"waitForPodsReady": {"timeout": "2 hours"}}, 'timeout is "2 hours"; it must match'),
        ({"waitForPodsReady": {"timeout": 7200}}, "timeout is the number 7200; it must be text"),
        ({"objectRetentionPolicies": {"afterFinished": "1h"}}, "gke.kueueConfig.objectRetentionPolicies has workloads"),
    ],
)
def test_kueue_does_not_know_other_keys_or_forms(plan: Any, config: dict[str, Any], says: str) -> None:
    with pytest.raises(CheckFailed) as caught:
        plan({"kueueConfig": config})
    assert says in str(caught.value.problems[0])


def test_kueue_must_manage_runs_and_weights_need_its_configuration(plan: Any) -> None:
    with pytest.raises(CheckFailed) as caught:
        plan({"kueueConfig": {"integrations": {"frameworks": ["ray.io/rayjob"]}}})
    assert "must contain ray.io/raycluster and jobset.x-k8s.io/jobset." in str(caught.value.problems[0])
    queues = {
        "cohorts": {"c": {}},
        "clusterQueues": {"all": {"cohort": "c", "fairWeight": 2, "admissionFairSharing": True}},
    }
    assert [warning.message.partition(" has no effect")[0] for warning in plan(**queues).warnings] == [
        "fairWeight of clusterQueues.all",
        "admissionFairSharing of clusterQueues.all",
    ]
    for usage, expected in (({}, 1), ({"usageHalfLifeTime": "0s"}, 1), ({"usageHalfLifeTime": "24h"}, 0)):
        made = plan({"kueueConfig": {"fairSharing": {}, "admissionFairSharing": usage}}, **queues)
        assert len(made.warnings) == expected
    assert "launcher cluster up -f VALUES" in up.script(plan({"kueueConfig": {"fairSharing": {}}}))
    assert "kueueConfig" not in up.script(plan())


def test_all_addons_are_in_one_flag(plan: Any) -> None:
    """The last of two flags --addons wins, so the tutorial's cluster has no Ray operator."""
    found = [each for each in commands.create_cluster(plan()).arguments if each.startswith("--addons")]
    assert found == [
        "--addons=GcePersistentDiskCsiDriver,GcsFuseCsiDriver,HorizontalPodAutoscaling,HttpLoadBalancing,RayOperator"
    ]


def test_autopilot_has_compute_classes_instead_of_pools(plan: Any) -> None:
    made = plan({"mode": "autopilot", "location": "us-east5"}, flavors={"tpu": {"provisioning": "spot"}})
    assert made.pools == ()
    arguments = commands.create_cluster(made).arguments
    assert arguments[:3] == ("container", "clusters", "create-auto")
    assert not any(each.startswith("--machine-type") for each in arguments)  # create-auto refuses it
    (found,) = commands.compute_classes(made)
    assert found["spec"]["priorities"] == [
        {"tpu": {"type": "tpu-v6e-slice", "count": 4, "topology": "4x4"}, "spot": True}
    ]
    assert made.queues_user["flavors"]["tpu"]["nodeLabels"] == {"cloud.google.com/compute-class": "tpu"}
    reserved = plan(
        {
            "mode": "autopilot",
            "location": "us-east5",
            "pools": {"tpu": {"reservationBlock": "b1", "reservationSubBlock": "s2"}},
        },
        flavors={"tpu": {"provisioning": "reservation", "reservation": "ours"}},
    )
    (found,) = commands.compute_classes(reserved)
    block = {"name": "b1", "reservationSubBlock": {"name": "s2"}}
    assert found["spec"]["priorities"][0]["reservations"] == {
        "affinity": "Specific",
        "specific": [{"name": "ours", "reservationBlock": block}],
    }
    assert "nodeLabels" not in made.queues_user["flavors"]["cpu"]


def test_auto_provisioning_has_the_limits_of_the_quota(plan: Any) -> None:
    made = plan({"autoProvisioning": {"enabled": True}})
    assert [pool.name for pool in made.pools] == ["cpu"]
    assert "--max-accelerator=type=tpu-v6e-slice,count=32" in commands.create_cluster(made).arguments


def test_the_account_of_a_team_has_the_role(plan: Any) -> None:
    made = plan()
    (member,) = made.members
    assert commands.identity_of(made, member) == (
        "principal://iam.googleapis.com/projects/${PROJECT_NUMBER}/locations/global/workloadIdentityPools/"
        "demo-project.svc.id.goog/subject/ns/research/sa/research"
    )
    address = "research@demo-project.iam.gserviceaccount.com"
    annotations = {"iam.gke.io/gcp-service-account": address}
    made = plan(teams={"research": {"serviceAccount": {"annotations": annotations}}})
    (member,) = made.members
    assert commands.identity_of(made, member) == f"serviceAccount:{address}"
    assert made.google_accounts == (address,)
    assert "--member=serviceAccount:demo-project.svc.id.goog[research/research]" in (
        commands.grant_identity(made, member).arguments
    )


def test_the_script_is_a_shell_script_with_all_commands(plan: Any) -> None:
    made = plan()
    text = api.cluster_script(made)
    subprocess.run(["sh", "-n"], input=text, text=True, check=True)
    for step in [*steps.all_steps(made), *steps.inside(made, steps.Inside())]:
        assert up.shell_words(step.command) in text
    assert '"--member=principal://iam.googleapis.com/projects/${PROJECT_NUMBER}/' in text


def test_the_price_without_runs_is_that_of_the_slices_that_always_run(plan: Any) -> None:
    assert cost.idle(plan()).usd_per_hour == 0
    made = plan({"pools": {"tpu": {"minSlices": 1}}})
    assert cost.idle(made).usd_per_hour == pytest.approx(16 * 2.7)
    assert cost.full(made)[0] == pytest.approx(32 * 2.7)
    assert cost.full(made)[1] == ()
    unknown = plan({"pools": {"tpu": {"minSlices": 1}}}, flavors={"tpu": {"accelerator": "v4", "topology": "2x2x2",
                                                                          "provisioning": "reservation",
                                                                          "reservation": "r"}})  # fmt: skip
    assert cost.idle(unknown).unknown == ("tpu (v4, reservation)",)
    assert cost.full(unknown) == (0, ("tpu",))


def test_only_what_slipway_made_is_deleted(plan: Any) -> None:
    made = plan()
    ours = {"name": "slipway", "resourceLabels": {"slipway-cluster": "slipway"}}
    assert is_ours(ours, "slipway")
    assert not is_ours(ours, "other")
    foreign = {"name": "slipway", "resourceLabels": {"team": "x"}}
    bucket = "demo-bucket-research"
    removal = steps.removal(made, Actual("1", cluster=foreign, buckets={bucket: {"labels": {}}}), bucket=True)
    assert removal.steps == []
    assert len(removal.kept) == 2
    there = Actual("1", cluster=ours, buckets={bucket: {"labels": ours["resourceLabels"]}})
    removal = steps.removal(made, there, bucket=False)
    assert [step.what for step in removal.steps] == ["cluster slipway"]
    assert "--delete-bucket" in removal.kept[0]


def with_pools(*names: str) -> Actual:
    labels = {"resourceLabels": {"slipway-cluster": "slipway"}}
    slice_ = {"machineType": "ct6e-standard-4t", **labels}
    pools = [
        {"name": name, "config": slice_, "placementPolicy": {"tpuTopology": "4x4"}, "autoscaling": {"enabled": True}}
        for name in names
    ]
    return Actual("1", cluster={"name": "slipway", **labels, "nodePools": pools})


def pool_steps(made: Any, actual: Actual, use: dict[str, list[str]]) -> tuple[list[str], list[str], list[str]]:
    """The TPU pools that are created, deleted, and kept for their runs."""
    created = [step.what for step in steps.steps(made, actual, use) if step.what.startswith("node pool tpu")]
    deleted, held = steps.removed_pools(made, actual, use)
    return created, [step.what for step in deleted], list(held)


def test_pools_with_runs_are_kept_and_any_pools_of_the_flavor_count(plan: Any) -> None:
    six = with_pools(*(f"tpu-{number}" for number in range(1, 7)))
    four, five = (
        plan(clusterQueues={"all": {"quota": {"tpu": {"slices": slices}, "cpu": {"cpu": "8", "memory": "32Gi"}}}})
        for slices in (4, 5)
    )
    assert pool_steps(four, six, {}) == ([], ["node pool tpu-5", "node pool tpu-6"], [])
    busy = {"tpu-5": ["nlp/a"], "tpu-6": ["nlp/a"]}
    assert pool_steps(four, six, busy) == ([], ["node pool tpu-3", "node pool tpu-4"], [])
    rest = with_pools("tpu-1", "tpu-2", "tpu-5", "tpu-6")
    assert pool_steps(four, rest, {}) == ([], [], [])
    assert pool_steps(five, rest, {}) == (["node pool tpu-3"], [], [])
    full = {f"tpu-{number}": ["nlp/a"] for number in range(1, 7)}
    assert pool_steps(four, six, full) == ([], [], ["tpu-5", "tpu-6"])


def test_a_bucket_with_objects_of_someone_else_gets_no_label(plan: Any) -> None:
    made = plan()
    for empty, labelled in ((True, True), (False, False)):
        bucket = "demo-bucket-research"
        there = Actual("1", buckets={bucket: {"name": bucket}}, empty_buckets=frozenset({bucket} if empty else ()))
        found = steps.steps(made, there)
        assert any(step.detail == "labels" for step in found) is labelled


# --- who may use which bucket ---


LABELS = {"labels": {"slipway-cluster": "slipway"}}
ROLE = "roles/storage.objectUser"
TEAMS = {"research": {"clusterQueue": "all"}, "vision": {"clusterQueue": "all"}}


def principal(namespace: str, account: str = "", project: str = "demo-project") -> str:
    pool = f"projects/1/locations/global/workloadIdentityPools/{project}.svc.id.goog"
    return f"principal://iam.googleapis.com/{pool}/subject/ns/{namespace}/sa/{account or namespace}"


def there(**roles: Mapping[str, str]) -> Actual:
    """Return what exists: buckets demo-bucket-KEY, or demo-bucket of the key `shared`, with members and their roles."""
    named = {f"demo-bucket-{key}".removesuffix("-shared"): found for key, found in roles.items()}
    return Actual(
        "1",
        buckets={name: {"labels": {**LABELS["labels"]}} for name in named},
        bucket_roles={name: frozenset(found.items()) for name, found in named.items()},
    )


def changed(found: list[steps.Step]) -> list[tuple[str, str, str]]:
    of_storage = [step for step in found if "bucket" in step.what or "gs://" in step.detail]
    return [(step.action, step.what, step.detail) for step in of_storage]


def test_each_team_has_a_bucket_that_no_other_team_can_read(plan: Any) -> None:
    made = plan(teams=TEAMS)
    assert [(bucket.name, [member.team for member in bucket.members]) for bucket in made.buckets] == [
        ("demo-bucket-research", ["research"]),
        ("demo-bucket-vision", ["vision"]),
    ]
    found = steps.all_steps(made)
    grants = [step.command.arguments for step in found if "add-iam-policy-binding" in step.command.arguments]
    on_buckets = {words[3]: words[4].rpartition("/ns/")[2] for words in grants if words[0] == "storage"}
    assert on_buckets == {
        "gs://demo-bucket-research": "research/sa/research",
        "gs://demo-bucket-vision": "vision/sa/vision",
    }
    assert "--update-labels=slipway-cluster=slipway,slipway-team=vision" in up_words(found)
    assert made.warnings == ()


def up_words(found: list[steps.Step]) -> str:
    return "\n".join(up.shell_words(step.command) for step in found)


def test_a_shared_bucket_is_a_warning(plan: Any) -> None:
    made = plan({"bucket": {"shared": True}}, teams=TEAMS)
    assert [(bucket.name, bucket.team, len(bucket.members)) for bucket in made.buckets] == [("demo-bucket", "", 2)]
    (warning,) = made.warnings
    assert "each of the teams research, vision can read, replace and delete the checkpoints of all others" in str(
        warning
    )
    granted = {principal("research"): ROLE, principal("vision"): ROLE}
    assert steps.conflicts(made, there(shared=granted)) == []
    assert changed(steps.steps(made, there(shared=granted))) == []
    assert plan({"bucket": {"shared": True}}).warnings == ()  # one team does not share it


def test_roles_of_a_team_that_is_gone_are_revoked(plan: Any) -> None:
    made = plan()
    both = there(research={principal("research"): ROLE}, vision={principal("vision"): ROLE})
    assert changed(steps.steps(made, both)) == [("delete", "role of team vision", f"{ROLE} on gs://demo-bucket-vision")]
    assert steps.conflicts(made, both) == []
    shared = plan({"bucket": {"shared": True}})
    others = {
        "serviceAccount:ci@demo-project.iam.gserviceaccount.com": ROLE,  # not made by Slipway
        principal("vision", project="other-project"): ROLE,
        "user:admin@example.com": ROLE,
        principal("auditors"): "roles/storage.objectViewer",
    }
    found = there(shared={principal("research"): ROLE, principal("old", "trainer"): ROLE, **others})
    assert changed(steps.steps(shared, found)) == [("delete", "role of team old", f"{ROLE} on gs://demo-bucket")]
    foreign = dataclasses.replace(found, buckets={"demo-bucket": {"labels": {}}})
    assert changed(steps.steps(shared, foreign)) == []


def test_a_google_service_account_of_a_team_that_is_gone_loses_its_roles(plan: Any) -> None:
    address = "vision@demo-project.iam.gserviceaccount.com"
    found = dataclasses.replace(
        there(research={principal("research"): ROLE}, vision={f"serviceAccount:{address}": ROLE}),
        accounts={address: {"description": "Made by Slipway for the cluster slipway."}},
        account_roles={
            address: frozenset(
                {
                    ("serviceAccount:demo-project.svc.id.goog[vision/vision]", commands.IDENTITY_ROLE),
                    ("user:admin@example.com", commands.IDENTITY_ROLE),
                }
            )
        },
    )
    made = plan()
    revoked = [step for step in steps.steps(made, found) if step.action == steps.DELETE]
    assert [(step.what, step.detail) for step in revoked] == [
        ("role of team vision", f"{ROLE} on gs://demo-bucket-vision"),
        ("role of service account vision", commands.IDENTITY_ROLE),
    ]
    assert "--member=serviceAccount:demo-project.svc.id.goog[vision/vision]" in revoked[1].command.arguments


def test_a_bucket_of_all_teams_is_kept_until_the_values_decide(plan: Any) -> None:
    found = there(shared={principal("research"): ROLE})
    (sentence,) = steps.conflicts(plan(), found)
    assert sentence.startswith("the team research can use the bucket demo-bucket, and gke.bucket.shared is not set.")
    assert sentence.endswith("(demo-bucket-research), change storage.bucket of its runs, and set it to false; "
                             "up then revokes the roles on demo-bucket.")  # fmt: skip
    foreign = dataclasses.replace(found, buckets={"demo-bucket": {"labels": {}}})
    assert "as Slipway did not make demo-bucket" in steps.conflicts(plan(), foreign)[0]
    decided = plan({"bucket": {"shared": False}})
    assert steps.conflicts(decided, found) == []
    assert ("delete", "role of team research", f"{ROLE} on gs://demo-bucket") in changed(steps.steps(decided, found))


def test_down_revokes_the_roles_on_buckets_that_it_keeps(plan: Any) -> None:
    """A later cluster of the project has the same Workload Identity pool."""
    found = there(research={principal("research"): ROLE}, vision={principal("vision"): ROLE})
    removal = steps.removal(plan(), found, bucket=False)
    assert [(step.action, step.what) for step in removal.steps] == [
        ("delete", "role of team research"), ("delete", "role of team vision")
    ]  # fmt: skip
    assert [sentence.split()[2] for sentence in removal.kept] == ["demo-bucket-research", "demo-bucket-vision"]
    removal = steps.removal(plan(), found, bucket=True)
    assert [step.what for step in removal.steps] == ["bucket demo-bucket-research", "bucket demo-bucket-vision"]


def test_the_name_of_a_teams_bucket_must_fit(plan: Any) -> None:
    with pytest.raises(CheckFailed) as error:
        plan({"bucket": {"name": "b" * 56}})
    (problem,) = error.value.problems
    assert f'the bucket of the team research is called "{"b" * 56}-research"' in problem.message
    plan({"bucket": {"name": "b" * 56, "shared": True}})


def test_the_presets_have_plans() -> None:
    for names in (["clusters/gke/v6e-standard"], ["clusters/gke/v6e-autopilot"],
                  ["clusters/gke/multislice-v5e", "queues/multislice-v5e"]):  # fmt: skip
        made = api.plan_cluster(names, ["gke.project=demo-project"])
        assert json.dumps([step.as_json() for step in steps.all_steps(made)])
        groups = [warning for warning in made.warnings if "is a Group" in warning.message]
        assert list(made.warnings) == groups
