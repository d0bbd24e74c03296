"""Folders of runs with checkpoints, in the layout that a real run wrote (tests/products/models/data/checkpoints.json).

The files have their real names and sizes, but not their contents, which are megabytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "checkpoints.json").read_text(encoding="utf-8"))
CONFIG: dict[str, Any] = {
    "run": {"name": "base", "kind": "local", "command": []},
    "slice": {"accelerator": "cpu", "count": 1, "hosts": 1},
    "storage": {"kind": "local", "mountPath": "/data"},
    "train": {"base_emb_dim": 32, "base_mlp_dim": 64, "steps": 7},
    "accelerator": {"name": "cpu", "kind": "cpu", "chips": 1, "chipsPerHost": 1, "hosts": 1},
}


def write_run(folder: Path, **config: Any) -> Path:
    """Write the folder of the recorded run: three whole checkpoints (0, 3 and 6), its metrics and its config."""
    for name, size in RECORDED["files"].items():
        file = folder / "checkpoints" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as stream:
            stream.truncate(size)
    for step, about in RECORDED["_CHECKPOINT_METADATA"].items():
        (folder / "checkpoints" / step / "_CHECKPOINT_METADATA").write_text(json.dumps(about))
    lines = [json.dumps(entry) + "\n" for entry in RECORDED["metrics"]]
    (folder / "metrics.jsonl").write_text("".join(lines))
    (folder / "run.json").write_text(json.dumps({**CONFIG, **config}))
    return folder
