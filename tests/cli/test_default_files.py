"""The values files that come before every -f."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from launcher import api
from tests.cli.conftest import SHORT, Launcher

TEAM = "team: {name: research}\nrun: {name: from-user}\n"


@pytest.fixture
def defaults(launcher: Launcher, tmp_path: Path) -> dict[str, str]:
    """Return the environment of a user with default values files."""
    folder = tmp_path / "config" / "slipway"
    folder.mkdir(parents=True)
    (folder / "launcher.yaml").write_text(TEAM)
    return {"SLIPWAY_NO_DEFAULTS": "", "SLIPWAY_VALUES": "", "XDG_CONFIG_HOME": str(tmp_path / "config")}


def _below(launcher: Launcher) -> Launcher:
    """Return the launcher two folders below the folder of the project."""
    folder = launcher.folder / "a" / "b"
    folder.mkdir(parents=True)
    return replace(launcher, folder=folder)


def test_the_layers_in_their_order(launcher: Launcher, defaults: dict[str, str]) -> None:
    launcher.write("launcher.yaml", SHORT.replace("demo", "from-project") + "train: {steps: 1, dropout_rate: 0}\n")
    launcher.write("more.yaml", "train: {steps: 2, dropout_rate: 0.5}\n")
    launcher.write("mine.yaml", "train: {steps: 3}\n")
    below = _below(launcher)
    more = {**defaults, "SLIPWAY_VALUES": "../../more.yaml:models/tiny"}
    result = below("values", "../../mine.yaml", "--set", "run.maxRestarts=7", "--origins", env=more)
    assert result.code == 0
    user = f"{defaults['XDG_CONFIG_HOME']}/slipway/launcher.yaml"
    tiny = str(Path(__file__).parents[2] / "values/models/tiny.yaml")
    assert result.err == f"Defaults: {user}, ../../launcher.yaml, ../../more.yaml, {tiny}\n"
    origins = {line.split()[0]: re.split("  +", line)[-1] for line in result.out.splitlines()}
    assert origins["team.name"] == f"{user}:1"
    assert origins["run.name"] == "../../launcher.yaml:1"
    assert origins["train.dropout_rate"] == "../../more.yaml:1"
    assert origins["train.base_emb_dim"].startswith(f"{tiny}:")
    assert origins["train.steps"] == "../../mine.yaml:1"
    assert origins["run.maxRestarts"] == "--set 1"
    (problem,) = below("check", "--set", "train.stepz=1", "-o", "json", env=defaults).json[:1]
    assert (problem["file"], problem["line"]) == ("--set", 1)


def test_defaults_alone_are_values(launcher: Launcher, defaults: dict[str, str]) -> None:
    launcher.write("launcher.yaml", SHORT + "slise: {}\n")
    result = launcher("check", env=defaults)
    assert result.code == 1
    assert "error: launcher.yaml:4: unknown key slise" in result.out
    for arguments, env in ((["--no-defaults"], defaults), ([], {**defaults, "SLIPWAY_NO_DEFAULTS": "1"})):
        result = launcher("check", *arguments, env=env)
        assert (result.code, result.err) == (
            2,
            "Error: No values are given: use -f FILE or --set.\n"
            "Hint: launcher presets lists values files to begin with, such as quickstart; launcher init writes one.\n",
        )


def test_the_nearest_file_of_a_project_is_read(launcher: Launcher, defaults: dict[str, str]) -> None:
    launcher.write("launcher.yaml", SHORT)
    below = _below(launcher)
    below.write("launcher.yaml", "run: {name: nearest}\n")
    assert below("values", "-o", "json", env=defaults).json["run"] == {"name": "nearest"}


def test_the_queues_of_a_platform_have_no_defaults(launcher: Launcher, defaults: dict[str, str]) -> None:
    launcher.write("launcher.yaml", SHORT)
    result = launcher("values", "queues", "queues/one-team", env=defaults)
    assert (result.code, result.err, "run:" in result.out) == (0, "", False)


def test_a_missing_file_of_the_variable(launcher: Launcher, defaults: dict[str, str]) -> None:
    result = launcher("check", env={**defaults, "SLIPWAY_VALUES": "models/tinyy"})
    assert result.code == 2
    assert result.err.startswith('Error: SLIPWAY_VALUES: The values file "models/tinyy" was not found')


def test_a_file_that_another_user_can_write_is_ignored(launcher: Launcher, defaults: dict[str, str]) -> None:
    file = launcher.folder / launcher.write("launcher.yaml", SHORT)
    file.chmod(0o666)
    result = launcher("values", "--set", "run.name=x", env=defaults)
    assert f"Warning: {file} is ignored, because every user can write to it. To use it, name it with -f." in result.err
    assert "kind" not in result.out
    file.chmod(0o644)
    launcher.folder.chmod(0o777)
    result = launcher("values", "--set", "run.name=x", env=defaults)
    assert "every user can write to its folder" in result.err
    launcher.folder.chmod(0o1777)  # as /tmp: users cannot replace each other's files
    assert "ignored" not in launcher("values", env=defaults).err


def test_a_link_to_a_missing_file_is_ignored(launcher: Launcher, defaults: dict[str, str]) -> None:
    file = launcher.folder / "launcher.yaml"
    file.symlink_to("nowhere.yaml")
    result = launcher("values", "--set", "run.name=x", env=defaults)
    assert f"Warning: {file} is ignored: it is a link to a file that does not exist.\n" in result.err


def test_a_file_of_another_user_is_ignored(
    launcher: Launcher, defaults: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher.write("launcher.yaml", SHORT)
    # The tests may run as root, whose files every user trusts, or as a user who cannot give files away.
    monkeypatch.setattr("launcher.config.values.defaults._TRUSTED", frozenset({os.getuid() + 1}))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    result = launcher("values", "--set", "run.name=x", env=defaults)
    assert "is ignored, because it belongs to another user." in result.err
    assert "kind" not in result.out


def test_the_api_reads_only_what_it_is_given(
    launcher: Launcher, defaults: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher.write("launcher.yaml", SHORT)
    monkeypatch.chdir(launcher.folder)
    for name, value in defaults.items():
        monkeypatch.setenv(name, value)
    assert api.values(["models/tiny"]).tree.keys() == {"train"}
    assert api.default_files() == [f"{defaults['XDG_CONFIG_HOME']}/slipway/launcher.yaml", "launcher.yaml"]
