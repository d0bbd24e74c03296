"""The run's metrics for Prometheus, at /metrics of tracking.metricsPort on every host.

All names begin with slipway_. Every metric has the labels run, team and host (the process's number, from 0). The
scraper adds the namespace of a pod. Only the first host has the run's own metrics.
"""

from __future__ import annotations

import contextlib
import errno
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from trainer.config import RunConfig
from trainer.telemetry.goodput import first_start, goodput, productive_seconds
from trainer.telemetry.log import warn

# From a tiny model on a CPU to 405B parameters on a slice.
STEP_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 1.5, 2, 3, 4, 5, 7.5, 10, 15, 20, 30, 45, 60, 90, 120, 180, 300)

_FROM_LINE = {
    "step": ("slipway_step", "The last finished step, counted from 0 as in metrics.jsonl.", 1.0),
    "loss": ("slipway_loss", "Training loss of the last finished step.", 1.0),
    "step_seconds": (
        "slipway_last_step_seconds",
        "Seconds that the last finished step took, from one finished step to the next.",
        1.0,
    ),
    "tokens_per_second_per_device": (
        "slipway_device_tokens_per_second",
        "Tokens that each device trained on per second, in the last finished step.",
        1.0,
    ),
    "tflops_per_second_per_device": (
        "slipway_device_flops_per_second",
        "Floating-point operations of the model that each device performed per second, in the last finished step.",
        1e12,
    ),
    "mfu": ("slipway_mfu_ratio", "Model FLOP/s of the last finished step, divided by the chips' peak.", 1.0),
    "learning_rate": ("slipway_learning_rate", "Learning rate of the last finished step.", 1.0),
    "grad_norm": ("slipway_gradient_norm", "Norm of the gradient in the last finished step, before clipping.", 1.0),
    "eval_loss": ("slipway_eval_loss", "Loss of the last evaluation of the held-out text.", 1.0),
}
"""By the key in a line of metrics.jsonl: the metric's name and help, and its unit in the key's."""

_OTHERS = {
    "steps": ("slipway_target_steps", "Total number of steps of the run."),
    "devices": ("slipway_devices", "Devices that the run trains on, over all hosts."),
    "attempt": (
        "slipway_attempt",
        "Number of this start of the training loop, counted from 1 over all processes of the run.",
    ),
    "advanced": (
        "slipway_last_progress_timestamp_seconds",
        "Time when the last step or evaluation finished, in Unix seconds; until then, when the training loop started.",
    ),
    "saved": (
        "slipway_last_checkpoint_timestamp_seconds",
        "Time when training saved its last checkpoint, in Unix seconds; until then, when the training loop started. "
        "Absent if train.enable_checkpointing is false.",
    ),
    "forecast": (
        "slipway_forecast_step_seconds",
        "Seconds that a step takes according to a forecast (tracking.forecastStepSeconds); absent if it is 0.",
    ),
    "tokens": ("slipway_tokens_per_second", "Tokens that the run trained on per second, in the last finished step."),
    "productive": (
        "slipway_productive_seconds",
        "Seconds of the steps that count, each counted once even if it was repeated. The first step after a start "
        "includes compilation.",
    ),
    "elapsed": ("slipway_elapsed_seconds", "Seconds since the run's first start, including all attempts and pauses."),
    "goodput": (
        "slipway_goodput_ratio",
        "Seconds of the steps that count (slipway_productive_seconds), divided by the seconds since the run's first "
        "start (slipway_elapsed_seconds), including earlier attempts.",
    ),
}

_OF_SOURCES = {
    "share": ("slipway_source_share_ratio", "Share of a source of data.mixture in the tokens of the last step."),
    "epoch": ("slipway_source_epoch", "Passes over a source of data.mixture that were begun, with a part of the last."),
}
"""The gauges of each source, with the label source: those of the first host's sequences."""


class Endpoint:
    """The metrics of one process."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary

        self.registry = CollectorRegistry()
        self.labels = dict(labels)
        self._server: Any = None
        self._samplers: list[Any] = []
        self._devices = 1
        self._productive = 0.0
        self._first_start = 0.0
        names: dict[str, Any] = {"labelnames": tuple(labels), "registry": self.registry}
        described = {key: (name, text) for key, (name, text, _) in _FROM_LINE.items()} | _OTHERS
        # A gauge appears with its first value.
        self._gauges = {key: Gauge(name, text, **names) for key, (name, text) in described.items()}
        of_source = {**names, "labelnames": (*labels, "source")}
        self._sources = {key: Gauge(name, text, **of_source) for key, (name, text) in _OF_SOURCES.items()}
        self._restarts = Counter(
            "slipway_restarts",
            "Starts of the training loop after a failure; slipway_preemptions has the others.",
            **names,
        )
        self._preemptions = Counter(
            "slipway_preemptions", "Starts of the training loop after a stop signal, such as a preemption.", **names
        )
        self._steps = Histogram(
            "slipway_step_duration_seconds",
            "Seconds of each step in this process, from one finished step to the next.",
            buckets=STEP_BUCKETS,
            **names,
        )
        self._saves = Summary(
            "slipway_checkpoint_save_seconds",
            "Seconds that training paused to save a checkpoint, which is then written in the background.",
            **names,
        )

    @classmethod
    def serve(cls, config: RunConfig, *, host: int, devices: list[Any]) -> Endpoint | None:
        """Start to serve. Returns None if metrics are disabled or the port is unavailable, which is logged."""
        if not config.metrics_port:
            return None
        try:
            from trainer.telemetry import storage
            from trainer.telemetry.chips import Chips, Sampler, read_libtpu
        except ModuleNotFoundError as error:
            warn(f"No metrics for Prometheus are served: the Python package {error.name} is not installed.")
            return None
        endpoint = cls({"run": config.name, "team": config.team, "host": str(host)})
        local = config.is_local
        try:
            # This machine has several runs, and several hosts of one: each gets a free port.
            port = endpoint.listen(0 if local else config.metrics_port, loopback=local)
        except OSError as error:
            in_use = error.errno == errno.EADDRINUSE
            reason = "is in use on this host" if in_use else f"is not available: {error.strerror}"
            warn(
                f"No metrics for Prometheus are served: port {config.metrics_port} (tracking.metricsPort) {reason}. "
                "Training continues."
            )
            return None
        if local:
            with contextlib.suppress(OSError):
                address_file(config.folder, host).write_text(f"http://127.0.0.1:{port}/metrics\n", encoding="utf-8")
        libtpu = Sampler(read_libtpu).start() if config.accelerator["kind"] == "tpu" else None
        endpoint.registry.register(Chips(devices, endpoint.labels, libtpu))
        endpoint._samplers = [libtpu] if libtpu else []
        if host == 0:
            mount = Sampler(storage.reader(config.folder)).start()
            endpoint.registry.register(storage.Storage(endpoint.labels, mount))
            endpoint._samplers.append(mount)
        return endpoint

    def listen(self, port: int, *, loopback: bool) -> int:
        """Listen on `port`, or on a free port if it is 0. Returns the port. Raises OSError."""
        from prometheus_client import start_http_server

        if loopback:
            self._server, _ = start_http_server(port, "127.0.0.1", self.registry)
        else:
            try:
                # Also for a pod with addresses of both kinds, or only IPv6.
                self._server, _ = start_http_server(port, "::", self.registry)
            except OSError as error:
                if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                    raise
                self._server, _ = start_http_server(port, "0.0.0.0", self.registry)  # noqa: S104 - to be scraped
        return int(self._server.server_port)

    def loop_starts(
        self,
        events: Iterable[Mapping[str, Any]],
        lines: Iterable[Mapping[str, Any]],
        *,
        step: int,
        steps: int,
        devices: int,
        saves: bool = True,
        forecast: float | None = None,
    ) -> None:
        """`events`: all events of the run, including this start; `lines`: the valid lines of earlier attempts.

        `saves`: whether the run saves checkpoints; `forecast`: seconds of a step, if they are known.
        """
        events, lines = list(events), list(lines)
        starts = [event for event in events if event["event"] == "loop_started"]
        preempted = preemptions(events)
        self._devices = devices
        self._productive = productive_seconds(lines)
        self._first_start = first_start(starts)
        self._set("steps", steps)
        self._set("devices", devices)
        self._set("attempt", len(starts))
        if saves:
            self._set("saved", time.time())
        if forecast is not None:
            self._set("forecast", forecast)
        self._restarts.labels(**self.labels).inc(len(starts) - 1 - preempted)
        self._preemptions.labels(**self.labels).inc(preempted)
        self._gauges["productive"].labels(**self.labels).set_function(lambda: self._productive)
        self._gauges["elapsed"].labels(**self.labels).set_function(self._elapsed)
        self._gauges["goodput"].labels(**self.labels).set_function(lambda: goodput(self._productive, self._elapsed()))
        # Until its first step is done, a restart shows the step where it resumes.
        for key in ("loss", "eval_loss"):
            for line in [line for line in lines if key in line][-1:]:
                self._show(line)
        self._set("advanced", time.time())

    def line(self, line: Mapping[str, Any]) -> None:
        if "loss" in line:
            seconds = float(line["step_seconds"])
            self._productive += seconds
            self._steps.labels(**self.labels).observe(seconds)
        self._set("advanced", time.time())
        self._show(line)

    def checkpoint_saved(self, seconds: float) -> None:
        self._saves.labels(**self.labels).observe(seconds)
        self._set("saved", time.time())

    def close(self) -> None:
        for sampler in self._samplers:
            sampler.stop()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _show(self, line: Mapping[str, Any]) -> None:
        for key, (_, _, unit) in _FROM_LINE.items():
            # An evaluation's step counts the updates before it, which is a different number.
            if line.get(key) is not None and not (key == "step" and "eval_loss" in line):
                self._set(key, float(line[key]) * unit)
        for name, numbers in (line.get("mixture") or {}).items():
            for key, gauge in self._sources.items():
                gauge.labels(**self.labels, source=name).set(numbers[key])
        if line.get("tokens_per_second_per_device") is not None:
            self._set("tokens", float(line["tokens_per_second_per_device"]) * self._devices)

    def _set(self, key: str, value: float) -> None:
        self._gauges[key].labels(**self.labels).set(value)

    def _elapsed(self) -> float:
        return time.time() - self._first_start


def preemptions(events: Iterable[Mapping[str, Any]]) -> int:
    """Return the number of starts of the loop before which a host received a stop signal."""
    count, stopped = 0, False
    for event in events:
        if event["event"] == "loop_started":
            count += stopped
            stopped = False
        elif event["event"] == "preempted":  # without Ray, each host reports it
            stopped = True
    return count


def address_file(folder: Path, host: int) -> Path:
    """Return the file in which a local run's process records the address of its metrics."""
    return folder / f"metrics-address-{host}.txt"
