"""launcher/k8s/lazy_imports.py depends on the inside of the kubernetes client: each supported release is tested."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.prerequisites import require

UV = Path(sys.executable).with_name("uv")


@pytest.mark.parametrize("release", ["37.0.0", "37.0.2"])  # the oldest and the newest; .venv has the one between
def test_the_kubeconfig_tests_pass_with_the_release(release: str, tmp_path: Path) -> None:
    package = f"kubernetes=={release}"
    command = [str(UV), "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path), package]
    installed = subprocess.run(command, capture_output=True, text=True)
    require(
        installed.returncode == 0,
        f"{package} cannot be installed. Connect to a package index: {installed.stderr.strip()}",
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit/test_kubeconfig.py"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:]
