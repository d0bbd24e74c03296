"""`launcher report` of runs on a real API server, with replayed recordings."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cluster import recordings
from tests.cluster.control_plane import ControlPlane
from tests.cluster.launching import PATHS, LauncherCli
from tests.cluster.replay import follow_as

PREEMPTED = "preempted-by-priority"
SECONDS = 26
"""At this time, the recorded run has been preempted and trains again."""


def test_a_run_that_was_preempted(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    """The times with and without chips are from the Workload and the Events; the run's claim cannot be read here."""
    cli = LauncherCli(control_plane.admin, namespace, tmp_path)
    storage = {"kind": "pvc", "bucket": "", "claim": "runs"}
    values = cli.values("job-set", queue={"name": "research"}, storage=storage)
    done = cli("submit", "-f", values, "--detach", "--force")
    assert done.code == 0, done.err
    live = control_plane.api.get(f"{PATHS['job-set'].format(namespace)}/demo")
    # The recorded run starts at this run's creation. Its changes must be in the past when the report is created.
    recorded = recordings.read(PREEMPTED)
    begun = next(one.t for one in recorded if one.obj["kind"] == "JobSet" and one.obj["metadata"]["name"] == "low-3")
    start = datetime.fromisoformat(live["metadata"]["creationTimestamp"]) - timedelta(seconds=begun)
    follow_as(control_plane, PREEMPTED, live, run="low-3", skip_queues=False, start=start).step_to(SECONDS)
    time.sleep(max(0.0, (start + timedelta(seconds=SECONDS) - datetime.now(UTC)).total_seconds()))
    page = tmp_path / "page.html"
    done = cli("report", "demo", "-n", namespace, "--out", str(page), "-o", "json")
    assert done.code == 0, done.err
    (row,) = done.json["runs"]
    assert (row["state"], row["step"], row["goodput"]) == ("running", None, None)
    assert row["held_seconds"] == pytest.approx(row["wall_seconds"] - row["queue_seconds"], abs=3)
    assert row["queue_seconds"] == pytest.approx(13, abs=3)
    assert any("a claim that only pods can mount" in one for one in row["missing"])
    assert any("known only to the user who submitted it" in one for one in row["missing"])
    text = page.read_text()
    assert "<td>preempted</td>" in text
    assert "Preempted to accommodate a workload" in text
