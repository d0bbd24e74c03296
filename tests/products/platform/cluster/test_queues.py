"""launcher queues against a real API server."""

from __future__ import annotations

from tests.cluster.launching import LauncherCli


def test_a_namespace_without_a_queue_is_named(cli: LauncherCli) -> None:
    result = cli("queues", "-n", "nosuch")
    assert (result.code, result.out) == (0, "")
    assert result.err == "The namespace nosuch does not exist, or has no LocalQueue; -A shows all queues.\n"
