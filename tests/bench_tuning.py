"""The steps of a fine-tuning, compared with those of a training on text with the same model and batch.

`python -m tests.bench_tuning` measures only this.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parents[1]
STEPS, ROUNDS, ROWS = 60, 3, 4000
MODEL: dict[str, Any] = {
    "base_emb_dim": 128,
    "base_num_decoder_layers": 2,
    "base_num_query_heads": 4,
    "base_num_kv_heads": 2,
    "head_dim": 32,
    "base_mlp_dim": 384,
    "attention": "dot_product",
    "max_target_length": 256,
    "per_device_batch_size": 4,
}
"""The model and the batch of all benchmarks of steps."""
TRAIN: dict[str, Any] = {**MODEL, "learning_rate": 1e-4, "steps": STEPS, "checkpoint_period": STEPS}

Row = tuple[str, list[float], list[float], float]


def rows() -> Iterator[Row]:
    """Yield the seconds of a step, and those per token that counts: packed, and with one example per sequence."""
    with tempfile.TemporaryDirectory(prefix="slipway-bench-") as name:
        folder = Path(name)
        _write(folder / "rows.jsonl")
        _train(folder, "base", {"corpus": "python"})
        questions = {"files": [str(folder / "rows.jsonl")]}
        text, packed, alone = [], [], []
        for number in range(ROUNDS):
            text.append(_step(_train(folder, f"text-{number}", {"corpus": "python"})))
            packed.append(_train(folder, f"packed-{number}", questions, tuned=True))
            lines = _train(folder, f"alone-{number}", questions, tuned=True, packing=False)
            alone.append(_step(lines) / _counted(lines))
        yield "fine-tuning step / step on text", [_step(lines) for lines in packed], text, 1.02
        yield "a counted token, packed / not packed", [_step(each) / _counted(each) for each in packed], alone, 1.0


def _write(path: Path) -> None:
    draw = random.Random(1)
    words = [f"word{number}" for number in range(200)]
    with path.open("w") as file:
        for _ in range(ROWS):
            asked, answered = (" ".join(draw.choices(words, k=draw.randint(5, 40))) for _ in range(2))
            file.write(json.dumps({"prompt": asked, "completion": answered}) + "\n")


def _train(folder: Path, name: str, data: dict[str, Any], *, tuned: bool = False, **train: Any) -> list[dict[str, Any]]:
    """Train, and return the lines of the metrics without those of the start and of the end."""
    tree: dict[str, Any] = {
        "run": {"name": name, "kind": "local", "maxRestarts": 0, "command": []},
        "slice": {"accelerator": "cpu", "count": 1, "hosts": 1},
        "accelerator": {"name": "cpu", "kind": "cpu", "hosts": 1, "chips": 1, "chipsPerHost": 1},
        "storage": {"kind": "local", "mountPath": str(folder)},
        "data": {**data, "heldOut": {"fraction": 0}},
        "train": {**TRAIN, **train, "jax_cache_dir": str(folder / "cache")},
    }
    if tuned:
        tree |= {"tuning": {"method": "sft", "template": "plain"}}
        tree["train"]["load_parameters_path"] = str(folder / "base" / "checkpoints" / str(STEPS - 1) / "items")
    path = folder / f"{name}.json"
    path.write_text(json.dumps(tree))
    done = subprocess.run(
        [sys.executable, "-m", "trainer", "--config", str(path), "--no-ray"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout[-2000:]}{done.stderr[-2000:]}")
    lines = [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
    return lines[10:-2]


def _step(lines: list[dict[str, Any]]) -> float:
    return float(statistics.median(line["step_seconds"] for line in lines))


def _counted(lines: list[dict[str, Any]]) -> float:
    return float(statistics.mean(line["counted_tokens"] for line in lines))


if __name__ == "__main__":
    for what, ours, other, goal in rows():
        ratio = statistics.median(ours) / statistics.median(other)
        print(f"{what}: {statistics.median(ours):.6f} s, {statistics.median(other):.6f} s, {ratio:.3f}, goal {goal}")
