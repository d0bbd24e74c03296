"""A packaged chart is complete: it contains the library, and the .tgz renders the same as the folder."""

from __future__ import annotations

import shutil
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
        files = {name: archive.extractfile(name) for name in names}
        texts = {name: file.read() for name, file in files.items() if file is not None}
    assert len(names) == len(set(names))
    library, inside = CHARTS / "common", f"slipway-{chart}/charts/slipway-common"
    for file in [library / "values.yaml", library / "values.schema.json", *(library / "templates").iterdir()]:
        assert texts[f"{inside}/{file.relative_to(library)}"] == file.read_bytes()
    assert [name for name in names if name.endswith("common/Chart.yaml")] == [f"{inside}/Chart.yaml"]
    values_files = sorted((CHARTS / chart / "ci").glob("*-values.yaml"))
    assert values_files, f"charts/{chart} has no ci/*-values.yaml"
    for file in values_files:
        assert template(helm, package, [file]) == template(helm, CHARTS / chart, [file])


@pytest.mark.parametrize("chart", [chart.name for chart in docs.parents(CHARTS)])
def test_helm_dependency_build_finds_the_library_and_changes_no_file(chart: str, helm: Path, tmp_path: Path) -> None:
    """chart-testing (ct lint) runs it first."""
    folder = tmp_path / chart
    shutil.copytree(CHARTS / chart, folder)
    subprocess.run([str(helm), "dependency", "build", str(folder)], check=True, capture_output=True)
    (folder / "Chart.lock").unlink()
    assert _content(folder) == _content(CHARTS / chart)


def _content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
