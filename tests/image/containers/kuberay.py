"""A fake KubeRay: runs a RayJob's head and hosts as pods, and submits the job by HTTP.

It is a fake because the operator needs an API server and pods of a kubelet, and these containers have neither. The
fields that it adds to the chart's templates are from pods that KubeRay 1.7.0 created
(the recording rayjob-succeeds): commands, variables, init container, labels. It does only what a run
needs. It submits the job when all pods are ready, retries until the dashboard answers, and replaces pods that have
ended; it replaces the pods of a slice (numOfHosts) together, as KubeRay does since 1.5
(https://github.com/ray-project/kuberay/issues/3902). The kubelet (pod.py) restarts containers.
"""

from __future__ import annotations

import copy
import http.client
import json
import re
import secrets
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from tests.cluster import recordings
from tests.image.containers.manifests import amount
from tests.image.containers.network import Answer, http_request
from tests.image.containers.pod import Pod, PodContext
from tests.trainer.runs import PATIENCE

DASHBOARD = 8265


@cache
def _recorded(kind: str) -> dict[str, Any]:
    """The first "head" or "worker" pod of the recording, as KubeRay created it."""
    made = (change.obj for change in recordings.read("rayjob-succeeds") if change.obj["kind"] == "Pod")
    return next(pod for pod in made if pod["metadata"]["labels"]["ray.io/node-type"] == kind)


def pod_of(
    group: dict[str, Any], kind: str, *, cluster: str, namespace: str, labels: dict[str, str], token: bool
) -> dict[str, Any]:
    """The pod that KubeRay creates from a group's template. kind: head or worker; group: a part of a RayCluster's spec.

    The template's fields are kept. The fields that KubeRay added to the recorded pod are added here, too.
    """
    made = _recorded(kind)
    before = made["metadata"]["labels"]["ray.io/cluster"]
    text = json.dumps(made).replace(before, cluster).replace(f".{made['metadata']['namespace']}.", f".{namespace}.")
    made = json.loads(text)
    (recorded,) = made["spec"]["containers"]
    pod: dict[str, Any] = copy.deepcopy(group["template"])
    own_labels = {name: value for name, value in made["metadata"]["labels"].items() if not name.startswith("kueue.")}
    pod["metadata"] = {
        "name": f"{made['metadata']['generateName']}{secrets.token_hex(3)[:5]}",
        "namespace": namespace,
        "labels": {**pod["metadata"].get("labels", {}), **own_labels, **labels},
        "annotations": pod["metadata"].get("annotations", {}),
    }
    (container,) = pod["spec"]["containers"]
    start = _start_command(recorded["args"][0], group["rayStartParams"], container.get("resources") or {})
    added = [
        {**each, "value": start.partition("; ")[2]} if each["name"] == "KUBERAY_GEN_RAY_START_CMD" else each
        for each in recorded["env"]
        if token or not each["name"].startswith("RAY_AUTH_")
    ]
    container["command"], container["args"] = recorded["command"], [start]
    container["env"] = [*container.get("env", []), *added]
    for probe in ("readinessProbe", "livenessProbe"):
        container.setdefault(probe, recorded[probe])
    first = copy.deepcopy(made["spec"].get("initContainers", []))
    for each in first:
        # KubeRay adds the image, security context, volumes and variables of the container.
        each["securityContext"] = container.get("securityContext") or {}
        each["volumeMounts"] = container.get("volumeMounts", [])
        named = {variable["name"] for variable in each["env"]}
        each["env"] = [*(each_ for each_ in container["env"] if each_["name"] not in named), *each["env"]]
        if not token:
            each["env"] = [variable for variable in each["env"] if not variable["name"].startswith("RAY_AUTH_")]
    pod["spec"]["initContainers"] = first
    return pod


def _start_command(recorded: str, parameters: dict[str, str], resources: dict[str, Any]) -> str:
    """The recorded `ulimit …; ray start …`, with the options for a template's own resources.

    CPUs are the container's limit, or else its request. Memory is its limit.
    """
    prefix, ray, options = recorded.partition("ray start ")
    assert ray, recorded
    fixed = [each for each in options.split() if not re.match(r"--(memory|num-cpus|resources)=", each)]
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    given: dict[str, str] = {}
    if "memory" in limits:
        given["memory"] = str(int(amount(limits["memory"])))
    if cpu := limits.get("cpu") or requests.get("cpu"):
        given["num-cpus"] = str(max(1, int(amount(cpu))))
    given |= parameters
    return f"{prefix}{ray} {'  '.join([*fixed, *(f'--{name}={value}' for name, value in sorted(given.items()))])} "


class RayJob:
    """A RayJob and its cluster."""

    def __init__(self, context: PodContext, manifest: dict[str, Any]) -> None:
        self.manifest = manifest
        self._context = context
        self._spec: dict[str, Any] = manifest["spec"]
        cluster = self._spec["rayClusterSpec"]
        self.namespace: str = manifest["metadata"]["namespace"]
        self.cluster = f"{manifest['metadata']['name']}-{secrets.token_hex(3)[:5]}"
        self.job = f"{manifest['metadata']['name']}-{secrets.token_hex(3)[:5]}"
        self.token = secrets.token_hex(16)
        self.has_token = cluster["authOptions"]["mode"] == "token"
        context.secrets[self.cluster] = {"auth_token": self.token}
        (self._group,) = cluster["workerGroupSpecs"]
        self.head = self._pod(cluster["headGroupSpec"], "head", {})
        context.node.dns.set(f"{self.cluster}-head-svc.{self.namespace}.svc.cluster.local", self.head.address)
        self.workers: list[Pod] = []
        self.gone: list[Pod] = []
        self._make_slice()
        self._over = threading.Event()
        # Runs before the pods are closed. Otherwise the operator would create them again.
        context.node.at_end.callback(self.close)
        self._operator = threading.Thread(target=self._watch, daemon=True)
        self._operator.start()

    def _pod(self, group: dict[str, Any], kind: str, labels: dict[str, str]) -> Pod:
        made = pod_of(group, kind, cluster=self.cluster, namespace=self.namespace, labels=labels, token=self.has_token)
        return Pod(self._context, made)

    def _make_slice(self) -> None:
        assert self._group["replicas"] == 1
        name = f"{self._group['groupName']}-{secrets.token_hex(3)[:5]}"
        self.workers = [
            self._pod(
                self._group,
                "worker",
                {
                    "ray.io/group": self._group["groupName"],
                    "ray.io/replica-host-index": str(index),
                    "ray.io/worker-group-replica-index": "0",
                    "ray.io/worker-group-replica-name": name,
                },
            )
            for index in range(self._group["numOfHosts"])
        ]

    def _watch(self) -> None:
        """The operator: if a pod of the slice has ended, delete the others, too, and create all again."""
        while not self._over.wait(0.2):
            if not any(pod.over for pod in self.workers):
                continue
            for pod in self.workers:
                if not pod.over:
                    pod.delete()
            while not all(pod.over for pod in self.workers):
                if self._over.wait(0.2):
                    return
            self.gone += self.workers
            self._make_slice()

    def wait_ready(self, seconds: float = PATIENCE) -> None:
        """Wait until all pods are ready. KubeRay then submits the job."""
        self.until(lambda: self.head.ready and all(pod.ready for pod in self.workers), seconds)

    def until(self, condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            for pod in (self.head, *self.workers):
                pod.check()
            assert time.monotonic() < deadline, f"not within {seconds} s:\n{self.diagnostics()}"
            time.sleep(0.02)

    def diagnostics(self) -> str:
        """The pods' phases, events and logs, for error messages."""
        pods = (self.head, *self.workers)
        return "\n".join(f"--- {pod.name} {pod.phase} {pod.events}\n{pod.log()[-4000:]}" for pod in pods)

    def request(self, path: str, body: Any = None, *, token: str | None = None) -> Answer:
        """Send a request to the dashboard from the node's network, with `token` or else the cluster's token."""
        token = self.token if token is None else token
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        method = "GET" if body is None else "POST"
        node = self._context.node.network.node
        return http_request(node, self.head.address, DASHBOARD, path, method=method, body=body, headers=headers)

    def submit(self) -> None:
        """Submit the job as in HTTPMode. The dashboard can answer 500 until the agent that starts jobs runs."""
        assert self._spec["submissionMode"] == "HTTPMode"
        body = {"entrypoint": self._spec["entrypoint"], "submission_id": self.job}

        def submitted() -> bool:
            answer = self.request("/api/jobs/", body)
            assert answer.status in (200, 500), answer
            return answer.status == 200

        self.until(submitted)

    def status(self) -> str:
        """The job's status; UNKNOWN if the dashboard does not answer."""
        try:
            answer = self.request(f"/api/jobs/{self.job}")
        except (OSError, http.client.HTTPException):
            return "UNKNOWN"
        return str(answer.json()["status"]) if answer.status == 200 else "UNKNOWN"

    def message(self) -> str:
        """The message that KubeRay copies to the RayJob's status.message."""
        return str(self.request(f"/api/jobs/{self.job}").json()["message"])

    def log(self) -> str:
        return str(self.request(f"/api/jobs/{self.job}/logs").json()["logs"])

    def run(self, seconds: float = PATIENCE) -> str:
        """Wait for the pods, submit the job, and wait for its end. Returns the job's last status."""
        self.wait_ready()
        self.submit()
        return self.end(seconds)

    def end(self, seconds: float = PATIENCE) -> str:
        self.until(lambda: self.status() in ("SUCCEEDED", "FAILED", "STOPPED"), seconds)
        return self.status()

    def shut_down(self) -> float:
        """Delete the cluster, as for shutdownAfterJobFinishes. Returns the seconds until all pods have ended."""
        self._over.set()
        self._operator.join(60)
        began = time.monotonic()
        for pod in (self.head, *self.workers):
            pod.delete()
        for pod in (self.head, *self.workers):
            pod.wait(pod.manifest["spec"]["terminationGracePeriodSeconds"] + 30)
        return time.monotonic() - began

    def close(self) -> None:
        """Remove the pods that still exist, without a grace period."""
        self._over.set()
        self._operator.join(60)
        pods = [self.head, *self.workers]
        for pod in pods:
            pod.delete(grace=0)
        for pod in pods:
            pod.close()
