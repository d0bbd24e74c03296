from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.trainer.ray_nodes import RayNodes
from tests.trainer.runs import Lab, Run


@pytest.fixture(scope="session")
def undisturbed(lab: Lab) -> Run:
    """Two hosts under Ray, from start to end with nothing in the way: what every disturbed run must equal."""
    run = lab.train(lab.config("undisturbed"))
    assert run.process.returncode == 0, run.output()[-4000:]
    return run


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayNodes]:
    """A Ray cluster of a head and two hosts, as charts/run makes it."""
    nodes = RayNodes.start()
    nodes.add()
    nodes.add()
    yield nodes
    nodes.stop()
