"""The installed package: its version, and the command in a hint that installs an extra."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from launcher import api, distribution, paths, plugins
from launcher.errors import LauncherError
from tests.coverage_by_package import unmeasured

ROOT = Path(__file__).parents[2]


def test_the_name_and_the_version_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (distribution.NAME, distribution.version()) == (project["name"], project["version"])


def test_a_suggested_command_works_without_the_launcher_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my env").mkdir()
    started = tmp_path / "my env" / "launcher"
    started.write_text("#!/bin/sh\n")
    started.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(started), "submit"])
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.chdir(tmp_path)
    assert distribution.command() == "'my env/launcher'"
    monkeypatch.chdir(started.parent)
    assert distribution.command() == "./launcher"
    monkeypatch.chdir("/")
    assert subprocess.run(f"{distribution.command()} logs", shell=True, check=False).returncode == 0
    monkeypatch.chdir(ROOT)
    assert distribution.command() == f"'{started}'"
    # Another launcher on PATH is not this one.
    other = tmp_path / "launcher"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert distribution.command() == f"'{started}'"
    monkeypatch.setenv("PATH", str(started.parent))
    assert distribution.command() == "launcher"
    monkeypatch.setattr(sys, "argv", ["/usr/lib/python3/launcher/__main__.py"])
    assert distribution.command() == "launcher"


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
    added = {name for product in plugins.products() for name in product.api}
    assert dir(api) == sorted({*api.HOMES, *added})
    assert not any(name.startswith("_") for name in dir(api))


def test_one_file_needs_no_list() -> None:
    assert api.values("quickstart").tree == api.values(["quickstart"]).tree
    file = paths.presets_dir() / "quickstart.yaml"
    assert api.values(file).tree == api.values([file]).tree == api.values("quickstart").tree
    with pytest.raises(LauncherError, match=r'Assignments are a list, such as \["train.steps=20"\], but these are'):
        api.plan(["quickstart"], "train.steps=20")
