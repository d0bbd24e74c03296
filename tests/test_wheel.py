"""The built wheel: `launcher` works outside of a checkout, because the wheel contains charts, presets and trainer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the wheel's content, as an installer unpacks it."""
    folder = tmp_path_factory.mktemp("wheel")
    uv = CHECKOUT / ".venv/bin/uv"
    subprocess.run(
        [uv, "build", "--quiet", "--wheel", "--out-dir", str(folder), str(CHECKOUT)], check=True, capture_output=True
    )
    [wheel] = folder.glob("*.whl")
    target = folder / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


def launcher(installed: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "launcher", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(installed), "SLIPWAY_HOME": str(cwd / "home")},
        capture_output=True,
        text=True,
    )


def test_presets_and_chart_defaults_are_in_the_wheel(installed: Path, tmp_path: Path) -> None:
    done = launcher(installed, tmp_path, "values", "--all", "-f", "quickstart.yaml", "--origins", "-o", "json")
    assert done.returncode == 0, done.stderr
    files = {row["file"] for row in json.loads(done.stdout)}
    assert files
    assert all(str(installed) in str((tmp_path / file).resolve()) for file in files), files


def test_a_run_is_planned_and_checked_by_the_trainer_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    done = launcher(installed, tmp_path, "submit", "-f", "quickstart.yaml", "--dry-run", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["accelerator"]["hosts"] == 2


def test_charts_are_complete_in_the_wheel(installed: Path) -> None:
    """Hatchling omits symlinked folders without a message. The library chart must be in each chart that uses it."""
    charts = installed / "launcher" / "_data" / "charts"
    for parent in (path for path in (CHECKOUT / "charts").iterdir() if (path / "charts").is_dir()):
        assert (charts / parent.name / "charts" / "common" / "values.yaml").is_file()
    tracked = subprocess.run(
        ["git", "ls-files", "charts", "values", "docker"], cwd=CHECKOUT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    missing = [
        name
        for name in tracked
        if not (CHECKOUT / name).is_symlink() and not (installed / "launcher" / "_data" / name).is_file()
    ]
    assert missing == []
