"""`launcher export` and `launcher import`, killed with SIGKILL while they write a checkpoint of some hundred MB."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from launcher import api
from tests.prerequisites import require
from tests.trainer import large_checkpoint
from tests.trainer.runs import CHECKOUT

# Embedding and output layer have 128,256 rows each: 262 MB in float32, and few computations.
SIZES = {"base_emb_dim": 256, "base_mlp_dim": 512, "base_num_query_heads": 4, "base_num_kv_heads": 2}
BYTES = 262_000_000
KILLS = 3


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder of a run with one checkpoint."""
    root = tmp_path_factory.mktemp("killed")
    require(shutil.disk_usage(root).free > 8 * BYTES, "The test needs 2 GB of disk. Set TMPDIR to a disk with that.")
    require(sys.platform == "linux", "The conversion ends with a killed launcher on Linux only. Run the test there.")
    config, _ = large_checkpoint.write(root, 1, **SIZES)
    folder = root / "large"
    config.rename(folder / "run.json")
    step = folder / "checkpoints" / "0"
    now = time.time_ns()
    about = {"init_timestamp_nsecs": now, "commit_timestamp_nsecs": now}
    (step / "_CHECKPOINT_METADATA").write_text(json.dumps(about))
    yield folder
    shutil.rmtree(root)


def drafts(to: Path) -> list[Path]:
    return list(to.parent.glob(f".{to.name}.partial-*"))


def is_running(pid: int) -> bool:
    """Return whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def assert_whole(to: Path) -> None:
    record = json.loads((to / "slipway.json").read_text())
    assert sum(record["files"].values()) > BYTES / 2
    assert {name: (to / name).stat().st_size for name in record["files"]} == record["files"]


def kill(line: Sequence[str], to: Path, *, delay: float) -> bool:
    """Start the command in a process group of its own, and kill the group `delay` seconds after the first file.

    Return whether the command was killed while it wrote. The child that converts ends by itself.
    """
    process = subprocess.Popen(
        line, cwd=CHECKOUT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while process.poll() is None and not drafts(to):
        time.sleep(0.01)
    time.sleep(delay)
    writers = [int(draft.name.rpartition("-")[2]) for draft in drafts(to)]
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    killed = process.wait() == -signal.SIGKILL
    deadline = time.monotonic() + 10
    while any(map(is_running, writers)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(map(is_running, writers)), "The conversion continues without the launcher."
    return killed and bool(writers)


def survives_kills(line: Sequence[str], to: Path, seconds: float) -> None:
    """Kill the command at random moments of the `seconds` for which it writes; then it succeeds."""
    killed = 0
    for _ in range(KILLS):
        delay = random.uniform(0, seconds)
        killed += kill(line, to, delay=delay)
        if to.exists():
            # The moment was after the rename: the folder is whole.
            assert_whole(to)
            shutil.rmtree(to)
            seconds = delay
            continue
        # One folder at most: each start removes that of the process that was killed before.
        assert len(drafts(to)) <= 1, f"killed {delay:.2f} s after the first file"
        assert [path.name for path in to.parent.iterdir()] == [path.name for path in drafts(to)]
    assert killed, "All moments were after the end."
    done = subprocess.run(line, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "PyTorch" not in done.stderr  # transformers warns that it is missing
    assert [path.name for path in to.parent.iterdir()] == [to.name]
    assert_whole(to)


def test_a_kill_of_an_export_and_of_an_import_leaves_nothing_that_looks_whole(run: Path) -> None:
    launcher = [sys.executable, "-m", "launcher"]
    to = run.parent / "exports" / "model"
    to.parent.mkdir()
    survives_kills([*launcher, "export", str(run), "--to", str(to)], to, 1.0)

    train = json.loads((run / "run.json").read_text())["train"]
    sets = [
        word for key, value in train.items() for word in ("--set", f"train.{key}={json.dumps(value).strip(chr(34))}")
    ]
    weights = run.parent / "imports" / "weights"
    weights.parent.mkdir()
    survives_kills([*launcher, "import", str(to), "--to", str(weights), *sets], weights, 1.0)

    # The weights of the model that was exported: an import of all values, and not only of files with the right sizes.
    again = run.parent / "again"
    (again / "checkpoints").mkdir(parents=True)
    shutil.copytree(weights, again / "checkpoints" / "0")
    shutil.copy(run / "run.json", again)
    api.export(str(again), str(run.parent / "second"))
    for file in to.glob("*.safetensors"):
        assert file.read_bytes() == (run.parent / "second" / file.name).read_bytes()
