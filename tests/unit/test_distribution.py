"""The installed package: its version, and the command in a hint that installs an extra."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from launcher import api, distribution, paths
from launcher.errors import LauncherError
from tests.coverage_by_package import unmeasured

ROOT = Path(__file__).parents[2]


def test_the_name_and_the_version_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (distribution.NAME, distribution.version()) == (project["name"], project["version"])


@pytest.mark.parametrize(
    ("marker", "command"),
    [("uv-receipt.toml", "uv tool install"), ("pipx_metadata.json", "pipx install --force"), ("", "pip install")],
)
def test_a_hint_uses_the_tool_that_made_the_environment(
    marker: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    if marker:
        (tmp_path / marker).touch()
    assert distribution.install("train") == f'{command} "slipway-launcher[train]"'


def test_no_package_imports_modules_at_each_start_of_python() -> None:
    """A .pth file can do that: pynvml 13 imported 70 modules (docs/decisions/0013-pinned-extras.md)."""
    code = "import sys; print(*{'inspect', 'tempfile', 'importlib.abc', 'typing'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=unmeasured(os.environ), capture_output=True, text=True, check=True
    )
    assert done.stdout == "\n"


def test_the_api_lists_only_public_names() -> None:
    assert dir(api) == sorted(api.__all__)


def test_one_file_needs_no_list() -> None:
    assert api.values("quickstart").tree == api.values(["quickstart"]).tree
    file = paths.presets_dir() / "quickstart.yaml"
    assert api.values(file).tree == api.values([file]).tree == api.values("quickstart").tree
    with pytest.raises(LauncherError, match=r'Assignments are a list, such as \["train.steps=20"\], but these are'):
        api.plan(["quickstart"], "train.steps=20")
