"""Ray jobs as charts/run creates them: the rendered entrypoint through Ray's Jobs API, the rendered preStop hooks."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.trainer.ray_nodes import RayNodes
from tests.trainer.runs import CHECKOUT, PATIENCE, lines

PYTHON = shlex.quote(sys.executable)


class Job:
    """A job in `cluster` with the chart's entrypoint, submitted by HTTP with the token, as KubeRay's HTTPMode does.

    The path of the run config replaces the one that the chart mounts.
    """

    def __init__(self, cluster: RayNodes, spec: dict[str, Any], config: Path, name: str) -> None:
        entrypoint = spec["entrypoint"]
        (head,) = spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
        # A variable from a missing annotation is empty.
        head_environment = {each["name"]: each.get("value", "") for each in head["env"]}
        assert "/etc/slipway/run.json" in entrypoint
        command = entrypoint.replace("/etc/slipway/run.json", str(config)).replace("python ", f"{PYTHON} ", 1)
        self.cluster, self.name = cluster, name
        # The head's own process is the first of its container.
        pod_log = head_environment["SLIPWAY_POD_LOG"].replace("/proc/1/", f"/proc/{cluster.head.pid}/")
        self._pod_log_before = len(cluster.pod_log())
        body = {
            "entrypoint": f"cd {shlex.quote(str(CHECKOUT))} && export SLIPWAY_POD_LOG={pod_log} && exec {command}",
            "submission_id": name,
        }
        deadline = time.monotonic() + PATIENCE
        while not self._submitted(body):
            assert time.monotonic() < deadline
            time.sleep(1)

    def _submitted(self, body: dict[str, str]) -> bool:
        """Submit the job. Returns False if the agent that starts jobs is not up yet: the dashboard then responds with
        500. KubeRay retries too."""
        try:
            self._ask("", body)
        except urllib.error.HTTPError as error:
            assert error.code == 500, error.read()
            return False
        return True

    def _ask(self, path: str, body: dict[str, str] | None = None) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self.cluster.dashboard}/api/jobs/{path}",
            data=json.dumps(body).encode() if body is not None else None,
            headers={"Authorization": f"Bearer {self.cluster.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            answer: dict[str, Any] = json.load(response)
        return answer

    def status(self) -> str:
        return str(self._ask(self.name)["status"])

    def log(self) -> str:
        return str(self._ask(f"{self.name}/logs")["logs"])

    def message(self) -> str:
        """Return the text that KubeRay copies to the RayJob's status.message."""
        return str(self._ask(self.name)["message"])

    def reason(self) -> str:
        """Return the reason of a failed job from the last line of the message, where the launcher reads it."""
        assert self.status() == "FAILED", self.log()[-3000:]
        last = self.message().rstrip().splitlines()[-1]
        assert last.startswith("Error: "), self.message()[-3000:]
        return last.removeprefix("Error: ")

    def pod_log(self) -> str:
        """Return the output of the head's container since this job was created."""
        return self.cluster.pod_log()[self._pod_log_before :]

    def stop(self) -> None:
        """Stop the job as `launcher cancel` does, and as KubeRay does for a deleted RayJob."""
        self._ask(f"{self.name}/stop", {})

    def ended(self) -> bool:
        return self.status() in ("SUCCEEDED", "FAILED", "STOPPED")

    def end(self, seconds: float = PATIENCE) -> str:
        deadline = time.monotonic() + seconds
        while not self.ended():
            assert time.monotonic() < deadline, self.log()[-3000:]
            time.sleep(0.3)
        return self.status()


def wait(job: Job, condition: Any, seconds: float = PATIENCE) -> None:
    deadline = time.monotonic() + seconds
    asked = 0.0
    while not condition():
        if time.monotonic() > asked + 1:  # each question is work for the dashboard and the head
            assert not job.ended(), job.log()[-3000:]
            asked = time.monotonic()
        assert time.monotonic() < deadline, job.log()[-3000:]
        time.sleep(0.05)


def entries(log: str, prefix: str) -> list[dict[str, Any]]:
    """Return the JSON after `prefix` in the lines of a log, with any text before the prefix.

    Nodes of one machine share a folder of logs, and each prints every line of it. Lines with the same time are equal
    and appear once here.
    """
    texts = (line.partition(prefix)[2] for line in log.splitlines() if prefix in line)
    return [json.loads(text) for text in dict.fromkeys(texts)]


def events(log: str) -> list[dict[str, Any]]:
    return entries(log, "SLIPWAY_EVENT ")


def steps(folder: Path) -> int:
    return len([line for line in lines(folder / "metrics.jsonl") if "loss" in line])


def drain(cluster: RayNodes, node: subprocess.Popen[bytes], rendered: dict[str, Any], home: Path) -> None:
    """Run the rendered preStop hook for a node, to its end."""
    assert run_hook(cluster, node, rendered, home).wait(60) == 0


def run_hook(
    cluster: RayNodes, node: subprocess.Popen[bytes], rendered: dict[str, Any], home: Path
) -> subprocess.Popen[bytes]:
    spec = rendered["rayClusterSpec"]
    group = spec["headGroupSpec"] if node is cluster.head else spec["workerGroupSpecs"][0]
    (container,) = group["template"]["spec"]["containers"]
    # In a pod the hook finds its own node. If a machine has several nodes, it needs the id.
    hook = [*container["lifecycle"]["preStop"]["exec"]["command"], "--node-id", cluster.node_id(node)]
    environment = {**cluster.environment, "RAY_ADDRESS": cluster.address, "HOME": str(home)}
    return subprocess.Popen(hook, env=environment, cwd=CHECKOUT, stdout=subprocess.DEVNULL)
