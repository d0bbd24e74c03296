"""Fixtures of the suite: the session that __main__ opened, and a team for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e import current, needs
from tests.e2e.cli import Cli
from tests.e2e.members import Member
from tests.e2e.teams import Session, Team


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "e2e: needs a cluster with Kueue, JobSet and KubeRay (make e2e)")
    config.addinivalue_line("markers", "needs(what): what the test needs of the cluster")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test if the cluster does not meet its needs."""
    if item.get_closest_marker("e2e") is None:
        return
    session = current.SESSION
    if session is None:
        pytest.skip("make e2e starts these tests")
    mark = item.get_closest_marker("needs")
    assert mark is not None, f"{item.name} does not have the marker needs"
    if unmet := needs.unmet_needs(mark.args[0], session.facts):
        session.skipped[item.nodeid] = unmet
        pytest.skip(needs.skip_reason(unmet))


@pytest.fixture(scope="session")
def session() -> Session:
    assert current.SESSION is not None
    return current.SESSION


@pytest.fixture
def team(session: Session, request: pytest.FixtureRequest) -> Iterator[Team]:
    """A team without queues. All its objects are removed after the test."""
    made = new_team(session)
    if session.chips:
        session.make_nodes()
    yield made
    made.remove()


def new_team(session: Session) -> Team:
    session.teams += 1
    name = f"{session.ident}-{session.teams}"
    # The account stays when the team's objects are removed, so its name does not contain the team's.
    return Team(session, name, Member(session.cli, session.ident, f"member-{session.teams}", name))


@pytest.fixture
def cli(session: Session) -> Cli:
    """The launcher as the cluster's administrator."""
    return session.cli


@pytest.fixture
def member(team: Team) -> Member:
    """The launcher as a member of the team."""
    return team.member
