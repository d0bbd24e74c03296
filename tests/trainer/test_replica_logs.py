"""The output of a replica is in the log of its host's pod: the variables that charts/serve sets, under the real Ray."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from launcher.paths import charts_dir, presets_dir
from tests.charts.helm import template
from tests.charts.schemas import objects
from tests.cluster.launching import until
from tests.tools import tool
from tests.trainer.ray_nodes import RayNodes

# An actor on a host, as a replica is one. Ray Serve writes to the actor's stderr (RAY_SERVE_LOG_TO_STDERR).
ACTOR = """
import logging, ray
ray.init(log_to_driver=False, logging_level="error")

@ray.remote(num_cpus=1)
class Replica:
    def answer(self):
        print("a line of the model")
        logging.getLogger("replica").warning("a line of the log")

ray.get(Replica.remote().answer.remote())
"""


def test_the_output_of_a_replica_is_in_the_log_of_its_pod() -> None:
    (obj,) = objects(template(tool("helm"), charts_dir() / "serve", [presets_dir() / "serve" / "tiny-cpu.yaml"]))
    (group,) = obj["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    names = ("RAY_LOG_TO_STDERR", "RAY_BACKEND_LOG_LEVEL")
    of_logs = {each["name"]: each["value"] for each in container["env"] if each["name"] in names}
    assert set(of_logs) == set(names)
    cluster = RayNodes.start()
    try:
        host = cluster.add(of_logs)
        environment = {**os.environ, **cluster.environment, "RAY_ADDRESS": cluster.address}
        subprocess.run([sys.executable, "-c", ACTOR], env=environment, check=True, timeout=120, cwd=Path("/"))
        until(lambda: {"a line of the model", "a line of the log"} <= set(cluster.log(host).splitlines()))
        assert not re.search(r"^\[[^]]* I [^]]*\] \(raylet\)", cluster.log(host), re.MULTILINE)
    finally:
        cluster.stop()
