"""The charts contain copies of what they share, and no symbolic links."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.charts import copies, docs

CHARTS = docs.CHECKOUT / "charts"


def test_the_copies_are_up_to_date() -> None:
    assert copies.faults(CHARTS) == []


@pytest.mark.parametrize(
    ("change", "faults"),
    [
        (
            lambda charts: (charts / "run/values.yaml").write_text("a: 1\n"),
            ["charts/run/values.yaml does not follow from charts/_values.yaml; edit that one and run `make charts`."],
        ),
        (
            lambda charts: (charts / "serve/keys.yaml").unlink(),
            [
                "charts/serve/keys.yaml does not follow from charts/_values.schema.json; edit that one and "
                "run `make charts`."
            ],
        ),
        (
            lambda charts: (charts / "run/charts/slipway-common/templates/_more.tpl").write_text(""),
            ["charts/run/charts/slipway-common is not a copy of charts/common; edit that one and run `make charts`."],
        ),
        (
            lambda charts: (charts / "queues/charts/slipway-common/README.md").unlink(),
            [
                "charts/queues/charts/slipway-common is not a copy of charts/common; edit that one and run "
                "`make charts`."
            ],
        ),
        (
            lambda charts: (charts / "queues/link").symlink_to("values.yaml"),
            ["charts/queues/link is a symbolic link, which many tools drop; replace it with its target."],
        ),
    ],
)
def test_an_outdated_copy_and_a_link_are_reported(
    tmp_path: Path, change: Callable[[Path], None], faults: list[str]
) -> None:
    charts = tmp_path / "charts"
    shutil.copytree(CHARTS, charts)
    change(charts)
    assert copies.faults(charts) == faults
    copies.write(charts)
    assert copies.faults(charts) == [fault for fault in faults if "link" in fault]


def test_a_link_in_the_place_of_a_copy_is_replaced(tmp_path: Path) -> None:
    charts = tmp_path / "charts"
    shutil.copytree(CHARTS, charts)
    shutil.rmtree(charts / "run/charts/slipway-common")
    (charts / "run/charts/slipway-common").symlink_to("../../common")
    assert copies.outdated(charts) == ["run/charts/slipway-common"]
    copies.write(charts)
    assert copies.outdated(charts) == []
