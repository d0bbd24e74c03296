"""`submit` notifies of the end of a run that never started."""

from __future__ import annotations

import pytest

from tests.cluster.api import Api
from tests.cluster.launching import LauncherCli, until
from tests.unit.notification_servers import http


def test_a_queued_run_that_is_cancelled(cli: LauncherCli, admin: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    with http() as server:
        monkeypatch.setenv("SLIPWAY_NOTIFY", f"json {server.url}")
        submit = cli.start("submit", "-f", cli.values("job-set", "demo", queue={"name": ""}, team={"name": ""}))
        until(lambda: cli.runs(admin), 60)
        monkeypatch.delenv("SLIPWAY_NOTIFY")
        assert cli("cancel", "demo", "-n", cli.namespace).code == 0
        _, err = submit.communicate(timeout=60)
        assert submit.returncode == 1, err
    (body,) = server.bodies
    assert (body["event"], body["run"], body["namespace"], body["state"]) == (
        "ended",
        "demo",
        cli.namespace,
        "cancelled",
    )
