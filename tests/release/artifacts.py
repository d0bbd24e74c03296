"""Builds the files of a release in dist/: sdist, wheel, charts, SBOM, constraints, checksums, and their signature."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

import yaml

from tests.charts.docs import parents
from tests.release import changelog
from tests.release.programs import run
from tests.release.rehearsal import rehearse
from tests.release.signing import Signer
from tests.release.versions import ReleaseError
from tests.tools import tool

SUMS = "SHA256SUMS"


def build(root: Path, version: str) -> list[Path]:
    """Build the release in dist/, which is emptied first, and return its files.

    The charts are also pushed to a registry on this machine, signed, verified and pulled, as the workflow does it with
    the public registry. Raises ReleaseError.
    """
    dist = root / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    # --no-isolation: the build uses the tested version of Hatchling, of this environment.
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist), str(root)])
    shutil.copy(root / "docker/constraints.txt", dist / "constraints.txt")
    charts = [package_chart(chart, version, dist) for chart in parents(root / "charts")]
    [wheel] = dist.glob("*.whl")
    sbom = write_sbom(root, wheel, dist / f"slipway-launcher-{version}.spdx.json")
    files = sorted(dist.iterdir())
    (dist / SUMS).write_text("".join(f"{_digest(file)}  {file.name}\n" for file in files), encoding="utf-8")
    # Not part of the release's files: the text of the release's page.
    (dist / "notes.md").write_text(changelog.notes((root / "CHANGELOG.md").read_text(encoding="utf-8"), version))
    with tempfile.TemporaryDirectory() as folder:
        signer = Signer.create(Path(folder), os.environ.get("COSIGN_KEY"))
        signer.sign_file(dist / SUMS, dist / f"{SUMS}.sigstore.json")
        signer.verify_file(dist / SUMS, dist / f"{SUMS}.sigstore.json")
        rehearse(charts, sbom, signer, Path(folder))
        shutil.copy(signer.public_key, dist / "cosign.pub")
    return sorted(dist.iterdir())


def package_chart(chart: Path, version: str, dist: Path) -> Path:
    """Write the archive of a chart, as `helm package` makes it, and return its path. Raises ReleaseError."""
    run([str(tool("helm")), "package", str(chart), "--app-version", version, "--destination", str(dist)])
    name = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))["name"]
    made = dist / f"{name}-{version}.tgz"
    if not made.is_file():
        raise ReleaseError(f"helm package did not write {made.name}; has {chart.name}/Chart.yaml another version?")
    return made


def write_sbom(root: Path, wheel: Path, file: Path) -> Path:
    """Write the list of the packages (SPDX) that an installation of the wheel consists of, at the tested versions."""
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder, "environment")
        run([sys.executable, "-m", "venv", "--without-pip", str(environment)])
        constraints = ["--constraints", str(root / "docker/constraints.txt")]
        python = ["--python", str(environment / "bin/python")]
        run([str(root / ".venv/bin/uv"), "pip", "install", "--quiet", *python, *constraints, str(wheel)])
        about = ["--source-name", "slipway-launcher", "--quiet", "--output", f"spdx-json={file}"]
        run([str(tool("syft")), "scan", f"dir:{environment}", *about], {"SYFT_CHECK_FOR_APP_UPDATE": "false"})
    listed = {package["name"] for package in json.loads(file.read_text(encoding="utf-8"))["packages"]}
    if not {"slipway-launcher", "click", "kubernetes"} <= listed:
        raise ReleaseError(f"{file.name} does not list the launcher and its dependencies.")
    return file


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
