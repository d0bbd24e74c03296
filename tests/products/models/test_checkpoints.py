"""The list of a run's checkpoints: which are whole, which is best, and the sentences if there are none."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from launcher.backends.base import Backend, RunStatus, State
from launcher.backends.log_excerpt import WHOLE, Excerpt
from launcher.errors import LauncherError
from launcher.products.models.weights import checkpoints
from launcher.products.models.weights.checkpoints import Checkpoints, saved_in_log
from tests.bucket import bucket
from tests.products.models.checkpoint_folders import RECORDED, write_run
from trainer.config import RunConfig
from trainer.run_log import RunLog

DRAFT = "9.orbax-checkpoint-tmp"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "base")


def read(folder: Path) -> Checkpoints:
    return checkpoints.read(str(folder))


def brief(found: Checkpoints) -> list[tuple[int, bool | None, int | None]]:
    return [(each.step, each.whole, each.eval_step) for each in found.checkpoints]


def test_a_recorded_run(run: Path) -> None:
    found = read(run)
    assert found.name == "base" and found.folder == str(run / "checkpoints") and found.notes == ()
    assert brief(found) == [(0, True, 0), (3, True, 3), (6, True, 7)]
    assert [each.bytes for each in found.checkpoints] == [12949562, 15675811, 15713668]
    last = found.checkpoints[-1]
    assert last.best and last.last and last.evaluated and last.saved == "2026-11-24T21:08:05Z"
    assert last.eval_loss == pytest.approx(10.45592781)
    # The evaluation after 3 steps is the nearest one before the end of the checkpoint 3, which has 4 steps.
    assert not found.checkpoints[1].evaluated and found.checkpoints[1].eval_loss == pytest.approx(10.6100077)


def test_the_best_is_not_always_the_last(run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "eval_loss": 9.5}\n')
    found = read(run)
    assert [each.step for each in found.checkpoints if each.best] == [3]
    assert found.select("best").step == 3 and found.select("last").step == 6 and found.select("0").step == 0


def _is_written(run: Path) -> None:
    shutil.copytree(run / "checkpoints" / "6", run / "checkpoints" / DRAFT)


def _has_no_weights(run: Path) -> None:
    shutil.rmtree(run / "checkpoints" / "6" / "items")


def _has_no_mark(run: Path) -> None:
    (run / "checkpoints" / "6" / "commit_success.txt").unlink()


def _is_empty(run: Path) -> None:
    shutil.rmtree(run / "checkpoints" / "6")
    (run / "checkpoints" / "6").mkdir()


@pytest.mark.parametrize(
    ("damage", "step", "says"),
    [
        (_is_written, 9, f"{DRAFT} is being written, or its writer was killed"),
        (_has_no_weights, 6, "it has no items/_METADATA"),
        (_has_no_mark, 6, "it has no commit_success.txt"),
        (_is_empty, 6, "it has no _CHECKPOINT_METADATA"),
    ],
)
def test_an_incomplete_checkpoint(run: Path, damage: Callable[[Path], None], step: int, says: str) -> None:
    damage(run)
    found = read(run)
    bad = next(each for each in found.checkpoints if each.step == step)
    assert (bad.whole, bad.problem, bad.best, bad.last) == (False, says, False, False)
    assert found.select("last").step == (6 if step == 9 else 3)
    with pytest.raises(LauncherError) as error:
        found.select(str(step))
    assert str(error.value) == f"The checkpoint {step} of base is incomplete: {says}."
    assert error.value.hint == f"Its checkpoints are: {'0, 3, 6' if step == 9 else '0, 3'}."


def test_a_checkpoint_without_marks_is_of_an_older_orbax(run: Path) -> None:
    for file in (run / "checkpoints").rglob("commit_success.txt"):
        file.unlink()
    assert all(each.whole for each in read(run).checkpoints)


def test_a_step_that_does_not_exist(run: Path) -> None:
    with pytest.raises(LauncherError) as error:
        read(run).select("5")
    assert str(error.value) == f"base has no checkpoint 5 in {run}/checkpoints."
    assert error.value.hint == "Its checkpoints are: 0, 3, 6."
    with pytest.raises(LauncherError) as error:
        read(run).select("7")
    assert error.value.hint == "Its checkpoints are: 0, 3, 6. 6 is the one after step 7."


def test_no_evaluation(run: Path) -> None:
    (run / "metrics.jsonl").unlink()
    found = read(run)
    assert found.notes == ("Its folder has no metrics.jsonl, so their held-out losses are not known.",)
    with pytest.raises(LauncherError, match=r"No checkpoint of base is the best one: none has a held-out loss\."):
        found.select("best")


def test_damaged_metrics(run: Path) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "eval_\n{"step": true, "eval_loss": 1}\n{"step": 7, "eval_loss": null}\n')
    found = read(run)
    assert found.notes == ("1 line of its metrics.jsonl cannot be read and is left out.",)
    assert found.checkpoints[-1].eval_loss == pytest.approx(10.45592781)


def test_no_checkpoints(run: Path, tmp_path: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(LauncherError, match=rf"^base has no checkpoints: {run}/checkpoints is empty\.$"):
        read(run)
    write_run(run, train={"enable_checkpointing": False})
    shutil.rmtree(run / "checkpoints")
    with pytest.raises(LauncherError, match=r"^base has no checkpoints: train\.enable_checkpointing is false\.$"):
        read(run)
    with pytest.raises(LauncherError, match=rf"^There is no folder {tmp_path}/other\.$"):
        read(tmp_path / "other")
    (tmp_path / "other").mkdir()
    with pytest.raises(LauncherError, match=r"/other is not the folder of a run: it has no metrics\.jsonl, run\.json"):
        read(tmp_path / "other")


def test_a_folder_that_cannot_be_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: object) -> object:  # root, which runs the tests of CI, may read every folder
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(LauncherError, match=rf"^{run}/checkpoints cannot be read: Permission denied\.$"):
        read(run)


# --- a bucket ---------------------------------------------------------------------------------------------------


@pytest.fixture
def cloud(tmp_path: Path) -> Path:
    return write_run(tmp_path / "cloud" / "runs" / "base")


def of_bucket(cloud: Path, monkeypatch: pytest.MonkeyPatch) -> Checkpoints:
    with bucket(cloud.parents[1]) as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        return checkpoints.read(f"gs://runs/{cloud.name}")


def test_a_bucket(cloud: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = of_bucket(cloud, monkeypatch)
    assert found.folder == "gs://runs/base/checkpoints"
    assert found.checkpoints == read(cloud).checkpoints


def test_a_rename_in_a_bucket_is_not_atomic(cloud: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """gcsfuse renames a folder object by object: until the end, a part of the checkpoint has its earlier name."""
    rest = cloud / "checkpoints" / "6.orbax-checkpoint-tmp" / "iter"
    rest.parent.mkdir()
    (cloud / "checkpoints" / "6" / "iter").rename(rest)
    found = of_bucket(cloud, monkeypatch)
    assert found.checkpoints[-1].problem == "a part of it is still in 6.orbax-checkpoint-tmp"
    assert found.select("last").step == 3


def test_a_bucket_without_the_run(cloud: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LauncherError, match=r"^gs://runs/other contains no run: the bucket does not exist, or the"):
        of_bucket(cloud.parent / "other", monkeypatch)


# --- a claim ----------------------------------------------------------------------------------------------------


class Logs:
    """A backend whose run has a log. It replaces a cluster: a claim and its log need a kubelet."""

    cli_args = " -n research"

    def __init__(self, lines: list[str] | LauncherError, config: Mapping[str, Any]) -> None:
        self.lines, self.config = lines, config

    def config_of(self, _name: str) -> Mapping[str, Any]:
        return self.config

    def logs(self, _name: str, *, follow: bool, worker: int | None, excerpt: Excerpt = WHOLE) -> list[str]:
        if isinstance(self.lines, LauncherError):
            raise self.lines
        return self.lines


CLAIM = RunStatus("base", "research", "job-set", State.RUNNING, folder="pvc://runs/base")


def of_log(lines: list[str] | LauncherError, config: Mapping[str, Any] | None = None) -> Checkpoints:
    return checkpoints.of_run(cast(Backend, Logs(lines, config or {})), CLAIM)


def test_a_claim_is_read_from_the_log() -> None:
    metrics = [f"(RayTrainWorker pid=1) SLIPWAY_METRICS {json.dumps(entry)}" for entry in RECORDED["metrics"]]
    found = of_log([*RECORDED["log"], *metrics])
    assert brief(found) == [(0, None, 0), (3, None, 3), (6, None, 7)]
    assert found.notes == (
        "pvc://runs/base/checkpoints is a claim that only pods can mount, so this list is from the run's log: it does "
        "not show whether they are whole or still exist.",
    )
    assert [found.select(step).step for step in ("3", "last", "best")] == [3, 6, 6]


def test_a_claim_without_a_log() -> None:
    with pytest.raises(LauncherError) as error:
        of_log(LauncherError("the log was deleted with its pods."), {"storage": {"kind": "pvc", "mountPath": "/data"}})
    assert str(error.value) == (
        'The checkpoints of the run "base" are not known: pvc://runs/base/checkpoints is a claim that only pods can '
        "mount, and the log was deleted with its pods."
    )
    assert error.value.hint.endswith("launcher shell base -n research -- ls /data/base/checkpoints")
    with pytest.raises(LauncherError, match="base has no checkpoints yet: it is running, and pvc://runs/base/check"):
        of_log([])


def test_a_command_has_no_checkpoints() -> None:
    with pytest.raises(LauncherError, match=r"^The run \"base\" has no checkpoints: it runs a command"):
        of_log([], {"run": {"name": "base", "command": ["sleep", "1"]}})


def test_the_trainer_prints_the_line_that_is_searched(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("trainer.run_log.Reporter", lambda _: None)  # the record needs a run's folder
    log = RunLog(cast(RunConfig, None), first=True)
    log.steps = 7
    log.checkpoint(3, 0.25)
    lines = capsys.readouterr().out.splitlines()
    assert list(saved_in_log(lines)) == [3]
