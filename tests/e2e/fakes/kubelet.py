"""Fake kubelets for the nodes that KWOK does not simulate. Only for tests of the suite; see __init__.py.

Pods run, sleep, train (trainer.py), serve (replicas.py), export a model of random weights, evaluate, and end, and
claims get volumes.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import re
import time

from tests.cluster.api import Api, ApiError, Object
from tests.cluster.fake_controllers import is_true
from tests.cluster.kubelet import LogServer
from tests.e2e.facts import is_simulated
from tests.e2e.fakes.replicas import Replicas
from tests.e2e.fakes.trainer import Trainer

_CLASS = "fake"


class Kubelets:
    """`step` does the next action for each pod on these nodes."""

    def __init__(self, api: Api, trainer: Trainer, replicas: Replicas, logs: LogServer) -> None:
        self.api, self.trainer, self.replicas, self.logs = api, trainer, replicas, logs
        self._addresses = (f"10.250.{a}.{b}" for a, b in itertools.product(range(256), range(1, 255)))
        self._since: dict[str, float] = {}
        self._received: dict[str, int] = {}
        logs.execute = self._execute

    def step(self) -> None:
        nodes = {node["metadata"]["name"] for node in self.api.items("/api/v1/nodes") if not is_simulated(node)}
        pods = [pod for pod in self.api.items("/api/v1/pods") if pod["spec"].get("nodeName") in nodes]
        training: dict[tuple[str, str, str], list[Object]] = {}
        for pod in pods:
            with contextlib.suppress(ApiError):  # deleted in the meantime
                if "deletionTimestamp" in pod["metadata"]:
                    self._kill(pod)
                elif "podIP" not in pod["status"]:
                    self._start(pod)
                elif pod["status"].get("phase") == "Running":
                    if self._sleeps(pod) or self._receives(pod) or self._converts(pod):
                        continue
                    if _serves(pod):
                        self._probe(pod)
                        continue
                    if attempt := _attempt(pod):
                        namespace, run = pod["metadata"]["namespace"], pod["metadata"]["labels"]["slipway.dev/run"]
                        training.setdefault((namespace, run, attempt), []).append(pod)
        for (_, _, attempt), found in training.items():
            self._train(found, attempt)
        self._volumes()

    def _start(self, pod: Object) -> None:
        """Set the pod to running, and to ready if it serves no model."""
        now, ready = _now(), not _serves(pod)
        kept = [c for c in pod["status"].get("conditions") or [] if c["type"] == "PodScheduled"]
        running = {"ready": ready, "started": True, "state": {"running": {"startedAt": now}}}
        started = {"type": "Initialized", "status": "True", "lastTransitionTime": now}
        status = {
            "phase": "Running",
            "startTime": now,
            "podIP": next(self._addresses) if ready else self.replicas.address,
            "conditions": [*kept, started, *_readiness(ready, now)],
            "containerStatuses": [{**_container(c), **running} for c in pod["spec"]["containers"]],
        }
        self._status(pod, status)
        self._since[pod["metadata"]["uid"]] = time.monotonic()
        for container in pod["spec"]["containers"]:
            self.logs.write((pod["metadata"]["namespace"], pod["metadata"]["name"], container["name"]), [])

    def _execute(self, key: tuple[str, str, str], command: list[str]) -> tuple[int, str]:
        """Run a command in a pod: only the drill's, which kills the process that trains."""
        if command[:2] != ["python", "-c"] or "SIGKILL" not in command[2]:
            return 127, f"{command[:1]} is not a program of the fakes"
        pod = self.api.get(f"/api/v1/namespaces/{key[0]}/pods/{key[1]}")
        self.trainer.kill_process(key[0], pod["metadata"]["labels"]["slipway.dev/run"])
        return 0, ""

    def _sleeps(self, pod: Object) -> bool:
        """Whether the pod's program is sleep (["sleep", "60"]). Ends the pod when the time is over."""
        command = pod["spec"]["containers"][0].get("command") or []
        if command[:1] != ["sleep"]:
            return False
        begun = self._since.setdefault(pod["metadata"]["uid"], time.monotonic())
        # Ten times as fast, to save time.
        if time.monotonic() - begun >= float(command[1]) / 10:
            self._end(pod, 0)
        return True

    def _receives(self, pod: Object) -> bool:
        """Whether the pod's program is a web server. It prints the notifications of its namespace."""
        command = pod["spec"]["containers"][0].get("command") or []
        if command[:2] != ["python", "-c"] or "HTTPServer" not in command[2]:
            return False
        metadata = pod["metadata"]
        known = self._received.get(metadata["uid"], 0)
        new = self.trainer.notifications[known:]
        self._received[metadata["uid"]] = known + len(new)
        lines = ["NOTIFIED " + json.dumps(body) for namespace, body in new if namespace == metadata["namespace"]]
        self.logs.write((metadata["namespace"], metadata["name"], pod["spec"]["containers"][0]["name"]), lines)
        return True

    def _converts(self, pod: Object) -> bool:
        """Whether the pod runs another program of the image than the trainer. It ends at once.

        An export writes a model whose random weights depend on the step, and an evaluation prints a result. Programs in
        the command itself do nothing.
        """
        command = pod["spec"]["containers"][0].get("command") or []
        options = dict(itertools.pairwise(command))
        if command[:4] == ["python", "-m", "trainer.weights", "export"]:
            folder = self.replicas.path(pod, options["--to"])
            if not folder.exists():
                # Imported here: it takes seconds, and few pods export.
                from tests.huggingface_model import write

                write(folder, seed=int(options["--step"]))
        elif command[:3] == ["python", "-m", "trainer.evaluate"]:
            result = {"task": options["--tasks"], "step": int(options["--step"]), "metrics": {"acc": 0.5}}
            metadata = pod["metadata"]
            key = (metadata["namespace"], metadata["name"], pod["spec"]["containers"][0]["name"])
            self.logs.write(key, ["SLIPWAY_EVALUATION " + json.dumps(result)])
        elif command[:2] == ["sh", "-c"] and (kept := re.search(r"zcat \S+/([a-z0-9-]+)/logs/", command[2])):
            metadata = pod["metadata"]
            key = (metadata["namespace"], metadata["name"], pod["spec"]["containers"][0]["name"])
            self.logs.write(key, self.trainer.stored(metadata["namespace"], kept[1]))
        elif command[:2] != ["python", "-c"]:
            return False
        self._end(pod, 0)
        return True

    def _probe(self, pod: Object) -> None:
        """Set whether the pod is ready, as its readiness probe finds it."""
        ready = self.replicas.answers(pod)
        if ready != is_true(pod, "Ready"):
            kept = [c for c in pod["status"]["conditions"] if c["type"] not in ("Ready", "ContainersReady")]
            containers = [{**c, "ready": ready} for c in pod["status"]["containerStatuses"]]
            conditions = [*kept, *_readiness(ready, _now())]
            self._status(pod, {"conditions": conditions, "containerStatuses": containers})

    def _train(self, pods: list[Object], attempt: str) -> None:
        if self.trainer.train(pods, attempt, _hosts(pods[0]), time.monotonic()):
            for pod in pods:
                if "ray.io/cluster" not in pod["metadata"]["labels"]:
                    with contextlib.suppress(ApiError):
                        self._end(pod, 0)

    def _kill(self, pod: Object) -> None:
        """End the pod by SIGTERM if it has a grace period, or else by SIGKILL; then delete the object."""
        metadata = pod["metadata"]
        if pod["status"].get("phase") in ("Running", "Pending"):
            graceful = bool(metadata.get("deletionGracePeriodSeconds"))
            run = metadata.get("labels", {}).get("slipway.dev/run")
            if run and _attempt(pod):
                (self.trainer.terminate if graceful else self.trainer.kill)(metadata["namespace"], run)
            self._end(pod, 3 if graceful and _attempt(pod) else 137)
        self.replicas.stop(metadata["uid"])
        self.api.delete(f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}", grace=0)

    def _end(self, pod: Object, code: int) -> None:
        now = _now()
        ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "startedAt": now, "finishedAt": now}
        kept = [c for c in pod["status"].get("conditions") or [] if c["type"] not in ("Ready", "ContainersReady")]
        stopped = {"ready": False, "started": False, "state": {"terminated": ended}}
        status = {
            "phase": "Succeeded" if code == 0 else "Failed",
            "conditions": [*kept, *_readiness(False, now)],
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
        """Create the default StorageClass. `step` creates its volumes."""
        mark = {"storageclass.kubernetes.io/is-default-class": "true"}
        metadata = {"name": _CLASS, "annotations": mark}
        storage = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata}
        self.api.create({**storage, "provisioner": "slipway.example/fake", "volumeBindingMode": "Immediate"})

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
    """An id that all pods of one start of a training share; "" for a pod that does not train."""
    labels, containers = pod["metadata"].get("labels", {}), pod["spec"]["containers"]
    if "slipway.dev/run" not in labels:
        return ""
    if "ray.io/cluster" in labels:
        return str(labels["ray.io/cluster"])
    trains = containers[0]["name"] == "trainer" and (containers[0].get("command") or [""])[0] == "python"
    return f"{labels['jobset.sigs.k8s.io/jobset-uid']}/{labels['jobset.sigs.k8s.io/restart-attempt']}" if trains else ""


def _serves(pod: Object) -> bool:
    return bool(pod["metadata"].get("labels", {}).get("ray.io/serve") == "true")


def _readiness(ready: bool, now: str) -> list[Object]:
    return [{"type": t, "status": str(ready), "lastTransitionTime": now} for t in ("Ready", "ContainersReady")]


def _hosts(pod: Object) -> int:
    """The number of pods that the training needs: its hosts, and Ray's head."""
    config = json.loads(pod["metadata"]["annotations"]["slipway.dev/run-config"])
    heads = int("ray.io/cluster" in pod["metadata"]["labels"])
    return int(config["accelerator"]["hosts"]) * int(config["slice"]["count"]) + heads


def _container(container: Object) -> Object:
    return {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0}


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
