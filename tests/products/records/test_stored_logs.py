"""Earlier attempts on this machine, and the link to Cloud Logging. tests/cluster/test_logs.py has runs of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from launcher import api
from launcher.backends.base import RunStatus, State
from launcher.backends.log_excerpt import WHOLE, Excerpt
from launcher.config.kinds import RunKind
from launcher.errors import LauncherError, UsageError
from launcher.products.records import logs


def status(kind: RunKind, folder: str, **changes: Any) -> RunStatus:
    return RunStatus("demo", "research", kind, State.SUCCEEDED, folder=folder, attempt=2, **changes)


def test_an_earlier_attempt_on_this_machine(tmp_path: Path) -> None:
    (tmp_path / "log.1.txt").write_text("one\ntwo\n")
    run = (cast(Any, None), status(RunKind.LOCAL, str(tmp_path)))

    def read(attempt: int | None, excerpt: Excerpt = WHOLE) -> Any:
        return logs.stored_log("demo", run, attempt=attempt, worker=None, excerpt=excerpt)

    assert list(read(1)) == ["one", "two"]
    assert list(read(1, Excerpt(tail=1))) == ["two"]
    assert (read(None), read(2)) == (None, None)  # the log of the backend
    with pytest.raises(LauncherError, match=r"^Attempt 3 was not found in .*; it has: 1\.$"):
        read(3)


def test_the_folder_of_a_run_on_this_machine(tmp_path: Path) -> None:
    for name, text in {"log.txt": "third\n", "log.1.txt": "first\n", "log.2.txt": "second\n"}.items():
        (tmp_path / name).write_text(text)
    assert list(api.logs(str(tmp_path))) == ["third"]
    assert [list(api.logs(str(tmp_path), attempt=number)) for number in (1, 2, 3)] == [["first"], ["second"], ["third"]]
    with pytest.raises(UsageError, match="one log for all its workers"):
        api.logs(str(tmp_path), worker=0)
    paths = api.download_logs(str(tmp_path), tmp_path / "copy")
    assert [path.read_text() for path in paths] == ["first\n", "second\n", "third\n"]


def test_the_logs_of_a_run_on_this_machine_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for name, text in {"log.txt": "second\n", "log.1.txt": "first\n"}.items():
        (folder / name).write_text(text)
    monkeypatch.setattr(logs, "find", lambda *_: (None, status(RunKind.LOCAL, str(folder))))
    paths = api.download_logs("demo", tmp_path / "copy")
    assert {path.relative_to(tmp_path / "copy"): path.read_text() for path in paths} == {
        Path("1/run.log"): "first\n",
        Path("2/run.log"): "second\n",
    }


def test_a_run_on_gke_has_a_link_to_cloud_logging() -> None:
    run = status(
        RunKind.RAY_JOB, "gs://runs/demo", context="gke_our-project_us-east5_lab", submitted="2026-11-01T09:00:00Z"
    )
    sentence = logs.cloud_logging(run)
    url = urlsplit(sentence.partition(": ")[2])
    assert (url.netloc, parse_qs(url.query)) == ("console.cloud.google.com", {"project": ["our-project"]})
    page = (Path(__file__).parents[3] / "docs/how-to/read-logs.md").read_text(encoding="utf-8")
    assert unquote(url.path.partition("query=")[2]).replace('"demo"', '"llama"') in page
    assert logs.cloud_logging(status(RunKind.RAY_JOB, "gs://runs/demo", context="kind-lab")) == ""


def test_a_download_on_gke_names_cloud_logging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = status(RunKind.JOB_SET, "pvc://runs/demo", context="gke_our-project_us-east5_lab")
    monkeypatch.setattr(logs, "find", lambda *_: (None, run))
    with pytest.raises(LauncherError) as refused:
        api.download_logs("demo", tmp_path)
    assert "kubectl run logs-demo" in refused.value.hint
    assert "https://console.cloud.google.com/logs/query;query=" in refused.value.hint
