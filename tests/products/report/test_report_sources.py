"""The places from which a report reads a run, and the sentences if a folder or a bucket cannot be read."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import fsspec  # type: ignore[import-untyped]  # it ships no types
import pytest

from launcher.backends.base import Backend, RunStatus, State
from launcher.backends.log_excerpt import WHOLE, Excerpt
from launcher.errors import LauncherError
from launcher.k8s.errors import Unreachable
from launcher.products.common.storage import is_path, read_bucket, read_folder
from launcher.products.report import sources
from launcher.products.report.model import LOSS
from launcher.trainer_output import EVENT_PREFIX, METRICS_PREFIX
from tests.bucket import bucket
from tests.products.sweeps.test_sweeps import FakeCluster

FILES = ("metrics.jsonl", "events.jsonl")
STARTED = '{"event": "loop_started", "time": "2026-11-01T10:00:10Z", "step": 0, "steps": 9, "devices": 4}'
RUN = RunStatus(
    "demo",
    "research",
    "ray-cluster",
    State.RUNNING,
    steps=9,
    submitted="2026-11-01T10:00:00Z",
    started="2026-11-01T10:00:05Z",
    folder="gs://runs/demo",
    context="lab",
)


def step(number: int, **more: object) -> str:
    return json.dumps({"step": number, "loss": 9.0 - number, "time": f"2026-11-01T10:00:{20 + number}Z", **more})


# --- folders and buckets ---


def test_a_folder_whose_file_cannot_be_read(tmp_path: Path) -> None:
    assert read_folder(tmp_path, FILES) == {}
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(LauncherError, match=r"/metrics\.jsonl cannot be read: Is a directory\."):
        read_folder(tmp_path, FILES)
    # The request for the last file succeeds, and that for the first one fails.
    (tmp_path / "events.jsonl").write_text("{}")
    with pytest.raises(LauncherError, match="cannot be read: IsADirectoryError: "):
        read_bucket(f"file://{tmp_path}", FILES)


def test_a_url_of_an_unknown_kind() -> None:
    with pytest.raises(LauncherError) as error:
        read_bucket("ftpx://runs/demo", FILES)
    assert str(error.value) == "ftpx://runs/demo is not the URL of a bucket that can be read; use a gs:// or s3:// URL."


@pytest.mark.parametrize(
    ("url", "library", "message", "hint"),
    [
        (
            "gs://r/demo",
            "gcsfs",
            "gcsfs is not installed in this Python",
            'launcher: pip install "slipway-launcher[report]"',
        ),
        ("s3://r/demo", "s3fs", "no library for s3:// is installed in this Python", "pip install s3fs"),
        (
            "gs://r/demo",
            "fsspec",
            "fsspec is not installed in this Python",
            'launcher: pip install "slipway-launcher[report]"',
        ),
    ],
)
def test_a_library_that_is_not_installed(
    url: str, library: str, message: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # an import of it fails
    # fsspec keeps the classes that an earlier test has imported.
    for scheme in ("gs", "s3"):
        monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, scheme, raising=False)
    with pytest.raises(LauncherError) as error:
        read_bucket(url, FILES)
    assert error.value.message == f"{url} cannot be read: {message}."
    assert error.value.hint.endswith(hint)


class RefusingStorage(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """Raises what the libraries of clouds raise. Their servers need accounts."""

    protocol = "refusing"
    cachable = False
    error: Exception = Exception()

    def cat(self, path: object, **_: object) -> object:
        raise self.error


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            RuntimeError("Reauthentication is needed.\nRun gcloud."),
            "because you are not logged in: Reauthentication is",
        ),
        (RuntimeError("Unable to locate credentials"), "because you are not logged in: Unable to locate credentials."),
        (RuntimeError(), "cannot be read: RuntimeError: RuntimeError."),
        (PermissionError(13, "Access Denied"), "You may not read refusing://runs/demo: [Errno 13] Access Denied."),
    ],
)
def test_a_bucket_that_refuses(error: Exception, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.register_implementation("refusing", RefusingStorage, clobber=True)
    monkeypatch.setattr(RefusingStorage, "error", error)
    with pytest.raises(LauncherError) as refused:
        read_bucket("refusing://runs/demo", FILES)
    assert message in refused.value.message
    assert "gcloud" not in refused.value.hint  # it is not a bucket of Google Cloud


# --- runs on a cluster ---


class LoggingBackend(FakeCluster):
    """Answers with the log and the config of one run, as a long-lived Ray cluster does: without an object."""

    def __init__(self, *lines: str | LauncherError) -> None:
        super().__init__([RUN])
        self.lines = lines

    def logs(self, name: str, *, follow: bool, worker: int | None, excerpt: Excerpt = WHOLE) -> Iterator[str]:
        for line in self.lines:
            if isinstance(line, LauncherError):
                raise line
            yield line

    def config_of(self, name: str) -> Mapping[str, Any]:
        return {"run": {"name": name}, "train": {"steps": 9}}


@contextmanager
def stored(
    root: Path, monkeypatch: pytest.MonkeyPatch, files: Mapping[str, Sequence[str]], status: int = 200
) -> Iterator[None]:
    """Answer requests to Cloud Storage with these files of the run."""
    import gcsfs  # type: ignore[import-untyped]  # it ships no types

    (root / "runs" / "demo").mkdir(parents=True)
    for name, lines in files.items():
        (root / "runs" / "demo" / name).write_text("".join(f"{line}\n" for line in lines))
    with bucket(root, status) as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        gcsfs.GCSFileSystem.clear_instance_cache()
        yield
    gcsfs.GCSFileSystem.clear_instance_cache()


def read(backend: Any, status: RunStatus = RUN, say: Callable[[str], None] = lambda _: None) -> Any:
    return sources._of_cluster(cast(Backend, backend), status, say)


def test_a_run_of_a_cluster_is_read_from_its_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"metrics.jsonl": [step(0), step(1), '{"step": 2, "lo'], "events.jsonl": [STARTED]}
    with stored(tmp_path, monkeypatch, files):
        found = read(LoggingBackend(LauncherError("the log is not needed")))
    assert found.source.startswith("Its folder gs://runs/demo. ")
    assert (found.metrics.of(LOSS).last, found.chips, found.config["train"]) == (8.0, 4, {"steps": 9})
    assert [span.phase.name for span in found.spans][-1] == "TRAINING"
    assert not [sentence for sentence in found.missing if "log" in sentence]
    assert any("1 line of its metrics cannot be read" in note for note in found.metrics.notes)


def test_a_bucket_without_metrics_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with stored(tmp_path, monkeypatch, {}):
        assert "gs://runs/demo has no metrics.jsonl yet." in read(LoggingBackend()).missing


def test_a_bucket_that_cannot_be_read_is_replaced_by_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    lines = [EVENT_PREFIX + STARTED, f"(worker) {METRICS_PREFIX}{step(3)}", METRICS_PREFIX + step(4), "other"]
    with stored(tmp_path, monkeypatch, {}, status=403):
        found = read(LoggingBackend(*lines), say=messages.append)
    assert found.source.startswith("Its log. ")
    assert found.metrics.of(LOSS).last == 5.0
    assert len(messages) == 1
    assert messages[0].startswith("demo: You may not read gs://runs/demo: ")
    assert "Read from its log instead." in found.missing[0]
    assert found.missing[1].startswith("Its log does not begin at its first step")


def test_a_log_that_is_cut_off_keeps_the_steps_before() -> None:
    backend = LoggingBackend(METRICS_PREFIX + step(0), Unreachable("The API server does not answer."))
    found = read(backend, replace(RUN, folder="pvc://claim/demo"))
    assert found.metrics.of(LOSS).last == 9.0
    assert "Its log cannot be read, so its steps are not known: The API server does not answer." in found.missing


def test_lines_in_a_log_that_are_not_steps_do_not_end_the_report() -> None:
    lines = [METRICS_PREFIX + step(0), *(f'{METRICS_PREFIX}{{"step": {wrong}}}' for wrong in ("null", '"x"', "[1]"))]
    found = read(LoggingBackend(*lines), replace(RUN, folder="pvc://claim/demo"))
    assert found.metrics.of(LOSS).last == 9.0


def test_a_run_that_is_deleted_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = LoggingBackend(METRICS_PREFIX + step(0))
    backend.cluster = cast(Any, SimpleNamespace(get=lambda *_: None))
    found = read(backend, replace(RUN, kind="ray-job", folder="pvc://claim/demo"))
    assert found.metrics.of(LOSS).last == 9.0
    assert "Its object no longer exists: it was deleted meanwhile." in found.missing
    assert found.config == {}


def test_a_name_with_its_kind_is_not_a_folder() -> None:
    assert not is_path("run/demo")
    assert not is_path("sweep/lr")
    assert is_path("runs/demo")
