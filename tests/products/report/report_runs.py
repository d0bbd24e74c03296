"""Runs for reports: folders as the trainer and the local runner write them, with realistic numbers."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

BEGIN = 1_790_000_000.0


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def steps(
    count: int,
    *,
    seed: int = 0,
    start: int = 0,
    begin: float = BEGIN,
    seconds: float = 1.0,
    rate: float = 3e-4,
    mfu: bool = True,
) -> list[dict[str, Any]]:
    """Return lines of metrics.jsonl: `count` steps from `start`, and ten evaluations. The first compiles for 40 s."""
    noise = random.Random(seed)
    found: list[dict[str, Any]] = []
    at = begin
    for step in range(start, start + count):
        took = seconds * (1 + 0.04 * noise.random()) + (40 if step == start else 0)
        if noise.random() < 0.002:
            took *= 3
        at += took
        loss = 2 + 8.9 / (1 + step * rate * 30) + noise.gauss(0, 0.03)
        found.append(
            {
                "step": step,
                "loss": loss,
                "step_seconds": round(took, 6),
                "tokens_per_second_per_device": round(8192 / took, 3),
                "tflops_per_second_per_device": round(420 / took, 6),
                "learning_rate": rate * min(1.0, (step + 1) / 100),
                "time": stamp(at),
                **({"mfu": round(420 / took / 918, 6)} if mfu else {}),
                "grad_norm": 1 + abs(noise.gauss(0, 0.2)),
                "param_norm": 300.0,
            }
        )
        if (step + 1) % max(1, count // 10) == 0:
            found.append({"step": step + 1, "eval_loss": loss + 0.05, "time": stamp(at)})
    return found


def config(name: str, **train: Any) -> dict[str, Any]:
    return {
        "run": {"name": name, "kind": "local", "maxRestarts": 4, "command": []},
        "slice": {"accelerator": "v6e", "topology": "4x4", "count": 1, "hosts": None},
        "storage": {"kind": "local", "mountPath": "/runs"},
        "data": {"files": ["text/*.md"]},
        "train": {"model_name": "llama3-8b", "steps": 100, "learning_rate": 3e-4, **train},
        "accelerator": {
            "name": "v6e",
            "kind": "tpu",
            "topology": "4x4",
            "chips": 16,
            "chipsPerHost": 4,
            "peakTflops": 918,
        },
    }


def loop(at: float, step: int = 0, total: int = 100, devices: int = 16) -> dict[str, Any]:
    return {"event": "loop_started", "time": stamp(at), "step": step, "steps": total, "devices": devices}


def write(
    folder: Path,
    *,
    metrics: Sequence[Mapping[str, Any]] = (),
    events: Sequence[Mapping[str, Any]] = (),
    config: Mapping[str, Any] | None = None,
    record: Mapping[str, Any] | None = None,
    origins: Mapping[str, str] | None = None,
    tail: str = "",
) -> Path:
    """Write a run's folder. `tail` is added after the last complete line of metrics.jsonl."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in (("metrics.jsonl", metrics), ("events.jsonl", events)):
        if lines:
            (folder / name).write_text("".join(json.dumps(_plain(line)) + "\n" for line in lines))
    if tail:
        with (folder / "metrics.jsonl").open("a") as file:
            file.write(tail)
    for name, tree in (("run.json", config), ("record.json", record), ("origins.json", origins)):
        if tree is not None:
            (folder / name).write_text(json.dumps(tree))
    return folder


def _plain(line: Mapping[str, Any]) -> dict[str, Any]:
    """Replace numbers that are not finite with None, as the trainer does."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in line.items()
    }


def record(name: str, begin: float, end: float | None, **more: Any) -> dict[str, Any]:
    """Return record.json of a run that was submitted 30 s before `begin`. If `end` is None, the run is running."""
    return {
        "format": 1,
        "kind": "local",
        "name": name,
        "namespace": "research",
        "id": "0" * 32,
        "attempt": 1,
        "state": "succeeded" if end else "running",
        "submitted": stamp(begin - 30),
        "started": stamp(begin),
        "ended": stamp(end) if end else None,
        **more,
    }


def long_run(folder: Path, count: int, *, number: int = 0) -> Path:
    """Write a run of `count` steps that succeeded, with one restart in the middle."""
    half = count // 2
    name = folder.name
    first = steps(half, seed=number, begin=BEGIN + 90, rate=1e-4 * (1 + number))
    again = BEGIN + 90 + 41 * half / half + half * 1.05 + 300
    second = steps(count - half, seed=100 + number, start=half, begin=again, rate=1e-4 * (1 + number))
    end = datetime.fromisoformat(second[-1]["time"]).timestamp() + 20
    failed = datetime.fromisoformat(first[-1]["time"]).timestamp() + 60
    events = [
        loop(BEGIN + 90, 0, count),
        {"event": "worker_failed", "time": stamp(failed), "message": "Worker 3 was killed by SIGKILL."},
        loop(again, half, count),
    ]
    settings = {"steps": count, "learning_rate": 1e-4 * (1 + number), "per_device_batch_size": 1 + number % 2}
    tree = config(name, **settings)
    origins = {
        "train.steps": "mine.yaml:7",
        "train.learning_rate": "--sweep 1",
        "train.per_device_batch_size": "--sweep 2",
        "run.maxRestarts": "charts/run/values.yaml:31",
    }
    return write(
        folder,
        metrics=[*first, *second],
        events=events,
        config=tree,
        record=record(name, BEGIN, end),
        origins=origins,
    )
