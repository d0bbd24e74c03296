"""The admission policy accepts each object that values of the same policy can render, and nothing that they cannot.

A request for each field of the CRDs that no chart renders is refused.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.charts.bad_values import ALL, CLUSTER, GOOD, JOB_SET, KINDS, SERVE
from tests.charts.helm import KUBE_VERSION, HelmError, template
from tests.charts.presets import CHARTS, renders
from tests.charts.queues_chart import merged, tree
from tests.charts.run_policy_table import KINDS as POLICY_KINDS
from tests.charts.run_policy_table import fields, smallest
from tests.charts.schemas import objects
from tests.charts.test_bad_values import KNOBS, some, written
from tests.cluster import crds, recordings
from tests.cluster.api import Object, path_of
from tests.cluster.control_plane import ControlPlane
from tests.cluster.run_policy import OURS, QUEUE, Users, installed, rendered_runs, set_at
from tests.tools import tool

LENIENT = tree("""
policies:
  tolerations: [example.com/slow, k]
  labelPrefixes: [example.com/]
  annotationPrefixes: [example.com/]
  schedulers: [second-scheduler]
  containers: [log-shipper]
  runtimeClasses: [gvisor]
  volumes: [configMap, csi, downwardAPI, emptyDir, persistentVolumeClaim]
  csiDrivers: [gcsfuse.csi.storage.gke.io, secrets-store.csi.k8s.io]
priorities: {p: {value: 7, pods: true}}
teams:
  research:
    podSecurity: privileged
    allow:
      autoscaling: true
      buckets: []
      queues: [q]
      serviceAccounts: [c, trainer, server, research-runs]
  product: {allow: {buckets: []}}
""")
"""Exceptions for what the values of the tests use."""


@pytest.fixture(scope="module")
def users(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Users]:
    with installed(control_plane, tmp_path_factory.mktemp("honest"), LENIENT) as found:
        yield found


def test_every_values_file_of_the_repository(users: Users) -> None:
    """Presets, tutorials, served models and the values of `ct`, in each kind of object that they render as."""
    tried = 0
    for one in renders(tool("helm")):
        for obj in one.objects() if one.variant != "queues" else ():
            obj["metadata"]["namespace"] = OURS
            obj["metadata"]["labels"][QUEUE] = "research"
            to_research(obj)
            assert users.attempt(users.alice, obj) == "", (one.preset, one.variant)
            tried += 1
    assert tried > 200


def to_research(node: Any) -> None:
    """Give an object to the team research: each preset has another team and another service account."""
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        to_research(value)
    if isinstance(node, dict):
        for key, name in (("serviceAccountName", "research"), ("slipway.dev/team", "research")):
            node.update({key: name} if key in node else {})


SERVED = some(
    name=["", "org/model-1"],
    replicas=[{"min": 1, "max": 1}, {"min": 0, "max": 3}, {"min": 2, "max": 2}],
    contextLength=[0, 4096],
    engineArgs=[{"max_num_seqs": 32}],
    upgrade=[{"strategy": "in-place"}, {"deleteOldSeconds": 600}],
    health=[{"requestSeconds": 60}],
)
CLUSTERS = some(
    groups=[{"more": {"accelerator": "v5e", "topology": "2x4", "count": 2}}],
    labels=[{"cost-center": "ml"}],
    maxSlices=[0, 4],
)
SHIPPER: dict[str, Any] = {"image": "registry.example.com/log-shipper:1", "restartPolicy": "Always"}
SHIPPER |= {"resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}}
CSI = {"csi": {"driver": "secrets-store.csi.k8s.io", "readOnly": True}}
PODS = some(
    labels=[{"example.com/cost-center": "ml"}],
    annotations=[{"example.com/owner": "any text"}],
    extraVolumes=[{"ca": {"configMap": {"name": "ca"}}}, {"vault": CSI, "scratch": {"emptyDir": {"sizeLimit": "1Gi"}}}],
    initContainers=[{"log-shipper": SHIPPER}],
    schedulerName=["", "second-scheduler"],
    runtimeClassName=["gvisor"],
)
EXTENSIONS = some(
    pods=PODS,
    commonLabels=[{"example.com/cost-center": "ml"}],
    commonAnnotations=[{"example.com/owner": "any text"}],
    head=st.fixed_dictionaries({"pods": PODS}),
)
ALTERNATIVES = [[], [{"provisioning": "spot"}, {"provisioning": "reservation", "reservation": "mine"}]]


@settings(max_examples=settings().max_examples // 4)
@given(
    KNOBS,
    st.sampled_from([*[kind for kind in ALL if kind in KINDS], SERVE]),
    SERVED,
    CLUSTERS,
    st.sampled_from(ALTERNATIVES),
    st.sampled_from(["research", "q"]),
    EXTENSIONS,
    st.sampled_from(["RestartJobSet", "RestartJob"]),
)
def test_whatever_values_render_the_policy_of_the_same_values_allows(
    users: Users,
    folder: Path,
    values: dict[str, Any],
    kind: str,
    served: dict[str, Any],
    cluster: dict[str, Any],
    alternatives: list[Any],
    queue: str,
    extensions: dict[str, Any],
    action: str,
) -> None:
    values = merged(
        merged({key: value for key, value in values.items() if key not in ("team", "queue")}, extensions),
        {"team": {"name": "research", "namespace": OURS}, "queue": {"name": queue, "priority": "high"}},
    )
    if alternatives:
        values = merged(values, {"slice": {"any": alternatives}})
    if kind == JOB_SET:
        values = merged(values, {"run": {"restartAction": action}})
    if kind == SERVE:
        values = merged(values, {"serve": served})
    if kind == CLUSTER:
        values = merged(values, {"cluster": cluster})
    rendered = attempt_render(folder, kind, values)
    if rendered is None:  # the charts' own rules refuse the values
        return
    (obj,) = objects(rendered)
    assert users.attempt(users.alice, obj) == ""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("random")


def attempt_render(folder: Path, kind: str, values: dict[str, Any]) -> str | None:
    files = []
    for name, text in (("good", GOOD), ("kind", KINDS[kind]), ("random", written(values))):
        file = folder / f"{name}.yaml"
        file.write_text(text, encoding="utf-8")
        files.append(file)
    chart = CHARTS / {CLUSTER: "ray-cluster", SERVE: "serve"}.get(kind, "run")
    try:
        return template(tool("helm"), chart, files, "--kube-version", KUBE_VERSION)
    except HelmError:
        return None


@pytest.mark.parametrize("run", ["deadlineSeconds: 60", "command: [sleep, '60']"])
def test_a_job_set_that_restarts_single_slices(users: Users, folder: Path, run: str) -> None:
    values = tree(f"""
    run: {{restartAction: RestartJob, {run}}}
    team: {{name: research, namespace: {OURS}}}
    slice: {{count: 2}}
    """)
    rendered = attempt_render(folder, JOB_SET, values)
    assert rendered is not None
    (obj,) = objects(rendered)
    assert "RestartJobAndIgnoreMaxRestarts" in str(obj["spec"]["failurePolicy"]["rules"])
    assert users.attempt(users.alice, obj) == ""


def test_what_the_webhooks_of_kueue_and_jobset_make_of_a_run(users: Users) -> None:
    """The recordings have what was stored after a create: suspended, and with JobSet's defaults."""
    found: dict[str, Object] = {}
    for name in ("three-then-one-and-two", "rayjob-succeeds"):
        for change in recordings.read(name):
            if change.type == "ADDED" and change.obj["kind"] in ("JobSet", "RayJob"):
                found.setdefault(change.obj["kind"], change.obj)
    added = {
        "JobSet": {
            key: found["JobSet"]["spec"][key] for key in ("suspend", "network", "successPolicy", "startupPolicy")
        },
        "RayJob": {"suspend": found["RayJob"]["spec"]["suspend"]},
    }
    for kind, more in added.items():
        obj = merged(users.objects[kind], {"spec": more})
        if kind == "JobSet":
            (job,) = obj["spec"]["replicatedJobs"]
            (stored_job,) = found["JobSet"]["spec"]["replicatedJobs"]
            obj["spec"]["replicatedJobs"] = [{**job, "groupName": stored_job["groupName"]}]
            obj["spec"]["replicatedJobs"][0]["template"]["metadata"] = stored_job["template"]["metadata"]
            obj["spec"]["failurePolicy"]["restartStrategy"] = found["JobSet"]["spec"]["failurePolicy"][
                "restartStrategy"
            ]
        assert users.attempt(users.alice, obj) == ""


def test_the_largest_runs_are_within_the_cost_limit_of_cel(users: Users, tmp_path: Path) -> None:
    names = ", ".join(f"V{n}: x" for n in range(180))
    for obj in rendered_runs(tmp_path, over=f"worker: {{env: {{{names}}}}}").values():
        spec = obj["spec"]
        ray = spec.get("rayClusterSpec") or spec.get("rayClusterConfig") or spec
        if obj["kind"] != "JobSet":
            (group,) = ray["workerGroupSpecs"]
            ray["workerGroupSpecs"] = [{**group, "groupName": f"group-{n}"} for n in range(12)]
        assert users.attempt(users.alice, obj) == ""


@pytest.fixture
def cluster(users: Users) -> Iterator[Object]:
    """A long-lived Ray cluster that Kueue has admitted: its templates have what Kueue adds."""
    made = merged(users.objects["RayCluster"], {"spec": {"suspend": False}})
    for group in (made["spec"]["headGroupSpec"], *made["spec"]["workerGroupSpecs"]):
        set_at("template", "metadata", "labels", "kueue.x-k8s.io/podset", value="slice")(group)
        set_at("template", "metadata", "annotations", "kueue.x-k8s.io/workload", value="w")(group)
        set_at("template", "spec", "nodeSelector", "example.com/flavor", value="x")(group)
    stored = users.admin.create(made)
    yield stored
    users.admin.delete(path_of(stored))


def test_an_upgrade_of_a_long_lived_cluster(users: Users, cluster: Object) -> None:
    """Helm patches what has changed: here, the image of the head. Kueue counts the cluster again."""
    head = copy.deepcopy(cluster["spec"]["headGroupSpec"])
    head["template"]["spec"]["containers"][0]["image"] = "example.invalid/trainer:v2"
    assert users.patch(users.alice, cluster, {"spec": {"headGroupSpec": head}}) == ""
    groups = copy.deepcopy(users.objects["RayCluster"]["spec"]["workerGroupSpecs"])
    for count in ("replicas", "minReplicas", "maxReplicas"):
        groups[0][count] = 2
    assert users.patch(users.alice, cluster, {"spec": {"workerGroupSpecs": groups}}) == ""
    groups[0]["maxReplicas"] = 40
    assert "maxReplicas must be equal" in users.patch(users.alice, cluster, {"spec": {"workerGroupSpecs": groups}})
    # A template that Kueue has changed is not accepted in a changed form.
    groups = copy.deepcopy(cluster["spec"]["workerGroupSpecs"])
    groups[0]["template"]["spec"]["hostPID"] = True
    assert "hostPID must be absent" in users.patch(users.alice, cluster, {"spec": {"workerGroupSpecs": groups}})


def test_ray_scales_a_long_lived_cluster(users: Users, tmp_path: Path) -> None:
    """Ray's autoscaler changes the number of slices, with the rights of the head, which are those of a member here."""
    elastic = rendered_runs(tmp_path, over="cluster: {maxSlices: 4}")["RayCluster"]
    # Kueue's webhook holds the pods back until there is quota for them.
    for group in (elastic["spec"]["headGroupSpec"], *elastic["spec"]["workerGroupSpecs"]):
        group["template"]["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/elastic-job"}]
    stored = users.alice.create(elastic)
    try:
        groups = copy.deepcopy(stored["spec"]["workerGroupSpecs"])
        groups[0] |= {"replicas": 3, "scaleStrategy": {"workersToDelete": ["a"]}}
        assert users.patch(users.alice, stored, {"spec": {"workerGroupSpecs": groups}}) == ""
        groups[0] |= {"replicas": 5}
        assert "maxReplicas must be" in users.patch(users.alice, stored, {"spec": {"workerGroupSpecs": groups}})
        removed = {"metadata": {"annotations": {"kueue.x-k8s.io/elastic-job": None}}}
        assert "elastic-job must not be removed" in users.patch(users.alice, stored, removed)
    finally:
        users.admin.delete(path_of(stored))


def test_an_upgrade_of_a_served_model(users: Users) -> None:
    stored = users.alice.create(users.objects["RayService"])
    try:
        config = stored["spec"]["serveConfigV2"].replace("max_ongoing_requests: 64", "max_ongoing_requests: 32")
        assert config != stored["spec"]["serveConfigV2"]
        assert users.patch(users.alice, stored, {"spec": {"serveConfigV2": config}}) == ""
        suspended = {"spec": {"rayClusterConfig": {"suspend": True}}}
        assert users.patch(users.alice, stored, suspended) == ""
        users.admin.merge(path_of(stored), suspended)
        resumed = {"spec": {"rayClusterConfig": {"suspend": False}}}
        assert "suspend must not be set to false" in users.patch(users.alice, stored, resumed)
        absent = {"spec": {"rayClusterConfig": {"suspend": None}}}
        assert "suspend must not be set to false" in users.patch(users.alice, stored, absent)
    finally:
        users.admin.delete(path_of(stored))


VALUES = {
    "deletionStrategy": {"onSuccess": {"policy": "DeleteNone"}, "onFailure": {"policy": "DeleteNone"}},
    "managedBy": "kueue.x-k8s.io/multikueue",
    "volumeClaimPolicies": [{"templates": [{"metadata": {"name": "x"}, "spec": {}}]}],
}
"""Values of fields that rules of the CRDs limit, too."""


def test_a_field_that_no_chart_renders_is_refused(users: Users) -> None:
    """One request for each field of each shape, with a value that its CRD accepts."""
    refused: dict[tuple[str, str], str] = {}
    unknown: list[str] = []
    for kind in POLICY_KINDS:
        version = crds.DEFAULTS["jobset" if kind == "JobSet" else "kuberay"]
        for field in fields(version, kind):
            shape_and_field = (field.shape, str(field.keys[-1]))
            if field.row is not None or shape_and_field in refused:
                continue
            if field.shape == "volume" and field.keys[-1] in LENIENT["policies"]["volumes"]:
                continue
            obj = copy.deepcopy(users.objects[kind])
            if field.shape == "valueFrom":
                set_at(*field.keys[:-2], value={"name": "X"})(obj)
            if field.shape == "claim":
                set_at(*field.keys[:-2], value={"name": "storage", "persistentVolumeClaim": {"claimName": "x"}})(obj)
            set_at(*field.keys, value=VALUES.get(str(field.keys[-1])) or smallest(field.schema))(obj)
            message = users.attempt(users.alice, obj)
            refused[shape_and_field] = message
            if f"{field.path} must be absent" not in message:
                unknown.append(f"{field.path}: {message}")
    assert len(refused) >= 150
    assert not unknown, "\n".join(unknown)
