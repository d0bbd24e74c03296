"""A platform team's queues: install them from a values file, install them again, and remove them completely."""

from __future__ import annotations

import pytest

from tests.e2e import leftovers
from tests.e2e.cli import Cli
from tests.e2e.members import Member
from tests.e2e.needs import needs
from tests.e2e.teams import ADMIT, KUEUE, REMOVED, START, Session, Team

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]


@needs(kueue="0.16")
def test_queues_are_installed_and_active(session: Session, team: Team) -> None:
    made = team.install(team.slices(preemption=True))
    assert made["notReady"] == []
    queue = session.api.get(f"{KUEUE}/clusterqueues/{team.name}")
    active = next(one for one in queue["status"]["conditions"] if one["type"] == "Active")
    assert active["status"] == "True", active["message"]
    local = session.api.get(f"{KUEUE}/namespaces/{team.name}/localqueues/{team.name}")
    assert local["spec"]["clusterQueue"] == team.name
    again = team.install(team.values)
    assert again["notReady"] == []
    assert [change for change in again["changes"] if change["action"] != "same"] == []


@needs(kueue="0.16")
def test_a_changed_quota_is_an_upgrade(session: Session, team: Team) -> None:
    team.install(team.slices(2))
    before = _quota(session, team)
    team.install(team.slices(3))
    assert _quota(session, team) != before


@needs(kueue="0.16", jobset="0.10", pods=True, rights=("list everything",))
def test_uninstall_leaves_nothing(session: Session, team: Team, cli: Cli) -> None:
    """Checks all kinds of the cluster, namespaced and cluster-scoped."""
    assert leftovers.mentions(session.api, team.name) == []
    team.install(team.slices())
    assert leftovers.mentions(session.api, team.name) != []
    team.submit(team.sleeper("works"))
    team.becomes("works", "running", seconds=START)
    refused = cli.launcher("uninstall", team.name, "-n", session.ident, "--yes")
    assert refused.code == 1, str(refused)
    assert f"{team.name}/works" in refused.err, "uninstall names the run that needs the queues"
    team.member.query("cancel", "works", "-n", team.name)
    team.becomes("works", "cancelled", seconds=REMOVED)
    team.delete("works")
    cli.wait("the run's Workload to go", lambda: not _workloads(session, team), REMOVED)
    removed = team.uninstall()
    assert removed["left"] == []
    # The team's namespace is kept, as the page on releases documents, because users can have objects in it.
    assert removed["kept"] == [f"Namespace {team.name}"]
    session.api.delete(f"/api/v1/namespaces/{team.name}")
    cli.wait(
        "all objects of the team to be removed",
        lambda: leftovers.mentions(session.api, team.name) == [],
        REMOVED,
        seen=lambda: ", ".join(leftovers.mentions(session.api, team.name)),
    )


@needs(kueue="0.16", jobset="0.10", pods=True)
def test_what_never_fits_is_refused_with_the_change_that_would_help(team: Team, member: Member) -> None:
    team.install(team.slices(2))
    refused = member.launcher("submit", *team.sleeper("large", 3), "--detach")
    assert refused.code == 1, str(refused)
    assert refused.err.startswith(("Error:", "Submitting")), refused.err
    assert "Traceback" not in refused.err
    assert team.listed() == {}
    # With --force the run is queued, and explain gives the reason.
    team.submit(team.sleeper("large", 3), "--force")
    team.becomes("large", "queued", seconds=ADMIT)
    explanation = member.query("explain", "large", "-n", team.name)
    assert explanation["suggestions"], explanation


def _quota(session: Session, team: Team) -> list[object]:
    queue = session.api.get(f"{KUEUE}/clusterqueues/{team.name}")
    return [
        resource["nominalQuota"]
        for group in queue["spec"]["resourceGroups"]
        for flavor in group["flavors"]
        for resource in flavor["resources"]
    ]


def _workloads(session: Session, team: Team) -> list[object]:
    return list(session.api.items(f"{KUEUE}/namespaces/{team.name}/workloads"))
