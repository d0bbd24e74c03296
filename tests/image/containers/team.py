"""A team's runs in containers: their values, their storage, and their output there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from launcher.paths import charts_dir
from tests.charts.helm import template
from tests.image.containers.kuberay import RayJob
from tests.image.containers.pod import PodContext
from tests.trainer.runs import TRAIN, lines

# Ray reacts to the end of a pod after some seconds. An idle machine does more than a hundred steps in that time.
STEPS = 320
PERIOD = 40
MAX_RESTARTS = 1


@dataclass(frozen=True)
class Team:
    """A team's namespace. Renders runs with the chart."""

    context: PodContext
    storage: Path
    helm: Path
    folder: Path

    def render(self, name: str, kind: str, **values: Any) -> dict[str, Any]:
        """The object that charts/run renders for a run on two CPU hosts; `values`: more values of the chart, by key."""
        tree: dict[str, Any] = {
            "run": {"name": name, "kind": kind, "maxRestarts": MAX_RESTARTS, "graceSeconds": 60},
            "team": {"name": "research"},
            "slice": {"accelerator": "cpu", "hosts": 2},
            "head": {"cpu": "1", "memory": "4Gi"},
            "worker": {"cpu": "1", "memory": "3Gi"},
            "storage": {"kind": "pvc", "claim": "shared"},
            "image": {"repository": "slipway", "tag": "tested"},
            "data": {
                "files": ["/data/text"],
                "heldOut": {"fraction": 0.1},
                "tokenizer": {"kind": "sentencepiece", "path": "/data/tokenizer.model"},
            },
            # Long enough that a pod ends between two checkpoints.
            "train": {
                **TRAIN,
                "max_target_length": 128,
                "steps": STEPS,
                "checkpoint_period": PERIOD,
                "eval_interval": 100,
            },
        }
        for key, more in values.items():
            tree[key] = {**tree.get(key, {}), **more}
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(tree))
        (made,) = yaml.safe_load_all(template(self.helm, charts_dir() / "run", [path]))
        rendered: dict[str, Any] = made
        return rendered

    def metrics(self, name: str) -> list[dict[str, Any]]:
        return lines(self.storage / name / "metrics.jsonl")

    def events(self, name: str, kind: str) -> list[dict[str, Any]]:
        return [event for event in lines(self.storage / name / "events.jsonl") if event["event"] == kind]

    def step(self, name: str) -> int:
        """The last finished step, or -1 before the first."""
        return max((line["step"] for line in self.metrics(name) if "loss" in line), default=-1)


@dataclass(frozen=True)
class UndisturbedJob:
    """A RayJob that has ended without a disturbance. Its cluster still runs."""

    job: RayJob
    status: str
    metrics: list[dict[str, Any]]
