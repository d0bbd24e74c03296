"""What the tests of containers share: a node, storage with real text, and one run that nothing disturbs.

tests/image/conftest.py imports them, so that one node and one undisturbed run serve both kinds of runs, and end with
the last test of tests/image: an idle Ray cluster takes a tenth of a processor.
"""

from __future__ import annotations

import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import compiled_programs
from tests.image.containers.kuberay import RayJob
from tests.image.containers.node import Files, Node, node
from tests.image.containers.pod import Site
from tests.image.containers.team import Quiet, Team
from tests.trainer.runs import TrainingHarness


@pytest.fixture(scope="package")
def machine() -> Iterator[Node]:
    with node() as made:
        yield made


@pytest.fixture(scope="package")
def team(
    machine: Node, image: Files, lab: TrainingHarness, helm4: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Team]:
    """Two hundred files of the standard library as text, and a small tokenizer, on storage that all hosts share."""
    storage = machine.folder / "storage"
    (storage / "text").mkdir(parents=True)
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("[a-z]*.py")):
        shutil.copyfile(path, storage / "text" / f"{path.stem}.txt")
    shutil.copyfile(lab.tokenizer, storage / "tokenizer.model")
    site = Site(machine, Files(image.rootfs, image.config), {"shared": storage})
    with compiled_programs.kept(storage, link=False):
        yield Team(site, storage, helm4, tmp_path_factory.mktemp("values"))


@pytest.fixture(scope="package")
def quiet(team: Team) -> Iterator[Quiet]:
    job = RayJob(team.site, team.render("quiet", "ray-job"))
    yield Quiet(job, job.run(), team.metrics("quiet"))
    job.close()
