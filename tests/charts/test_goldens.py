"""The presets render what was last reviewed; `make goldens` writes the golden files again."""

from __future__ import annotations

from pathlib import Path

from tests.charts.goldens import FOLDER, goldens, readable
from tests.charts.presets import Render, renders


def test_the_presets_render_what_was_reviewed(helm4: Path) -> None:
    now = goldens(renders(helm4))
    reviewed = {file.name: file.read_text() for file in FOLDER.iterdir()}
    assert sorted(now) == sorted(reviewed), "run `make goldens` and review what it changes"
    assert [name for name, text in now.items() if text != reviewed[name]] == [], "run `make goldens` and review"


def test_goldens_are_small_enough_to_review() -> None:
    assert max(len(file.read_text().splitlines()) for file in FOLDER.iterdir()) < 2000


OBJECT = """
apiVersion: ray.io/v1
kind: RayCluster
metadata:
  labels: {helm.sh/chart: ray-cluster-1.2.3-rc.1}
  annotations: {slipway.dev/run-config: '{"run":{"name":"a"}}'}
"""


def test_a_golden_shows_the_run_config_and_no_version() -> None:
    text = readable(Render("x", "ray-job", OBJECT))
    assert "helm.sh/chart: ray-cluster-0.0.0\n" in text
    assert text.endswith("---\nslipway.dev/run-config:\n  run:\n    name: a\n")
