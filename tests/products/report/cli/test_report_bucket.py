"""`launcher report gs://…` against a server on this machine (tests/bucket.py)."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from tests.bucket import bucket
from tests.cli.conftest import Launcher
from tests.products.report import report_runs as runs


@pytest.fixture
def cloud(tmp_path: Path) -> Path:
    home = tmp_path / "cloud"
    wrote = [runs.loop(runs.BEGIN, 0, 40)]
    runs.write(home / "runs" / "demo", metrics=runs.steps(40), events=wrote, config=runs.config("demo", steps=40))
    return home


def test_a_run_that_is_only_a_url(launcher: Launcher, cloud: Path) -> None:
    with bucket(cloud) as url:
        done = launcher("report", "gs://runs/demo", "-o", "json", env={"STORAGE_EMULATOR_HOST": url})
    assert (done.code, done.err) == (0, "")
    (row,) = done.json["runs"]
    assert (row["name"], row["state"], row["step"], row["chips"]) == ("demo", "succeeded", 40, 16)
    page = (launcher.folder / "demo.report.html").read_text()
    assert "llama3-8b" in page  # its config
    assert "The bucket&#39;s folder gs://runs/demo/." in page


def test_a_missing_bucket_or_folder(launcher: Launcher, cloud: Path) -> None:
    with bucket(cloud) as url:
        done = launcher("report", "gs://runs/other", env={"STORAGE_EMULATOR_HOST": url})
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("Error: gs://runs/other contains no run: the bucket does not exist, or the folder")


def test_a_bucket_without_permission(launcher: Launcher, cloud: Path) -> None:
    with bucket(cloud, 403) as url:
        done = launcher("report", "gs://runs/demo", env={"STORAGE_EMULATOR_HOST": url})
    assert (done.code, done.out) == (1, "")
    first, hint = done.err.splitlines()
    assert first.startswith("Error: You may not read gs://runs/demo: Forbidden:")
    assert "storage.objects.get" in first
    assert hint.startswith("Hint: You need storage.objects.get and storage.objects.list on the bucket (roles/storage.")


def test_a_bucket_that_does_not_answer(launcher: Launcher) -> None:
    """Its server accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        began = time.monotonic()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        done = launcher("report", "gs://runs/demo", env={"STORAGE_EMULATOR_HOST": url})
        seconds = time.monotonic() - began
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines()[0] == ("Error: gs://runs/demo cannot be read: its storage did not answer within 15 s.")
    assert 15 <= seconds < 40  # with the start of a process on a busy machine
