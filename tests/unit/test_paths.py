"""The paths of Slipway's files in a checkout and in an installed wheel."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from launcher import paths
from launcher.errors import LauncherError

ROOT = Path(__file__).parents[2]


def test_presets_are_found_by_name_path_and_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wanted = ROOT / "values" / "quickstart.yaml"
    for name in ("quickstart", "quickstart.yaml", "values/quickstart.yaml", "./values/quickstart.yaml"):
        assert paths.find_values_file(name) == wanted


def test_a_file_in_the_current_folder_precedes_a_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("quickstart.yaml").write_text("a: 1\n")
    assert paths.find_values_file("quickstart.yaml") == Path("quickstart.yaml")


def test_below_the_current_folder_paths_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert str(paths.find_values_file("quickstart")) == "values/quickstart.yaml"


def test_a_typing_error_gets_a_guess() -> None:
    with pytest.raises(LauncherError, match=r"Did you mean the preset quickstart\?$") as raised:
        paths.find_values_file("quikstart.yaml")
    assert raised.value.hint == "launcher presets lists the presets."


def test_a_name_that_no_file_can_have_is_a_sentence() -> None:
    with pytest.raises(LauncherError, match="cannot be read: File name too long"):
        paths.find_values_file("x" * 5000)


def test_home_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLIPWAY_HOME", "there")
    assert paths.home() == tmp_path / "there"
    monkeypatch.delenv("SLIPWAY_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.home() == tmp_path / ".slipway"


def test_an_installed_package_uses_the_data_it_carries(tmp_path: Path) -> None:
    package = tmp_path / "site" / "launcher"
    package.mkdir(parents=True)
    for module in ("__init__", "errors", "paths"):
        shutil.copy(ROOT / "launcher" / f"{module}.py", package)
    for folder in ("charts/run", "values"):
        (package / "_data" / folder).mkdir(parents=True)
    program = "from launcher import paths; print(paths.charts_dir()); print(paths.presets_dir())"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path / "site", capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(package / "_data" / "charts"), str(package / "_data" / "values")]
