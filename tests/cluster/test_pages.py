"""The commands that pages show for a cluster, page by page, with a real API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.docs.cluster import ClusterSession, queues_of_their_own
from tests.docs.laptop import FreshMachine
from tests.docs.pages import Page, pages, runs_in_cluster

SHOWN = [page for page in pages() if any(map(runs_in_cluster, page.blocks))]


@pytest.mark.parametrize("shown", SHOWN, ids=[page.name for page in SHOWN])
def test_a_page_shows_the_real_output(shown: Page, control_plane: ControlPlane, tmp_path: Path) -> None:
    session = ClusterSession(control_plane, FreshMachine.set_up(tmp_path))
    if any("cluster" in block.options for block in shown.blocks):
        with queues_of_their_own(control_plane):
            session.follow(shown)
    else:
        session.follow(shown)
