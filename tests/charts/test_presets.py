"""Every preset with every chart that accepts it: all supported versions accept every object, and both Helms agree."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.charts import schemas
from tests.charts.presets import GKE, LOCAL, VALUES, VARIANTS, Render, renders
from tests.tools import tool


def test_every_supported_version_accepts_every_object(helm4: Path) -> None:
    faults: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    for render in renders(helm4):
        for obj in render.objects():
            kinds[obj["kind"]] += 1
            faults.update(f"{render.preset} as {render.variant}: {fault}" for fault in schemas.validate(obj))
    assert list(faults) == []
    assert set(kinds) >= {
        "RayJob",
        "JobSet",
        "RayCluster",
        "ResourceFlavor",
        "ClusterQueue",
        "LocalQueue",
        "Namespace",
        "RayService",
    }


def test_a_run_is_one_object(helm4: Path) -> None:
    """So creating a run is atomic, and deleting the object deletes all of the run."""
    found = [render for render in renders(helm4) if render.variant in VARIANTS]
    assert {len(render.objects()) for render in found} == {1}


def test_both_helms_render_the_same(helm4: Path) -> None:
    four, three = renders(helm4), renders(tool("helm3"))
    assert [(render.preset, render.variant) for render in four] == [(render.preset, render.variant) for render in three]
    assert [one.preset for one, other in zip(four, three, strict=True) if lines(one) != lines(other)] == []


def lines(render: Render) -> list[str]:
    """Return the rendered lines without empty ones, which differ between the two Helms."""
    return [line for line in render.text.splitlines() if line]


@pytest.mark.parametrize("group", ["models", "slices", "clusters", "queues", "serve", "tuned", "tutorials", "finetune"])
def test_every_preset_is_rendered(group: str, helm4: Path) -> None:
    files = {f"{group}/{file.stem}" for file in (VALUES / group).glob("*.yaml")}
    assert files
    assert files == {render.preset for render in renders(helm4) if render.group == group}


def test_only_quickstart_is_for_no_chart(helm4: Path) -> None:
    found = {file.relative_to(VALUES).with_suffix("").as_posix() for file in VALUES.rglob("*.yaml")}
    others = {preset for preset in found if not preset.startswith(GKE)}
    assert others - {render.preset for render in renders(helm4)} == LOCAL
