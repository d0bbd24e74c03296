"""A packaged chart is whole: from its .tgz it renders what it renders from its folder, the library inside."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.charts import docs
from tests.charts.helm import template

CHARTS = docs.CHECKOUT / "charts"


@pytest.mark.parametrize("chart", [chart.name for chart in docs.parents(CHARTS)])
def test_a_package_renders_as_its_folder(chart: str, helm: Path, tmp_path: Path) -> None:
    command = [str(helm), "package", str(CHARTS / chart), "--destination", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    (package,) = tmp_path.glob("*.tgz")
    with tarfile.open(package) as archive:
        names = archive.getnames()
    assert len(names) == len(set(names))
    assert f"{chart}/charts/common/Chart.yaml" in names, "the library is not inside"
    assert not [name for name in names if name.count("common/Chart.yaml") > 1 or "/charts/common/common" in name]
    given = sorted((CHARTS / chart / "ci").glob("*-values.yaml"))
    assert given, f"charts/{chart} has no ci/*-values.yaml"
    for file in given:
        assert template(helm, package, [file]) == template(helm, CHARTS / chart, [file])
