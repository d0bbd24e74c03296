"""Half an hour of the real Kueue 0.19.2 with three teams: its objects, and the integral of its own usage metric."""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from tests import upstream

RECORDING = upstream.RECORDINGS / "fleet" / "half-hour.jsonl.gz"
_USAGE = re.compile(r'kueue_cluster_queue_resource_usage\{cluster_queue="([^"]+)",.*flavor="([^"]+)".*\} (\S+)')


@dataclass(frozen=True)
class HalfHour:
    """The recording. Times are Unix seconds; `usage` has chip-seconds by ClusterQueue, by the trapezoidal rule."""

    start: float
    end: float
    objects: list[dict[str, Any]]
    usage: dict[str, float]
    chips: dict[str, int]

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [obj for obj in self.objects if obj["kind"] == kind]

    @property
    def now(self) -> datetime:
        return datetime.fromtimestamp(self.end, UTC)


@cache
def read(path: Path = RECORDING) -> HalfHour:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    (meta,) = (line for line in lines if line["kind"] == "meta")
    usage: defaultdict[str, float] = defaultdict(float)
    before: tuple[float, dict[str, float]] | None = None
    for line in (line for line in lines if line["kind"] == "metrics"):
        now = {m[1]: float(m[3]) for text in line["lines"] if (m := _USAGE.match(text))}
        if before is not None:
            for queue, chips in now.items():
                usage[queue] += (chips + before[1].get(queue, chips)) / 2 * (line["t"] - before[0])
        before = line["t"], now
    objects = [line["object"] for line in lines if line["kind"] == "objects"]
    quota = {team: slices * meta["chips_per_slice"] for team, slices in meta["slices"].items()}
    return HalfHour(meta["started"], meta["started"] + lines[-1]["t"], objects, dict(usage), quota)
