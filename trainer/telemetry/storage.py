"""Metrics of the file system that has the run's folder: its size, and how much of it is available."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from trainer.telemetry.chips import Sample, Sampler
from trainer.telemetry.log import warn

_METRICS = {
    "size": ("slipway_storage_size_bytes", "Size of the file system that has the run's folder."),
    "available": (
        "slipway_storage_available_bytes",
        "Bytes that the run can still write there. A bucket has no limit: its mount reports all as available.",
    ),
}


class Storage(Collector):
    """Collects the latest sizes at each scrape; none if the file system has not answered for a minute."""

    def __init__(self, labels: Mapping[str, str], sampler: Sampler) -> None:
        self._labels = dict(labels)
        self._sampler = sampler

    def collect(self) -> Iterator[Metric]:
        for key, [value] in self._sampler.latest().items():
            family = GaugeMetricFamily(*_METRICS[key], labels=list(self._labels))
            family.add_metric(list(self._labels.values()), value)
            yield family


def reader(folder: Path) -> Callable[[], Sample]:
    """Return a function that reads the sizes of the file system of `folder`. It can block as long as a mount does, so
    a Sampler calls it. It reports the first error, and returns no sizes while the error lasts."""
    failed = False

    def read() -> Sample:
        nonlocal failed
        try:
            stats = os.statvfs(folder)
        except OSError as error:
            if not failed:
                warn(f"The size of the run's storage is not served: {error}. Training continues.")
            failed = True
            return {}
        failed = False
        return {"size": [stats.f_blocks * stats.f_frsize], "available": [stats.f_bavail * stats.f_frsize]}

    return read
