"""The builder of Go tools: two processes share one build, and a missing or old Go is an error with a clear message."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.charts.helm import run
from tests.tools import go_tools
from tests.tools.go_tools import TOOLS, tool


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLIPWAY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fake_go(folder: Path, version: str) -> Path:
    """A folder with a fake `go`: it writes the binary at once, and a line to the file `builds` for each build."""
    folder.mkdir()
    go = folder / "go"
    go.write_text(
        f'#!/bin/sh\nif [ "$1" = env ]; then echo {version}; exit; fi\n'
        f'echo built >> {folder}/builds\nwhile [ "$1" != -o ]; do shift; done\necho binary > "$2"\n'
    )
    go.chmod(0o755)
    return folder


def test_a_tool_is_built_once(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fake_go(tmp_path / "bin", "go1.26.1")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    made = tool("helm")
    assert made == tool("helm")
    assert made.is_relative_to(cache / "tools")
    assert made.read_text() == "binary\n"
    assert (folder / "builds").read_text() == "built\n"
    assert sorted(path.name for path in made.parent.iterdir()) == [".lock", "helm"]  # no temporary files


def test_two_processes_share_one_build(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fake_go(tmp_path / "bin", "go1.26.1")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    asked = [sys.executable, "-m", "tests.tools", "helm"]
    root = Path(__file__).parents[2]
    both = [subprocess.Popen(asked, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for _ in range(2)]
    printed = {process.communicate()[0] for process in both}
    assert len(printed) == 1
    assert (folder / "builds").read_text() == "built\n"


@pytest.mark.parametrize("version", [None, "go1.25.3"])
def test_a_missing_or_old_go_is_an_error(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    folder = fake_go(tmp_path / "bin", version) if version else tmp_path
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin" if version else str(folder))
    with pytest.raises(RuntimeError, match=r"Go 1\.26.*; install it from"):
        tool("helm")


def test_every_tool_has_its_pins() -> None:
    for name in TOOLS:
        assert (go_tools.source_of(name) / "go.mod").is_file()
        assert (go_tools.source_of(name) / "go.sum").is_file()


@pytest.mark.parametrize("option", ["image.repository=a", "slice.count=0", "train.steps=[", "zzz={a,b}"])
def test_many_commands_print_what_helm_prints(option: str) -> None:
    command = ["template", "x", "charts/run", "--set", f"image.tag=b,slice.topology=4x4,{option}"]
    done = subprocess.run([tool("helm"), *command], capture_output=True, text=True, check=False)
    assert run(tool("helm"), command) == (done.returncode == 0, done.stderr if done.returncode else done.stdout)
