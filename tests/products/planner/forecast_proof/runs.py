"""The published runs, as values for a forecast."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_FILE = Path(__file__).parent / "runs.yaml"
REFUSED = {
    "": frozenset({"2a886c8_chip_config_name"}),
    "v5p": frozenset({"xla_tpu_enable_async_collective_fusion_fuse_all_gather"}),
    "v6e": frozenset({"xla_tpu_enable_async_collective_fusion_fuse_all_gather"}),
}
"""Flags of the published runs that libtpu 0.0.46 no longer accepts: on any chip (""), or on chips of a generation."""


@dataclass(frozen=True)
class Run:
    """A published run: `seconds` of one step, its slice, its flags for libtpu, and MaxText's keys."""

    name: str
    source: str
    seconds: float
    slice: Mapping[str, Any]
    flags: tuple[str, ...]
    refused: tuple[str, ...]
    train: Mapping[str, Any]

    def overlay(self) -> dict[str, Any]:
        """Return the run as the content of a values file."""
        tree: dict[str, Any] = {"slice": dict(self.slice), "train": dict(self.train)}
        if self.flags:
            tree["worker"] = {"env": {"LIBTPU_INIT_ARGS": " ".join(self.flags)}}
        return tree


def published() -> list[Run]:
    """Return all runs of runs.yaml, without the flags that libtpu no longer accepts."""
    runs = []
    for each in yaml.safe_load(_FILE.read_text(encoding="utf-8")):
        flags = str(each.get("flags") or "").split()
        refused = REFUSED[""] | REFUSED.get(each["slice"]["accelerator"], frozenset())
        name_of = {flag: flag.lstrip("-").partition("=")[0] for flag in flags}
        runs.append(
            Run(
                name=each["name"],
                source=each["source"],
                seconds=float(each["seconds"]),
                slice=each["slice"],
                flags=tuple(flag for flag in flags if name_of[flag] not in refused),
                refused=tuple(name_of[flag] for flag in flags if name_of[flag] in refused),
                train=each["train"],
            )
        )
    return runs
