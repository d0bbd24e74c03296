"""MaxText's metrics in the files of the run: metrics.jsonl, its log, its telemetry, and TensorBoard's log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from trainer.metrics import MetricsFile, now, print_line, write_event

if TYPE_CHECKING:
    from trainer.training.hooks import Hooks


class Texts:
    """The config in TensorBoard's log, 800 texts: written after the first step, which would have to wait for them."""

    def __init__(self, write: Callable[..., None]) -> None:
        self._write = write
        self._waiting: list[tuple[Any, ...]] = []

    def add(self, *arguments: Any) -> None:
        self._waiting.append(arguments)

    def write(self) -> None:
        while self._waiting:
            self._write(*self._waiting.pop(0))


def logger_class(metric_logger: Any, hooks: Hooks, texts: Texts) -> type[Any]:
    """Return the class in place of MaxText's MetricLogger, whose module this is. It records in `hooks`."""

    class Logger(metric_logger.MetricLogger):  # type: ignore[misc]
        """MaxText's logger, which also writes the run's metrics.jsonl and a TensorBoard log without duplicates."""

        evaluated_after = -2
        _file: MetricsFile | None = None
        _last: float = 0.0
        _finished: float | None = None

        def __init__(self, config: Any, learning_rate_schedule: Any, start_step: int = 0) -> None:
            super().__init__(config, learning_rate_schedule, start_step)
            import jax

            hooks.steps_done = start_step
            hooks.log.steps, hooks.log.devices = config.steps, jax.device_count()
            if jax.process_index() == 0:
                folder = hooks.config.folder
                self._file = MetricsFile(folder, start_step=start_step)
                write_event(folder, "loop_started", step=start_step, steps=config.steps, devices=jax.device_count())
                hooks.telemetry.loop_starts(step=start_step, steps=config.steps, devices=jax.device_count())
                if config.enable_tensorboard:
                    survive_storage_errors(self.writer)
                    _purge(self.writer, start_step)

        def resume(self) -> None:
            """Start the time of the next step, and its phase."""
            self._last = time.perf_counter()
            hooks.log.enter("training")

        def loop_starts(self) -> None:
            hooks.log.enter("training")
            self._last = time.perf_counter()

        def mark_eval_loop_start(self) -> None:
            hooks.evaluated = True
            # The step before an evaluation is written after it, so record now when the step finished.
            hooks.last_loss.block_until_ready()
            self._finished = time.perf_counter()
            hooks.log.enter("evaluation")
            super().mark_eval_loop_start()

        def settle(self) -> None:
            """Write buffered lines. Otherwise the last step's line waits for the next step."""
            while self.buffered_metrics:
                self._flush_one_buffered_entry(self.buffered_metrics.pop(0))
            if self._file is not None:
                self._file.settle()
            if self._file is not None and self.config.enable_tensorboard:
                self.writer.flush()

        def finish_evaluation(self, after_step: int) -> None:
            self.settle()
            if self._pending_eval_step_count:
                self._finalize_eval_metrics(after_step)

        def _finalize_eval_metrics(self, train_step: int) -> None:
            from maxtext.utils import exceptions

            self.evaluated_after = train_step
            try:
                super()._finalize_eval_metrics(train_step)
            except exceptions.StopTraining:
                hooks.target_reached = True
                raise
            finally:
                self.resume()  # the time of an evaluation does not count toward any training step

        def write_metrics(self, metrics: Any, step: int, metric_type: str = "train") -> None:
            line: dict[str, Any] | None = None
            if self._file is not None and metric_type == "train":
                line = self._train_line(metrics["scalar"], step)
            elif self._file is not None and metric_type == "eval":
                loss = float(metrics["scalar"]["eval/avg_loss"])
                line = {"step": step + 1, "eval_loss": loss, **hooks.tuned.evaluated(), "time": now()}
            if self._file is not None and line is not None:
                self._file.write(line)
                hooks.telemetry.line(line)
                (hooks.log.evaluation if "eval_loss" in line else hooks.log.step)(line)
            super().write_metrics(metrics, step, metric_type)
            texts.write()

        def _train_line(self, scalars: Mapping[str, Any], step: int) -> dict[str, Any]:
            import jax

            loss = hooks.loss = float(scalars["learning/loss"])  # waits until the device has finished the step
            hooks.loss_step = int(step) + 1
            finished, self._finished = self._finished or time.perf_counter(), None
            # MaxText's own step time is the time to hand the step to the device, which jumps when
            # that runs ahead. The actual step time is from one finished step to the next.
            seconds, self._last = finished - self._last, finished
            tokens = float(scalars["perf/per_device_tokens"]) if "perf/per_device_tokens" in scalars else None
            tflops = float(scalars["perf/per_device_tflops"]) if "perf/per_device_tflops" in scalars else None
            line: dict[str, Any] = {
                "step": int(step),
                "loss": loss,
                "step_seconds": round(seconds, 6),
                "tokens_per_second_per_device": tokens and round(tokens / seconds, 3),
                "tflops_per_second_per_device": tflops and round(tflops / seconds, 6),
                "learning_rate": float(scalars["learning/current_learning_rate"]),
                "time": now(),
            }
            if hooks.config.peak_tflops and tflops:
                # JAX counts an Ironwood chip as two devices; the table's peak is per chip.
                per_chip = jax.device_count() / hooks.config.chips
                line["mfu"] = round(per_chip * tflops / seconds / hooks.config.peak_tflops, 6)
            for name, key in (("grad_norm", "learning/raw_grad_norm"), ("param_norm", "learning/param_norm")):
                if key in scalars:
                    line[name] = float(scalars[key])
            return line | hooks.batches.measured(scalars)

    return Logger


def survive_storage_errors(writer: Any) -> None:
    """Keep the thread that writes TensorBoard's file alive if the storage fails.

    Otherwise its queue fills, and the training waits for it without an end. The file ends at the first error.
    """
    events = writer.file_writer.event_writer._ev_writer
    broken = threading.Event()

    def harmless(write: Callable[..., Any]) -> Callable[..., None]:
        def attempt(*args: Any) -> None:
            if broken.is_set():
                return
            try:
                write(*args)
            except Exception as error:  # no error of this file is worth a run
                broken.set()
                print_line(f"TensorBoard's file cannot be written: {error}. The training continues without it.")

        return attempt

    for name in ("write_event", "flush", "close"):
        setattr(events, name, harmless(getattr(events, name)))


def _purge(writer: Any, start_step: int) -> None:
    """Make TensorBoard drop the steps of a previous attempt that are repeated from here."""
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    if start_step:
        writer.file_writer.add_event(Event(step=start_step, session_log=SessionLog(status=SessionLog.START)))
