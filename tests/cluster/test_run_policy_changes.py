"""Changes of an object that exists by a member: one of each field, while the object waits and after its start.

Kueue has counted a RayJob and a JobSet, so nothing in them changes. A RayCluster and a RayService change when their
release is upgraded; Kueue compares their pods and the resources of these, and counts them again.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.charts.run_policy_table import Field, fields, smallest
from tests.cluster import crds
from tests.cluster.api import Object, path_of
from tests.cluster.control_plane import ControlPlane
from tests.cluster.run_policy import Users, installed, renamed, set_at, without

KINDS = ["RayJob", "JobSet", "RayCluster", "RayService"]
MACHINES = "cloud.google.com/gke-tpu-accelerator"
WORKERS = {"RayCluster": ("spec", "workerGroupSpecs"), "RayService": ("spec", "rayClusterConfig", "workerGroupSpecs")}
POD = (0, "template", "spec")


@pytest.fixture(scope="module")
def users(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Users]:
    with installed(control_plane, tmp_path_factory.mktemp("changes")) as found:
        yield found


@pytest.fixture(params=["waits", "started"])
def state(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stored(users: Users, kind: str, state: str) -> Iterator[Object]:
    """An object of alice's team that Kueue has suspended or started."""
    obj = renamed(users.objects[kind], "changes")
    at = ("spec", "rayClusterConfig", "suspend") if kind == "RayService" else ("spec", "suspend")
    set_at(*at, value=state == "waits")(obj)
    made = users.admin.create(obj)
    yield made
    users.admin.delete(path_of(made))


def changed(obj: Object, field: Field) -> Object | None:
    """Return the object with another value in a field; None if the value is a map, or in a list that it has not."""
    made, value = copy.deepcopy(obj), smallest(field.schema)
    if isinstance(value, dict):  # its fields follow
        return None
    try:
        set_at(*field.keys, value=value)(made)
        if made == obj:
            set_at(*field.keys, value=not value if isinstance(value, bool) else f"{value}x")(made)
    except (KeyError, IndexError):
        return None
    return made


PODS = {
    *("authOptions.mode", "autoscalerOptions.idleTimeoutSeconds", "ray.rayVersion"),
    *("container.env", "container.image", "container.ports", "port.containerPort", "port.name"),
    *("pod.imagePullSecrets", "pod.terminationGracePeriodSeconds", "reference.name", "variable.name", "variable.value"),
    *("csi.readOnly", "mount.mountPath", "mount.readOnly"),
    *(f"probe.{name}" for name in ("failureThreshold", "initialDelaySeconds", "periodSeconds", "successThreshold")),
    "probe.timeoutSeconds",
}
"""The fields of the program, which has no quota. Values of charts/ray-cluster and charts/serve set it."""
ACCEPTED = {
    # Kueue counts the hosts again.
    "RayCluster": {*PODS, "workerGroup.numOfHosts"},
    "RayService": {*PODS, "RayService.rayClusterDeletionDelaySeconds", "RayService.serveConfigV2"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_one_change_of_each_field(users: Users, kind: str, state: str, stored: Object) -> None:
    expected = ACCEPTED.get(kind, set()) | (
        {"workerGroup.groupName"} if kind in ACCEPTED and state == "waits" else set()
    )
    accepted, refused, seen = set(), 0, set()
    for field in fields(crds.DEFAULTS["jobset" if kind == "JobSet" else "kuberay"], kind):
        if field.row is None or (field.shape, field.keys[-1]) in seen or field.keys[-1] == "suspend":
            continue
        seen.add((field.shape, field.keys[-1]))
        if (made := changed(stored, field)) is None:
            continue
        refusal = users.patch(users.alice, stored, {"spec": made["spec"]})
        refused += "x-runs" in refusal
        # The CRD refuses the type of some values, and changes of some fields.
        if "x-runs" not in refusal and " is invalid: " not in refusal:
            accepted.add(f"{field.shape}.{field.keys[-1]}")
    assert refused > 40
    assert accepted == expected


def groups_of(obj: Object, kind: str) -> list[Any]:
    node: Any = obj
    for key in WORKERS[kind]:
        node = node[key]
    found: list[Any] = node
    return found


def another_group(index: int) -> Callable[[Any], None]:
    """Return a function that adds a copy of the first group."""
    return lambda groups: groups.insert(index, {**copy.deepcopy(groups[0]), "groupName": "b"})


def of_pod(*keys: str | int, value: Any) -> Callable[[Any], None]:
    return set_at(*POD, *keys, value=value)


def other_name(groups: Any) -> None:
    groups[0]["groupName"] = "other"


OF_STARTED: list[tuple[str, Callable[[Any], None], str]] = [
    ("another group instead", other_name, "must keep their names and their order"),
    ("a group before the first", another_group(0), "must keep"),
    ("another accelerator", of_pod("nodeSelector", MACHINES, value="tpu-v5-lite-podslice"), "must keep the labels"),
    ("any accelerator", without(*POD, "nodeSelector", MACHINES), "must keep the labels of flavors"),
    ("another pool", of_pod("nodeSelector", "example.com/pool", value="reserved"), "must keep the labels of flavors"),
    (
        "an affinity",
        of_pod(
            *("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"),
            value=[{"matchExpressions": [{"key": "example.com/pool", "operator": "DoesNotExist"}]}],
        ),
        "must keep the labels of flavors",
    ),
    ("one more group", another_group(1), ""),
    ("another image", of_pod("containers", 0, "image", value="example.invalid/other:2"), ""),
]
"""Changes of the worker groups that Kueue does not see, and others. Before the start, all are accepted."""


@pytest.mark.parametrize("kind", sorted(WORKERS))
def test_groups_and_machines_of_a_started_cluster_stay(users: Users, kind: str, state: str, stored: Object) -> None:
    above = WORKERS[kind][:-1]
    for name, change, why in OF_STARTED:
        made = copy.deepcopy(stored)
        change(groups_of(made, kind))
        refusal = users.patch(users.alice, stored, {"spec": made["spec"]})
        expected = why if state == "started" else ""
        assert expected in refusal if expected else refusal == "", (name, refusal)
        # A change that suspends the cluster ends all of its pods, and Kueue admits it again.
        set_at(*above, "suspend", value=True)(made)
        assert users.patch(users.alice, stored, {"spec": made["spec"]}) == "", name
