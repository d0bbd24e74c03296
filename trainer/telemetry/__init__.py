"""What follows a run from outside while it trains: Prometheus, and Weights & Biases. MaxText writes TensorBoard.

None of it may stop the training or hold it up: what fails says so once in the log, and the run goes on without.
metrics.jsonl stays the record; all that is told here comes from its lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from trainer import metrics
from trainer.config import RunConfig
from trainer.telemetry.log import say
from trainer.telemetry.prometheus import Endpoint
from trainer.telemetry.weights_and_biases import Upload


class Telemetry:
    """One process's: every host serves its chips' metrics, the first the run's too."""

    def __init__(self, config: RunConfig, *, host: int, devices: list[Any]) -> None:
        """`host` is this process's number among all of the run's, `devices` JAX's devices of this process."""
        self._folder = config.folder
        self._upload: Upload | None = None
        self._config = config
        self._endpoint = Endpoint.serve(config, host=host, devices=devices)

    def loop_starts(self, *, step: int, steps: int, devices: int) -> None:
        """On the first host, once metrics.jsonl holds what counts of earlier attempts and events.jsonl this start."""
        try:
            lines = list(metrics.read(self._folder / "metrics.jsonl"))
            if self._endpoint is not None:
                starts = [e for e in metrics.read(self._folder / "events.jsonl") if e["event"] == "loop_started"]
                self._endpoint.loop_starts(starts, lines, step=step, steps=steps, devices=devices)
            if self._config.wandb is not None:
                self._upload = Upload(self._config, lines)
        except (OSError, ValueError, KeyError) as error:
            say(f"The run is not told to Prometheus nor Weights & Biases: {error}. Training goes on.")
            self._close(patient=False)
            self._endpoint = self._upload = None

    def line(self, line: Mapping[str, Any]) -> None:
        """A line of metrics.jsonl, when it has been written there."""
        if self._endpoint is not None:
            self._endpoint.line(line)
        if self._upload is not None:
            self._upload.line(line)

    def checkpoint_saved(self, seconds: float) -> None:
        """The training has stood still this long for a checkpoint; it is written in the background from here on."""
        if self._endpoint is not None:
            self._endpoint.checkpoint_saved(seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, failed: type[BaseException] | None, *_: object) -> None:
        """The loop has ended. What is on its way goes out, unless the process has to end soon, as one that is told to:
        then the next start sends it."""
        self._close(patient=failed is None)

    def _close(self, *, patient: bool) -> None:
        if self._upload is not None:
            self._upload.close(patient=patient)
        if self._endpoint is not None:
            self._endpoint.close()
