"""Metrics of a host's chips: memory from JAX, duty cycle and TensorCore utilization from libtpu.

A chip without a value is omitted, because a zero would be false. A CPU has no values.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from trainer.telemetry.log import warn

_MEMORY = {
    "bytes_in_use": ("slipway_hbm_used_bytes", "Device memory in use, from JAX's allocator."),
    "peak_bytes_in_use": ("slipway_hbm_peak_bytes", "Peak device memory in use since the start of this process."),
    "bytes_limit": ("slipway_hbm_limit_bytes", "Device memory that JAX may use."),
}
_LIBTPU = {
    "duty_cycle_pct": ("slipway_chip_duty_cycle_ratio", "Share of the time that the chip was busy, from libtpu."),
    "tensorcore_util": ("slipway_tensorcore_utilization_ratio", "Utilization of the TensorCore, from libtpu."),
}
_LABEL = {"duty_cycle_pct": "chip", "tensorcore_util": "core"}
_SECONDS_BETWEEN_SAMPLES = 15.0
_SECONDS_OF_A_SAMPLE = 60.0

Sample = Mapping[str, Sequence[float]]


class Chips(Collector):
    """Collects the chips' current values at each scrape."""

    def __init__(self, devices: Iterable[Any], labels: Mapping[str, str], sampler: Sampler | None) -> None:
        self._devices = list(devices)
        self._labels = dict(labels)
        self._sampler = sampler

    def collect(self) -> Iterator[Metric]:
        memory = {device.id: _memory(device) for device in self._devices}
        for key, (name, text) in _MEMORY.items():
            values = {str(number): stats[key] for number, stats in memory.items() if key in stats}
            yield from self._family(name, text, "device", values)
        for key, percent in (self._sampler.latest() if self._sampler else {}).items():
            name, text = _LIBTPU[key]
            values = {str(index): value / 100 for index, value in enumerate(percent)}
            yield from self._family(name, text, _LABEL[key], values)

    def _family(self, name: str, text: str, label: str, values: Mapping[str, float]) -> Iterator[Metric]:
        if values:
            family = GaugeMetricFamily(name, text, labels=[*self._labels, label])
            for value_of, value in values.items():
                family.add_metric([*self._labels.values(), value_of], value)
            yield family


def _memory(device: Any) -> Mapping[str, float]:
    try:
        return device.memory_stats() or {}
    except Exception:  # a platform without this feature raises its own error
        return {}


class Sampler:
    """Polls a source in a thread: an answer of libtpu, or of a mount, may take too long for a scrape."""

    def __init__(self, read: Callable[[], Sample]) -> None:
        self._read = read
        self._sample: Sample = {}
        self._at = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics-sampler", daemon=True)

    def start(self) -> Sampler:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._over.set()

    def latest(self) -> Sample:
        """Return the values by the source's names, of libtpu in percent; empty if there is no recent value."""
        return self._sample if time.monotonic() - self._at < _SECONDS_OF_A_SAMPLE else {}

    def _run(self) -> None:
        while True:
            try:
                sample = self._read()
            except Exception as error:  # libtpu raises its own errors, and training does not need it
                warn(f"libtpu reports no metrics of the chips: {error}")
                return
            self._sample, self._at = sample, time.monotonic()
            if self._over.wait(_SECONDS_BETWEEN_SAMPLES):
                return


def read_libtpu() -> Sample:
    """Return libtpu's current monitoring values. On a machine without TPUs it waits minutes for Google's metadata."""
    flags = sys.getdlopenflags()
    try:
        # The SDK contains parts of libtpu, whose names must not be confused with those of the libtpu that trains.
        sys.setdlopenflags(flags | os.RTLD_LOCAL | os.RTLD_DEEPBIND)
        tpumonitoring: Any = importlib.import_module("libtpu.sdk").tpumonitoring
    finally:
        sys.setdlopenflags(flags)
    by_name = {name: [float(value) for value in tpumonitoring.get_metric(name).data()] for name in _LIBTPU}
    return {name: values for name, values in by_name.items() if values}
