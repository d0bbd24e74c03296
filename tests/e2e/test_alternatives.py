"""`slice.any` and `launcher simulate` in front of the cluster's own Kueue, as a member of the team."""

from __future__ import annotations

import pytest

from tests.e2e.members import Member
from tests.e2e.needs import needs
from tests.e2e.teams import ADMIT, REMOVED, START, Team

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

HOUR = 3600.0


@needs(kueue="0.16", jobset="0.10", pods=True)
def test_the_alternative_with_free_quota_runs_and_simulate_expects_the_next_start(team: Team, member: Member) -> None:
    team.install(team.slices(2))
    limited = ("--set", f"run.deadlineSeconds={HOUR:.0f}")
    team.submit(team.sleeper("holder"), *limited)
    team.becomes("holder", "running", seconds=START)
    # One of the two slices is free, so the first alternative would wait.
    alternatives = member.values(f"{team.name}-alternatives", {"slice": {"any": [{"count": 2}, {"count": 1}]}})
    flexible = [*team.sleeper("flexible"), "-f", alternatives]
    dry = member.launcher("submit", *flexible, "--dry-run")
    assert dry.code == 0, str(dry)
    assert "alternative 2 of 2" in dry.err
    team.submit(flexible, *limited)
    team.becomes("flexible", "running", seconds=START)
    assert len(team.pods("flexible")) == len(team.pods("holder")), "the alternative with one slice runs"

    team.submit(team.sleeper("waits", 2))
    team.becomes("waits", "queued", seconds=ADMIT)
    expected = {run["name"]: run for run in member.query("simulate", "-n", team.name)["runs"]}
    assert {name: run["state"] for name, run in expected.items()} == {
        "holder": "running",
        "flexible": "running",
        "waits": "waiting",
    }
    assert expected["holder"]["takes"]["source"] == "deadline"
    assert set(expected["waits"]["waits_for"]) & {"holder", "flexible"}, expected["waits"]
    assert 0 < expected["waits"]["starts"]["seconds"] <= HOUR
    for run in ("holder", "flexible"):
        member.query("cancel", run, "-n", team.name)
    team.becomes("waits", "running", seconds=START)
    member.query("cancel", "waits", "-n", team.name)
    team.becomes("waits", "cancelled", seconds=REMOVED)
