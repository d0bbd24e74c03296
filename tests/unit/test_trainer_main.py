"""How a trainer that cannot start ends: its exit code, and the sentence that it leaves. No training starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.config.plan import plan_launch
from launcher.config.values.files import chart_defaults, load
from trainer import __main__ as trainer
from trainer import config as trainer_config
from trainer import failures


def write_config(tmp_path: Path) -> Path:
    """Write the config of a run on CPUs, with text of its own."""
    text = tmp_path / "a.txt"
    if not text.is_symlink():
        text.write_text("text\n" * 1000)
    required = [
        "run.name=demo",
        "run.kind=local",
        "storage.kind=local",
        "slice.accelerator=cpu",
        "train.steps=3",
        f"data.files=['{text}']",
    ]
    path = tmp_path / "run.json"
    tree = dict(plan_launch(load([], required), chart_defaults("run")).config)
    tree["storage"] = {"mountPath": str(tmp_path / "runs")}
    path.write_text(json.dumps(tree))
    return path


def test_data_that_cannot_be_read_at_the_moment_is_a_sentence_and_may_be_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").symlink_to("/proc/self/mem")  # EIO, as of a mount that fails
    config = write_config(tmp_path)
    monkeypatch.setattr(sys, "argv", ["trainer", "--config", str(config), "--check"])
    assert trainer.main() == 1  # 2 would end the run without a restart
    assert capsys.readouterr().err.splitlines()[-1].startswith("Error: OSError: [Errno 5] Input/output error")


def test_a_folder_that_cannot_be_created_names_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path)
    (tmp_path / "runs").write_text("")
    monkeypatch.setattr(sys, "argv", ["trainer", "--config", str(config)])
    assert trainer.main() == 2
    sentence = f"Cannot create the run's folder {tmp_path}/runs/demo (storage.mountPath): Not a directory."
    out, err = capsys.readouterr()
    assert err.splitlines()[-1] == f"Error: {sentence}"
    # There is no folder for events.jsonl, so the event is in the log.
    assert sentence in out.splitlines()[-1]


@pytest.mark.parametrize(
    ("command", "code", "end"),
    [
        (["sh", "-c", "echo done; exit 7"], 7, ""),
        (["no-such-program"], 2, 'run.command: the program "no-such-program" cannot be started: No such file'),
    ],
)
def test_a_command_replaces_the_trainer_of_a_host_without_ray(
    tmp_path: Path, command: list[str], code: int, end: str
) -> None:
    config = write_config(tmp_path)
    tree = json.loads(config.read_text())
    config.write_text(json.dumps({**tree, "run": {**tree["run"], "command": command}}))
    done = subprocess.run(
        [sys.executable, "-m", "trainer", "--no-ray", "--config", str(config)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, end in done.stderr) == (code, True), done.stderr
    assert done.stdout.splitlines()[:1] == ["done"] or code == 2


def test_the_supervisor_receives_the_sentence_although_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = trainer_config.read(write_config(tmp_path))
    config.folder.mkdir(parents=True)
    (config.folder / "events.jsonl").symlink_to("/dev/full")  # each write to it fails with ENOSPC
    reading, writing = os.pipe()
    monkeypatch.setenv("SLIPWAY_EXIT_MESSAGE_FD", str(writing))
    failures.report(config, "It\n failed.")
    os.close(writing)
    assert os.read(reading, 100) == b"It failed."
    os.close(reading)
    assert capsys.readouterr().err == "Error: It failed.\n"
    failures.report(config, "The supervisor has ended.")  # nothing reads the message: no error
    assert capsys.readouterr().err == "Error: The supervisor has ended.\n"
