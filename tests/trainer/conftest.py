from __future__ import annotations

import pytest

from tests.trainer.runs import Lab, Run


@pytest.fixture(scope="session")
def undisturbed(lab: Lab) -> Run:
    """Two hosts under Ray, from start to end with nothing in the way: what every disturbed run must equal."""
    run = lab.train(lab.config("undisturbed"))
    assert run.process.returncode == 0, run.output()[-4000:]
    return run
