"""How the suite of `make e2e` reads the log of a training run, and finds the charts of the previous release."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.e2e import logs, release

WHOLE = """\
noise
SLIPWAY_EVENT {"event": "loop_started", "time": "t0", "step": 0, "steps": 4, "devices": 2}
(RayTrainWorker pid=7, ip=10.0.0.1) SLIPWAY_METRICS {"step": 0, "loss": 3.5, "time": "t1"}
SLIPWAY_METRICS {"step": 1, "loss": 3.25, "time": "t2"}
SLIPWAY_METRICS {"step": 1, "loss": 3.25, "time": "t2"}
SLIPWAY_METRICS {"step": 2, "eval_loss": 3.0, "time": "t3"}
SLIPWAY_METRICS {"step": 2, "loss": 3.0, "ti
SLIPWAY_EVENT {"event": "worker_failed", "time": "t4", "message": "gone"}
SLIPWAY_EVENT {"event": "loop_started", "time": "t5", "step": 1, "steps": 4, "devices": 2}
SLIPWAY_METRICS {"step": 1, "loss": 3.25, "time": "t6"}
SLIPWAY_METRICS {"step": 2, "loss": 3.0, "time": "t7"}
"""


def test_a_log_is_read() -> None:
    log = logs.read(WHOLE)
    assert log.losses == {0: [3.5], 1: [3.25, 3.25], 2: [3.0]}
    assert log.evaluations == {2: [3.0]}
    assert log.starts == [0, 1]
    assert log.failures == ["gone"]
    assert (log.last_step, log.before_start(0), log.before_start(1), log.before_start(2)) == (2, -1, 1, -1)
    assert logs.read("").last_step == -1


def test_losses_are_compared_exactly_and_within_a_log_too() -> None:
    calm = logs.Log(losses={0: [3.5], 1: [3.25]})
    assert logs.differences(calm, logs.Log(losses={0: [3.5], 1: [3.25, 3.25]})) == []
    assert logs.differences(calm, logs.Log(losses={0: [3.5], 1: [3.25, 3.2500001]})) == [
        "step 1 has the losses 3.25, 3.2500001"
    ]
    assert logs.differences(calm, logs.Log(losses={0: [3.5], 1: [3.26]}), 0.01) == []
    assert logs.differences(calm, logs.Log(losses={0: [3.5]})) == ["step 1 is in one of the logs only"]


def test_the_last_lines_of_a_pod_may_be_lost() -> None:
    calm = logs.Log(losses={step: [1.0] for step in range(5)})
    gap = logs.read(
        'SLIPWAY_EVENT {"event": "loop_started", "step": 0}\nSLIPWAY_METRICS {"step": 0, "loss": 1.0}\n'
        'SLIPWAY_EVENT {"event": "loop_started", "step": 3}\nSLIPWAY_METRICS {"step": 3, "loss": 1.0}\n'
        'SLIPWAY_METRICS {"step": 4, "loss": 1.0}\n'
    )
    assert logs.lost(gap) == {1, 2}
    assert logs.differences(gap, calm) == []
    del gap.losses[4]
    assert logs.differences(gap, calm) == ["step 4 is in one of the logs only"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A git history with three versions of charts/queues, the last two in two commits each."""
    git(tmp_path, "init", "-q", "-b", "main")
    for number, version in enumerate(("0.1.0", "0.2.0", "0.2.0", "0.3.0", "0.3.0")):
        chart = tmp_path / "charts" / "queues"
        (chart / "charts").mkdir(parents=True, exist_ok=True)
        (tmp_path / "charts" / "common").mkdir(exist_ok=True)
        (tmp_path / "charts" / "common" / "Chart.yaml").write_text("name: common\n")
        link = chart / "charts" / "common"
        if not link.is_symlink():
            link.symlink_to("../../common")
        (chart / "Chart.yaml").write_text(f"name: queues\nversion: {version}\n")
        (chart / "values.yaml").write_text(f"number: {number}\n")
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-q", "-m", f"{number}")
    return tmp_path


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def number_at(checkout: Path, found: release.Earlier, folder: Path) -> str:
    charts = release.charts(checkout, found, folder)
    assert (charts / "queues" / "charts" / "common" / "Chart.yaml").read_text() == "name: common\n"
    return (charts / "queues" / "values.yaml").read_text().strip()


def test_without_tags_it_is_the_last_state_of_the_version_before(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = release.find(checkout)
    assert found.called.startswith("0.2.0 (")
    assert number_at(checkout, found, tmp_path_factory.mktemp("a")) == "number: 2"


def test_the_newest_tag_with_another_version(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    git(checkout, "tag", "v0.1.0", "HEAD~4")
    git(checkout, "tag", "v0.3.0")
    found = release.find(checkout)
    assert found.called == "v0.1.0"  # v0.3.0 is the current version
    assert number_at(checkout, found, tmp_path_factory.mktemp("a")) == "number: 0"


def test_a_revision_or_a_folder_that_is_asked_for(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    found = release.find(checkout, "HEAD~3")
    assert number_at(checkout, found, tmp_path_factory.mktemp("a")) == "number: 1"
    found = release.find(checkout, str(checkout / "charts"))
    assert number_at(checkout, found, tmp_path_factory.mktemp("b")) == "number: 4"
    assert release.find(checkout, "v9").why == "SLIPWAY_E2E_RELEASE names v9, which is neither a revision nor a folder"
    assert "in which there is no queues/Chart.yaml" in release.find(checkout, str(checkout)).why


def test_no_history_to_look_at(tmp_path: Path, checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert release.find(tmp_path_factory.mktemp("none")).why == "this is no checkout with a history"
    shallow = tmp_path_factory.mktemp("shallow")
    git(shallow, "clone", "-q", "--depth", "1", f"file://{checkout}", str(shallow / "it"))
    assert "shallow" in release.find(shallow / "it").why
