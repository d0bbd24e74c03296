"""The objects of charts/queues, field by field: quota, flavors, sharing."""

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
