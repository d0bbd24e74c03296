"""gke.kueueConfig: what is merged into Kueue's configuration, and when it is applied."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.errors import LauncherError
from launcher.products.gke import kueue_config
from launcher.products.gke.kueue_config import Live

TEXT = """# Ours.
fairSharing:
  preemptionStrategies: [LessThanInitialShare] # strict
clientConnection: {qps: 50, burst: 100}
metrics: {bindAddress: ':8443'}
"""


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({}, TEXT),
        ({"fairSharing": {}}, TEXT),
        ({"clientConnection": {"burst": 100}}, TEXT),
        ({"clientConnection": {"burst": 200}}, TEXT.replace("100", "200")),
        ({"waitForPodsReady": {"timeout": "2h"}}, TEXT + "waitForPodsReady:\n  timeout: 2h\n"),
    ],
)
def test_all_other_keys_and_comments_stay(keys: dict[str, Any], text: str) -> None:
    assert kueue_config.merged(TEXT, keys) == text


@pytest.mark.parametrize("text", ["a: [", "- a"])
def test_a_configuration_that_is_not_a_map(text: str) -> None:
    with pytest.raises(LauncherError, match="kueue-system/kueue-manager-config"):
        kueue_config.merged(text, {"fairSharing": {}})


READ = kueue_config.digest(TEXT)


@pytest.mark.parametrize(
    ("keys", "found", "upgrade", "applied"),
    [
        ({}, Live(TEXT), True, False),  # the new version has its own default
        ({}, Live(TEXT, edited=True), True, True),
        ({}, Live(TEXT, edited=True), False, False),
        ({"fairSharing": {}}, Live(TEXT, read=READ), False, False),
        ({"fairSharing": {}}, Live(TEXT, read="other"), False, True),  # up was interrupted before the restart
        ({"fairSharing": {}}, Live(TEXT, read=READ), True, True),
        ({"resources": {}}, Live(TEXT, read=READ), False, True),
        ({"fairSharing": {}}, Live(), True, False),  # Kueue is not installed yet
    ],
)
def test_when_it_is_applied(keys: dict[str, Any], found: Live, upgrade: bool, applied: bool) -> None:
    assert bool(kueue_config.wanted(keys, found, upgrade=upgrade)) is applied


@pytest.mark.parametrize(
    ("manager", "operation", "edited"),
    [("kubectl", "Apply", False), ("kubectl-edit", "Update", True), ("slipway", "Apply", True)],
)
def test_who_wrote_it(manager: str, operation: str, edited: bool) -> None:
    fields: Any = {"f:data": {".": {}, f"f:{kueue_config.FILE}": {}}}
    others = {"manager": "labeller", "operation": "Update", "fieldsV1": {"f:metadata": {"f:labels": {}}}}
    managers = [others, {"manager": manager, "operation": operation, "fieldsV1": fields}]
    found = {**kueue_config.config_map(TEXT), "metadata": {"managedFields": managers}}
    assert kueue_config.live(found, None) == Live(TEXT, edited)
