"""The training loop of one process: MaxText's own, with text, metrics and evaluations of ours.

MaxText's loop runs as it is; four of its seams are replaced in memory, for this process only:
where documents come from, what happens to metrics, when a checkpoint is written relative to them, and
what a data error does (MaxText turns it into an ordinary end). Everything else, the step itself
included, is untouched, so a step costs what it costs in bare MaxText.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainer import data, startup, storage
from trainer.config import RunConfig, maxtext_argv
from trainer.errors import ConfigError
from trainer.metrics import MetricsFile, now, write_event
from trainer.stop_signal import LocalStopSignal, Watch, stop_all_hosts, watching
from trainer.telemetry import Telemetry


@dataclass(frozen=True)
class Outcome:
    """How a process left the loop: `steps` are the finished ones, of the whole run."""

    steps: int
    target_reached: bool = False


class TrainingStoppedError(Exception):
    """The loop ended before its last step, for a reason that a restart mends."""


class PreemptedError(TrainingStoppedError):
    """One of the hosts was told to end (SIGTERM), so that all stopped after the same step.

    They left a checkpoint, unless train.enable_checkpointing is false. `steps` are the finished ones, of the whole
    run; None where none was done since the start.
    """

    def __init__(self, message: str, steps: int | None = None) -> None:
        super().__init__(message)
        self.steps = steps


def completed(config: RunConfig) -> bool:
    """Whether the last step's checkpoint is there already (a run killed between it and its end).

    Raises ConfigError where there are more: MaxText would fail at each restart.
    """
    steps = config.train.get("steps")
    folder = config.folder / "checkpoints"
    if not steps or config.train.get("enable_checkpointing") is False or not folder.is_dir():
        return False
    done = max((int(path.name) + 1 for path in folder.iterdir() if path.name.isdigit()), default=0)
    if done > int(steps):
        raise ConfigError(
            f"train.steps is {steps}, but {config.name} has trained {done} steps already; "
            "set more steps, or submit under a new name."
        )
    return done == int(steps)


def train(config: RunConfig, watch: Watch | None = None) -> Outcome:
    """Train from the last checkpoint (or the start) to the last step; every host's process calls this.

    jax.distributed is set up already where there are several. `watch` tells the first host's that the run is to stop,
    where no signal does. Raises ConfigError where no restart helps,
    TrainingStoppedError where the run was asked to stop, and what MaxText raises otherwise.
    """
    if completed(config):  # a restart that came after the last step: MaxText would take it for a mistake
        return Outcome(int(config.train["steps"]))
    storage.remember(config)
    startup.defer_unused_imports()
    from absl import flags

    # MaxText's libraries read absl flags at their first step, which a Ray worker never parses.
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["trainer"])

    import jax
    from maxtext.trainers.pre_train import train as maxtext_train

    _quieten(first=jax.process_index() == 0)
    if config.accelerator["kind"] == "cpu":
        # A small model compiles in many pieces, each under the second that the cache asks for by default.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        if jax.process_index() > 0:
            _write_own_cache_entries()
    maxtext_config, recorder = _initialize(maxtext_train, maxtext_argv(config))
    hooks = _Hooks(config, Telemetry(config, host=jax.process_index(), devices=jax.local_devices()))
    with hooks.telemetry, hooks.installed(maxtext_train):
        from maxtext.common import goodput

        goodput.record_goodput(recorder, goodput.RECORD_JOB_START_TIME)
        train_func = maxtext_train.get_train_func(maxtext_config, recorder, maxtext_argv(config))
        try:
            with goodput.maybe_monitor_goodput(maxtext_config), watching(watch, lambda: hooks.stepped, hooks.stop):
                train_func()
        except SystemExit as stop:
            if not math.isfinite(hooks.loss):
                # From the same checkpoint it would diverge again.
                raise ConfigError(
                    f"The loss of step {hooks.steps_done} is {hooks.loss}: training has diverged; "
                    "lower train.learning_rate, or raise train.warmup_steps_fraction."
                ) from stop
            raise
        except Exception as error:
            if (trouble := storage.named(error, config)) is not None:
                raise trouble from error
            if hooks.stepped or not isinstance(error, _REFUSALS):
                raise
            traceback.print_exc()
            raise ConfigError(_sentence(error)) from error
    if hooks.target_reached or hooks.steps_done >= maxtext_config.steps:
        return Outcome(hooks.steps_done, hooks.target_reached)
    if hooks.preempted:
        raise PreemptedError(
            f"A host was told to end: training stopped after {hooks.steps_done} steps.", hooks.steps_done
        )
    raise TrainingStoppedError(f"Training stopped after {hooks.steps_done} of {maxtext_config.steps} steps.")


_NOISE = (
    "completed step: ",
    "Completed eval step: ",
    "Specifying dataset_type upon checkpointer creation is deprecated",
)


def _quieten(*, first: bool) -> None:
    """Leave out of the log what Orbax tells of each of its threads, what other hosts say as the first does, and
    MaxText's line a step, whose speed (the time to hand a step over) contradicts ours."""

    def wanted(record: logging.LogRecord) -> bool:
        if str(record.msg).startswith(_NOISE):
            return False
        return record.levelno >= logging.WARNING or (first and f"{os.sep}orbax{os.sep}" not in record.pathname)

    logging.getLogger("absl").addFilter(wanted)


def _write_own_cache_entries() -> None:
    """JAX writes compiled programs from process 0 only, for all to read; on CPU each process's differ in their
    key, so that the others would compile everything anew at every restart."""
    from jax._src import compilation_cache, compiler

    def write(cache_key: str, seconds: float, module_name: str, backend: Any, executable: Any) -> None:
        compilation_cache.put_executable_and_time(cache_key, module_name, executable, backend, int(seconds))

    compiler._cache_write = write


# What MaxText, Flax and Orbax raise for a config, a mesh or a checkpoint that cannot be; a machine that
# fails raises others (JaxRuntimeError, OSError). Raised before the first step they would be raised again.
_REFUSALS = (ValueError, TypeError, AssertionError, ArithmeticError, LookupError, NotImplementedError)


def _initialize(maxtext_train: Any, argv: list[str]) -> tuple[Any, Any]:
    """MaxText's own start; its ways to refuse a config (exit code 2, and several errors) become a ConfigError."""
    try:
        return maxtext_train.initialize(argv)  # type: ignore[no-any-return]
    except SystemExit as stop:
        raise ConfigError(_sentence(stop.__context__ or stop)) from stop
    except _REFUSALS as error:
        raise ConfigError(_sentence(error)) from error


def _sentence(error: BaseException) -> str:
    """What MaxText has against the config, key by key where it says."""
    details = getattr(error, "errors", None)
    if callable(details):
        problems = [
            f"train.{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
            if problem.get("loc")
            else str(problem["msg"])
            for problem in details()
        ]
        return "MaxText refuses the config: " + "; ".join(problems)
    return f"MaxText refuses the config: {' '.join(str(error).split()) or type(error).__name__}"


class _Hooks:
    """What is replaced in MaxText while it trains, and what was seen meanwhile."""

    def __init__(self, config: RunConfig, telemetry: Telemetry) -> None:
        self.config = config
        self.telemetry = telemetry
        self.steps_done = 0
        self.loss = 0.0
        self.stepped = False
        self.target_reached = False
        self.preempted = False
        self.stop: Callable[[], bool] = stop_all_hosts
        self._logger: Any = None
        self._last_loss: Any = None
        # A checkpoint that MaxText wanted to write before it handed over the step's metrics.
        self._pending: tuple[Any, ...] | None = None
        self._in_iteration = False

    @contextlib.contextmanager
    def installed(self, maxtext_train: Any) -> Iterator[None]:
        """Replace the seams for as long as the context lasts; what was there before is called from the new."""
        import jax
        from jax._src import distributed
        from maxtext.common import checkpointing, data_loader, metric_logger
        from maxtext.input_pipeline import grain_data_processing

        with contextlib.ExitStack() as stack:
            replace = _replacer(stack)
            replace(metric_logger, "MetricLogger", self._logger_class(metric_logger))
            replace(data_loader, "loader_exception_guard", _data_errors_are_errors)
            self._save = replace(checkpointing, "save_checkpoint", self._save_after_metrics)
            self._maybe_save = replace(checkpointing, "maybe_save_checkpoint", self._defer_save)
            self._iteration = replace(maxtext_train, "training_loop_iteration", self._iterate)
            if self.config.corpus is not None:
                replace(grain_data_processing, "get_datasets", self._documents)
            if jax.process_count() == 1:
                alone = LocalStopSignal()
                self.stop = alone.give
                if distributed.global_state.client is None:  # else JAX has taken SIGTERM
                    stack.enter_context(alone.listening())
                replace(checkpointing, "reached_preemption", alone.reached)
            self._told_to_stop = checkpointing.reached_preemption
            self._wait = checkpointing.wait_until_finished
            yield

    def _documents(self, *args: Any, **options: Any) -> Any:
        """In place of MaxText's reader of files: our stream of documents, tokenized and packed by MaxText."""
        corpus = self.config.corpus
        if corpus is None:
            raise TypeError("asked for documents, but the run names none")
        held_out = options["split"] == "eval"
        return data.train_dataset(
            corpus,
            held_out=held_out,
            host_index=options["dataloading_host_index"],
            host_count=options["dataloading_host_count"],
            shuffle=options["shuffle"],
            seed=options["shuffle_seed"],
            # One pass is MaxText's default; a run that asks for more steps than its text has goes round.
            epochs=None if held_out else self.config.train.get("num_epoch"),
        )

    def _iterate(self, device_state: dict[str, Any], variables: dict[str, Any], constants: dict[str, Any]) -> Any:
        step, last = variables["step"], constants["steps"] - 1
        self._logger = variables["metric_logger_instance"]
        if step == constants["start_step"]:
            device_state["p_train_step"] = self._watched(device_state["p_train_step"])
            self._logger.loop_starts()
        evaluates = variables["eval_data_iterator"] is not None
        if step == 0 and evaluates:
            self._evaluate(device_state, variables, constants, after_step=-1)
        self._in_iteration = True
        try:
            metrics = self._iteration(device_state, variables, constants)
        finally:
            self._in_iteration = False
        self.steps_done = step + 1
        self.stepped = True
        if step == last and evaluates and self._logger.evaluated_after != step:
            self._evaluate(device_state, variables, constants, after_step=step)
        if self._pending is not None:
            manager, maxtext_config, iterator = self._pending
            self._pending = None
            self._save_now(manager, device_state["state"], maxtext_config, iterator, step)
        return metrics

    def _watched(self, train_step: Any) -> Any:
        """The compiled step, unchanged, whose last result can be waited for."""

        def step(*args: Any) -> Any:
            state, metrics = train_step(*args)
            self._last_loss = metrics["scalar"]["learning/loss"]
            return state, metrics

        return step

    def _evaluate(
        self, device_state: dict[str, Any], variables: dict[str, Any], constants: dict[str, Any], *, after_step: int
    ) -> None:
        """One evaluation of the held-out part outside MaxText's own schedule, with its compiled step."""
        import jax
        from flax.core.spmd import logical_axis_rules
        from maxtext.utils import sharding

        config, mesh, logger = constants["config"], device_state["mesh"], self._logger
        rules = constants["logical_axis_rules_for_eval"]
        rng = (jax.random.fold_in(device_state["init_rng"], max(after_step, 0)),) if config.enable_diloco else ()
        logger.settle()
        iterator = variables["eval_data_iterator"]
        iterator.reset()
        logger.reset_eval_metrics()
        started = time.perf_counter()
        for count, raw in enumerate(iterator, start=1):
            batch = jax.device_put(raw, sharding.get_input_data_sharding(config, mesh, rules=rules))
            with jax.set_mesh(mesh), logical_axis_rules(rules):
                metrics = device_state["p_eval_step"](device_state["state"], batch, *rng)
            logger.buffer_and_write_metrics(metrics, count - 1, step_time_delta=_elapsed(started), is_training=False)
            if count >= constants["eval_steps"]:
                break
        logger.finish_evaluation(after_step)

    def _defer_save(self, manager: Any, state: Any, config: Any, iterator: Any, step: int | None = None) -> None:
        """Within an iteration MaxText saves before it hands over the step's metrics; save after that instead."""
        if self._in_iteration and step is not None:
            self._pending = (manager, config, iterator)
        else:
            self._save_now(manager, state, config, iterator, step)

    def _save_now(self, *args: Any) -> None:
        from maxtext.utils import exceptions

        try:
            self._maybe_save(*args)
        except exceptions.StopTraining:  # raised there for one reason: a host got SIGTERM, and all agree to stop
            self.preempted = True
            raise
        # Without checkpoints MaxText does not ask, and would go on until it is killed.
        if args[0] is None and self.steps_done and self._told_to_stop(None, self.steps_done - 1):
            self.preempted = True
            raise exceptions.StopTraining("told to end, and checkpoints are off")

    def _save_after_metrics(self, manager: Any, step: int, *args: Any, **kwargs: Any) -> Any:
        self._logger.settle()
        started = time.perf_counter()
        if self._told_to_stop(manager, step):
            # Orbax leaves a checkpoint out while it still writes the one before; this one has no second chance.
            self._wait(manager)
            args = args[:3]  # state, config, data iterator; the next is `force`
            kwargs["force"] = True
        saved = self._save(manager, step, *args, **kwargs)
        if saved:
            self.telemetry.checkpoint_saved(time.perf_counter() - started)
        return saved

    def _logger_class(self, metric_logger: Any) -> type[Any]:
        hooks = self

        class Logger(metric_logger.MetricLogger):  # type: ignore[misc]
            """MaxText's logger, which also writes the run's metrics.jsonl and a TensorBoard log without doubles."""

            evaluated_after = -2
            _file: MetricsFile | None = None
            _last: float = 0.0
            _finished: float | None = None

            def __init__(self, config: Any, learning_rate_schedule: Any, start_step: int = 0) -> None:
                super().__init__(config, learning_rate_schedule, start_step)
                import jax

                hooks.steps_done = start_step
                if jax.process_index() == 0:
                    folder = hooks.config.folder
                    self._file = MetricsFile(folder, start_step=start_step)
                    write_event(folder, "loop_started", step=start_step, steps=config.steps, devices=jax.device_count())
                    hooks.telemetry.loop_starts(step=start_step, steps=config.steps, devices=jax.device_count())
                    if config.enable_tensorboard:
                        _purge(self.writer, start_step)

            def loop_starts(self) -> None:
                self._last = time.perf_counter()

            def mark_eval_loop_start(self) -> None:
                # The step before an evaluation is written after it; when it finished has to be seen now.
                hooks._last_loss.block_until_ready()
                self._finished = time.perf_counter()
                super().mark_eval_loop_start()

            def settle(self) -> None:
                """Write what is buffered: the last step's line waits for the next step otherwise."""
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
                    # The time of an evaluation belongs to no training step.
                    self._last = time.perf_counter()

            def write_metrics(self, metrics: Any, step: int, metric_type: str = "train") -> None:
                line: dict[str, Any] | None = None
                if self._file is not None and metric_type == "train":
                    line = self._train_line(metrics["scalar"], step)
                elif self._file is not None and metric_type == "eval":
                    loss = float(metrics["scalar"]["eval/avg_loss"])
                    line = {"step": step + 1, "eval_loss": loss, "time": now()}
                if self._file is not None and line is not None:
                    self._file.write(line)
                    hooks.telemetry.line(line)
                super().write_metrics(metrics, step, metric_type)

            def _train_line(self, scalars: Mapping[str, Any], step: int) -> dict[str, Any]:
                import jax

                loss = hooks.loss = float(scalars["learning/loss"])  # waits until the device has finished the step
                finished, self._finished = self._finished or time.perf_counter(), None
                # MaxText's own step time is the time to hand the step to the device, which jumps where
                # that runs ahead; from one finished step to the next is what a step takes.
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
                    # An Ironwood chip is two devices to JAX; the table's peak is the chip's.
                    per_chip = jax.device_count() / hooks.config.chips
                    line["mfu"] = round(per_chip * tflops / seconds / hooks.config.peak_tflops, 6)
                for name, key in (("grad_norm", "learning/grad_norm"), ("param_norm", "learning/param_norm")):
                    if key in scalars:
                        line[name] = float(scalars[key])
                return line

        return Logger


@contextlib.contextmanager
def _data_errors_are_errors(config: Any) -> Iterator[None]:
    """In place of MaxText's guard, which ends the run as if it were done when data fails or runs out."""
    try:
        yield
    except StopIteration as error:
        raise ConfigError(
            "The data is used up before the last step; give more text, raise train.num_epoch, or lower train.steps."
        ) from error


def _purge(writer: Any, start_step: int) -> None:
    """Tell TensorBoard to forget the steps of a former attempt that are done again from here."""
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    if start_step:
        writer.file_writer.add_event(Event(step=start_step, session_log=SessionLog(status=SessionLog.START)))


def _elapsed(started: float) -> Any:
    import datetime

    return datetime.timedelta(seconds=time.perf_counter() - started)


def _replacer(stack: contextlib.ExitStack) -> Any:
    def replace(module: Any, name: str, new: Any) -> Any:
        old = getattr(module, name)
        setattr(module, name, new)
        stack.callback(setattr, module, name, old)
        return old

    return replace


def environment(config: RunConfig) -> dict[str, str]:
    """The environment that a training process needs before JAX is imported, with the values' worker.env on top."""
    kind = config.accelerator["kind"]
    # The CPU beside the chips: offloading to the host and Orbax use it.
    variables = {"JAX_PLATFORMS": {"cpu": "cpu", "gpu": "cuda,cpu", "tpu": "tpu,cpu"}[kind]}
    if kind == "cpu":
        # Without this the CPU client of several processes has no collectives.
        variables["JAX_CPU_COLLECTIVES_IMPLEMENTATION"] = "gloo"
    own = (config.tree.get("worker") or {}).get("env") or {}
    return {**variables, **{name: str(value) for name, value in own.items() if value is not None}}


def set_environment(config: RunConfig) -> None:
    """Set it in this process; what is set already (in the pod, in the shell) stays."""
    for name, value in environment(config).items():
        os.environ.setdefault(name, value)
