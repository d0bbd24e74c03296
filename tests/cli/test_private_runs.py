"""Other users of the machine cannot read the runs of this user: their configs, logs and metrics."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import SHORT, Launcher, end_all
from tests.prerequisites import require

NOBODY = 65534

# The attacker does not need to list a folder: the names of files are known, and those of runs can be guessed.
READ = """
import os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for path in sys.argv[1:]:
    try:
        print(os.listdir(path) if os.path.isdir(path) else open(path).read())
    except OSError:
        pass
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A home folder that other users can read, as on many machines. Pytest's own folders are private."""
    folder = Path(tempfile.mkdtemp(prefix="slipway-test-home-", dir="/tmp"))
    folder.chmod(0o755)
    (folder / "readable.txt").write_text("a file that everybody can read")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def shared(home: Path, tmp_path: Path) -> Iterator[Launcher]:
    command = Launcher(home / ".slipway", tmp_path)
    before = os.umask(0o022)
    yield command
    os.umask(before)
    end_all(command)


def seen_by_another_user(*paths: Path) -> str:
    done = subprocess.run([sys.executable, "-c", READ, *map(str, paths)], capture_output=True, text=True, check=True)
    return done.stdout


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_another_user_reads_nothing_of_a_run(shared: Launcher, home: Path) -> None:
    require(os.geteuid() == 0, "The test reads as another user. Run it as root.")
    shared.write("run.yaml", SHORT)
    assert shared("submit", "-f", "run.yaml").code == 0
    run = shared.home / "runs" / "demo"
    paths = [shared.home, shared.home / "runs", run, *run.iterdir(), run / "record.json", run / "log.txt"]
    assert seen_by_another_user(home / "readable.txt").strip() == "a file that everybody can read"
    assert seen_by_another_user(*paths) == ""
    run.parent.chmod(0o711)  # even if the folder is opened later
    assert seen_by_another_user(*paths) == ""


def test_new_folders_and_files_are_for_this_user_only(shared: Launcher) -> None:
    shared.write("run.yaml", SHORT)
    result = shared("submit", "-f", "run.yaml")
    assert "Other users" not in result.err
    run = shared.home / "runs" / "demo"
    assert {path: oct(mode(path)) for path in (shared.home, run.parent, run) if mode(path) != 0o700} == {}
    files = [path for path in run.iterdir() if path.is_file()]
    assert {path.name: oct(mode(path)) for path in files if mode(path) != 0o600} == {}
    assert {"run.json", "record.json", "origins.json", "log.txt", "lock"} <= {path.name for path in files}


@pytest.mark.parametrize("verb", ["submit", "list"])
def test_existing_folders_are_narrowed_once(shared: Launcher, verb: str) -> None:
    (shared.home / "runs").mkdir(parents=True, mode=0o755)
    shared.write("run.yaml", SHORT)
    arguments = ("submit", "-f", "run.yaml") if verb == "submit" else ("list",)
    result = shared(*arguments)
    assert f"Other users of this machine could read {shared.home / 'runs'}; now only you can." in result.err
    assert mode(shared.home) == mode(shared.home / "runs") == 0o700
    assert "Other users" not in shared(*arguments).err


def test_a_folder_of_other_files_or_of_another_user_is_left_alone(shared: Launcher) -> None:
    require(os.geteuid() == 0, "The test gives a folder to another user. Run it as root.")
    runs = shared.home / "runs"
    runs.mkdir(parents=True, mode=0o755)
    (shared.home / "data").mkdir()
    assert shared("list").code == 0
    assert (mode(shared.home), mode(runs)) == (0o755, 0o700)
    runs.chmod(0o755)
    os.chown(runs, NOBODY, NOBODY)
    assert "Other users" not in shared("list").err
    assert mode(runs) == 0o755


def test_a_resumed_run_writes_private_files_too(shared: Launcher) -> None:
    shared.write("run.yaml", SHORT.replace("echo hello", "exit 1"))
    for attempt in (1, 2):
        assert shared("submit", "-f", "run.yaml").code == 1
        assert shared.record().attempt == attempt
    assert mode(shared.home / "runs" / "demo" / "log.txt") == 0o600
