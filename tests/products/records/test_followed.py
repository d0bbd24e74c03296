"""The end of a run that a process follows is notified of once, by that process or by the trainer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher import hooks
from launcher.backends.base import RunStatus, State
from tests.unit.notification_servers import http

TIMES = {"submitted": "2026-11-21T12:00:00Z", "started": "2026-11-21T12:01:00Z"}


def run(folder: Path | str, **fields: object) -> RunStatus:
    known = {"name": "demo", "namespace": "", "kind": "local", "state": State.FAILED, "reason": "Its host was lost."}
    return RunStatus(**{**known, **TIMES, "folder": str(folder), **fields})  # type: ignore[arg-type]


def test_a_run_whose_trainer_left_no_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLIPWAY_NOTIFY", raising=False)
    monkeypatch.delenv("SLIPWAY_NOTIFY_FILE", raising=False)
    folder = tmp_path / "demo"
    (folder / "notified").mkdir(parents=True)
    assert hooks.ended(run(folder)) == []  # no address is set, so nothing is sent
    with http() as server:
        addresses = tmp_path / "addresses.txt"
        addresses.write_text(f"json {server.url}\n")
        monkeypatch.setenv("SLIPWAY_NOTIFY_FILE", str(addresses))
        assert hooks.ended(run(folder, state=State.RUNNING)) == []
        assert server.requests == []
        assert hooks.ended(run(folder)) == []
        (folder / "notified/ended-1.json").write_text(json.dumps({"time": "2026-11-21T13:00:00Z", "state": "sent"}))
        assert hooks.ended(run(folder)) == []
        # The trainer of a run that started has probably notified, if its folder cannot be read.
        queued = {"namespace": "research", "kind": "job-set", "state": State.CANCELLED, "started": None}
        assert hooks.ended(run("", **{**queued, "started": TIMES["started"]})) == []
        assert hooks.ended(run("", **queued)) == []
    assert [(body["event"], body["state"]) for body in server.bodies] == [("ended", "failed"), ("ended", "cancelled")]
    assert server.bodies[0]["text"] == "Run demo has failed. Its host was lost."


def test_an_address_that_does_not_answer_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with http((403,)) as server:
        monkeypatch.setenv("SLIPWAY_NOTIFY", f"json {server.url}/secret")
        (problem,) = hooks.ended(run(tmp_path / "demo"))
    assert problem.startswith("The notification ended of demo was not sent to line 1 (json) of the addresses: ")
    assert "secret" not in problem
