"""The steps of a training whose output is kept in a bucket that answers in 2 s, or that refuses.

They are compared with the steps of a training whose output is not kept.

`python -m tests.bench_logs` measures only this. It mounts a file system (tests/slow_storage.py), as root on Linux.
"""

from __future__ import annotations

import errno
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.bench_tuning import MODEL
from tests.slow_storage import can_mount, slow_storage

CHECKOUT = Path(__file__).parents[1]
STEPS, FIRST, ROUNDS = 150, 20, 4

Row = tuple[str, list[float], list[float], float]


def rows() -> Iterator[Row]:
    """Yield the seconds of a step: with output in a slow bucket and in one that refuses, and without."""
    if not can_mount():
        print("The steps with a slow bucket are left out: they need root on Linux.", file=sys.stderr)
        return
    kinds: dict[str, dict[str, Any]] = {
        "without": {"size": "0"},
        "slow": {"seconds": 2.0},
        "refused": {"error": errno.EACCES},
    }
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory(prefix="slipway-bench-") as name:
        for number in range(ROUNDS):
            first = number % len(kinds)  # each kind is first, second and third: the machine's speed changes meanwhile
            for kind in [*kinds][first:] + [*kinds][:first]:
                times[kind].append(_step(Path(name), f"{kind}-{number}", **kinds[kind]))
    without = times["without"][1:]
    yield "training step / without kept output: a bucket that answers in 2 s", times["slow"][1:], without, 1.01
    yield "training step / without kept output: a bucket that refuses", times["refused"][1:], without, 1.01


def _step(folder: Path, name: str, *, size: str = "64Mi", seconds: float = 0, error: int = 0) -> float:
    """Train, and return the seconds of a step after the first FIRST."""
    train: dict[str, Any] = {**MODEL, "learning_rate": 1e-4, "steps": STEPS, "enable_checkpointing": False}
    config = {
        "run": {"name": name, "kind": "job-set", "maxRestarts": 0},
        "slice": {"count": 1},
        "accelerator": {"name": "cpu", "kind": "cpu", "hosts": 1, "chips": 1, "chipsPerHost": 1},
        "storage": {"mountPath": str(folder), "logs": {"size": size, "seconds": 1}},
        "data": {"corpus": "python", "heldOut": {"fraction": 0}},
        "train": {**train, "jax_cache_dir": str(folder / "cache")},
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(config))
    (folder / name).mkdir()
    with slow_storage(folder / name / "logs") as storage:
        storage.seconds, storage.error = seconds, error
        command = [sys.executable, "-m", "trainer", "--config", str(path), "--no-ray"]
        done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout[-3000:] + done.stderr[-3000:])
    lines = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    times = [datetime.fromisoformat(line["time"]).timestamp() for line in lines if "loss" in line][FIRST:]
    return (times[-1] - times[0]) / (len(times) - 1)


if __name__ == "__main__":
    for what, ours, other, goal in rows():
        ratio = statistics.median(ours) / statistics.median(other)
        print(f"{what}: {ratio:.3f} (at most {goal}): {[*map('{:.4f}'.format, ours)]} {[*map('{:.4f}'.format, other)]}")
