"""The trainer as a RayJob's driver: started through Ray's Jobs API by the entrypoint that the chart renders.

KubeRay itself cannot be had here. What it goes by is the Ray job's status: it starts a FAILED job again, with a new
cluster, up to backoffLimit; SUCCEEDED and STOPPED are complete.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from launcher.paths import charts_dir
from tests.charts.helm import template
from tests.trainer.ray_nodes import RayNodes
from tests.trainer.runs import CHECKOUT, Lab, Run, lines, numbers


@pytest.fixture(scope="module")
def rendered(helm4: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The RayJob that charts/run makes."""
    values = tmp_path_factory.mktemp("values") / "v.yaml"
    values.write_text(
        "run: {name: x}\nslice: {accelerator: cpu, hosts: 2}\nworker: {cpu: '1', memory: 2Gi}\nstorage: {bucket: abc}\n"
        "image: {repository: i, tag: v1}\ndata: {corpus: python}\n"
    )
    job: dict[str, Any] = yaml.safe_load(template(helm4, charts_dir() / "run", [values]))
    spec: dict[str, Any] = job["spec"]
    return spec


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    cluster = RayNodes.start()
    cluster.add()
    cluster.add()
    yield cluster
    cluster.stop()


class Job:
    """A job in `cluster`, by the chart's entrypoint, submitted by HTTP with the token as KubeRay's HTTPMode does it.

    The run config is where the chart mounts it, but for the folder.
    """

    def __init__(self, cluster: RayNodes, entrypoint: str, config: Path, name: str) -> None:
        assert "/etc/slipway/run.json" in entrypoint
        command = entrypoint.replace("/etc/slipway/run.json", str(config)).replace("python ", f"{sys.executable} ", 1)
        self.cluster, self.name = cluster, name
        body = {"entrypoint": f"cd {CHECKOUT} && exec {command}", "submission_id": name}
        deadline = time.monotonic() + 120
        while not self._submitted(body):
            assert time.monotonic() < deadline
            time.sleep(1)

    def _submitted(self, body: dict[str, str]) -> bool:
        """The dashboard answers 500 before the agent that starts jobs is there; KubeRay tries again too."""
        try:
            self._ask("", body)
        except urllib.error.HTTPError as error:
            assert error.code == 500, error.read()
            return False
        return True

    def _ask(self, path: str, body: dict[str, str] | None = None) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self.cluster.dashboard}/api/jobs/{path}",
            data=json.dumps(body).encode() if body else None,
            headers={"Authorization": f"Bearer {self.cluster.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            answer: dict[str, Any] = json.load(response)
        return answer

    def status(self) -> str:
        return str(self._ask(self.name)["status"])

    def log(self) -> str:
        return str(self._ask(f"{self.name}/logs")["logs"])

    def ended(self) -> bool:
        return self.status() in ("SUCCEEDED", "FAILED", "STOPPED")

    def end(self, seconds: float = 240) -> str:
        deadline = time.monotonic() + seconds
        while not self.ended():
            assert time.monotonic() < deadline, self.log()[-3000:]
            time.sleep(0.3)
        return self.status()


def with_run(config: Path, **run: Any) -> Path:
    """Change keys of `run` in a run config."""
    tree = json.loads(config.read_text())
    tree["run"].update(run)
    config.write_text(json.dumps(tree))
    return config


def test_a_refused_config_stops_the_job_for_good(lab: Lab, cluster: RayNodes, rendered: dict[str, Any]) -> None:
    job = Job(cluster, rendered["entrypoint"], lab.config("rj-refused", decoder_block="llama9"), "refused")
    assert job.end() == "STOPPED", job.log()[-3000:]
    assert "Error: " in job.log()
    assert "decoder_block" in job.log()


def test_the_command_runs_on_every_host(lab: Lab, cluster: RayNodes, rendered: dict[str, Any]) -> None:
    script = 'echo "host $SLIPWAY_HOST_INDEX of $SLIPWAY_HOSTS"'
    config = with_run(lab.config("rj-command"), command=["sh", "-c", script])
    job = Job(cluster, rendered["entrypoint"], config, "command")
    assert job.end() == "SUCCEEDED", job.log()[-3000:]
    assert {"(host 0) host 0 of 2", "(host 1) host 1 of 2"} <= set(job.log().splitlines())


def test_a_command_that_fails_starts_again_as_often_as_it_may(
    lab: Lab, cluster: RayNodes, rendered: dict[str, Any], tmp_path: Path
) -> None:
    script = f'[ "$SLIPWAY_HOST_INDEX" = 1 ] && exec sleep 300; echo x >> {tmp_path}/starts; sleep 1; exit 2'
    config = with_run(lab.config("rj-fails"), command=["sh", "-c", script], maxRestarts=1)
    job = Job(cluster, rendered["entrypoint"], config, "fails")
    assert job.end() == "STOPPED", job.log()[-3000:]
    assert (tmp_path / "starts").read_text() == "x\nx\n"
    assert "Error: The command on host 0 ended with exit code 2." in job.log()
    assert not [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "300"]]


def test_a_command_that_is_not_there_is_a_config_error(lab: Lab, cluster: RayNodes, rendered: dict[str, Any]) -> None:
    config = with_run(lab.config("rj-absent"), command=["no-such-program"])
    job = Job(cluster, rendered["entrypoint"], config, "absent")
    assert job.end() == "STOPPED", job.log()[-3000:]
    assert 'run.command: the program "no-such-program" cannot be started: No such file' in job.log()


def test_a_host_that_is_told_to_go_is_no_failure(
    lab: Lab, cluster: RayNodes, rendered: dict[str, Any], undisturbed: Run
) -> None:
    """With no restart allowed: the rendered preStop hook on one node, the node's end, another node in its place."""
    config = with_run(lab.config("rj-drained"), maxRestarts=0)
    job = Job(cluster, rendered["entrypoint"], config, "drained")
    folder = lab.root / "rj-drained"
    wait(job, lambda: steps(folder) >= 2)
    node = cluster.nodes[-1]
    worker = rendered["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]
    hook = worker["lifecycle"]["preStop"]["exec"]["command"]
    # In a pod the hook finds its own node; of several on one machine it has to be told.
    hook = [*hook[:-1], hook[-1].replace("drain-node", f"drain-node --node-id {node_id(cluster, node)}")]
    environment = {**cluster.environment, "RAY_ADDRESS": cluster.address, "HOME": str(lab.root)}
    subprocess.run(hook, env=environment, check=True, capture_output=True, timeout=60)
    cluster.kill(node)
    cluster.add()
    assert job.end() == "SUCCEEDED", job.log()[-3000:]
    assert numbers(lines(folder / "metrics.jsonl")) == numbers(undisturbed.metrics())


def test_a_lost_host_is_a_failure_and_the_last_one_stops_the_job(
    lab: Lab, cluster: RayNodes, rendered: dict[str, Any]
) -> None:
    config = with_run(lab.config("rj-lost"), maxRestarts=0)
    job = Job(cluster, rendered["entrypoint"], config, "lost")
    wait(job, lambda: steps(lab.root / "rj-lost") >= 2)
    cluster.kill(cluster.nodes[-1])
    cluster.add()
    assert job.end() == "STOPPED", job.log()[-3000:]
    assert "no restart was left" in job.log()


def wait(job: Job, condition: Any, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert not job.ended(), job.log()[-3000:]
        assert time.monotonic() < deadline, job.log()[-3000:]
        time.sleep(0.05)


def steps(folder: Path) -> int:
    return len([line for line in lines(folder / "metrics.jsonl") if "loss" in line])


def node_id(cluster: RayNodes, node: subprocess.Popen[bytes]) -> str:
    """Ray's id of a node: its raylet has it on its command line."""
    for process in psutil.Process(node.pid).children(recursive=True):
        for word in process.cmdline():
            if word.startswith("--node_id="):
                return word.removeprefix("--node_id=")
    raise AssertionError("the node has no raylet")
