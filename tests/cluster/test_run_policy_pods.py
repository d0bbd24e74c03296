"""Each run that the policy of charts/queues accepts has pods that the API server accepts.

A run whose pods are invalid would be admitted by Kueue, and hold its quota without a pod.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from tests.charts.run_policy_table import fields
from tests.charts.schemas import Schema
from tests.cluster import crds
from tests.cluster.api import Object
from tests.cluster.attacks import JOB, OF_HEAD, OF_JOB, OF_WORKER, WORKER, Attack, add, container, job, of, volume
from tests.cluster.control_plane import ControlPlane
from tests.cluster.run_policy import Users, installed, set_at

SPACE = "policy-pods"
TEMPLATES: dict[str, tuple[tuple[str | int, ...], ...]] = {
    "JobSet": (("spec", "replicatedJobs", 0, "template", "spec", "template"),),
    "RayJob": tuple(
        ("spec", "rayClusterSpec", *group, "template") for group in (("headGroupSpec",), ("workerGroupSpecs", 0))
    ),
}
TEXTS = ("", "x", "A B", "-x", "x/", 64 * "a", 300 * "a", "é", "../x", "x:y", "0")
ODD: dict[str, tuple[Any, ...]] = {"string": TEXTS, "integer": (-1, 0, 1, 65536, 2**31), "boolean": (True, False)}


LABELS = {"key": "example.com/pool", "operator": "In"}
AVOID = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["node-1"]}


def affinity(*expressions: Any, why: str = ".affinity must have only a required nodeAffinity") -> Attack:
    terms = [{"matchExpressions": [one]} if one else {} for one in expressions]
    return job(
        *("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"),
        value=terms,
        why=why,
    )


def variable(item: Any, why: str, kind: str = "env") -> Attack:
    name = f"{kind} {item}"[:90]
    return Attack(name, "JobSet", add(*OF_JOB, "containers", 0, kind, item=item), why)


def secret(**key: str) -> Attack:
    return variable(
        {"name": "X", "valueFrom": {"secretKeyRef": key}}, ".valueFrom.secretKeyRef must have only the name"
    )


def toleration(why: str, **fields: Any) -> Attack:
    item = {"key": "example.com/slow", **fields}
    return Attack(f"toleration {fields}", "JobSet", add(*OF_JOB, "tolerations", item=item), f".tolerations[1].{why}")


def port(name: str) -> Attack:
    item = {"name": name, "containerPort": 5}
    add_it = add(*OF_WORKER, "containers", 0, "ports", item=item)
    return Attack(f"port {name}", "RayJob", add_it, ".name must have at most 15 lowercase letters")


INVALID = [
    Attack(
        "a mount without a volume",
        "JobSet",
        add(*OF_JOB, "containers", 0, "volumeMounts", item={"name": "nothing", "mountPath": "/x"}),
        ".volumeMounts[3].name must be the name of a volume of the pod",
    ),
    of("RayJob", *OF_HEAD, "containers", 0, "volumeMounts", 0, "name", value="nothing"),
    of("JobSet", *OF_JOB, "volumes", value=[], why=".volumeMounts[0].name must be the name of a volume"),
    container("volumeMounts", 0, "mountPath", value=""),
    variable(
        {"name": "X", "value": "y", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}},
        ".valueFrom must have one source, and no value next to it",
    ),
    secret(name="a", key="a b"),
    secret(name="a", key=".."),
    secret(name="", key="a"),
    secret(name="A_B", key="a"),
    secret(key="a"),
    variable({"secretRef": {"name": ""}}, ".secretRef must have only a name", "envFrom"),
    variable({"secretRef": {}}, ".secretRef must have only a name", "envFrom"),
    variable({"configMapRef": {"name": "A_B"}}, ".configMapRef must have only a name", "envFrom"),
    affinity(),
    affinity(None),
    affinity(LABELS),
    affinity({**LABELS, "values": ["A B"]}),
    affinity({**LABELS, "operator": "DoesNotExist", "values": ["x"]}),
    affinity({**LABELS, "operator": "NotIn", "values": ["x"]}),
    affinity({**AVOID, "operator": "In"}),
    affinity({**AVOID, "values": []}),
    affinity({**AVOID, "values": ["A B"]}),
    affinity({**AVOID, "values": ["x"] * 65}),
    toleration("operator must be Exists or Equal, and not be Exists with a value", operator="Exists", value="x"),
    toleration("tolerationSeconds must be 0 to 604800, and absent", effect="NoSchedule", tolerationSeconds=3),
    toleration("value must be the value of a label", operator="Equal", value="A B"),
    container("readinessProbe", value={}, why=".readinessProbe.httpGet is missing"),
    container("livenessProbe", value={"httpGet": {"port": 0}}, why=".livenessProbe.httpGet must have only"),
    container("livenessProbe", value={"httpGet": {"port": "other"}}, why=".livenessProbe.httpGet must have only"),
    *(port(name) for name in ("A_B", 16 * "a", "123", "a--b", "-a", "train-metrics")),
    container("image", value=" x", why=".image must have 1 to 1024 characters, without spaces"),
    *(
        Attack(
            f"volume named {name}",
            "JobSet",
            add(*OF_JOB, "volumes", item={"name": name, "emptyDir": {}}),
            ".volumes[3].name must have one source next to it, and at most 63",
        )
        for name in ("", "A_B", 64 * "a")
    ),
    volume("emptyDir", {"sizeLimit": "-1"}, why=".emptyDir must have only sizeLimit, which is 0 or more"),
    volume("persistentVolumeClaim", {"claimName": ""}, why=".claimName must be the name of a claim"),
    job("securityContext", "fsGroupChangePolicy", value="Sometimes"),
    container(
        "resources",
        value={"requests": {"google.com/tpu": "4"}},
        why=".resources must have requests: chips, or cpu and memory, with limits of the chips",
    ),
    job("nodeSelector", "example.com/pool", value="A B", why=".nodeSelector[example.com/pool]"),
    of(
        "JobSet",
        *(*JOB, "template", "metadata", "annotations", "gke-gcsfuse/memory-limit"),
        value="much",
        why="[gke-gcsfuse/memory-limit]",
    ),
    of("JobSet", *JOB, "template", "metadata", "annotations", "gke-gcsfuse/A B-limit", value="1", why="A B-limit]"),
    of("RayJob", *WORKER, "groupName", value="A B", why=".groupName must have at most 63 lowercase letters"),
]
"""Runs that Kueue would admit, and whose pods Kubernetes would refuse."""


@pytest.fixture(scope="module")
def users(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Users]:
    control_plane.add_namespace(SPACE)
    api = control_plane.api
    api.merge(
        f"/api/v1/namespaces/{SPACE}", {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
    )
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": SPACE}}
    for name in ("research", "default"):
        api.ensure({**account, "metadata": {"name": name, "namespace": SPACE}})
    with installed(control_plane, tmp_path_factory.mktemp("pods")) as found:
        for kind, templates in TEMPLATES.items():
            for at in templates:
                assert refusal_of_pod(found, found.objects[kind], at) == ""
        yield found


def refusal_of_pod(users: Users, obj: Object, template: tuple[str | int, ...]) -> str:
    """Create the pod of a template in a dry run, as Jobs and KubeRay do. Returns the message if it is refused."""
    node: Any = obj
    for key in template:
        node = node[key]
    labels_and_annotations = copy.deepcopy(node.get("metadata", {}))
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**labels_and_annotations, "name": "p", "namespace": SPACE}}
    return users.attempt(users.admin, {**pod, "spec": node["spec"]})


def odd_values(schema: Schema) -> tuple[Any, ...]:
    """Return values for a field, most of which Kubernetes does not accept there."""
    if schema.get("x-kubernetes-int-or-string"):
        return (0, -1, "x", "99999", 65536, "")
    if "additionalProperties" in schema:
        return ({}, {"": "x"}, {"A B": "x"}, {"x": "A B"})
    if schema.get("type") == "array":
        return ([], [""], ["x", "x"]) if schema["items"].get("type") == "string" else ([],)
    return ODD.get(schema.get("type", "object"), ({},))


def test_a_run_that_the_policy_accepts_has_valid_pods(users: Users) -> None:
    """Odd values of each field of a pod template: the policy refuses the run, or Kubernetes accepts the pod."""
    invalid, accepted = [], 0
    for kind, templates in TEMPLATES.items():
        seen: set[tuple[str, str | int]] = set()
        for field in fields(crds.DEFAULTS["jobset" if kind == "JobSet" else "kuberay"], kind):
            template = next((at for at in templates if field.keys[: len(at)] == at), None)
            if template is None or field.row is None or (field.shape, field.keys[-1]) in seen:
                continue
            seen.add((field.shape, field.keys[-1]))
            for value in odd_values(field.schema):
                obj = copy.deepcopy(users.objects[kind])
                try:
                    set_at(*field.keys, value=value)(obj)
                except (KeyError, TypeError):  # a field of a map that this run does not have
                    continue
                if users.attempt(users.alice, obj) == "":
                    accepted += 1
                    if refusal := refusal_of_pod(users, obj, template):
                        invalid.append(f"{field.path}: {value!r}: {refusal}")
    assert accepted > 80
    assert not invalid, "\n".join(invalid)


@pytest.mark.parametrize("attack", INVALID, ids=[attack.name for attack in INVALID])
def test_a_member_cannot_hold_quota_with_invalid_pods(users: Users, attack: Attack) -> None:
    obj = copy.deepcopy(users.objects[attack.kind])
    attack.change(obj)
    refusal = users.attempt(users.alice, obj)
    assert "ValidatingAdmissionPolicy 'x-runs'" in refusal, refusal
    assert attack.why in refusal
