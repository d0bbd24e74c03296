"""Recordings, replayed in the real API server: clients read what upstream's controllers wrote."""

from __future__ import annotations

import concurrent.futures
import datetime
import time
from typing import Any

import pytest

from tests.cluster import recordings
from tests.cluster.api import Object, collection, path_of
from tests.cluster.control_plane import ControlPlane, remove_namespace
from tests.cluster.fake_controllers import controllers
from tests.cluster.recordings import Translation
from tests.cluster.replay import RecordingReplayer, follow_as, replay
from tests.cluster.test_control_plane import until

KINDS = ("JobSet", "Job", "Pod", "Workload", "RayJob", "RayCluster", "LocalQueue")
GROUPS = {
    **{"JobSet": "jobset.x-k8s.io/v1alpha2", "Job": "batch/v1", "Pod": "v1", "RayJob": "ray.io/v1"},
    **{"RayCluster": "ray.io/v1", "Workload": "kueue.x-k8s.io/v1beta2", "LocalQueue": "kueue.x-k8s.io/v1beta2"},
}


def test_every_replay_ends_in_the_recorded_state(control_plane: ControlPlane) -> None:
    names = recordings.names()
    assert len(names) == 18
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        replayers = list(pool.map(lambda name: replay(control_plane, name, f"end-{name}"), names))
    for replayer in replayers:
        check_objects(control_plane, replayer)
        for namespace in replayer.translation.namespaces.values():
            remove_namespace(control_plane.api, namespace)


def check_objects(plane: ControlPlane, replayer: RecordingReplayer) -> None:
    """Check that the API server has the same objects, with the same contents, as the recording at this point."""
    wanted = replayer.expected()
    for kind in KINDS:
        for namespace in replayer.translation.namespaces.values():
            listed = plane.api.items(collection({"apiVersion": GROUPS[kind], "kind": kind, "metadata": {}}, namespace))
            here = [obj for obj in wanted if obj["kind"] == kind and obj["metadata"]["namespace"] == namespace]
            assert {obj["metadata"]["name"] for obj in listed} == {obj["metadata"]["name"] for obj in here}, (
                replayer.name
            )
    for recorded in wanted:
        live = plane.api.get(path_of(recorded))
        where = f"{replayer.name}: {recorded['kind']} {recorded['metadata']['name']}"
        assert live.get("status", {}) == recorded.get("status", {}), where
        for field in ("labels", "annotations", "ownerReferences", "finalizers"):
            assert live["metadata"].get(field) == recorded["metadata"].get(field), f"{where} {field}"
        assert live["metadata"].get("generation") == recorded["metadata"].get("generation"), where
        if recorded["kind"] not in ("Pod", "Job"):  # these have defaults of another server
            assert live.get("spec") == recorded.get("spec"), where


def test_a_recording_can_be_replayed_step_by_step(control_plane: ControlPlane, namespace: str) -> None:
    replayer = RecordingReplayer(control_plane, "preempted-by-priority", namespace)
    t = replayer.step_past("Workload", Evicted="True")
    check_objects(control_plane, replayer)
    workloads = control_plane.api.items(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads")
    conditions = {
        c["type"]: c for w in workloads for c in w["status"]["conditions"] if "-low-3-" in w["metadata"]["name"]
    }
    # The message has the preemptor's uids in this cluster.
    high = next(w for w in workloads if "-high-1-" in w["metadata"]["name"])
    assert f"UID: {high['metadata']['uid']}" in conditions["Evicted"]["message"]
    assert f"JobUID: {high['metadata']['labels']['kueue.x-k8s.io/job-uid']}" in conditions["Evicted"]["message"]
    assert f"path: /tpu-{namespace};" in conditions["Evicted"]["message"]
    since = datetime.datetime.fromisoformat(conditions["Evicted"]["lastTransitionTime"])
    ago = (datetime.datetime.now(datetime.UTC) - since).total_seconds()
    assert abs(ago - (recordings.length(replayer.changes) - t)) < 10  # the recording ends now
    replayer.step_to()
    check_objects(control_plane, replayer)


def test_a_recording_can_be_replayed_while_a_client_reads(control_plane: ControlPlane, namespace: str) -> None:
    replayer = RecordingReplayer(control_plane, "run-fails-after-restarts", namespace)
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets/fails"
    seen: list[str | None] = []
    with replayer.playing(speed=20):
        deadline = time.monotonic() + 10
        while not seen or seen[-1] != "Failed":
            assert time.monotonic() < deadline
            state = (control_plane.api.find(path) or {}).get("status", {}).get("terminalState")
            seen += [state] if state not in seen else []
    assert seen == [None, "Failed"]


RAY_JOB: dict[str, Any] = {
    "apiVersion": "ray.io/v1",
    "kind": "RayJob",
    "metadata": {"name": "llama", "labels": {"slipway.dev/run": "llama", "kueue.x-k8s.io/queue-name": "team"}},
    "spec": {
        "entrypoint": "python train.py",
        "suspend": True,
        "rayClusterSpec": {
            "headGroupSpec": {
                "rayStartParams": {},
                "template": {"spec": {"containers": [{"name": "main", "image": "example.invalid/ray:1"}]}},
            },
            "workerGroupSpecs": [
                {
                    "groupName": "w",
                    "replicas": 2,
                    "rayStartParams": {},
                    "template": {
                        "metadata": {"labels": {"slipway.dev/run": "llama"}},
                        "spec": {"containers": [{"name": "trainer", "image": "example.invalid/ray:1"}]},
                    },
                }
            ],
        },
    },
}


def create_run(plane: ControlPlane, namespace: str) -> Object:
    """Create a LocalQueue, and a RayJob that a user submitted to it."""
    spec = {"clusterQueue": "shared"}
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "spec": spec}
    plane.api.create({**queue, "metadata": {"name": "team", "namespace": namespace}})
    return plane.api.create({**RAY_JOB, "metadata": {**RAY_JOB["metadata"], "namespace": namespace}})


def test_a_recording_can_be_replayed_on_an_existing_run(control_plane: ControlPlane, namespace: str) -> None:
    run = create_run(control_plane, namespace)
    replayer = follow_as(control_plane, "rayjob-succeeds", run)
    replayer.step_past("RayJob", jobStatus="RUNNING")
    live = control_plane.api.get(path_of(run))
    assert live["status"]["rayClusterName"] == "llama-j9b2k"
    assert live["spec"] == {**run["spec"], "suspend": False}
    (workload,) = control_plane.api.items(
        f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads"
        f"?labelSelector=kueue.x-k8s.io/job-uid={run['metadata']['uid']}"
    )
    assert workload["metadata"]["ownerReferences"][0]["uid"] == run["metadata"]["uid"]
    assert workload["metadata"]["name"] == "rayjob-llama-e951b"
    assert workload["status"]["admission"]["clusterQueue"] == "shared"
    assert workload["spec"]["queueName"] == "team"
    pods = control_plane.api.items(f"/api/v1/namespaces/{namespace}/pods?labelSelector=ray.io/cluster=llama-j9b2k")
    assert sorted(pod["spec"]["containers"][0]["name"] for pod in pods) == ["main", "trainer", "trainer"]
    worker = next(pod for pod in pods if pod["metadata"]["labels"]["ray.io/node-type"] == "worker")
    assert worker["metadata"]["labels"]["slipway.dev/run"] == "llama"
    assert worker["status"]["containerStatuses"][0]["name"] == "trainer"
    where = (namespace, worker["metadata"]["name"], "trainer")
    control_plane.write_log(*where, ["hello"])
    assert control_plane.api.get(f"/api/v1/namespaces/{namespace}/pods/{where[1]}/log") == "hello\n"
    replayer.step_to()
    assert control_plane.api.get(path_of(run))["status"]["jobStatus"] == "SUCCEEDED"
    assert control_plane.api.items(f"/api/v1/namespaces/{namespace}/pods") == []


def test_a_recording_can_be_replayed_on_a_job_set_among_other_runs(control_plane: ControlPlane, namespace: str) -> None:
    name = "a-run-whose-name-is-about-as-long-as-a-name-can-be"
    template = {"restartPolicy": "Never", "containers": [{"name": "host", "image": "example.invalid/trainer:1"}]}
    job = {"parallelism": 2, "completions": 2, "template": {"spec": template}}
    run = control_plane.api.create(
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"suspend": True, "replicatedJobs": [{"name": "slice", "replicas": 3, "template": {"spec": job}}]},
        }
    )
    replayer = follow_as(control_plane, "preempted-by-priority", run, run="low-3", skip_queues=False)
    replayer.step_past("Workload", PodsReady="True")
    assert control_plane.api.get(path_of(run))["spec"]["suspend"] is False
    selector = f"labelSelector=jobset.sigs.k8s.io/jobset-name={name}"
    pods = control_plane.api.items(f"/api/v1/namespaces/{namespace}/pods?{selector}")
    assert {(pod["status"]["phase"], pod["spec"]["containers"][0]["name"]) for pod in pods} == {("Running", "host")}
    assert len(pods) == 6
    replayer.step_past("Workload", Evicted="True")
    replayer.step_past("JobSet", "low-3", Suspended="True")
    assert control_plane.api.get(path_of(run))["spec"]["suspend"] is True
    names = {item["metadata"]["name"] for item in control_plane.api.items(collection(run))}
    assert names == {name, "high-1"}
    replayer.step_to()  # it runs again after the other run has ended
    assert control_plane.api.get(path_of(run))["spec"]["suspend"] is False


@pytest.mark.parametrize("recording", ["rayjob-succeeds", "quota-in-use-by-others"])
def test_a_deactivated_run_stops(control_plane: ControlPlane, namespace: str, recording: str) -> None:
    replayer = RecordingReplayer(control_plane, recording, namespace)
    replayer.step_past("Workload", PodsReady="True")
    pods = f"/api/v1/namespaces/{namespace}/pods"
    assert control_plane.api.items(pods)
    workloads = control_plane.api.items(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads")
    running = next(w for w in workloads if "admission" in w["status"])
    path = path_of({**running, "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"})
    with controllers(control_plane, namespace):
        control_plane.api.merge(path, {"spec": {"active": False}})
        until(lambda: "admission" not in control_plane.api.get(path)["status"])
        assert control_plane.api.items(pods) == []
    conditions = {c["type"]: (c["status"], c["reason"]) for c in control_plane.api.get(path)["status"]["conditions"]}
    assert conditions["Evicted"] == ("True", "Deactivated")
    assert conditions["QuotaReserved"] == ("False", "Pending")
    assert conditions["Admitted"] == ("False", "NoReservation")


def test_only_names_are_translated() -> None:
    translation = Translation(
        namespaces={"research": "ns"},
        queues={"tpu": "tpu-ns"},
        names={"rayjob-lost-1a2b3": "rayjob-llama-1a2b3"},
        runs={"lost": "llama"},
    )
    event = {
        "kind": "Event",
        "metadata": {"name": "lost.18e9", "namespace": "research"},
        "involvedObject": {"name": "rayjob-lost-1a2b3", "namespace": "research"},
        "message": "research/rayjob-lost-1a2b3: JobSet lost of ClusterQueue tpu lost chips; lost-x.research.svc",
    }
    assert translation(event) == {
        "kind": "Event",
        "metadata": {"name": "llama.18e9", "namespace": "ns"},
        "involvedObject": {"name": "rayjob-llama-1a2b3", "namespace": "ns"},
        "message": "ns/rayjob-llama-1a2b3: JobSet llama of ClusterQueue tpu-ns lost chips; llama-x.ns.svc",
    }
