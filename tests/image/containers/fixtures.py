"""Shared fixtures of the container tests: a node, storage with real text, and an undisturbed run.

tests/image/conftest.py imports them. So the tests of both kinds of runs share one node and one undisturbed run, which
end with the last test of tests/image: an idle Ray cluster uses a tenth of a processor.
"""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import compiled_programs
from tests.image.containers.kuberay import RayJob
from tests.image.containers.node import ImageFiles, Node, node
from tests.image.containers.pod import PodContext
from tests.image.containers.team import Team, UndisturbedJob
from tests.trainer.runs import TrainingHarness


@pytest.fixture(scope="package")
def machine() -> Iterator[Node]:
    with node() as made:
        yield made


@pytest.fixture(scope="package")
def team(
    machine: Node, image: ImageFiles, lab: TrainingHarness, helm4: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Team]:
    """A team whose hosts share storage with 200 files of the standard library as text, and a small tokenizer."""
    storage = machine.folder / "storage"
    (storage / "text").mkdir(parents=True)
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("[a-z]*.py")):
        shutil.copyfile(path, storage / "text" / f"{path.stem}.txt")
    shutil.copyfile(lab.tokenizer, storage / "tokenizer.model")
    context = PodContext(machine, ImageFiles(image.rootfs, image.config), {"shared": storage})
    with compiled_programs.kept(storage, link=False):
        yield Team(context, storage, helm4, tmp_path_factory.mktemp("values"))


@pytest.fixture(scope="package")
def undisturbed_job(team: Team) -> Iterator[UndisturbedJob]:
    job = RayJob(team.context, team.render("undisturbed", "ray-job"))
    try:
        yield UndisturbedJob(job, job.run(), team.metrics("undisturbed"))
        # When no training runs, a pod ends before its grace period is over.
        took = job.shut_down()
        print(f"all pods of a finished cluster had ended after {took:.1f} s")
        assert "did not finish draining" not in job.diagnostics()
        assert not any("killed" in event for pod in (job.head, *job.workers) for event in pod.events), job.diagnostics()
    finally:
        job.close()
