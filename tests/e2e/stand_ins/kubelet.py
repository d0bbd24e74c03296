"""A stand-in for the kubelets of nodes that KWOK does not play: pods run, sleep, train (trainer.py) and end, and
claims get volumes. Tests the suite alone; see __init__.py."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import time

from tests.cluster.api import Api, ApiError, Object
from tests.cluster.kubelet import LogServer
from tests.e2e.facts import is_simulated
from tests.e2e.stand_ins.trainer import Trainer

_CLASS = "stand-in"


class Kubelets:
    """`step` looks after all pods that are bound to such nodes."""

    def __init__(self, api: Api, trainer: Trainer, logs: LogServer) -> None:
        self.api, self.trainer, self.logs = api, trainer, logs
        self._addresses = (f"10.250.{a}.{b}" for a, b in itertools.product(range(256), range(1, 255)))
        self._since: dict[str, float] = {}

    def step(self) -> None:
        nodes = {node["metadata"]["name"] for node in self.api.items("/api/v1/nodes") if not is_simulated(node)}
        pods = [pod for pod in self.api.items("/api/v1/pods") if pod["spec"].get("nodeName") in nodes]
        training: dict[tuple[str, str, str], list[Object]] = {}
        for pod in pods:
            with contextlib.suppress(ApiError):  # gone in this moment
                if "deletionTimestamp" in pod["metadata"]:
                    self._kill(pod)
                elif "podIP" not in pod["status"]:
                    self._start(pod)
                elif pod["status"].get("phase") == "Running":
                    if self._sleeps(pod):
                        continue
                    if attempt := _attempt(pod):
                        namespace, run = pod["metadata"]["namespace"], pod["metadata"]["labels"]["slipway.dev/run"]
                        training.setdefault((namespace, run, attempt), []).append(pod)
        for (_, _, attempt), found in training.items():
            self._train(found, attempt)
        self._volumes()

    def _start(self, pod: Object) -> None:
        """Its containers run, and it is ready."""
        now = _now()
        kept = [c for c in pod["status"].get("conditions") or [] if c["type"] == "PodScheduled"]
        types = ("Initialized", "Ready", "ContainersReady")
        good = [{"type": t, "status": "True", "lastTransitionTime": now} for t in types]
        running = {"ready": True, "started": True, "state": {"running": {"startedAt": now}}}
        status = {
            "phase": "Running",
            "startTime": now,
            "podIP": next(self._addresses),
            "conditions": [*kept, *good],
            "containerStatuses": [{**_container(c), **running} for c in pod["spec"]["containers"]],
        }
        self._status(pod, status)
        self._since[pod["metadata"]["uid"]] = time.monotonic()
        for container in pod["spec"]["containers"]:
            self.logs.write((pod["metadata"]["namespace"], pod["metadata"]["name"], container["name"]), [])

    def _sleeps(self, pod: Object) -> bool:
        """Whether it is a program that sleeps (["sleep", "60"]), which ends in time."""
        command = pod["spec"]["containers"][0].get("command") or []
        if command[:1] != ["sleep"]:
            return False
        begun = self._since.setdefault(pod["metadata"]["uid"], time.monotonic())
        # Ten times as fast, for nobody learns anything from waiting.
        if time.monotonic() - begun >= float(command[1]) / 10:
            self._end(pod, 0)
        return True

    def _train(self, pods: list[Object], attempt: str) -> None:
        if self.trainer.train(pods, attempt, _hosts(pods[0]), time.monotonic()):
            for pod in pods:
                if "ray.io/cluster" not in pod["metadata"]["labels"]:
                    with contextlib.suppress(ApiError):
                        self._end(pod, 0)

    def _kill(self, pod: Object) -> None:
        """SIGTERM, for which there is time, or SIGKILL; then the object goes."""
        metadata = pod["metadata"]
        if pod["status"].get("phase") in ("Running", "Pending"):
            gently = bool(metadata.get("deletionGracePeriodSeconds"))
            run = metadata.get("labels", {}).get("slipway.dev/run")
            if gently and run and _attempt(pod):
                self.trainer.told_to_end(metadata["namespace"], run)
            self._end(pod, 3 if gently and _attempt(pod) else 137)
        self.api.delete(f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}", grace=0)

    def _end(self, pod: Object, code: int) -> None:
        now = _now()
        ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "startedAt": now, "finishedAt": now}
        kept = [c for c in pod["status"].get("conditions") or [] if c["type"] not in ("Ready", "ContainersReady")]
        bad = [{"type": t, "status": "False", "lastTransitionTime": now} for t in ("Ready", "ContainersReady")]
        stopped = {"ready": False, "started": False, "state": {"terminated": ended}}
        status = {
            "phase": "Succeeded" if code == 0 else "Failed",
            "conditions": [*kept, *bad],
            "containerStatuses": [{**_container(c), **stopped} for c in pod["spec"]["containers"]],
        }
        for container in pod["spec"]["containers"]:
            self.logs.end((pod["metadata"]["namespace"], pod["metadata"]["name"], container["name"]))
        self._status(pod, status)

    def _status(self, pod: Object, status: Object) -> None:
        metadata = pod["metadata"]
        self.api.merge(f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status", {"status": status})

    # -- volumes -------------------------------------------------------------------------------------------------------

    def make_class(self) -> None:
        """The default StorageClass, whose volumes `step` makes."""
        mark = {"storageclass.kubernetes.io/is-default-class": "true"}
        metadata = {"name": _CLASS, "annotations": mark}
        storage = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata}
        self.api.create({**storage, "provisioner": "slipway.example/stand-in", "volumeBindingMode": "Immediate"})

    def _volumes(self) -> None:
        for claim in self.api.items("/api/v1/persistentvolumeclaims"):
            metadata, spec = claim["metadata"], claim["spec"]
            name = f"pvc-{metadata['uid']}"
            path = f"/api/v1/persistentvolumes/{name}"
            ours = claim["status"].get("phase") == "Pending" and spec.get("storageClassName") == _CLASS
            if not ours or self.api.find(path):
                continue
            reference = {"kind": "PersistentVolumeClaim", "namespace": metadata["namespace"], "name": metadata["name"]}
            volume = {
                "capacity": spec["resources"]["requests"],
                "accessModes": spec["accessModes"],
                "storageClassName": _CLASS,
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": "/nonexistent"},
                "claimRef": {**reference, "uid": metadata["uid"], "apiVersion": "v1"},
            }
            self.api.create(
                {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": volume}
            )
        for found in self.api.items("/api/v1/persistentvolumes"):
            if found["spec"].get("storageClassName") == _CLASS and found["status"].get("phase") == "Released":
                self.api.delete(f"/api/v1/persistentvolumes/{found['metadata']['name']}")


def _attempt(pod: Object) -> str:
    """What the pods of one start of a training have in common; "" for a pod that does not train."""
    labels, containers = pod["metadata"].get("labels", {}), pod["spec"]["containers"]
    if "slipway.dev/run" not in labels:
        return ""
    if "ray.io/cluster" in labels:
        return str(labels["ray.io/cluster"])
    trains = containers[0]["name"] == "trainer" and (containers[0].get("command") or [""])[0] == "python"
    return f"{labels['jobset.sigs.k8s.io/jobset-uid']}/{labels['jobset.sigs.k8s.io/restart-attempt']}" if trains else ""


def _hosts(pod: Object) -> int:
    """How many pods the training waits for: its hosts, and Ray's head."""
    config = json.loads(pod["metadata"]["annotations"]["slipway.dev/run-config"])
    heads = int("ray.io/cluster" in pod["metadata"]["labels"])
    return int(config["accelerator"]["hosts"]) * int(config["slice"]["count"]) + heads


def _container(container: Object) -> Object:
    return {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0}


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
