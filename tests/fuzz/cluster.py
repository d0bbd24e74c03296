"""The objects of a cluster: moments of recordings (tests/unit/recorded.py), and what the recordings lack."""

from __future__ import annotations

import copy
import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from launcher.k8s import client, label_keys
from tests.cluster import doctor_objects
from tests.fuzz.fake_cluster import FakeCluster, key_of
from tests.fuzz.mutation import HOSTILE
from tests.fuzz.target import Documents, Target, run_config
from tests.unit import recorded

# Moments of recordings (tests/unit/test_explain_recordings.py explains them), and one run of each.
MOMENTS = (
    *("three-then-one-and-two@10 slices-3", "three-then-one-and-two@10 slices-1", "preempted-by-priority@11 low-3"),
    *("borrowing-then-reclaimed@9.85 owner-2", "larger-than-quota@3 slices-4", "no-such-queue@2 lost"),
    *("admitted-but-no-nodes@3 ", "cancelled-while-running@11 ", "run-fails-after-restarts@17 ", "queue-held@3 "),
    *("admission-check-pending@4 ", "admission-check-inactive@3 ", "selector-matches-no-flavor@3 "),
    *(
        "rayjob-fails@15 bad",
        "rayjob-fails@22 bad",
        "rayjob-succeeds@30 ",
        "rayjob-head-killed@60 ",
        "rayjob-admitted@6 ",
    ),
    "head-not-covered-by-quota@3 ",
)
_VERBS = (
    "list",
    "list",
    "list -A",
    "list --clusters",
    "status",
    "status",
    "explain",
    "explain",
    "report",
    "logs",
    "doctor",
)


class ClusterTarget(Target):
    texts = HOSTILE["lines"]

    def bases(self) -> list[str]:
        return list(MOMENTS)

    @functools.cache  # noqa: B019 - there is one object of this class
    def documents(self, base: str) -> Documents:
        moment = base.partition(" ")[0]
        name, _, seconds = moment.partition("@")
        cluster = recorded.at(name, float(seconds))
        objects = [*cluster.objects, *_long_lived(), *_upstream()]
        for obj in objects:
            if obj["kind"] in ("RayJob", "JobSet"):
                _as_run(obj)
        made: Documents = {key_of(obj): obj for obj in objects}
        return {
            **made,
            "logs": list(HOSTILE["log"]),
            "jobs": _jobs(),
            "version": {"ray_version": "2.60.0"},
            "answers": _answers(),
        }

    def run_of(self, base: str) -> str:
        named = base.partition(" ")[2]
        runs = [
            obj
            for obj in self.documents(base).values()
            if isinstance(obj, dict) and obj.get("kind") in ("RayJob", "JobSet")
        ]
        return named or (str(runs[0]["metadata"]["name"]) if runs else "gone")

    def relevant(self, base: str, random: Random) -> Documents:
        """Prefer the kinds of which there are few: there are many Events."""
        documents = self.documents(base)
        kinds = sorted({key.partition(" ")[0] for key in documents})
        kind = random.choice(
            [*kinds, *(each for each in ("RayJob", "JobSet", "Workload", "Pod", "logs", "jobs") if each in kinds)]
        )
        return {key: value for key, value in documents.items() if key.partition(" ")[0] == kind}

    def arguments(self, base: str, random: Random) -> tuple[str, ...]:
        words = random.choice(_VERBS).split()
        if words[0] in ("status", "explain", "report", "logs"):
            words.append(random.choice([self.run_of(base), self.run_of(base), "standing", "swept"]))
        words += [] if "-A" in words else ["-n", "research"]
        words += random.choice([[], [], ["-o", "json"]])
        words += ["--skip"] if words[0] == "report" and random.random() < 0.5 else []
        return tuple(words)

    @contextmanager
    def at(self, folder: Path, documents: Documents) -> Iterator[None]:
        made = lambda context=None, namespace=None: FakeCluster(documents, namespace or "research")  # noqa: E731
        with mock.patch.object(client, "connect", made):
            yield


def _as_run(obj: dict[str, Any]) -> None:
    """Add what the charts and `launcher submit` add to a run, which the recorded objects do not have."""
    meta, name = obj["metadata"], obj["metadata"]["name"]
    meta["labels"] = {**meta.get("labels", {}), label_keys.RUN: name, label_keys.TEAM: "research"}
    meta["labels"] |= {label_keys.SWEEP: "swept", "kueue.x-k8s.io/priority-class": "normal"}
    values = '{"train.learning_rate": 0.001}'
    meta["annotations"] = {**meta.get("annotations", {}), label_keys.ATTEMPT: "2", label_keys.SWEEP_VALUES: values}
    spec = obj["spec"]
    if obj["kind"] == "RayJob":
        template = spec["rayClusterSpec"]["headGroupSpec"]["template"]
    else:
        template = spec["replicatedJobs"][0]["template"]["spec"]["template"]
    own = copy.deepcopy(run_config())
    own["run"]["name"] = name
    template.setdefault("metadata", {}).setdefault("annotations", {})[label_keys.RUN_CONFIG] = json.dumps(own)


def _long_lived() -> list[dict[str, Any]]:
    pod = {
        "spec": {"containers": [{"name": "ray-head", "image": "x", "resources": {"limits": {"google.com/tpu": "4"}}}]}
    }
    group = {"groupName": "slice", "replicas": 1, "maxReplicas": 2, "numOfHosts": 2, "template": pod}
    ready = {"type": "HeadPodReady", "status": "True", "reason": "x", "lastTransitionTime": "2026-11-21T06:25:02Z"}
    spec = {
        "rayVersion": "2.60.0",
        "headGroupSpec": {"template": pod},
        "workerGroupSpecs": [group],
        "authOptions": {"mode": "token"},
    }
    meta = {"name": "notebooks", "namespace": "research", "uid": "u-1", "creationTimestamp": "2026-11-21T06:25:02Z"}
    status = {"conditions": [ready], "desiredWorkerReplicas": 2, "head": {"serviceName": "notebooks-head-svc"}}
    cluster = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": meta, "spec": spec, "status": status}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "notebooks", "namespace": "research"},
        "data": {"auth_token": "c2VjcmV0"},
    }
    labels = {"ray.io/cluster": "notebooks", "ray.io/node-type": "head"}
    head = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "notebooks-head",
            "namespace": "research",
            "uid": "u-2",
            "labels": labels,
            "creationTimestamp": "2026-11-21T06:25:02Z",
        },
        "spec": {**pod["spec"], "nodeName": "cpu-0"},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "ray-head", "state": {"running": {}}}],
        },
    }
    return [cluster, secret, head]


def _upstream() -> list[dict[str, Any]]:
    deployments = [build() for build in doctor_objects.CONTROLLERS]
    for one in deployments:
        one["status"] = {
            "conditions": [{"type": "Available", "status": "True", "message": "ok"}],
            "availableReplicas": 1,
            "readyReplicas": 1,
        }
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "research", "labels": {"a": "b"}}}
    slices = [
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**one["metadata"], "labels": {"kubernetes.io/service-name": one["metadata"]["name"]}},
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}],
        }
        for one in doctor_objects.services()
    ]
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "team", "namespace": "research"},
        "status": {"hard": {"pods": "10"}, "used": {"pods": "10"}},
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "research"},
        "spec": {"storageClassName": "fast"},
        "status": {"phase": "Pending"},
    }
    cohort = doctor_objects.named("Cohort", "kueue.x-k8s.io/v1beta2", "all", spec={"resourceGroups": []})
    check = doctor_objects.named(
        "AdmissionCheck",
        "kueue.x-k8s.io/v1beta2",
        "prov",
        spec={"controllerName": "kueue.x-k8s.io/provisioning-request"},
        status={"conditions": [{"type": "Active", "status": "True", "message": "ok"}]},
    )
    topology = doctor_objects.named("Topology", "kueue.x-k8s.io/v1beta2", "t", spec={"levels": [{"nodeLabel": "x"}]})
    upstream = [*deployments, *doctor_objects.webhooks(), doctor_objects.config_map(), *slices]
    return [*upstream, namespace, quota, claim, cohort, check, topology]


def _jobs() -> list[dict[str, Any]]:
    metadata = {
        label_keys.RUN: "standing",
        label_keys.ATTEMPT: "2",
        label_keys.RUN_CONFIG: json.dumps(run_config("ray-job")),
    }
    metadata |= {label_keys.TEAM: "research", label_keys.SWEEP: "swept", label_keys.SWEEP_VALUES: '{"train.steps": 4}'}
    times = {"start_time": 1795242302000, "end_time": 1795242402000}
    job = {
        "type": "SUBMISSION",
        "submission_id": "standing-2",
        "status": "RUNNING",
        "message": "running",
        "driver_node_id": "ab",
        **times,
    }
    failed = {**job, "submission_id": "other-1", "status": "FAILED", "message": "It failed.\nError: It is bad."}
    return [
        {**job, "metadata": metadata},
        {**failed, "metadata": {**metadata, label_keys.RUN: "other", label_keys.ATTEMPT: "1"}},
    ]


def _answers() -> Documents:
    def versions(*names: str) -> Any:
        return {"kind": "APIGroup", "versions": [{"version": name} for name in names]}

    def resources(*names: str) -> Any:
        return {"kind": "APIResourceList", "resources": [{"name": name} for name in names]}

    kueue = (
        "workloads",
        "localqueues",
        "clusterqueues",
        "cohorts",
        "resourceflavors",
        "workloadpriorityclasses",
        "topologies",
    )
    rules = [
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["x"]},
    ]
    review = "/apis/authorization.k8s.io/v1/selfsubject"
    return {
        "/version": {"gitVersion": "v1.35.2"},
        "/apis/ray.io": versions("v1"),
        "/apis/ray.io/v1": resources("rayjobs", "rayclusters", "raycronjobs"),
        "/apis/jobset.x-k8s.io": versions("v1alpha2"),
        "/apis/jobset.x-k8s.io/v1alpha2": resources("jobsets"),
        "/apis/kueue.x-k8s.io": versions("v1beta1", "v1beta2"),
        "/apis/kueue.x-k8s.io/v1beta1": resources(*kueue),
        "/apis/kueue.x-k8s.io/v1beta2": resources(*kueue),
        f"{review}rulesreviews": {"status": {"incomplete": True, "resourceRules": rules}},
        f"{review}accessreviews": {"status": {"allowed": True}},
    }
