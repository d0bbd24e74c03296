"""Every preset, rendered with every chart that accepts it, for the tests that read all of them."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.charts.docs import CHECKOUT, parents
from tests.charts.helm import template
from tests.charts.schemas import objects

CHARTS = CHECKOUT / "charts"
VALUES = CHECKOUT / "values"
LOCAL = {"quickstart"}
"""Presets of runs on the user's machine, which no chart renders."""
GKE = "clusters/gke/"
"""The folder of the presets of `launcher cluster`. test_gke_plan.py checks them with charts/queues."""

RUN: dict[str, Any] = {
    "run": {"name": "demo"},
    "team": {"name": "research"},
    "slice": {"accelerator": "v6e", "topology": "4x4"},
    "image": {"repository": "registry.example.com/slipway", "tag": "0.1.0"},
    "storage": {"bucket": "research"},
    "data": {"corpus": "python"},
}
"""The values that a run needs in addition to the preset of a model, a slice or a cluster."""

VARIANTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ray-job": ("run", ("--set", "run.kind=ray-job")),
    "job-set": ("run", ("--set", "run.kind=job-set")),
    "ray-cluster": ("ray-cluster", ()),
}
"""The objects that a run's values can be rendered as: for each, the chart and its options."""
CHARTS_OF_PRESETS = {"queues": "queues", "serve": "serve"}
"""The folders of presets that are for one chart only."""


@dataclass(frozen=True)
class Render:
    """The render of a preset ("slices/v6e-4x4", or "charts/run/ci/small-values") in one variant."""

    preset: str
    variant: str
    text: str

    @property
    def group(self) -> str:
        return self.preset.partition("/")[0]

    @property
    def label(self) -> str:
        return self.preset.rpartition("/")[2].replace(".", "-")

    def objects(self) -> list[dict[str, Any]]:
        return objects(self.text)


@functools.cache
def renders(helm: Path) -> tuple[Render, ...]:
    """Return the renders of all presets with this Helm; they are cached for the process. Raises HelmError."""
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as threads:
        base = Path(folder) / "base.yaml"
        base.write_text(yaml.safe_dump(RUN))
        jobs = list(_jobs(base))
        texts = threads.map(lambda job: template(helm, CHARTS / job.chart, job.files, *job.options), jobs)
        return tuple(Render(job.preset, job.variant, text) for job, text in zip(jobs, texts, strict=True))


class _Job(NamedTuple):
    preset: str
    variant: str
    chart: str
    files: list[Path]
    options: tuple[str, ...] = ()


def _jobs(base: Path) -> Iterator[_Job]:
    for chart in parents(CHARTS):
        for file in sorted((chart / "ci").glob("*.yaml")):
            yield _Job(f"charts/{chart.name}/{file.stem}", chart.name, chart.name, [file])
    yield from _run("base", [base])
    for file in sorted(VALUES.rglob("*.yaml")):
        preset = file.relative_to(VALUES).with_suffix("").as_posix()
        group = preset.partition("/")[0]
        if group in CHARTS_OF_PRESETS:
            only = CHARTS_OF_PRESETS[group]
            yield _Job(preset, only, only, [file])
        elif preset not in LOCAL and not preset.startswith(GKE):
            # A tutorial has all values of a run; another preset has a part of them.
            yield from _run(preset, [file] if group == "tutorials" else [base, file])


def _run(preset: str, files: list[Path]) -> Iterator[_Job]:
    for variant, (chart, options) in VARIANTS.items():
        yield _Job(preset, variant, chart, files, options)
