"""Monitoring of a run while it trains: Prometheus, Weights & Biases, its record. MaxText writes TensorBoard.

Monitoring never stops or delays the training. A failure is logged once, and the run continues without it.
metrics.jsonl is the record; all reported values come from its lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from trainer import metrics
from trainer.config import RunConfig
from trainer.telemetry.log import warn
from trainer.telemetry.prometheus import Endpoint
from trainer.telemetry.weights_and_biases import Upload

if TYPE_CHECKING:
    from trainer.reporting.reporter import Reporter


class Telemetry:
    """The telemetry of one process. Every host serves its chips' metrics, the first host also the run's."""

    def __init__(self, config: RunConfig, *, host: int, devices: list[Any], reporter: Reporter | None = None) -> None:
        """`host` is the index of this process in the run, `devices` JAX's devices of this process.

        `reporter` keeps the record and sends notifications, on the first host."""
        self._reporter, self._devices = reporter, 1
        self._folder = config.folder
        self._upload: Upload | None = None
        self._config = config
        self._endpoint = Endpoint.serve(config, host=host, devices=devices)

    def loop_starts(self, *, step: int, steps: int, devices: int) -> None:
        """Call on the first host, once metrics.jsonl has the valid earlier lines and events.jsonl this start."""
        self._devices = devices
        if self._reporter is not None:
            self._reporter.loop_starts(step=step, steps=steps)
        try:
            lines = list(metrics.read(self._folder / "metrics.jsonl"))
            if self._endpoint is not None:
                events = metrics.read(self._folder / "events.jsonl")
                self._endpoint.loop_starts(
                    *(events, lines),
                    step=step,
                    steps=steps,
                    devices=devices,
                    saves=self._config.train.get("enable_checkpointing") is not False,
                    forecast=self._config.forecast_step_seconds,
                )
            if self._config.wandb is not None:
                self._upload = Upload(self._config, lines)
        except (OSError, ValueError, KeyError) as error:
            warn(f"The run is not reported to Prometheus and Weights & Biases: {error}. Training continues.")
            self._close(patient=False)
            self._endpoint = self._upload = None

    def line(self, line: Mapping[str, Any]) -> None:
        """Report a line of metrics.jsonl, after it has been written there."""
        if self._reporter is not None:
            self._reporter.line(line, devices=self._devices)
        if self._endpoint is not None:
            self._endpoint.line(line)
        if self._upload is not None:
            self._upload.line(line)

    def checkpoint_saved(self, seconds: float) -> None:
        """Report how long the training paused for a checkpoint, which is written in the background from here on."""
        if self._reporter is not None:
            self._reporter.checkpoint_saved()
        if self._endpoint is not None:
            self._endpoint.checkpoint_saved(seconds)

    def waited_for_data(self, seconds: float) -> None:
        """Report how long the chips of the training waited for data."""
        if self._reporter is not None:
            self._reporter.waited_for_data(seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        """End the loop's telemetry. Sends pending data, unless the process must end soon after a stop signal:
        then the next start sends it."""
        self._close(patient=failed is None)

    def _close(self, *, patient: bool) -> None:
        if self._upload is not None:
            self._upload.close(patient=patient)
        if self._endpoint is not None:
            self._endpoint.close()
