"""A member of a team: every verb works, and the policies of charts/queues refuse a run outside of the team's quota."""

from __future__ import annotations

import contextlib
import json

import pytest
import yaml

from tests.cluster.api import ApiError
from tests.e2e.members import Member
from tests.e2e.needs import needs
from tests.e2e.teams import ADMIT, PATHS, REMOVED, START, Session, Team

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

QUEUE = "kueue.x-k8s.io/queue-name"
# The verbs as `doctor` groups them by the rights that they need.
EVERYDAY = {"submit", "list, status, wait", "logs", "explain", "cancel", "delete"}


@needs(kueue="0.16", jobset="0.10", pods=True)
def test_a_member_uses_the_verbs_of_runs(team: Team, member: Member) -> None:
    team.install(team.slices(1))
    options = team.sleeper("works")
    assert member.query("check", *options, "--live", "-n", team.name) == []
    assert [change["action"] for change in member.query("diff", *options)["changes"]] == ["create"]
    member.query("submit", *options, "--dry-run")
    assert team.listed() == {}, "nothing was created yet"
    team.submit(options)
    team.becomes("works", "running", seconds=START)
    team.submit(team.sleeper("waits"))
    team.becomes("waits", "queued", seconds=ADMIT)
    assert "works" in member.query("explain", "waits", "-n", team.name)["headline"]
    assert member.query("cancel", "waits", "-n", team.name)["state"] == "cancelled"
    team.finish("works")
    assert member.query("wait", "works", "-n", team.name, "--timeout", "5m")["state"] == "succeeded"
    for run in ("works", "waits"):
        team.delete(run)
    member.wait("the records to go", lambda: team.listed() == {}, REMOVED, seen=lambda: str(list(team.listed())))
    found = json.loads(member.launcher("doctor", "-n", team.name, "-o", "json").out)
    rights = {finding["subject"]: finding["says"] for finding in found if finding["part"] == "your rights"}
    allowed = f"allowed in the namespace {team.name}."
    assert {verb for verb, says in rights.items() if says == allowed} >= EVERYDAY, rights


@needs(kueue="0.16", jobset="0.10", pods=True)
def test_the_policies_apply_to_the_member(session: Session, team: Team, member: Member) -> None:
    team.install(team.slices(1))
    (run,) = yaml.safe_load_all(member.launcher("render", *team.sleeper("free")).out)
    del run["metadata"]["labels"][QUEUE]
    path = f"{PATHS['job-set'].format(team.name)}?dryRun=All"
    with contextlib.closing(member.client()) as client:

        def refusal() -> str:
            try:
                client.request("POST", path, run)
            except ApiError as error:
                return str(error)
            return ""

        # The API server applies a new policy after a moment.
        refused = member.wait("the policy to refuse a run without a queue", refusal, ADMIT)
        assert f"{QUEUE} must be {team.name}" in refused
        for forbidden in (f"/api/v1/namespaces/{session.ident}/secrets", f"/api/v1/namespaces/{team.name}/secrets"):
            with pytest.raises(ApiError) as denied:
                client.get(forbidden)
            assert denied.value.status == 403
    session.api.request("POST", path, run)  # an administrator may create runs without a queue
