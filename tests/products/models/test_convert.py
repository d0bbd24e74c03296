"""The child process of exports and imports: its messages, and how it ends. Uploads of its folder to a bucket."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from launcher.api import export
from launcher.config.plan import plan_launch
from launcher.config.values.files import chart_defaults, read_text
from launcher.errors import LauncherError, UsageError
from launcher.products.common.storage import write_bucket
from launcher.products.models.weights import export as exports
from launcher.products.models.weights import job
from launcher.products.models.weights.checkpoints import Checkpoint, Checkpoints
from launcher.products.models.weights.convert import convert as run
from tests.bucket import bucket
from tests.cli.conftest import eventually
from tests.products.models.checkpoint_folders import write_run

NAMES = ("a.safetensors", "slipway.json", "config.json")


def child(body: str) -> Sequence[str]:
    return [sys.executable, "-c", f"import os, sys, time; {body}"]


def test_the_summary_and_the_progress() -> None:
    said: list[str] = []
    body = 'import json; print("1 of 2", file=sys.stderr); print("chatter"); print(json.dumps({"to": sys.argv[1]}))'
    assert run(["y"], said.append, child(body)) == {"to": "y"}
    assert said == ["1 of 2"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('print("Error: The disk is full.", file=sys.stderr); sys.exit(2)', "The disk is full."),
        ('print("Error: No way", file=sys.stderr); sys.exit(1)', "The conversion failed: No way."),
        ("sys.exit(1)", "The conversion failed: it ended with exit code 1."),
        ("print('{')", "The conversion failed: it ended with exit code 0."),
        (
            "os.kill(os.getpid(), 9)",
            "The conversion failed: it was killed, most likely because this machine ran out of memory.",
        ),
        ("os.kill(os.getpid(), 15)", "The conversion failed: it was killed by SIGTERM."),
    ],
)
def test_a_conversion_that_fails(body: str, message: str) -> None:
    with pytest.raises(LauncherError) as error:
        run([], lambda _: None, child(body))
    assert str(error.value) == message


def test_the_trainer_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(LauncherError, match=r"^The Python package maxtext is not installed") as error:
        run([], lambda _: None)
    assert 'slipway-launcher[train]"' in error.value.hint


def test_ctrl_c_lets_the_child_remove_what_is_not_finished(tmp_path: Path) -> None:
    """Its process group has its own session, so the terminal does not send it the signal."""
    begun, removed = tmp_path / "begun", tmp_path / "removed"
    body = (
        f"try: open({str(begun)!r}, 'w').close(); time.sleep(60)\nexcept KeyboardInterrupt: "
        f"open({str(removed)!r}, 'w').close()"
    )
    code = (
        "from launcher.products.models.weights.convert import convert\n"
        f"convert([], print, [{sys.executable!r}, '-c', {'import time' + chr(10) + body!r}])"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL, start_new_session=True)
    eventually(begun.exists)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(30) != 0
    assert removed.exists()


# --- a bucket ---------------------------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in NAMES:
        (folder / name).write_text(name)
    return folder


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The bucket gs://models, as a folder. A server on this machine replaces Cloud Storage, which needs an account."""
    folder = tmp_path / "cloud" / "models"
    folder.mkdir(parents=True)
    with bucket(folder.parent) as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        yield folder


def test_config_json_is_uploaded_last(model: Path, cloud: Path) -> None:
    assert exports._in_order(model)[-1] == "config.json"
    said: list[str] = []
    write_bucket("gs://models/base", model, NAMES, said.append)
    assert {path.name: path.read_text() for path in (cloud / "base").iterdir()} == {name: name for name in NAMES}
    assert said[-1] == "Uploaded config.json (3 of 3)."
    with pytest.raises(LauncherError, match=r"^gs://models/base already exists, with 3 files\.$"):
        write_bucket("gs://models/base", model, NAMES)


def test_an_upload_that_was_interrupted(model: Path, cloud: Path) -> None:
    (model / "slipway.json").unlink()
    with pytest.raises(LauncherError, match=r"^gs://models/base cannot be written: FileNotFoundError"):
        write_bucket("gs://models/base", model, NAMES)
    assert [path.name for path in (cloud / "base").iterdir()] == ["a.safetensors"]
    with pytest.raises(LauncherError, match=r"with 1 file but no config\.json, so an upload may have been inter") as e:
        write_bucket("gs://models/base", model, NAMES)
    assert e.value.hint == "Choose another folder, or remove this one: gcloud storage rm -r gs://models/base"


def test_a_bucket_that_may_not_be_written(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bucket(tmp_path, 403) as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        with pytest.raises(LauncherError, match=r"^You may not write gs://models/base: ") as error:
            write_bucket("gs://models/base", model, NAMES)
    assert error.value.hint.startswith("You need storage.objects.create and storage.objects.list on the bucket")


@pytest.mark.parametrize(
    ("to", "message"),
    [
        ("", '--to "" is not a destination; give a folder, gs://BUCKET/FOLDER or hf:ORG/NAME.'),
        ("gs://bucket", "--to gs://bucket is not a folder in a bucket; write gs://BUCKET/FOLDER."),
        ("gs://bucket//", "--to gs://bucket// is not a folder in a bucket; write gs://BUCKET/FOLDER."),
        ("hf:x", "hf:x is not the name of a model on Hugging Face; write hf:ORG/NAME."),
    ],
)
def test_a_destination_that_is_none(to: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        export(str(write_run(tmp_path / "base")), to)
    assert str(error.value) == message


def test_a_folder_without_its_config(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "base")
    (folder / "run.json").unlink()
    with pytest.raises(
        LauncherError, match=r"/base has no run\.json, the config of the run, which an export requires\.$"
    ):
        export(str(folder), str(tmp_path / "out"))


# --- a run in a cluster -----------------------------------------------------------------------------------------


def test_the_memory_of_a_conversion() -> None:
    small: dict[str, Any] = {"base_emb_dim": 128, "base_num_decoder_layers": 2}
    assert job.memory_gib(small) == 4
    assert job.memory_gib({"model_name": "llama3.1-8b"}) == 11  # 9.8 GB, by the measured rule in export.md
    assert 35 < job.memory_gib({"model_name": "llama3.1-70b"}) < 64
    assert job.memory_gib({"model_name": "of-a-later-maxtext"}) == 32


def test_a_long_name_keeps_its_end() -> None:
    assert job.job_name("a" * 40, "export") == "a" * 33 + "-export"
    assert job.job_name("llama", "import") == "llama-import"


def test_what_an_export_takes_from_the_record_of_its_run() -> None:
    text = (
        "run: {name: base, kind: ray-job, deadlineSeconds: 60}\nteam: {name: research}\nqueue: {priority: high}\n"
        "slice: {accelerator: v6e, topology: 4x4, count: 2, provisioning: spot}\nimage: {repository: i, tag: v1}\n"
        "storage: {kind: pvc, claim: runs, mountPath: /runs}\nfrom: earlier@3\nsecurity: {runAsUser: 1001}\n"
        "worker: {env: {XLA_FLAGS: --xla_x, HF_HOME: /runs/hf}, envFrom: {ours: Secret}, nodeSelector: {a: b}}\n"
        "train: {model_name: llama3-8b, dataset_type: synthetic, steps: 9}\n"
    )
    config = plan_launch(read_text(text.encode(), "v.yaml"), chart_defaults("run")).config
    extra = read_text(b"queue: {priority: low}", "--set")
    made = job.plan_export(config, "/runs/m", step="last", dtype="bfloat16", extra=extra)
    assert (made.name, made.kind, made.namespace, made.warnings) == ("base-export", "job-set", "research", ())
    assert made.config["run"]["command"] == [
        *("python", "-m", "trainer.weights", "export", "--config", "/runs/base/run.json"),
        *("--to", "/runs/m", "--dtype", "bfloat16"),
    ]
    assert made.config["run"]["deadlineSeconds"] == 0 and made.config["queue"]["priority"] == "low"
    assert (made.config["slice"]["accelerator"], made.config["slice"]["count"]) == ("cpu", 1)
    assert made.config["worker"]["env"] == {"HF_HOME": "/runs/hf"}
    assert made.config["worker"]["envFrom"] == {"ours": "Secret"} and made.config["worker"]["nodeSelector"] == {}
    assert (made.config["storage"]["claim"], made.config["security"]["runAsUser"]) == ("runs", 1001)
    assert made.config["from"] == "" and made.config["train"] == {}


def test_a_storage_that_does_not_remain() -> None:
    config = {"storage": {"kind": "local", "mountPath": "/data"}}
    with pytest.raises(LauncherError, match=r"^storage\.kind is local: the files of the pods are deleted with them\.$"):
        job.destination(config, None, "base/export/1")


def test_the_copy_of_a_killed_export_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPWAY_HOME", str(tmp_path))
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    killed, runs = tmp_path / f".export-{ended.pid}-x", tmp_path / f".export-{os.getpid()}-y"
    for folder in (killed, runs):
        folder.mkdir()
    found = Checkpoints("base", "", ())
    with exports._draft(found, Checkpoint(6)) as draft:
        assert draft.parent.parent == tmp_path and draft.name == "base-6"
        assert sorted(tmp_path.iterdir()) == sorted([runs, draft.parent])
    assert list(tmp_path.iterdir()) == [runs]
