"""The objects of charts/queues, field by field: quota, flavors, sharing, teams."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.charts import schemas
from tests.charts.helm import template
from tests.charts.queues_chart import BASE, CHART, CHECKOUT, PRESETS, Tree, merged, names, one, quotas, render, tree

FILES = [*sorted((CHART / "ci").glob("*.yaml")), *sorted(PRESETS.glob("*.yaml"))]
EVERYTHING = tree((CHART / "ci" / "everything-values.yaml").read_text())
THREE_TEAMS = tree((PRESETS / "three-teams.yaml").read_text())
ONE_TEAM = tree((PRESETS / "one-team.yaml").read_text())
RUN = tree((CHECKOUT / "charts" / "run" / "values.yaml").read_text())
AMOUNTS = {"m": 0.001, "": 1, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}


def amount(quantity: str) -> float:
    match = re.fullmatch(r"(\d+)(\D*)", quantity)
    assert match, quantity
    return int(match[1]) * AMOUNTS[match[2]]


# --- All files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_supported_version_accepts_what_is_rendered(helm: Path, file: Path) -> None:
    objects = schemas.objects(template(helm, CHART, [file]))
    assert objects
    for obj in objects:
        assert schemas.validate(obj) == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_resource_groups_meet_the_rules_of_kueues_webhook(helm4: Path, file: Path) -> None:
    """Kueue's webhook, not the CRD, requires each resource and flavor in one group, and quotas in the group's order."""
    for obj in schemas.objects(template(helm4, CHART, [file])):
        groups = obj.get("spec", {}).get("resourceGroups", [])
        resources = [name for group in groups for name in group["coveredResources"]]
        flavors = [flavor["name"] for group in groups for flavor in group["flavors"]]
        assert len(set(resources)) == len(resources)
        assert len(set(flavors)) == len(flavors)
        for group in groups:
            for flavor in group["flavors"]:
                assert [resource["name"] for resource in flavor["resources"]] == group["coveredResources"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_name_refers_to_an_existing_object(helm4: Path, file: Path) -> None:
    objects = schemas.objects(template(helm4, CHART, [file]))
    rendered = names(objects)
    values = tree(file.read_text())
    named = {name for key in ("flavors", "cohorts", "clusterQueues") for name, entry in values.get(key, {}).items()}
    for obj in objects:
        spec = obj.get("spec", {})
        for field, kind in (("cohortName", "Cohort"), ("parentName", "Cohort"), ("clusterQueue", "ClusterQueue")):
            assert field not in spec or (kind, spec[field]) in rendered or spec[field] in named
        for group in spec.get("resourceGroups", []):
            assert all(
                ("ResourceFlavor", flavor["name"]) in rendered | {("ResourceFlavor", "elsewhere")}
                for flavor in group["flavors"]
            )
        flavors = quotas(spec) if "resourceGroups" in spec else {}
        for check in spec.get("admissionChecksStrategy", {}).get("admissionChecks", []):
            assert ("AdmissionCheck", check["name"]) in rendered | {("AdmissionCheck", "audit")}
            assert set(check.get("onFlavors", [])) <= set(flavors)


def test_defaults_create_only_priorities(helm: Path, tmp_path: Path) -> None:
    assert names(render(helm, {}, tmp_path)) == {("WorkloadPriorityClass", name) for name in ("low", "normal", "high")}


def test_common_labels_and_annotations_are_on_every_object(helm4: Path) -> None:
    for each in schemas.objects(template(helm4, CHART, [CHART / "ci" / "everything-values.yaml"])):
        about = each["metadata"]
        assert about["labels"]["example.com/cost-center"] == "ml", (each["kind"], about["name"])
        assert about["annotations"]["example.com/owner"] == "platform-team", (each["kind"], about["name"])


def test_every_key_of_an_entry_is_tried(tmp_path: Path) -> None:
    """ci/everything-values.yaml has every key of the schema."""
    schema = json.loads((CHART / "values.schema.json").read_text())

    def missing(node: Any, given: list[Any], path: str) -> list[str]:
        found = []
        for key, child in node.get("properties", {}).items():
            if key in ("common", "global"):
                continue
            below = [value[key] for value in given if isinstance(value, dict) and key in value]
            found += [f"{path}.{key}"] * (not below) + missing(child, below, f"{path}.{key}")
        entry = node.get("additionalProperties")
        if isinstance(entry, dict):
            found += missing(entry, [item for value in given for item in value.values()], f"{path}.NAME")
        return found

    entries = schema["properties"]
    quota = entries["cohorts"]["additionalProperties"]["properties"]["quota"]["additionalProperties"]
    assert quota == entries["clusterQueues"]["additionalProperties"]["properties"]["quota"]["additionalProperties"]
    assert [key for key in missing(schema, [EVERYTHING], "") if not key.startswith(".cohorts.NAME.quota.")] == []


# --- Quota --------------------------------------------------------------------------------------------------------


def test_slices_become_chips_and_limits_too(helm: Path, tmp_path: Path) -> None:
    over = tree("clusterQueues: {research: {quota: {v6e-4x4: {borrowing: 2, lending: 0}}}}")
    queue = one(render(helm, merged(BASE, over), tmp_path), "ClusterQueue", "research")
    assert queue["spec"]["resourceGroups"] == [
        {
            "coveredResources": ["google.com/tpu"],
            "flavors": [
                {
                    "name": "v6e-4x4",
                    "resources": [
                        {"name": "google.com/tpu", "nominalQuota": "64", "borrowingLimit": "32", "lendingLimit": "0"}
                    ],
                }
            ],
        },
        {
            "coveredResources": ["cpu", "memory"],
            "flavors": [
                {
                    "name": "cpu",
                    "resources": [{"name": "cpu", "nominalQuota": "40"}, {"name": "memory", "nominalQuota": "80Gi"}],
                }
            ],
        },
    ]


def test_large_quotas_are_whole_numbers(helm: Path, tmp_path: Path) -> None:
    over = tree("clusterQueues: {research: {quota: {v6e-4x4: {slices: 1000000}}}}")
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(merged(BASE, over)))
    assert "nominalQuota: 16M\n" in template(helm, CHART, [file])


def test_chips_with_their_hosts_are_one_group(helm4: Path, tmp_path: Path) -> None:
    """Topology-aware scheduling needs this: 4 slices are 16 hosts of 180 cores, and heads do not run on them."""
    over = tree("flavors: {v6e-4x4: {hostCpu: '180', hostMemory: 700Gi}, cpu: {nodeLabels: {pool: heads}}}")
    objects = render(helm4, merged(BASE, over), tmp_path)
    spec = one(objects, "ClusterQueue", "research")["spec"]
    assert [group["coveredResources"] for group in spec["resourceGroups"]] == [["google.com/tpu", "cpu", "memory"]]
    assert quotas(spec) == {
        "cpu": {
            "google.com/tpu": {"nominalQuota": "0"},
            "cpu": {"nominalQuota": "40"},
            "memory": {"nominalQuota": "80Gi"},
        },
        "v6e-4x4": {
            "google.com/tpu": {"nominalQuota": "64"},
            "cpu": {"nominalQuota": "2880"},
            "memory": {"nominalQuota": "11200Gi"},
        },
    }
    taints = one(objects, "ResourceFlavor", "v6e-4x4")["spec"]["nodeTaints"]
    assert taints == [{"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}]


def test_other_resources_are_in_the_group_of_cpu_and_memory(helm4: Path, tmp_path: Path) -> None:
    over = tree("""
    flavors: {more: {accelerator: cpu}}
    clusterQueues:
      product:
        quota:
          cpu: {resources: {ephemeral-storage: 2048Gi, example.com/nic: '8'}}
          more: {cpu: '1', memory: 1Gi}
    """)
    objects = render(helm4, merged(BASE, over), tmp_path)
    for name, others in (("product", ["ephemeral-storage", "example.com/nic"]), ("research", [])):
        _, cpu = one(objects, "ClusterQueue", name)["spec"]["resourceGroups"]
        assert cpu["coveredResources"] == ["cpu", "memory", *others]
        quota = {
            each["name"]: {one["name"]: one["nominalQuota"] for one in each["resources"]} for each in cpu["flavors"]
        }
        if others:
            assert quota["cpu"]["ephemeral-storage"] == "2Ti"
            assert quota["more"] == {"cpu": "1", "memory": "1Gi", **dict.fromkeys(others, "0")}


def test_tpus_and_gpus_have_a_group_each(helm4: Path, tmp_path: Path) -> None:
    over = tree(
        "{flavors: {h100: {accelerator: h100-80gb, hosts: 2}},"
        " clusterQueues: {research: {quota: {h100: {slices: 3, borrowing: 1}}}}}"
    )
    spec = one(render(helm4, merged(BASE, over), tmp_path), "ClusterQueue", "research")["spec"]
    covered = [group["coveredResources"] for group in spec["resourceGroups"]]
    assert covered == [["google.com/tpu"], ["nvidia.com/gpu"], ["cpu", "memory"]]
    assert quotas(spec)["h100"] == {"nvidia.com/gpu": {"nominalQuota": "48", "borrowingLimit": "16"}}


def test_flavors_are_tried_in_order_then_by_name(helm4: Path, tmp_path: Path) -> None:
    over = tree(
        "{flavors: {a: {accelerator: v5e, topology: 2x4}, z: {accelerator: v5e, topology: 2x2}},"
        " clusterQueues: {research: {quota: {a: {slices: 1, order: 10}, z: {slices: 1}, v6e-4x4: {order: 9}}}}}"
    )
    spec = one(render(helm4, merged(BASE, over), tmp_path), "ClusterQueue", "research")["spec"]
    assert [flavor["name"] for flavor in spec["resourceGroups"][0]["flavors"]] == ["z", "v6e-4x4", "a"]


def test_presets_have_room_for_heads_and_what_the_operator_adds() -> None:
    """The cores and the memory are those that the comments count, with the current size of the heads of charts/run."""
    cpu = amount(RUN["head"]["cpu"]) + amount("500m") + amount("500m")
    memory = amount(RUN["head"]["memory"]) + amount("512Mi") + amount("200Mi")
    for preset in (ONE_TEAM, THREE_TEAMS):
        spot = sum(
            entry["slices"] for cohort in preset.get("cohorts", {}).values() for entry in cohort["quota"].values()
        )
        for queue in preset["clusterQueues"].values():
            chips = [entry for name, entry in queue["quota"].items() if name != "cpu"]
            runs = sum(entry["slices"] or min(spot, entry.get("borrowing", spot)) for entry in chips)
            assert runs * cpu <= amount(queue["quota"]["cpu"]["cpu"]) < (runs + 1) * cpu
            assert runs * memory <= amount(queue["quota"]["cpu"]["memory"]) < (runs + 1) * memory


# --- Flavors ------------------------------------------------------------------------------------------------------

TPU = {"cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice", "cloud.google.com/gke-tpu-topology": "4x4"}
SPOT = {"key": "cloud.google.com/gke-spot", "value": "true", "effect": "NoSchedule"}
QUEUED = {"key": "cloud.google.com/gke-queued", "value": "true", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("keys", "spec"),
    [
        ("{}", {"nodeLabels": TPU}),
        ("{provisioning: spot}", {"nodeLabels": {**TPU, "cloud.google.com/gke-spot": "true"}, "nodeTaints": [SPOT]}),
        (
            "{provisioning: spot, anyRun: true}",
            {
                "nodeLabels": {**TPU, "cloud.google.com/gke-spot": "true"},
                "tolerations": [{**SPOT, "operator": "Equal"}],
            },
        ),
        (
            "{provisioning: reservation, reservation: spring}",
            {"nodeLabels": {**TPU, "cloud.google.com/reservation-name": "spring"}},
        ),
        (
            "{provisioning: flex-start}",
            {"nodeLabels": {**TPU, "cloud.google.com/gke-flex-start": "true"}, "nodeTaints": [QUEUED]},
        ),
        ("{nodeLabels: {zone: a}}", {"nodeLabels": {**TPU, "zone": "a"}}),
        (
            "{taints: {team: {key: team, effect: NoExecute}}, tolerations: {all: {key: slow, operator: Exists}}}",
            {
                "nodeLabels": TPU,
                "nodeTaints": [{"key": "team", "effect": "NoExecute"}],
                "tolerations": [{"key": "slow", "operator": "Exists"}],
            },
        ),
    ],
)
def test_a_flavor_is_what_its_machines_are(helm4: Path, tmp_path: Path, keys: str, spec: Tree) -> None:
    objects = render(helm4, merged(BASE, {"flavors": {"v6e-4x4": tree(keys)}}), tmp_path)
    assert one(objects, "ResourceFlavor", "v6e-4x4")["spec"] == spec
    assert one(objects, "ResourceFlavor", "cpu")["spec"] == {}


@pytest.mark.parametrize("kind", ["job-set", "ray-job"])
@pytest.mark.parametrize("provisioning", ["on-demand", "spot", "reservation", "flex-start"])
def test_a_run_with_the_same_provisioning_fits_the_flavor(
    helm4: Path, tmp_path: Path, kind: str, provisioning: str
) -> None:
    """charts/run and this chart agree: a run selects all labels of the flavor and tolerates all of its taints."""
    keys = {"accelerator": "v6e", "topology": "4x4", "provisioning": provisioning}
    keys |= {"reservation": "spring"} if provisioning == "reservation" else {}
    flavor = one(render(helm4, merged(BASE, {"flavors": {"v6e-4x4": keys}}), tmp_path), "ResourceFlavor", "v6e-4x4")
    run = {
        "run": {"kind": kind, "name": "a", "command": ["true"]},
        "slice": keys,
        "image": {"repository": "example.com/image", "tag": "1"},
        "storage": {"kind": "local"},
    }
    (tmp_path / "run.json").write_text(json.dumps(run))
    rendered = schemas.objects(template(helm4, CHECKOUT / "charts" / "run", [tmp_path / "run.json"]))
    pods = [found["spec"] for obj in rendered for _, found in schemas.pod_templates(obj)]
    hosts = [
        pod for pod in pods if any("google.com/tpu" in c["resources"].get("limits", {}) for c in pod["containers"])
    ]
    assert len(hosts) == 1
    assert flavor["spec"]["nodeLabels"].items() <= hosts[0]["nodeSelector"].items()
    for taint in flavor["spec"].get("nodeTaints", []):
        assert any(
            toleration["key"] == taint["key"] and toleration.get("value", taint["value"]) == taint["value"]
            for toleration in hosts[0]["tolerations"]
        )


def test_a_versioned_flavor_has_a_new_name_for_new_machines(helm: Path, tmp_path: Path) -> None:
    def flavor(keys: str) -> str:
        over = merged(tree("flavors: {v6e-4x4: {versioned: true}}"), {"flavors": {"v6e-4x4": tree(keys)}})
        objects = render(helm, merged(BASE, over), tmp_path)
        (name,) = (name for kind, name in names(objects) if kind == "ResourceFlavor" and name != "cpu")
        assert list(quotas(one(objects, "ClusterQueue", "research")["spec"])) == [name, "cpu"]
        return name

    first = flavor("{}")
    assert re.fullmatch(r"v6e-4x4-[0-9a-f]{8}", first)
    assert flavor("{provisioning: on-demand}") == first  # the default, written out
    other = ["{topology: 8x8}", "{provisioning: spot}", "{nodeLabels: {a: b}}", "{machineType: ct6e-standard-4t}"]
    assert len({first, *map(flavor, other)}) == 5


def test_flex_start_brings_its_check(helm: Path, tmp_path: Path) -> None:
    over = tree(
        "{flavors: {flex: {accelerator: v6e, topology: 4x4, provisioning: flex-start, versioned: true}},"
        " clusterQueues: {research: {quota: {flex: {slices: 8}}}}}"
    )
    objects = render(helm, merged(BASE, over), tmp_path)
    (flavor,) = (name for kind, name in names(objects) if kind == "ResourceFlavor" and name.startswith("flex"))
    spec = one(objects, "ClusterQueue", "research")["spec"]
    assert spec["admissionChecksStrategy"] == {"admissionChecks": [{"name": "flex-start", "onFlavors": [flavor]}]}
    assert "admissionChecksStrategy" not in one(objects, "ClusterQueue", "product")["spec"]
    assert one(objects, "AdmissionCheck", "flex-start")["spec"] == {
        "controllerName": "kueue.x-k8s.io/provisioning-request",
        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "flex-start"},
    }
    assert one(objects, "ProvisioningRequestConfig", "flex-start")["spec"] == {
        "provisioningClassName": "queued-provisioning.gke.io",
        "managedResources": ["google.com/tpu"],
        "podSetMergePolicy": "IdenticalWorkloadSchedulingRequirements",
        "podSetUpdates": {
            "nodeSelector": [
                {
                    "key": "autoscaling.gke.io/provisioning-request",
                    "valueFromProvisioningClassDetail": "ResizeRequestName",
                }
            ]
        },
        "retryStrategy": {"backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800},
    }


def test_without_flex_start_there_is_no_check(helm4: Path, tmp_path: Path) -> None:
    kinds = {kind for kind, _ in names(render(helm4, BASE, tmp_path))}
    assert not kinds & {"AdmissionCheck", "ProvisioningRequestConfig"}


# --- Queues, cohorts, priorities ----------------------------------------------------------------------------------


def test_a_queue_has_no_fields_that_are_not_set(helm4: Path, tmp_path: Path) -> None:
    spec = one(render(helm4, BASE, tmp_path), "ClusterQueue", "product")["spec"]
    assert {key: value for key, value in spec.items() if key != "resourceGroups"} == {
        "namespaceSelector": {},
        "queueingStrategy": "BestEffortFIFO",
    }


@pytest.mark.parametrize(
    ("keys", "spec"),
    [
        ("{queueingStrategy: StrictFIFO}", {"queueingStrategy": "StrictFIFO"}),
        ("{stopPolicy: HoldAndDrain}", {"stopPolicy": "HoldAndDrain"}),
        ("{stopPolicy: None}", {"stopPolicy": None}),
        (
            "{namespaceSelector: {slipway.dev/team: research}}",
            {"namespaceSelector": {"matchLabels": {"slipway.dev/team": "research"}}},
        ),
        ("{fairWeight: 2}", {"fairSharing": {"weight": "2"}}),
        ("{fairWeight: 0}", {"fairSharing": {"weight": "0"}}),
        ("{fairWeight: 0.25}", {"fairSharing": {"weight": "250m"}}),
        ("{admissionFairSharing: true}", {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}),
        (
            "{flavorFungibility: {whenCanBorrow: TryNextFlavor}}",
            {"flavorFungibility": {"whenCanBorrow": "TryNextFlavor"}},
        ),
        ("{preemption: {withinClusterQueue: Never}}", {"preemption": {"withinClusterQueue": "Never"}}),
        (
            "{preemption: {reclaimWithinCohort: Any, borrowWithinCohort: LowerPriority, maxPriorityThreshold: normal}}",
            {
                "preemption": {
                    "reclaimWithinCohort": "Any",
                    "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 0},
                }
            },
        ),
    ],
)
def test_an_option_of_a_queue(helm4: Path, tmp_path: Path, keys: str, spec: Tree) -> None:
    over = {"clusterQueues": {"research": tree(keys)}}
    found = one(render(helm4, merged(BASE, over), tmp_path), "ClusterQueue", "research")["spec"]
    assert {key: found.get(key) for key in spec} == spec


def test_three_teams_lend_to_each_other(helm: Path) -> None:
    objects = schemas.objects(template(helm, CHART, [PRESETS / "three-teams.yaml"]))
    queues = {name: one(objects, "ClusterQueue", name)["spec"] for name in ("research", "product", "interns")}
    assert {name: spec["cohortName"] for name, spec in queues.items()} == dict.fromkeys(queues, "tpu")
    tpu = {
        name: {flavor: of.get("google.com/tpu") for flavor, of in quotas(spec).items()} for name, spec in queues.items()
    }
    assert tpu == {
        "research": {
            "v6e-4x4": {"nominalQuota": "80", "borrowingLimit": "80", "lendingLimit": "48"},
            "v6e-4x4-spot": {"nominalQuota": "0"},
            "cpu": None,
        },
        "product": {
            "v6e-4x4": {"nominalQuota": "48", "borrowingLimit": "32", "lendingLimit": "32"},
            "v6e-4x4-spot": {"nominalQuota": "0"},
            "cpu": None,
        },
        "interns": {
            "v6e-4x4": {"nominalQuota": "32", "borrowingLimit": "0"},
            "v6e-4x4-spot": {"nominalQuota": "0", "borrowingLimit": "32"},
            "cpu": None,
        },
    }
    assert quotas(one(objects, "Cohort", "tpu")["spec"]) == {"v6e-4x4-spot": {"google.com/tpu": {"nominalQuota": "64"}}}
    weights = {name: spec["fairSharing"]["weight"] for name, spec in queues.items()}
    assert weights == {"research": "2", "product": "1", "interns": "500m"}
    assert {name: spec["queueingStrategy"] for name, spec in queues.items()} == {
        "research": "BestEffortFIFO",
        "product": "BestEffortFIFO",
        "interns": "StrictFIFO",
    }
    assert queues["research"]["preemption"] == {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    assert {kind: one(objects, "LocalQueue", kind)["metadata"]["namespace"] for kind in queues} == {
        n: n for n in queues
    }


def test_cohorts_nest(helm4: Path, tmp_path: Path) -> None:
    over = tree(
        "cohorts: {all: {parent: company, fairWeight: 2, quota: {v6e-4x4: {slices: 1, lending: 3}}}, company: {}}"
    )
    objects = render(helm4, merged(BASE, over), tmp_path)
    spec = one(objects, "Cohort", "all")["spec"]
    assert (spec["parentName"], spec["fairSharing"]) == ("company", {"weight": "2"})
    # A cohort may lend what its queues lend to it.
    assert quotas(spec) == {"v6e-4x4": {"google.com/tpu": {"nominalQuota": "16", "lendingLimit": "48"}}}
    assert one(objects, "Cohort", "company")["spec"] == {}


def test_priorities(helm4: Path, tmp_path: Path) -> None:
    over = tree("priorities: {low: null, high: {value: 7, pods: true}, normal: {pods: true, globalDefault: true}}")
    objects = render(
        helm4,
        merged(merged(BASE, {"priorities": {"low": {"value": 1}}}), over),
        tmp_path,
        "--set",
        "priorities.low=null",
    )
    assert {n for k, n in names(objects) if k == "WorkloadPriorityClass"} == {"normal", "high"}
    high, normal = (one(objects, "PriorityClass", name) for name in ("high", "normal"))
    assert (high["value"], high["globalDefault"], normal["globalDefault"]) == (7, False, True)
    assert one(objects, "WorkloadPriorityClass", "high")["value"] == 7


# --- Teams --------------------------------------------------------------------------------------------------------


def test_a_team_has_all_it_needs(helm: Path, tmp_path: Path) -> None:
    over = tree("teams: {product: null, research: {members: {alice@example.com: User}, resourceQuota: {pods: '9'}}}")
    objects = render(helm, merged(BASE, over), tmp_path)
    of_team = {
        (obj["kind"], obj["metadata"]["name"], obj["metadata"].get("namespace"))
        for obj in objects
        if obj["metadata"]["labels"].get("slipway.dev/team") == "research"
    }
    assert of_team == {
        ("Namespace", "research", None),
        ("LocalQueue", "research", "research"),
        ("ServiceAccount", "research", "research"),
        ("ResourceQuota", "research", "research"),
        ("ResourceQuota", "research-system-priorities", "research"),
        ("NetworkPolicy", "research", "research"),
        ("Role", "research-member", "research"),
        ("RoleBinding", "research-member", "research"),
    }
    labels = one(objects, "Namespace", "research")["metadata"]["labels"]
    assert {key.partition("/")[2]: value for key, value in labels.items() if "pod-security" in key} == {
        "enforce": "baseline",
        "warn": "restricted",
        "audit": "restricted",
    }
    assert one(objects, "ServiceAccount", "research")["automountServiceAccountToken"] is False
    assert one(objects, "ResourceQuota", "research")["spec"]["hard"]["pods"] == "9"
    assert one(objects, "ResourceQuota", "research-system-priorities")["spec"] == {
        "hard": {"pods": "0"},
        "scopeSelector": {
            "matchExpressions": [
                {
                    "scopeName": "PriorityClass",
                    "operator": "In",
                    "values": ["system-cluster-critical", "system-node-critical"],
                }
            ]
        },
    }


def test_limits_of_a_team_are_those_of_all_teams_and_its_own(helm: Path, tmp_path: Path) -> None:
    over = tree("""
    resourceQuota: {count/secrets: "7", count/jobs.batch: null, services: "8"}
    teams: {research: {resourceQuota: {services.loadbalancers: null, services: "9", requests.storage: 1Ti}}}
    """)
    values = merged(BASE, over)
    values["resourceQuota"]["count/jobs.batch"] = None
    values["teams"]["research"]["resourceQuota"]["services.loadbalancers"] = None
    objects = render(helm, values, tmp_path)
    of_all = {
        "count/rayjobs.ray.io": "500",
        "count/jobsets.jobset.x-k8s.io": "500",
        "count/rayclusters.ray.io": "500",
        "count/rayservices.ray.io": "100",
        "persistentvolumeclaims": "20",
        "pods": "10k",
        "services.nodeports": "0",
        "count/secrets": "7",
    }
    hard = {name: one(objects, "ResourceQuota", name)["spec"]["hard"] for name in ("research", "product")}
    assert hard == {
        "research": {**of_all, "services": "9", "requests.storage": "1Ti"},
        "product": {**of_all, "services": "8", "services.loadbalancers": "0", "requests.storage": "32Ti"},
    }


def test_the_namespace_default_has_only_the_limits_that_its_team_sets(helm4: Path, tmp_path: Path) -> None:
    for keys, limits in (("{}", []), ("{resourceQuota: {pods: '9'}}", [{"pods": "9"}])):
        over = tree("teams: {product: null, research: {namespace: default, networkPolicy: false}}")
        over["teams"]["research"] |= tree(keys)
        objects = render(helm4, merged(BASE, over), tmp_path)
        assert [obj["spec"]["hard"] for obj in objects if obj["kind"] == "ResourceQuota"] == limits


@pytest.mark.parametrize(
    ("keys", "created"),
    [
        ("{}", True),
        ("{namespace: ml}", True),
        ("{namespace: default, networkPolicy: false}", False),
        ("{namespace: platform}", False),  # the namespace of the release
        ("{createNamespace: false}", False),
    ],
)
def test_existing_namespaces_are_not_created(helm: Path, tmp_path: Path, keys: str, created: bool) -> None:
    over = {"teams": {"product": None, "research": tree(keys)}}
    objects = render(helm, merged(BASE, over), tmp_path, "--namespace", "platform")
    assert any(obj["kind"] == "Namespace" for obj in objects) is created
    queue = one(objects, "LocalQueue", "research")
    assert queue["metadata"]["namespace"] == tree(keys).get("namespace", "research")


def test_a_namespace_has_its_labels_and_a_limit_range(helm: Path, tmp_path: Path) -> None:
    over = tree("""
    limitRange:
      Container: {defaultRequest: {cpu: 1000m}, max: {memory: 600Gi}}
      PersistentVolumeClaim: {max: {storage: 1Ti}}
    clusterQueues: {research: {namespaceSelector: {trusted: 'yes', slipway.dev/team: research}}}
    teams:
      research:
        labels: {trusted: 'yes'}
        annotations: {example.com/cost-center: '42'}
        serviceAccount: {imagePullSecrets: [registry]}
        limitRange: {Pod: {max: {cpu: '64'}}, Container: {defaultRequest: {cpu: '2'}}}
    """)
    values = merged(BASE, over)
    values["teams"]["research"]["limitRange"]["PersistentVolumeClaim"] = None
    objects = render(helm, values, tmp_path)
    space = one(objects, "Namespace", "research")["metadata"]
    assert space["labels"] | {"trusted": "yes"} == space["labels"]
    assert space["annotations"] == {"helm.sh/resource-policy": "keep", "example.com/cost-center": "42"}
    assert one(objects, "ServiceAccount", "research")["imagePullSecrets"] == [{"name": "registry"}]
    assert one(objects, "LimitRange", "research")["spec"]["limits"] == [
        {"type": "Container", "defaultRequest": {"cpu": "2"}},
        {"type": "Pod", "max": {"cpu": "64"}},
    ]
    assert one(objects, "LimitRange", "product")["spec"]["limits"] == [
        {"type": "Container", "defaultRequest": {"cpu": "1"}, "max": {"memory": "600Gi"}},
        {"type": "PersistentVolumeClaim", "max": {"storage": "1Ti"}},
    ]
    assert "LimitRange" not in {kind for kind, _ in names(render(helm, BASE, tmp_path))}


def test_a_run_without_a_priority_is_a_normal_run(helm4: Path, tmp_path: Path) -> None:
    """Kueue gives it 0."""
    objects = render(helm4, {}, tmp_path)
    assert [one(objects, "WorkloadPriorityClass", name)["value"] for name in ("low", "normal", "high")] == [
        -100,
        0,
        1000,
    ]


def test_without_members_no_rights_are_granted(helm4: Path, tmp_path: Path) -> None:
    assert not {kind for kind, _ in names(render(helm4, BASE, tmp_path))} & {"Role", "RoleBinding", "ClusterRole"}


def allowed(role: Tree) -> dict[str, set[str]]:
    """Return the verbs that a role allows by resource; for a rule with resource names, by RESOURCE:NAME."""
    verbs: dict[str, set[str]] = {}
    for rule in role["rules"]:
        for resource in rule["resources"]:
            for name in rule.get("resourceNames", [""]):
                verbs.setdefault(f"{resource}:{name}".rstrip(":"), set()).update(rule["verbs"])
    return verbs


def test_what_members_may_do(helm4: Path, tmp_path: Path) -> None:
    over = tree("teams: {product: null, research: {members: {ml: Group}, clusters: [notebooks]}}")
    objects = render(helm4, merged(BASE, over), tmp_path)
    may = allowed(one(objects, "Role", "research-member"))
    everything = {"get", "list", "watch", "create", "patch", "delete"}
    assert may["rayjobs"] == may["jobsets"] == may["rayservices"] == everything
    for resource in ("rayclusters", "localqueues", "pods"):
        assert may[resource] == {"get", "list", "watch"}
    # patch is for `cancel`; the admission policy allows no other change. update would be wrong: the policy recognizes
    # administrators by that verb.
    assert may["workloads"] == {"get", "list", "watch", "patch"}
    assert {"workloads/status", "rayjobs/status", "jobsets/status"}.isdisjoint(may)
    # Members may use only the Secrets and dashboards of their long-lived clusters, by name, and may not grant rights.
    assert may["secrets:notebooks"] == {"get"}
    assert {name for name in may if name.startswith("services/proxy")} == {
        "services/proxy:notebooks-head-svc:8265",
        "services/proxy:http:notebooks-head-svc:8265",
    }
    assert "secrets" not in may
    assert not set(may) & {"*", "configmaps", "roles", "rolebindings", "pods/exec", "serviceaccounts/token"}
    cluster = allowed(one(objects, "ClusterRole", "x-queue-reader"))
    assert set.union(*cluster.values()) == {"get", "list", "watch"}
    assert {"clusterqueues", "cohorts", "resourceflavors", "admissionchecks", "clusterqueues/pendingworkloads"} <= set(
        cluster
    )


def test_the_waiting_runs_of_other_teams_can_be_hidden(helm4: Path, tmp_path: Path) -> None:
    """The member's Role keeps the position in the team's own queue."""
    over = tree("{visibility: {waitingRuns: false}, teams: {research: {members: {ml: Group}}}}")
    objects = render(helm4, merged(BASE, over), tmp_path)
    assert "clusterqueues/pendingworkloads" not in allowed(one(objects, "ClusterRole", "x-queue-reader"))
    assert allowed(one(objects, "Role", "research-member"))["localqueues/pendingworkloads"] == {"get"}


def test_a_policy_guards_what_members_may_patch(helm4: Path, tmp_path: Path) -> None:
    """The policy is rendered if there are members. In tests/cluster a real API server enforces it."""
    over = tree("teams: {research: {members: {ml: Group}, namespace: space}}")
    objects = render(helm4, merged(BASE, over), tmp_path)
    spec = one(objects, "ValidatingAdmissionPolicy", "x-workloads")["spec"]
    (names_in,) = spec["matchConstraints"]["namespaceSelector"]["matchExpressions"]
    assert (names_in["key"], names_in["values"]) == ("kubernetes.io/metadata.name", ["space"])
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"], rule["apiVersions"]) == (["workloads"], ["UPDATE"], ["*"])
    assert spec["failurePolicy"] == "Fail"
    binding = one(objects, "ValidatingAdmissionPolicyBinding", "x-workloads")["spec"]
    assert binding == {"policyName": "x-workloads", "validationActions": ["Deny"]}
    without_members = names(render(helm4, BASE, tmp_path))
    assert not {(f"ValidatingAdmissionPolicy{kind}", "x-workloads") for kind in ("", "Binding")} & without_members


def test_with_kubernetes_tokens_members_read_no_secret(helm4: Path, tmp_path: Path) -> None:
    over = tree(
        "teams: {research: {members: {ml: Group}, clusters: [notebooks], k8sTokenAuth: true, namespace: space,"
        " serviceAccount: {name: pods}}}"
    )
    objects = render(helm4, merged(BASE, over), tmp_path)
    may = allowed(one(objects, "Role", "research-member"))
    assert not [name for name in may if name.startswith("secrets")]
    assert may["serviceaccounts/token:notebooks-ray-client"] == {"create"}
    assert not [name for name in may if name.startswith("rayclusters:")]
    # The launcher sends the cluster a token of this account, and never the user's own.
    client = one(objects, "ServiceAccount", "notebooks-ray-client")
    assert client["metadata"]["labels"]["slipway.dev/ray-client"] == "notebooks"
    assert allowed(one(objects, "Role", "notebooks-ray-client")) == {"rayclusters:notebooks": {"ray:write"}}
    subject = {"kind": "ServiceAccount", "name": "notebooks-ray-client", "namespace": "space"}
    assert one(objects, "RoleBinding", "notebooks-ray-client")["subjects"] == [subject]
    assert "services/proxy:notebooks-head-svc:8265" in may
    # The Ray cluster's processes have the permissions for their requests to the API server.
    pods = {"kind": "ServiceAccount", "name": "pods", "namespace": "space"}
    assert allowed(one(objects, "Role", "research-ray")) == {"rayclusters:notebooks": {"ray:write"}}
    assert one(objects, "RoleBinding", "research-ray")["subjects"] == [pods]
    binding = one(objects, "ClusterRoleBinding", "x-ray-tokens")
    assert (binding["roleRef"]["name"], binding["subjects"]) == ("system:auth-delegator", [pods])
    assert ("ClusterRoleBinding", "x-ray-tokens") not in names(render(helm4, BASE, tmp_path))


def test_without_clusters_there_is_no_dashboard_to_reach(helm4: Path, tmp_path: Path) -> None:
    over = tree("teams: {research: {members: {ml: Group}, createClusters: true}}")
    may = allowed(one(render(helm4, merged(BASE, over), tmp_path), "Role", "research-member"))
    assert not [name for name in may if name.startswith(("services/proxy", "secrets"))]


def test_rights_go_to_members_alone(helm4: Path, tmp_path: Path) -> None:
    over = tree(
        "{teams: {product: {members: {bob: User, ops/ci: ServiceAccount}},"
        " research: {members: {ci: ServiceAccount, bob: User}}}}"
    )
    objects = render(helm4, merged(BASE, over), tmp_path)
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}
    own, other = ({"kind": "ServiceAccount", "name": "ci", "namespace": name} for name in ("research", "ops"))
    for name, kind, subjects in (
        ("x-queue-reader", "ClusterRoleBinding", [user, other, own]),
        ("research-member", "RoleBinding", [user, own]),
        ("product-member", "RoleBinding", [user, other]),
    ):
        assert sorted(one(objects, kind, name)["subjects"], key=str) == subjects
    assert one(objects, "RoleBinding", "research-member")["roleRef"]["name"] == "research-member"


def test_create_clusters(helm4: Path, tmp_path: Path) -> None:
    over = tree("teams: {research: {members: {ml: Group}, createClusters: true}}")
    may = allowed(one(render(helm4, merged(BASE, over), tmp_path), "Role", "research-member"))
    assert may["rayclusters"] == may["rayjobs"]


def test_a_shell_is_a_right_of_its_own(helm4: Path, tmp_path: Path) -> None:
    over = tree("teams: {research: {members: {ml: Group}}, product: {members: {ml: Group}, shell: true}}")
    objects = render(helm4, merged(BASE, over), tmp_path)
    assert "pods/exec" not in allowed(one(objects, "Role", "research-member"))
    assert allowed(one(objects, "Role", "product-member"))["pods/exec"] == {"get", "create"}


def test_viewers_read_and_leads_have_all_rights(helm4: Path, tmp_path: Path) -> None:
    """A viewer has the reading part of a member's Role, and a lead everything that members can be given."""
    over = tree(
        "teams: {research: {clusters: [notebooks], members: {ml: Group}, leads: {lea: User}, viewers: {vi: User},"
        " deleteRuns: false}}"
    )
    objects = render(helm4, merged(BASE, over), tmp_path)
    member, lead, viewer = (allowed(one(objects, "Role", f"research-{role}")) for role in ("member", "lead", "viewer"))
    reading = {"get", "list", "watch"}
    assert viewer == {
        resource: verbs & reading
        for resource, verbs in member.items()
        if not resource.startswith(("secrets", "services/proxy"))
    }
    assert member["rayjobs"] == member["jobsets"] == member["rayservices"] == reading | {"create", "patch"}
    assert lead == member | {
        **dict.fromkeys(("rayjobs", "jobsets", "rayservices", "rayclusters"), reading | {"create", "patch", "delete"}),
        "pods/exec": {"get", "create"},
        "pods/portforward": {"get", "create"},
        "secrets": {"create", "delete"},
    }
    readers = one(objects, "ClusterRoleBinding", "x-queue-reader")["subjects"]
    assert {subject["name"] for subject in readers} == {"ml", "lea", "vi"}
    for role, name in (("lead", "lea"), ("viewer", "vi")):
        assert [subject["name"] for subject in one(objects, "RoleBinding", f"research-{role}")["subjects"]] == [name]


@pytest.mark.parametrize(
    ("keys", "more"),
    [
        ("portForward: true", {"pods/portforward": {"get", "create"}}),
        ("secrets: true", {"secrets": {"create", "delete"}}),
        ("deleteRuns: true", {}),
    ],
)
def test_a_right_that_members_can_be_given(helm4: Path, tmp_path: Path, keys: str, more: Tree) -> None:
    over = tree("teams: {research: {members: {ml: Group}}, product: {members: {ml: Group}, " + keys + "}}")
    objects = render(helm4, merged(BASE, over), tmp_path)
    without = allowed(one(objects, "Role", "research-member"))
    assert allowed(one(objects, "Role", "product-member")) == without | more


@pytest.mark.parametrize(
    ("keys", "kept"),
    [
        ("members: {ml: Group}", False),
        ("viewers: {ml: Group}", False),
        ("members: {ml: Group}, secrets: true", True),
        ("leads: {ml: Group}", True),
    ],
)
def test_who_may_create_secrets_is_kept_from_tokens(helm4: Path, tmp_path: Path, keys: str, kept: bool) -> None:
    objects = render(helm4, merged(BASE, tree(f"teams: {{research: {{{keys}}}}}")), tmp_path)
    assert (("ValidatingAdmissionPolicy", "x-tokens") in names(objects)) is kept
    assert (("ValidatingAdmissionPolicy", "x-workloads") in names(objects)) is not keys.startswith("viewers")


def test_helm_needs_the_secrets_of_the_namespace(helm4: Path, tmp_path: Path) -> None:
    over = tree("teams: {research: {members: {ml: Group}, clusters: [notebooks], helm: true}}")
    objects = render(helm4, merged(BASE, over), tmp_path)
    may = allowed(one(objects, "Role", "research-member"))
    assert may["secrets"] == {"get", "list", "create", "update", "delete"}
    assert "secrets" not in allowed(one(objects, "ClusterRole", "x-queue-reader"))


def peers(rules: list[Tree], side: str) -> list[tuple[str, list[int | str]]]:
    """Return each peer of the rules as a string, with its ports; [] means all ports."""
    found = []
    for rule in rules:
        ports = sorted({port["port"] for port in rule.get("ports", [])}, key=str)
        for peer in rule[side]:
            selectors = json.dumps(peer.get("namespaceSelector", {})) + json.dumps(peer.get("podSelector", {}))
            found.append((peer["ipBlock"]["cidr"] if "ipBlock" in peer else selectors, ports))
    return found


OWN = "{}{}"
DNS = json.dumps({"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}) + json.dumps(
    {"matchExpressions": [{"key": "k8s-app", "operator": "In", "values": ["kube-dns", "node-local-dns"]}]}
)
KONNECTIVITY = json.dumps({"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}) + json.dumps(
    {"matchLabels": {"k8s-app": "konnectivity-agent"}}
)


# The label of the operator's pods in KubeRay's chart and in its kustomization.
OPERATOR = json.dumps({"matchLabels": {"app.kubernetes.io/component": "kuberay-operator"}})


def namespaces(*found: str) -> str:
    key = "kubernetes.io/metadata.name"
    return json.dumps({"matchExpressions": [{"key": key, "operator": "In", "values": list(found)}]}) + "{}"


def test_network_policy_of_a_team(helm: Path, tmp_path: Path) -> None:
    spec = one(render(helm, BASE, tmp_path), "NetworkPolicy", "research")["spec"]
    assert (spec["podSelector"], spec["policyTypes"]) == ({}, ["Ingress", "Egress"])
    assert peers(spec["ingress"], "from") == [
        (OWN, []),
        (namespaces("gke-managed-ray-operator"), [8265, "serve"]),
        (namespaces("kuberay-operator", "kuberay-system", "ray-system").removesuffix("{}") + OPERATOR, [8265, "serve"]),
        (KONNECTIVITY, [8265, "serve"]),
    ]
    assert peers(spec["egress"], "to") == [
        (OWN, []),
        (DNS, [53]),
        ("169.254.20.10/32", [53]),
        ("169.254.169.254/32", [53]),
        ("169.254.169.254/32", [80, 988]),
        ("169.254.169.252/32", [80, 988]),
        ("0.0.0.0/0", [443]),
    ]
    # An empty selector selects only the team's namespace if it is a podSelector.
    assert spec["ingress"][0]["from"] == spec["egress"][0]["to"] == [{"podSelector": {}}]


def test_the_network_by_values(helm4: Path, tmp_path: Path) -> None:
    over = tree("""
    network:
      operatorNamespaces: []
      konnectivity: false
      proxyCidrs: [10.128.0.0/20]
      fromNamespaces: [monitoring]
      modelsFromNamespaces: [web]
      httpsCidrs: []
      egress: {tracking: {cidr: 10.0.0.8/32, ports: [5000, 5001]}, files: {cidr: 10.1.0.0/16}}
    """)
    spec = one(render(helm4, merged(BASE, over), tmp_path), "NetworkPolicy", "research")["spec"]
    assert peers(spec["ingress"], "from") == [
        (OWN, []),
        (namespaces("monitoring"), []),
        ("10.128.0.0/20", [8265, "serve"]),
        (namespaces("web"), ["serve"]),
    ]
    assert peers(spec["egress"], "to")[-2:] == [("10.1.0.0/16", []), ("10.0.0.8/32", [5000, 5001])]
    assert not any(443 in ports for _, ports in peers(spec["egress"], "to"))


def test_operators_by_other_labels_or_by_namespace_alone(helm4: Path, tmp_path: Path) -> None:
    over = tree("network: {operatorNamespaces: [gke-managed-ray-operator, ray], konnectivity: false}")
    given = merged(BASE, over)
    own = json.dumps({"matchLabels": {"app": "kuberay"}})
    for labels, expected in (
        ({"app": "kuberay"}, [namespaces("gke-managed-ray-operator"), namespaces("ray").removesuffix("{}") + own]),
        ({}, [namespaces("gke-managed-ray-operator", "ray")]),
    ):
        given["network"]["operatorLabels"] = {"app.kubernetes.io/component": None, **labels}
        spec = one(render(helm4, given, tmp_path), "NetworkPolicy", "research")["spec"]
        assert peers(spec["ingress"], "from") == [(OWN, []), *((peer, [8265, "serve"]) for peer in expected)]


def test_a_closed_metadata_server_still_answers_dns(helm4: Path, tmp_path: Path) -> None:
    over = tree("network: {metadataServer: false}")
    spec = one(render(helm4, merged(BASE, over), tmp_path), "NetworkPolicy", "research")["spec"]
    assert [peer for peer in peers(spec["egress"], "to") if peer[0].startswith("169.254.169.")] == [
        ("169.254.169.254/32", [53])
    ]


def test_nodes_reach_all_ports_and_are_reached(helm4: Path, tmp_path: Path) -> None:
    """Pods on the network of their nodes need this: no selector matches them, and the head connects to their ports."""
    over = tree("network: {hostCidrs: [10.128.0.0/20, 'fd00::/64']}")
    spec = one(render(helm4, merged(BASE, over), tmp_path), "NetworkPolicy", "research")["spec"]
    nodes: list[tuple[str, list[int]]] = [(OWN, []), ("10.128.0.0/20", []), ("fd00::/64", [])]
    assert peers(spec["ingress"], "from")[:3] == peers(spec["egress"], "to")[:3] == nodes


def test_further_addresses_answer_dns(helm4: Path, tmp_path: Path) -> None:
    over = tree("network: {dnsCidrs: [10.96.0.10/32]}")
    spec = one(render(helm4, merged(BASE, over), tmp_path), "NetworkPolicy", "research")["spec"]
    assert ("10.96.0.10/32", [53]) in peers(spec["egress"], "to")
    (rule,) = (rule for rule in spec["egress"] if {"ipBlock": {"cidr": "10.96.0.10/32"}} in rule["to"])
    assert sorted(port["protocol"] for port in rule["ports"]) == ["TCP", "UDP"]


def test_a_network_closed_to_all_others_has_no_empty_rule(helm4: Path, tmp_path: Path) -> None:
    """A rule with ports and an empty `from` would allow all peers."""
    over = tree("network: {operatorNamespaces: [], konnectivity: false, httpsCidrs: []}")
    spec = one(render(helm4, merged(BASE, over), tmp_path), "NetworkPolicy", "research")["spec"]
    assert spec["ingress"] == [{"from": [{"podSelector": {}}]}]
    assert all(rule["to"] for rule in spec["egress"])


@pytest.mark.parametrize(
    ("keys", "kind"),
    [("{networkPolicy: false}", "NetworkPolicy"), ("{serviceAccount: {create: false}}", "ServiceAccount")],
)
def test_parts_of_a_team_can_be_left_out(helm4: Path, tmp_path: Path, keys: str, kind: str) -> None:
    over = {"teams": {"product": None, "research": tree(keys)}}
    assert kind in {found for found, _ in names(render(helm4, merged(BASE, {"teams": {"product": None}}), tmp_path))}
    assert kind not in {found for found, _ in names(render(helm4, merged(BASE, over), tmp_path))}


def test_workload_identity(helm4: Path, tmp_path: Path) -> None:
    key = "iam.gke.io/gcp-service-account"
    over = {"teams": {"research": {"serviceAccount": {"name": "trainer", "annotations": {key: "a@b.example"}}}}}
    account = one(render(helm4, merged(BASE, over), tmp_path), "ServiceAccount", "trainer")
    assert account["metadata"]["annotations"] == {key: "a@b.example"}


# --- The chart ----------------------------------------------------------------------------------------------------


def notes(helm: Path, *files: Path) -> list[str]:
    """Return the notes that `helm install` prints at the end. Only Helm 4 prints them without a cluster."""
    command = [str(helm), "install", "x", str(CHART), "--dry-run=client", *(f"-f{file}" for file in files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("NOTES:\n")[2].rstrip().splitlines()


def test_notes_say_the_next_command(helm4: Path) -> None:
    for file, team in ((PRESETS / "one-team.yaml", True), (None, False)):
        lines = notes(helm4, *([file] if file else []))
        assert "  kubectl get clusterqueues -o wide" in lines
        assert ("  kubectl get localqueue research -n research" in lines) is team
        assert len(lines) == 2 + team


@pytest.mark.parametrize(
    ("keys", "level"),
    [
        ("{createNamespace: false}", "baseline"),
        ("{createNamespace: false, podSecurity: restricted}", "restricted"),
        ("{createNamespace: false, podSecurity: privileged}", ""),
        ("{createNamespace: false, members: null}", ""),
        ("{}", ""),
    ],
)
def test_notes_name_namespaces_without_pod_security(helm4: Path, tmp_path: Path, keys: str, level: str) -> None:
    over = tree("teams: {product: null, research: {members: {ml: Group}}}")
    values = merged(merged(BASE, over), {"teams": {"research": tree(keys)}})
    (tmp_path / "values.json").write_text(json.dumps(values))
    lines = [line for line in notes(helm4, tmp_path / "values.json") if "label" in line]
    label = f"  kubectl label namespace research pod-security.kubernetes.io/enforce={level}"
    assert lines == [label] * bool(level)


def test_a_packaged_chart_renders_the_same(helm: Path, tmp_path: Path) -> None:
    subprocess.run([str(helm), "package", str(CHART), "-d", str(tmp_path)], capture_output=True, check=True)
    (package,) = tmp_path.glob("slipway-queues-*.tgz")
    file = PRESETS / "three-teams.yaml"
    assert template(helm, package, [file]) == template(helm, CHART, [file])
