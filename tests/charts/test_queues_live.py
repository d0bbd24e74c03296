"""The lookups of charts/queues in a cluster: existing namespaces, and fields that cannot be changed in place."""

from __future__ import annotations

import copy
import json
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.charts import schemas
from tests.charts.helm import HelmError
from tests.charts.queues_chart import BASE, CHART, Tree, merged, names, one, quotas, render, sentences_of, tree
from tests.charts.queues_cluster import cluster

BEFORE = merged(
    BASE,
    tree("""
    flavors:
      v6e-4x4: {topologyName: racks, tolerations: {slow: {key: slow, operator: Exists}}}
      spot: {accelerator: v6e, topology: 4x4, provisioning: spot}
    topologies: {racks: {levels: [example.com/rack, kubernetes.io/hostname]}}
    priorities: {high: {pods: true}}
    admissionChecks: {budget: {controllerName: example.com/budget}}
    """),
)


def installed(helm: Path, values: Tree, folder: Path) -> list[Tree]:
    """Return the objects as a cluster has them after `helm install x`, with the fields that the chart reads."""
    objects = copy.deepcopy(render(helm, values, folder))
    for obj in objects:
        owner = {"meta.helm.sh/release-name": "x", "meta.helm.sh/release-namespace": "platform"}
        obj["metadata"].setdefault("annotations", {}).update(owner)
        obj["metadata"].setdefault("labels", {})["app.kubernetes.io/managed-by"] = "Helm"
        obj["metadata"] |= {"uid": "1", "resourceVersion": "7", "generation": 1}
        if obj["kind"] == "LocalQueue":
            obj["spec"].setdefault("stopPolicy", "None")
    return objects


def install(helm: Path, values: Tree, folder: Path, kubeconfig: Path) -> list[Tree]:
    """Return the objects that `helm install --dry-run=server` would apply. Raises HelmError."""
    return schemas.objects(printed(helm, values, folder, kubeconfig).partition("MANIFEST:")[2].partition("NOTES:")[0])


def printed(helm: Path, values: Tree, folder: Path, kubeconfig: Path) -> str:
    """Return what `helm install --dry-run=server` prints. Raises HelmError."""
    (folder / "values.json").write_text(json.dumps(values))
    command = [str(helm), "install", "x", str(CHART), "--namespace=platform", "--dry-run=server"]
    command += ["--disable-openapi-validation", "-f", str(folder / "values.json")]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise HelmError(done.stderr.strip())
    return done.stdout


class Change(NamedTuple):
    """Values on top of BEFORE, and the sentence that rejects them if BEFORE is installed."""

    values: str
    message: str


LABELS = '"cloud.google.com/gke-tpu-accelerator":"tpu-v6e-slice","cloud.google.com/gke-tpu-topology"'
ADMITTED = "Admitted runs hold the previous machines, and Kueue rejects the change if the flavor has a topology."
CHANGES = [
    Change(
        "flavors: {v6e-4x4: {topology: 8x8}}",
        f'flavors.v6e-4x4: nodeLabels of the ResourceFlavor v6e-4x4 would change from {{{LABELS}:"4x4"}} to '
        f'{{{LABELS}:"8x8"}}. {ADMITTED} Use a new key for the flavor, or set flavors.v6e-4x4.versioned: true.',
    ),
    Change(
        "flavors: {v6e-4x4: {tolerations: null}}",
        "flavors.v6e-4x4: tolerations of the ResourceFlavor v6e-4x4 would change from "
        f'[{{"key":"slow","operator":"Exists"}}] to "none". {ADMITTED} Use a new key for the flavor, or set '
        "flavors.v6e-4x4.versioned: true.",
    ),
    Change(
        "flavors: {v6e-4x4: {topologyName: ''}}",
        'flavors.v6e-4x4: topologyName of the ResourceFlavor v6e-4x4 would change from "racks" to "none". '
        f"{ADMITTED} Use a new key for the flavor, or set flavors.v6e-4x4.versioned: true.",
    ),
    Change(
        "flavors: {v6e-4x4: {taints: {team: {key: team, effect: NoExecute}}}}",
        'flavors.v6e-4x4: nodeTaints of the ResourceFlavor v6e-4x4 would change from "none" to '
        f'[{{"effect":"NoExecute","key":"team"}}]. {ADMITTED} Use a new key for the flavor, or set '
        "flavors.v6e-4x4.versioned: true.",
    ),
    Change(
        "topologies: {racks: {levels: [kubernetes.io/hostname]}}",
        "topologies.racks: levels of the Topology racks would change from "
        '[{"nodeLabel":"example.com/rack"},{"nodeLabel":"kubernetes.io/hostname"}] to '
        '[{"nodeLabel":"kubernetes.io/hostname"}]. Kueue rejects this change. Use a new key for the topology.',
    ),
    Change(
        "admissionChecks: {budget: {controllerName: example.com/new}}",
        'admissionChecks.budget: controllerName of the AdmissionCheck budget would change from "example.com/budget" '
        'to "example.com/new". Kueue rejects this change. Use a new key for the check.',
    ),
    Change(
        "priorities: {high: {value: 999}}",
        "priorities.high: value of the PriorityClass high would change from 1000 to 999. Kubernetes rejects this "
        "change. Use a new key for the priority.",
    ),
    Change(
        "teams: {product: {clusterQueue: research}}",
        'teams.product: clusterQueue of the LocalQueue product would change from "product" to "research". Kueue '
        "rejects this change. Set teams.product.queue to a new name, or delete the LocalQueue first when no run "
        "waits in it.",
    ),
]

# Changes that are possible in place, or that create objects with a new name.
ACCEPTED = [
    "{}",
    "flavors: {v6e-4x4: {topology: 8x8, versioned: true}}",
    "{flavors: {v6e-8x8: {accelerator: v6e, topology: 8x8}}, "
    "clusterQueues: {research: {quota: {v6e-4x4: null, v6e-8x8: {slices: 1}}}}}",
    "clusterQueues: {research: {quota: {v6e-4x4: {slices: 9}}, queueingStrategy: StrictFIFO}}",
    "priorities: {low: {value: 1}, high: {description: Sooner.}}",
    "teams: {product: {clusterQueue: research, queue: second}}",
    "flavors: {v6e-4x4: {topology: 8x8, create: false}}",
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.values[:50])
def test_an_upgrade_that_would_fail_is_rejected(helm: Path, tmp_path: Path, change: Change) -> None:
    with cluster(installed(helm, BEFORE, tmp_path), tmp_path) as kubeconfig:
        with pytest.raises(HelmError) as raised:
            install(helm, merged(BEFORE, tree(change.values)), tmp_path, kubeconfig)
        assert sentences_of(raised.value) == [change.message]


def test_an_object_of_another_release_is_refused(helm: Path, tmp_path: Path) -> None:
    """Not with the advice of a change: `versioned` would not help. With `create: false`, it is used as it is."""
    flavor = one(installed(helm, BEFORE, tmp_path), "ResourceFlavor", "v6e-4x4")
    flavor["metadata"]["annotations"]["meta.helm.sh/release-name"] = "other"
    changed = merged(BEFORE, tree("flavors: {v6e-4x4: {topology: 8x8, tolerations: null}}"))
    with cluster([flavor], tmp_path) as kubeconfig:
        with pytest.raises(HelmError) as raised:
            install(helm, changed, tmp_path, kubeconfig)
        install(helm, merged(changed, tree("flavors: {v6e-4x4: {create: false}}")), tmp_path, kubeconfig)
    assert sentences_of(raised.value) == [
        "flavors.v6e-4x4: the ResourceFlavor v6e-4x4 belongs to the release other in the namespace platform, and "
        "would change. Use another key, or set flavors.v6e-4x4.create: false to use it as it is."
    ]


@pytest.mark.parametrize("values", ACCEPTED)
def test_other_changes_pass(helm4: Path, tmp_path: Path, values: str) -> None:
    with cluster(installed(helm4, BEFORE, tmp_path), tmp_path) as kubeconfig:
        assert install(helm4, merged(BEFORE, tree(values)), tmp_path, kubeconfig)


def test_a_versioned_flavor_changes_its_name_and_passes(helm4: Path, tmp_path: Path) -> None:
    before = merged(BEFORE, tree("flavors: {v6e-4x4: {versioned: true}}"))
    after = merged(before, tree("flavors: {v6e-4x4: {topology: 8x8}}"))
    with cluster(installed(helm4, before, tmp_path), tmp_path) as kubeconfig:
        objects = install(helm4, after, tmp_path, kubeconfig)
    flavors = {name for kind, name in names(objects) if kind == "ResourceFlavor"}
    assert set(quotas(one(objects, "ClusterQueue", "research")["spec"])) <= flavors
    assert not any(obj["metadata"]["name"] in flavors - {"cpu", "spot"} for obj in installed(helm4, before, tmp_path))


def test_a_flavor_that_runs_hold_stays_with_quota_0(helm: Path, tmp_path: Path) -> None:
    """Kueue counts only what a run holds of the flavors of its ClusterQueue."""
    before = merged(BASE, tree("flavors: {v6e-4x4: {versioned: true}}"))
    after = merged(before, tree("flavors: {v6e-4x4: {tolerations: {slow: {key: slow, operator: Exists}}}}"))
    live = installed(helm, before, tmp_path)
    (old,) = [name for kind, name in names(live) if kind == "ResourceFlavor" and name != "cpu"]
    for name, held in (("research", "16"), ("product", "0")):
        resources = [{"name": "google.com/tpu", "total": held}]
        one(live, "ClusterQueue", name)["status"] = {"flavorsReservation": [{"name": old, "resources": resources}]}
    with cluster(live, tmp_path) as kubeconfig:
        objects = install(helm, after, tmp_path, kubeconfig)
        elsewhere = merged(after, tree("clusterQueues: {research: {quota: {v6e-4x4: null}, chipsAlone: false}}"))
        without_chips = install(helm, elsewhere, tmp_path, kubeconfig)
    research = one(objects, "ClusterQueue", "research")["spec"]
    (new,) = quotas(research).keys() - {old, "cpu"}
    chips = [group for group in research["resourceGroups"] if "google.com/tpu" in group["coveredResources"]]
    assert [flavor["name"] for flavor in chips[0]["flavors"]] == [new, old]  # the old one is tried last
    assert quotas(research)[old] == {"google.com/tpu": {"nominalQuota": "0", "borrowingLimit": "0"}}
    assert quotas(research)[new] == {"google.com/tpu": {"nominalQuota": "64"}}
    assert old not in quotas(one(objects, "ClusterQueue", "product")["spec"])  # no run of this queue holds it
    kept = one(objects, "ResourceFlavor", old)
    assert kept["spec"] == one(live, "ResourceFlavor", old)["spec"]
    assert kept["metadata"]["labels"]["slipway.dev/retired"] == "true"
    # No group of the new quota covers the chips: the old flavor gets a group of its own.
    assert old in quotas(one(without_chips, "ClusterQueue", "research")["spec"])

    one(live, "ClusterQueue", "research")["status"]["flavorsReservation"][0]["resources"][0]["total"] = "0"
    with cluster(live, tmp_path) as kubeconfig:
        assert ("ResourceFlavor", old) not in names(install(helm, after, tmp_path, kubeconfig))


def test_a_flavor_that_runs_hold_keeps_its_admission_check(helm4: Path, tmp_path: Path) -> None:
    flex = "flavors: {v6e-4x4: {provisioning: flex-start, versioned: true}}"
    before = merged(BASE, tree(flex))
    after = merged(before, tree("flavors: {v6e-4x4: {nodeLabels: {a: b}}}"))
    live = installed(helm4, before, tmp_path)
    (old,) = [name for kind, name in names(live) if kind == "ResourceFlavor" and name != "cpu"]
    resources = [{"name": "google.com/tpu", "total": "16"}]
    one(live, "ClusterQueue", "research")["status"] = {"flavorsReservation": [{"name": old, "resources": resources}]}
    with cluster(live, tmp_path) as kubeconfig:
        objects = install(helm4, after, tmp_path, kubeconfig)
    research, product = (one(objects, "ClusterQueue", name)["spec"] for name in ("research", "product"))
    ((check,), (other,)) = (spec["admissionChecksStrategy"]["admissionChecks"] for spec in (research, product))
    (new,) = other["onFlavors"]
    assert check == {"name": "flex-start", "onFlavors": [new, old]}


def test_the_namespace_of_a_removed_team_keeps_its_restrictions(helm: Path, tmp_path: Path) -> None:
    own = "{clusterQueue: research, members: {nlp: Group}, resourceQuota: {pods: '7'}}"
    live = installed(helm, merged(BASE, tree(f"teams: {{nlp: {own}}}")), tmp_path)
    restrictions = [("ResourceQuota", "nlp"), ("ResourceQuota", "nlp-system-priorities"), ("NetworkPolicy", "nlp")]
    pod: Tree = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "host", "namespace": "nlp"}}
    admitted: Tree = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "run", "namespace": "nlp"},
        "status": {"admission": {"clusterQueue": "research"}},
    }
    ended = [{"type": "Finished", "status": "True"}]
    finished: Tree = {**admitted, "status": {**admitted["status"], "conditions": ended}}
    for remaining, kept in (
        ([pod], True),
        ([admitted], True),
        ([finished, {**pod, "status": {"phase": "Failed"}}], False),
    ):
        with cluster([*live, *remaining], tmp_path) as kubeconfig:
            objects = install(helm, BASE, tmp_path, kubeconfig)
        of_nlp = [obj for obj in objects if obj["metadata"].get("namespace") == "nlp"]
        policy = json.dumps(one(objects, "ValidatingAdmissionPolicy", "x-runs"))
        assert ('"nlp"' in policy) is kept
        if kept:
            assert names(of_nlp) == set(restrictions)  # no queue, no account, no rights
            for kind, name in restrictions:
                assert one(objects, kind, name)["spec"] == one(live, kind, name)["spec"]
                assert one(objects, kind, name)["metadata"]["labels"] == one(live, kind, name)["metadata"]["labels"]
        else:
            assert of_nlp == []


def test_all_changes_are_reported_at_once(helm4: Path, tmp_path: Path) -> None:
    values = BEFORE
    for change in (CHANGES[0], *CHANGES[5:]):
        values = merged(values, tree(change.values))
    with cluster(installed(helm4, BEFORE, tmp_path), tmp_path) as kubeconfig, pytest.raises(HelmError) as raised:
        install(helm4, values, tmp_path, kubeconfig)
    assert sentences_of(raised.value) == sorted(change.message for change in (CHANGES[0], *CHANGES[5:]))


def namespace(name: str, owner: str) -> Tree:
    annotations = {"meta.helm.sh/release-name": owner, "meta.helm.sh/release-namespace": "platform"}
    labels = {"app.kubernetes.io/managed-by": "Helm"}
    metadata = {"name": name, **({"annotations": annotations, "labels": labels} if owner else {})}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


@pytest.mark.parametrize(
    ("owners", "created"),
    [([], True), (["x"], True), ([""], False), (["other"], False)],
    ids=["none", "this release's", "nobody's", "another release's"],
)
def test_a_namespace_of_another_owner_is_not_managed(
    helm: Path, tmp_path: Path, owners: list[str], created: bool
) -> None:
    with cluster([namespace("research", owner) for owner in owners], tmp_path) as kubeconfig:
        objects = install(helm, BASE, tmp_path, kubeconfig)
    assert (("Namespace", "research") in names(objects)) is created
    assert ("Namespace", "product") in names(objects)


def local_queue(release: str) -> Tree:
    """A LocalQueue of the team nlp in the namespace research."""
    annotations = {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": "platform"}
    labels = {"slipway.dev/team": "nlp"}
    metadata = {"name": "nlp", "namespace": "research", "annotations": annotations, "labels": labels}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": metadata, "spec": {}}


OTHER_TEAM = "teams.research.namespace: the namespace research {}; choose another namespace."


@pytest.mark.parametrize(
    ("owner", "labels", "queues", "refused"),
    [
        (
            "",
            {},
            ["other"],
            OTHER_TEAM.format("belongs to the team nlp of the release other in the namespace platform"),
        ),
        (
            "other",
            {"slipway.dev/team": "nlp"},
            [],
            OTHER_TEAM.format("has the label slipway.dev/team=nlp, so it belongs to another team")
            + " If there is no such team any more, remove the label: kubectl label namespace research "
            + "slipway.dev/team-",
        ),
        ("other", {"slipway.dev/team": "research"}, [], ""),  # a team that moves to another release
        ("x", {"slipway.dev/team": "nlp"}, ["x"], ""),  # a team of this release that gets a new name
    ],
    ids=["a queue of another release", "a label", "the same team", "a renamed team"],
)
def test_a_namespace_of_another_team_is_refused(
    helm4: Path, tmp_path: Path, owner: str, labels: dict[str, str], queues: list[str], refused: str
) -> None:
    existing = namespace("research", owner)
    existing["metadata"].setdefault("labels", {}).update(labels)
    with cluster([existing, *map(local_queue, queues)], tmp_path) as kubeconfig:
        try:
            install(helm4, BASE, tmp_path, kubeconfig)
            found = []
        except HelmError as error:
            found = sentences_of(error)
    assert found == [refused] * bool(refused)


@pytest.mark.parametrize(
    ("owner", "labels", "noted"),
    [("", {}, True), ("", {"pod-security.kubernetes.io/enforce": "restricted"}, False), ("x", {}, False)],
    ids=["without a level", "with one", "this release's"],
)
def test_notes_depend_on_the_namespaces_level_of_pod_security(
    helm: Path, tmp_path: Path, owner: str, labels: dict[str, str], noted: bool
) -> None:
    existing = namespace("research", owner)
    existing["metadata"].setdefault("labels", {}).update(labels)
    values = merged(BASE, tree("teams: {research: {members: {ml: Group}}}"))
    with cluster([existing], tmp_path) as kubeconfig:
        notes = printed(helm, values, tmp_path, kubeconfig).partition("NOTES:")[2]
    assert ("kubectl label namespace research pod-security.kubernetes.io/enforce=baseline" in notes) is noted


def test_without_kueue_no_object_of_kueue_is_looked_up(helm: Path, tmp_path: Path) -> None:
    """Helm then reports that Kueue's kinds are missing; a lookup of such a kind would end in a template trace."""
    with cluster([], tmp_path, kueue=False) as kubeconfig, pytest.raises(HelmError) as raised:
        install(helm, BASE, tmp_path, kubeconfig)
    assert 'no matches for kind "ClusterQueue" in version "kueue.x-k8s.io/v1beta2"' in str(raised.value)
    assert "error calling" not in str(raised.value)
