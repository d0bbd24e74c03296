"""The charts render the same from every kind of artifact: of Flux or Argo CD, a package, and an OCI registry."""

from __future__ import annotations

import fnmatch
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests import local_registry
from tests.charts import docs
from tests.charts.helm import template

CHARTS = docs.CHECKOUT / "charts"
PARENTS = docs.parents(CHARTS)
IDS = [chart.name for chart in PARENTS]

# Flux's source-controller leaves these patterns (github.com/fluxcd/pkg/sourceignore) out of an artifact, and everything
# that is not a regular file. We do not run it, because it needs a whole cluster of its own.
FLUX_IGNORES = (
    *(".gitignore", ".gitmodules", ".gitattributes", ".github/*", ".circleci/*", ".travis.yml", ".gitlab-ci.yml"),
    *("*.jpg", "*.jpeg", "*.gif", "*.png", "*.wmv", "*.flv", "*.tar.gz", "*.zip"),
    *("appveyor.yml", ".drone.yml", "cloudbuild.yaml", "codeship-services.yml", "codeship-steps.yml"),
    *(".goreleaser.yml", ".sops.yaml", ".flux.yaml"),
)


def ci_values(chart: Path) -> Path:
    """The values file of the chart's ci folder that renders the most."""
    return max((chart / "ci").glob("*-values.yaml"), key=lambda file: file.stat().st_size)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pack the files that Git knows as Flux does, and return the folder with the unpacked artifact."""
    folder = tmp_path_factory.mktemp("artifact")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate", "charts", "values"],
        cwd=docs.CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    with tarfile.open(folder / "artifact.tar.gz", "w:gz") as archive:
        for name in listed:
            file = docs.CHECKOUT / name
            ignored = any(fnmatch.fnmatch(part, rule) for rule in FLUX_IGNORES for part in (name, file.name))
            if file.is_file() and not file.is_symlink() and not ignored:
                archive.add(file, name)
    with tarfile.open(folder / "artifact.tar.gz") as archive:
        archive.extractall(folder / "unpacked", filter="data")
    return folder / "unpacked"


@pytest.mark.parametrize("chart", PARENTS, ids=IDS)
def test_a_chart_renders_from_an_artifact_of_flux(chart: Path, helm: Path, unpacked: Path) -> None:
    file = ci_values(chart)
    assert template(helm, unpacked / "charts" / chart.name, [file]) == template(helm, chart, [file])


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with local_registry.registry(tmp_path_factory.mktemp("registry")) as host:
        yield host


@pytest.mark.parametrize("chart", PARENTS, ids=IDS)
def test_a_chart_renders_from_a_registry(
    chart: Path, helm: Path, registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cache", "config", "data"):  # also not the user's credentials
        monkeypatch.setenv(f"HELM_{name.upper()}_HOME", str(tmp_path / name))
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    package = tmp_path / f"{about['name']}-{about['version']}.tgz"
    for command in (
        ["package", str(chart), "--destination", str(tmp_path)],
        ["push", str(package), f"oci://{registry}/charts", "--plain-http"],
    ):
        subprocess.run([str(helm), *command], check=True, capture_output=True)
    file = ci_values(chart)
    options = ("--version", about["version"], "--plain-http")
    rendered = template(helm, f"oci://{registry}/charts/{about['name']}", [file], *options)
    # Helm 4 first prints on stdout what it pulled.
    assert rendered[rendered.index("---\n") :] == template(helm, chart, [file])
