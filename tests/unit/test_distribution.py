"""The installed package: its version, and the command in a hint that installs an extra."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from launcher import api, distribution
from launcher.errors import LauncherError

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


def test_the_api_lists_only_public_names() -> None:
    assert dir(api) == sorted(api.__all__)


def test_one_file_needs_no_list() -> None:
    assert api.values("quickstart").tree == api.values(["quickstart"]).tree
    with pytest.raises(LauncherError, match=r'Assignments are a list, such as \["train.steps=20"\], but these are'):
        api.plan(["quickstart"], {"train.steps": 20})  # type: ignore[arg-type]
