"""The sdist, and the wheel that is built from it, as `python -m build` does: an installed `launcher` needs no checkout.

The wheel is installed into an environment of its own with the launcher's few dependencies, and without the trainer's.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from launcher import plugins
from tests.tools import tool

CHECKOUT = Path(__file__).parents[1]
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the sdist and the wheel."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(CHECKOUT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def installed(built: Path) -> Path:
    """Return an environment with only the wheel and its dependencies, at the tested versions."""
    environment = built / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    [wheel] = built.glob("*.whl")
    command = [str(CHECKOUT / ".venv/bin/uv"), "pip", "install", "--quiet", "--python", str(environment / "bin/python")]
    command += ["--constraints", str(CHECKOUT / "docker/constraints.txt"), str(wheel)]
    # `make setup` installed the same versions, so uv usually has them in its cache.
    if subprocess.run([*command, "--offline"], capture_output=True, check=False).returncode:
        subprocess.run(command, check=True)
    return environment


def site(environment: Path) -> Path:
    return environment / "lib" / PYTHON / "site-packages"


def launcher(
    environment: Path, cwd: Path, *arguments: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    own = {**os.environ, "SLIPWAY_HOME": str(cwd / "home"), "KUBECONFIG": os.devnull}
    return subprocess.run(
        [environment / "bin/launcher", *arguments],
        cwd=cwd,
        env={**own, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )


def tracked(*folders: str) -> set[str]:
    """Return the files of these folders in git that are files of a chart, a preset or the image."""
    listed = subprocess.run(
        ["git", "ls-files", *folders], cwd=CHECKOUT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return {name for name in listed if (CHECKOUT / name).is_file() and name.count("/") > (name.startswith("charts/"))}


def test_the_sdist_and_the_wheel_hold_charts_presets_and_the_image(built: Path, installed: Path) -> None:
    wanted = tracked("charts", "values", "docker")
    assert len(wanted) > 80
    data = site(installed) / "launcher" / "_data"
    assert {name for name in wanted if not (data / name).is_file()} == set()
    [sdist] = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        members = {name.partition("/")[2] for name in archive.getnames()}
    assert wanted - members == set()
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml"} <= members
    for chart in (data / "charts").glob("*/Chart.yaml"):
        if "dependencies:" in chart.read_text():
            assert (chart.parent / "charts/slipway-common/values.yaml").is_file(), f"{chart} has no library"


def test_the_metadata(installed: Path) -> None:
    [found] = importlib.metadata.distributions(name="slipway-launcher", path=[str(site(installed))])
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    metadata = found.metadata
    assert (metadata["Name"], metadata["Version"]) == ("slipway-launcher", project["version"])
    # pip and uv print this range if the Python is another one.
    assert set(metadata["Requires-Python"].split(",")) == {">=3.12", "<3.13"}
    assert metadata.get_all("Provides-Extra") == sorted(project["optional-dependencies"])
    assert [entry.name for entry in found.entry_points.select(group="console_scripts")] == ["launcher"]
    products = {path.parent.name for path in (CHECKOUT / "launcher/products").glob("*/product.py")}
    assert {entry.name for entry in found.entry_points.select(group=plugins.GROUP)} == products
    assert (site(installed) / "launcher/py.typed").is_file()
    # The light install: none of the trainer's packages.
    assert not {"ray", "jax", "maxtext", "numpy"} & {path.name for path in site(installed).iterdir()}


def test_charts_and_presets_are_found_from_any_folder(installed: Path, tmp_path: Path) -> None:
    done = launcher(installed, tmp_path, "values", "--all", "-f", "quickstart", "--origins", "-o", "json")
    assert done.returncode == 0, done.stderr
    files = {row["file"] for row in json.loads(done.stdout)}
    assert files
    assert all(str(installed) in str((tmp_path / file).resolve()) for file in files), files
    preset = ["-f", "tutorials/llama3-8b-v6e-16", "--name", "llama", "--set", "image.repository=example.com/trainer"]
    preset += ["--set", "storage.bucket=lab-runs"]
    done = launcher(installed, tmp_path, "render", *preset, env={"SLIPWAY_HELM": str(tool("helm"))})
    assert (done.returncode, done.stderr) == (0, "")
    assert "kind: RayJob" in done.stdout


def test_a_local_run_is_planned_without_the_trainer(installed: Path, tmp_path: Path) -> None:
    done = launcher(installed, tmp_path, "submit", "-f", "quickstart", "--dry-run", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["accelerator"]["hosts"] == 2
    assert 'Would start the run "quickstart" on this machine' in done.stderr
    assert 'pip install "slipway-launcher[train]"' in done.stderr
    done = launcher(installed, tmp_path, "submit", "-f", "quickstart")
    assert done.returncode == 1
    assert done.stderr.endswith('Hint: Install it next to the launcher: pip install "slipway-launcher[train]"\n')


def test_every_verb_loads_without_the_extras(installed: Path, tmp_path: Path) -> None:
    code = "from launcher.cli.main import cli; [cli.get_command(None, verb) for verb in cli.list_commands(None)]"
    subprocess.run([installed / "bin/python", "-c", code], cwd=tmp_path, check=True)
    done = launcher(installed, tmp_path, "report", "demo")
    assert done.returncode == 1
    assert done.stderr.endswith('Hint: Install it next to the launcher: pip install "slipway-launcher[report]".\n')


def test_doctor_without_the_trainer_reports_no_problem(installed: Path, tmp_path: Path) -> None:
    done = launcher(installed, tmp_path, "doctor")
    assert done.returncode == 0, done.stdout
    assert "  warning  training here  not possible: ray, maxtext and jax are not installed.\n" in done.stdout


def test_the_trainer_of_the_wheel_checks_a_run(installed: Path, tmp_path: Path) -> None:
    """With the packages of this environment, which has the extra `train`."""
    done = subprocess.run(
        [sys.executable, "-m", "launcher", "submit", "-f", "quickstart", "--dry-run", "-o", "json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site(installed)), "SLIPWAY_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "slipway-launcher" not in done.stderr
