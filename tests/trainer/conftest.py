from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from launcher.paths import charts_dir
from tests.charts.helm import template
from tests.trainer.ray_nodes import RayNodes
from tests.trainer.runs import ONE_HOST, Run, TrainingHarness, end_all
from tests.unit.notification_servers import http


@pytest.fixture(autouse=True)
def no_run_is_left() -> Iterator[None]:
    yield
    end_all()


@pytest.fixture(scope="session")
def undisturbed(lab: TrainingHarness) -> Run:
    """Train on two hosts under Ray without a disturbance. Disturbed runs must give the same numbers."""
    with http() as server:  # it hears of the run, as in test_training.py
        addresses = f"events started first-step ended\njson {server.url}"
        run = lab.train(lab.config("undisturbed"), SLIPWAY_NOTIFY=addresses)
        (lab.root / "notifications.json").write_text(json.dumps(server.bodies))
    assert run.process.returncode == 0, run.output()[-4000:]
    return run


@pytest.fixture(scope="session")
def undisturbed_host(lab: TrainingHarness) -> Run:
    """Train on one host without Ray and without a disturbance, with the settings ONE_HOST. Runs to compare may do fewer
    steps."""
    run = lab.train(lab.config("undisturbed-host", hosts=1, **ONE_HOST), "--no-ray")
    assert run.process.returncode == 0, run.output()[-4000:]
    return run


@pytest.fixture(scope="module")  # an idle Ray cluster takes a tenth of a processor
def cluster(rendered: dict[str, Any]) -> Iterator[RayNodes]:
    """Start a Ray cluster with a head and two hosts, as charts/run creates it. Each test leaves it with two hosts."""
    nodes = RayNodes.of(rendered)
    yield nodes
    nodes.stop()


@pytest.fixture(scope="session")
def rendered(helm4: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the spec of the RayJob that charts/run renders."""
    values = tmp_path_factory.mktemp("values") / "v.yaml"
    values.write_text(
        "run: {name: x}\nslice: {accelerator: cpu, hosts: 2}\nworker: {cpu: '1', memory: 2Gi}\nstorage: {bucket: abc}\n"
        "image: {repository: i, tag: v1}\ndata: {corpus: python}\n"
    )
    job: dict[str, Any] = yaml.safe_load(template(helm4, charts_dir() / "run", [values]))
    spec: dict[str, Any] = job["spec"]
    return spec


@pytest.fixture(scope="session")
def base(lab: TrainingHarness) -> Run:
    """A run of plain text, for fine-tunings to start from."""
    run = lab.train(lab.config("base", hosts=1, steps=4, eval_interval=None, dtype="float32"), "--no-ray")
    assert run.process.returncode == 0, run.output()[-3000:]
    return run
