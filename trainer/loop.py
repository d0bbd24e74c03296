"""The training loop of one process: MaxText's own, with Slipway's text, metrics and evaluations.

MaxText's loop runs unchanged, except for four functions that are replaced in memory, for this process only:
the source of documents, the handling of metrics, when a checkpoint is written relative to them, and
the handling of a data error (MaxText turns it into a normal end). Everything else, including the step itself,
is unchanged, so a step costs the same as in plain MaxText.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import gc
import logging
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer import config as run_config
from trainer import data, deferred_imports, end_token, mixture, storage_errors
from trainer.config import RunConfig, maxtext_argv, saved_steps
from trainer.errors import ConfigError
from trainer.metrics import MetricsFile, now, write_event
from trainer.profiling import Profiler
from trainer.run_log import RunLog
from trainer.stop_signal import LocalStopSignal, Watch, stop_all_hosts, watching
from trainer.telemetry import Telemetry
from trainer.tuning import lora, pipeline, precomputed, preferences, samples
from trainer.tuning.settings import DPO


@dataclass(frozen=True)
class Outcome:
    """How a process left the loop: `steps` is the number of finished steps, of the whole run."""

    steps: int
    target_reached: bool = False


class TrainingStoppedError(Exception):
    """The loop ended before its last step, for a reason that a restart fixes."""


class PreemptedError(TrainingStoppedError):
    """One of the hosts received a stop signal (SIGTERM), so all hosts stopped after the same step.

    They wrote a checkpoint, unless train.enable_checkpointing is false. `steps` is the number of finished steps, of
    the whole run, or None if no step finished since the start.
    """

    def __init__(self, message: str, steps: int | None = None) -> None:
        super().__init__(message)
        self.steps = steps


def completed(config: RunConfig) -> bool:
    """Return whether the last step's checkpoint exists already (the run was killed between it and its end).

    Raises ConfigError if there are later checkpoints: MaxText would fail at each restart.
    """
    steps = config.train.get("steps")
    if not steps:
        return False
    done = saved_steps(config)
    if done > int(steps):
        raise ConfigError(
            f"train.steps is {steps}, but {config.name} has trained {done} steps already; "
            "set more steps, or submit under a new name."
        )
    return done == int(steps)


def train(config: RunConfig, watch: Watch | None = None) -> Outcome:
    """Train from the last checkpoint (or the start) to the last step. Every host's process calls this.

    With several hosts, jax.distributed must already be set up. `watch` reports to the first host's process that the
    run must stop, if no signal does. Raises ConfigError if no restart helps,
    TrainingStoppedError if the run was asked to stop, and MaxText's own errors otherwise.
    """
    if completed(config):  # a restart after the last step: MaxText would report an error
        return Outcome(int(config.train["steps"]))
    storage_errors.remember(config)
    log = RunLog(config, first=is_first(config))
    try:
        with _without_garbage_collection():
            outcome = _train(config, watch, log)
    except PreemptedError:
        log.close("preempted")
        raise
    except BaseException:
        log.close("failed")
        raise
    log.close("succeeded")
    return outcome


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Pause Python's garbage collection. A start creates millions of objects that stay: a tenth of it was their scans.

    The loop resumes it before the first step.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _train(config: RunConfig, watch: Watch | None, log: RunLog) -> Outcome:
    log.enter("imports")
    deferred_imports.defer_unused_imports()
    from absl import flags

    # MaxText's libraries read absl flags at their first step, and a Ray worker never parses them.
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["trainer"])

    import jax
    from maxtext.trainers.pre_train import train as maxtext_train

    if config.is_local and config.accelerator["kind"] == "gpu":
        _require_gpus(jax)
    _quieten(first=jax.process_index() == 0)
    if config.accelerator["kind"] == "cpu":
        # A small model compiles in many pieces, each shorter than the cache's default minimum of one second.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        if jax.process_index() > 0:
            _write_own_cache_entries()
    log.enter("data")
    maxtext_config, recorder = _initialize(maxtext_train, maxtext_argv(config))
    telemetry = Telemetry(config, host=jax.process_index(), devices=jax.local_devices(), reporter=log.reporter)
    hooks = _Hooks(config, telemetry, log)
    with hooks.telemetry, hooks.installed(maxtext_train):
        from maxtext.common import goodput

        goodput.record_goodput(recorder, goodput.RECORD_JOB_START_TIME)
        train_func = maxtext_train.get_train_func(maxtext_config, recorder, maxtext_argv(config))
        try:
            with goodput.maybe_monitor_goodput(maxtext_config), watching(watch, lambda: hooks.stepped, hooks.stop):
                train_func()
        except SystemExit as stop:
            if not math.isfinite(hooks.loss):
                # A restart from the same checkpoint would diverge again.
                raise ConfigError(
                    f"The loss of step {hooks.steps_done} is {hooks.loss}: training has diverged; "
                    "lower train.learning_rate, or raise train.warmup_steps_fraction."
                ) from stop
            raise
        except Exception as error:
            if (trouble := storage_errors.named(error, config)) is not None:
                raise trouble from error
            if hooks.stepped or not isinstance(error, _REFUSALS):
                raise
            traceback.print_exc()
            raise ConfigError(_sentence(error)) from error
    if hooks.target_reached or hooks.steps_done >= maxtext_config.steps:
        return Outcome(hooks.steps_done, hooks.target_reached)
    if hooks.preempted:
        who = "A host" if config.hosts > 1 else "The run"
        raise PreemptedError(
            f"{who} received a stop signal: training stopped after {hooks.steps_done} steps.", hooks.steps_done
        )
    raise TrainingStoppedError(f"Training stopped after {hooks.steps_done} of {maxtext_config.steps} steps.")


def _require_gpus(jax: Any) -> None:
    """Raise ConfigError if JAX cannot use this machine's GPUs."""
    try:
        jax.devices("cuda")
    except RuntimeError as error:
        raise ConfigError(
            f"slice.accelerator: JAX finds no GPU on this machine ({_first_line(error)}); check the driver with "
            "nvidia-smi, or set slice.accelerator: cpu."
        ) from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")


def is_first(config: RunConfig) -> bool:
    """Return whether this is known to be the process of the first host: not before jax.distributed is set up.

    Does not start JAX's backends, which MaxText configures.
    """
    if config.hosts == 1:
        return True
    distributed = sys.modules.get("jax._src.distributed")
    state = getattr(distributed, "global_state", None)
    return state is not None and state.client is not None and state.process_id == 0


_NOISE = (
    "completed step: ",
    "Completed eval step: ",
    "Specifying dataset_type upon checkpointer creation is deprecated",
)


def _quieten(*, first: bool) -> None:
    """Drop log lines: Orbax's lines about its threads, lines of other hosts that repeat the first host's, and
    MaxText's line per step, whose speed (the time to hand a step over) contradicts Slipway's."""

    def wanted(record: logging.LogRecord) -> bool:
        if str(record.msg).startswith(_NOISE):
            return False
        return record.levelno >= logging.WARNING or (first and f"{os.sep}orbax{os.sep}" not in record.pathname)

    logging.getLogger("absl").addFilter(wanted)


def _write_own_cache_entries() -> None:
    """Write this process's compiled programs to the cache. JAX writes them from process 0 only, for all to read. On CPU
    each process has different keys, so the others would compile everything again at every restart."""
    from jax._src import compilation_cache, compiler

    def write(cache_key: str, seconds: float, module_name: str, backend: Any, executable: Any) -> None:
        compilation_cache.put_executable_and_time(cache_key, module_name, executable, backend, int(seconds))

    compiler._cache_write = write


# Errors of MaxText, Flax and Orbax for an invalid config, mesh or checkpoint. A machine failure raises others
# (JaxRuntimeError, OSError). An error from before the first step would recur after a restart.
_REFUSALS = (ValueError, TypeError, AssertionError, ArithmeticError, LookupError, NotImplementedError)


def _initialize(maxtext_train: Any, argv: list[str]) -> tuple[Any, Any]:
    """Initialize MaxText. Its rejections of a config (exit code 2, and several errors) become a ConfigError."""
    try:
        return maxtext_train.initialize(argv)  # type: ignore[no-any-return]
    except SystemExit as stop:
        raise ConfigError(_sentence(stop.__context__ or stop)) from stop
    except _REFUSALS as error:
        raise ConfigError(_sentence(error)) from error


def _sentence(error: BaseException) -> str:
    """Return MaxText's objections to the config, by key if it names keys."""
    details = getattr(error, "errors", None)
    if callable(details):
        problems = [
            f"train.{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"
            if problem.get("loc")
            else str(problem["msg"])
            for problem in details()
        ]
        return "MaxText rejects the config: " + "; ".join(problems)
    return f"MaxText rejects the config: {' '.join(str(error).split()) or type(error).__name__}"


class _Hooks:
    """The replacements in MaxText during training, and the state that they record."""

    def __init__(self, config: RunConfig, telemetry: Telemetry, log: RunLog) -> None:
        self.config = config
        self.telemetry = telemetry
        self.log = log
        self.steps_done = 0
        self.loss = 0.0
        self.stepped = False
        self.target_reached = False
        self.preempted = False
        self.stop: Callable[[], bool] = stop_all_hosts
        self._logger: Any = None
        self._last_loss: Any = None
        self._reader: pipeline.Reader | None = None
        self._shares: mixture.Shares | None = None
        self._resources = contextlib.ExitStack()
        self._host = (0, 1)
        self._reference: preferences.Reference | None = None
        self._samples: samples.Samples | None = None
        self._evaluated = False
        self._evaluation = preferences.Evaluation() if config.tuning.reads_pairs else None
        self._profiler: Profiler | None = None
        # A checkpoint that MaxText requested before it handed over the step's metrics.
        self._pending: tuple[Any, ...] | None = None
        self._in_iteration = False

    @contextlib.contextmanager
    def installed(self, maxtext_train: Any) -> Iterator[None]:
        """Install the replacements while the context lasts. They call the original functions."""
        import jax
        from jax._src import distributed
        from maxtext.common import checkpointing, data_loader, metric_logger
        from maxtext.input_pipeline import grain_data_processing
        from maxtext.utils import maxtext_utils, train_utils

        tuning = self.config.tuning
        with self._resources as stack:
            replace = _replacer(stack)
            replace(metric_logger, "MetricLogger", self._logger_class(metric_logger))
            replace(data_loader, "loader_exception_guard", _data_errors_are_errors)
            self._load = replace(data_loader.DataLoader, "load_next_batch_pre_sharding", self._loaded())
            self._save = replace(checkpointing, "save_checkpoint", self._save_after_metrics)
            self._maybe_save = replace(checkpointing, "maybe_save_checkpoint", self._defer_save)
            self._iteration = replace(maxtext_train, "training_loop_iteration", self._iterate)
            self._set_up = replace(train_utils, "setup_train_loop", self._set_up_before_compiling)
            if self.config.corpus is not None:
                replace(grain_data_processing, "get_datasets", self._documents)
                self._text = replace(grain_data_processing, "pretrain_preprocessing_pipeline", self._batches)
            if tuning.reads_pairs:
                replace(maxtext_train, "loss_fn", preferences.loss_function(tuning, maxtext_train.loss_fn))
            if tuning.method == DPO:
                replace(maxtext_utils, "get_shaped_batch", preferences.shaped(maxtext_utils.get_shaped_batch))
            if tuning.lora is not None:
                stack.enter_context(lora.installed())
            if jax.process_count() == 1:
                alone = LocalStopSignal()
                self.stop = alone.give
                if distributed.global_state.client is None:  # else JAX handles SIGTERM
                    stack.enter_context(alone.listening())
                replace(checkpointing, "reached_preemption", alone.reached)
            if jax.process_index() == 0:
                self._profiler = stack.enter_context(Profiler(self.config.folder))
            self._stop_reached = checkpointing.reached_preemption
            self._wait = checkpointing.wait_until_finished
            yield

    def _loaded(self) -> Any:
        """Return MaxText's function that loads a batch, which also counts how long the chips waited for it."""
        hooks = self

        def load(loader: Any) -> Any:
            if not hooks._in_iteration or hooks._last_loss is None:
                return hooks._load(loader)
            started = time.perf_counter()
            busy = not hooks._last_loss.is_ready()
            batch = hooks._load(loader)
            # If the step before was still running at the end, the chips had work all the time. If it ended meanwhile,
            # the whole time counts: it is an upper bound.
            if not busy or hooks._last_loss.is_ready():
                hooks.telemetry.waited_for_data(time.perf_counter() - started)
            return batch

        return load

    def _documents(self, *args: Any, **options: Any) -> Any:
        """Replaces MaxText's file reader: Slipway's stream of documents, or one for each source of a mixture."""
        corpus = self.config.corpus
        if corpus is None:
            raise TypeError("MaxText requested documents, but the run config sets none")
        held_out = options["split"] == "eval"
        self._host = options["dataloading_host_index"], options["dataloading_host_count"]
        if self.config.tuning.applies and self._reader is None:
            self._reader = run_config.reader(self.config)
        if not corpus.sources or (held_out and data.is_separate(corpus)):
            return self._stream(corpus, options, held_out=held_out)
        if not held_out:
            self._shares = mixture.Shares(list(corpus.sources))
        return mixture.Mixture(
            {name: self._stream(each, options, held_out=held_out, name=name) for name, each in corpus.sources.items()},
            {name: each.weight for name, each in corpus.sources.items()},
            None if held_out else self._shares,
        )

    def _stream(self, corpus: data.Corpus, options: Mapping[str, Any], *, held_out: bool, name: str = "") -> Any:
        """Return the documents of a corpus, or of the source `name` of a mixture."""
        read = data.reader(corpus)
        if self._reader is not None:
            read = (self._reader.for_held_out() if held_out else self._reader).of_stream()
        if name and not held_out and self._shares is not None:
            read = self._shares.reading(name, read)
        return data.train_dataset(
            corpus,
            held_out=held_out,
            host_index=options["dataloading_host_index"],
            host_count=options["dataloading_host_count"],
            shuffle=options["shuffle"],
            seed=options["shuffle_seed"],
            # MaxText's default is one pass. A run with more steps than its text provides repeats the text.
            epochs=None if held_out else self.config.train.get("num_epoch"),
            read=read,
        )

    def _batches(self, dataset: Any, config: Any, *args: Any, **options: Any) -> Any:
        """Replaces MaxText's pipeline: its own for plain text, ours for fine-tuning, for each source of a mixture."""
        size = self._batch_size(config)
        if self.config.tuning.applies:
            further = (preferences.REFERENCE,) if self.config.tuning.is_precomputed else ()
            batches = self._make_batches(config, further=further)
        else:
            self._resources.enter_context(end_token.counted(config))
            batches = functools.partial(self._text, *args, config=config, **options)
        return dataset.batches(batches, size) if isinstance(dataset, mixture.Mixture) else batches(dataset)

    def _make_batches(self, config: Any, further: Sequence[str]) -> Callable[[Any], Any]:
        return functools.partial(
            pipeline.batches,
            length=config.max_target_length,
            batch_size=self._batch_size(config),
            packing=config.packing,
            pairs=self.config.tuning.reads_pairs,
            further=further,
        )

    def _batch_size(self, config: Any) -> int:
        """Return the number of sequences that this host reads for a step."""
        from maxtext.input_pipeline import data_processing_utils

        return int(data_processing_utils.get_local_batch_size(config))

    def _set_up_before_compiling(self, *args: Any, **options: Any) -> Any:
        result = self._set_up(*args, **options)
        self.log.enter("compile")
        return result

    def _iterate(self, device_state: dict[str, Any], variables: dict[str, Any], constants: dict[str, Any]) -> Any:
        step, last = variables["step"], constants["steps"] - 1
        self._logger = variables["metric_logger_instance"]
        if step == constants["start_step"]:
            if self.config.tuning.is_precomputed:
                if step == 0:  # a later one has a checkpoint, and so all numbers
                    self._precompute(device_state, constants)
            elif self.config.tuning.method == DPO:
                self._reference = preferences.Reference(
                    self.config.tuning, constants["config"], device_state["mesh"], device_state["model"]
                )
            if self._reader is not None and self.config.tuning.samples and variables["eval_data_iterator"] is not None:
                self._samples = samples.Samples(
                    self.config.tuning.samples,
                    self._reader.template,
                    constants["config"],
                    device_state["mesh"],
                    device_state["model"],
                )
            if self.config.tuning.lora is not None:
                self.log.adapters(*lora.size(device_state["state"]))
            device_state["p_train_step"] = self._watched(device_state["p_train_step"])
            if self._evaluation is not None and device_state["p_eval_step"] is not None:
                device_state["p_eval_step"] = self._with_measures(device_state["p_eval_step"])
            self._logger.loop_starts()
            gc.freeze()  # what the start has created stays to the end: do not scan it again
            gc.enable()
        evaluates = variables["eval_data_iterator"] is not None
        if step == 0 and evaluates:
            self._evaluate(device_state, variables, constants, after_step=-1)
            self._write_samples(device_state, constants)
        if self._profiler is not None:
            self._profiler.before_step(step, self._last_loss)
        self._in_iteration = True
        try:
            metrics = self._iteration(device_state, variables, constants)
        finally:
            self._in_iteration = False
        self.steps_done = step + 1
        self.stepped = True
        if step == last and evaluates and self._logger.evaluated_after != step:
            self._evaluate(device_state, variables, constants, after_step=step)
        self._write_samples(device_state, constants)
        if self._pending is not None:
            manager, maxtext_config, iterator = self._pending
            self._pending = None
            self._save_now(manager, device_state["state"], maxtext_config, iterator, step)
        return metrics

    def _precompute(self, device_state: dict[str, Any], constants: dict[str, Any]) -> None:
        """Compute the log probabilities of all pairs with the weights that the run starts from."""
        import jax
        import numpy as np
        from flax.core.spmd import logical_axis_rules

        config, mesh, corpus = constants["config"], device_state["mesh"], self.config.corpus
        table = run_config.reference_table(self.config)
        if self._reader is None or corpus is None or table is None:
            raise TypeError("the reference belongs to pairs")
        sums = precomputed.sums_of(config, mesh, device_state["model"], device_state["state"]["model"])
        make = self._make_batches(config, further=precomputed.KEYS)
        started, pairs = time.perf_counter(), 0
        with jax.set_mesh(mesh), logical_axis_rules(constants["logical_axis_rules_for_train"]):
            for held_out in (False, True) if corpus.held_out else (False,):
                index, count = self._host
                stream = data.train_dataset(
                    corpus,
                    held_out=held_out,
                    host_index=index,
                    host_count=count,
                    shuffle=False,
                    seed=0,
                    epochs=1,
                    read=self._reader.keyed(),
                )
                shape = (self._batch_size(config), config.max_target_length)
                empty = {key: np.zeros(shape, np.int32) for key in (*pipeline.ARRAYS, *precomputed.KEYS)}
                pairs += precomputed.compute(table, make(stream), sums, empty)
        self.log.reference(pairs, time.perf_counter() - started)

    def _watched(self, train_step: Any) -> Any:
        """Return the compiled step, unchanged, with its last result recorded so that callers can wait for it."""

        pairs = self.config.tuning.reads_pairs

        def step(state: Any, batch: Any, *args: Any) -> Any:
            # The step is compiled with donated arguments, so count before it.
            counts = pipeline.counts(batch, pairs=pairs) if self._reader is not None else {}
            counts |= self._shares.scalars() if self._shares is not None else {}
            state, metrics = train_step(state, self._with_reference(batch, state), *args)
            metrics["scalar"] |= counts
            if pairs:
                preferences.measures(metrics["scalar"])
            self._last_loss = metrics["scalar"]["learning/loss"]
            return state, metrics

        return step

    def _with_reference(self, batch: Any, state: Any) -> Any:
        if self._reference is None:
            return batch
        return {**batch, preferences.REFERENCE: self._reference.of(batch, state["model"])}

    def _with_measures(self, eval_step: Any) -> Any:
        """Return the compiled evaluation of a batch of pairs, with its measures recorded."""

        def step(state: Any, batch: Any, *args: Any) -> Any:
            metrics = eval_step(state, self._with_reference(batch, state), *args)
            if self._evaluation is not None:
                self._evaluation.add(metrics["scalar"])
            return metrics

        return step

    def _write_samples(self, device_state: dict[str, Any], constants: dict[str, Any]) -> None:
        """Write the answers to the prompts of tuning.samples, if an evaluation has just run."""
        evaluated, self._evaluated = self._evaluated, False
        if self._samples is None or not evaluated:
            return
        import jax
        from flax.core.spmd import logical_axis_rules

        self.log.enter("evaluation")
        with jax.set_mesh(device_state["mesh"]), logical_axis_rules(constants["logical_axis_rules_for_eval"]):
            answers = self._samples.answers(device_state["state"]["model"])
        if jax.process_index() == 0:
            for prompt, answer in zip(self._samples.prompts, answers, strict=True):
                write_event(self.config.folder, "sample", step=self.steps_done, prompt=prompt, message=answer)
        self._logger.resume()

    def _evaluate(
        self, device_state: dict[str, Any], variables: dict[str, Any], constants: dict[str, Any], *, after_step: int
    ) -> None:
        """Evaluate the held-out part once outside MaxText's own schedule, with its compiled step."""
        import jax
        from flax.core.spmd import logical_axis_rules
        from maxtext.utils import sharding

        config, mesh, logger = constants["config"], device_state["mesh"], self._logger
        rules = constants["logical_axis_rules_for_eval"]
        rng = (jax.random.fold_in(device_state["init_rng"], max(after_step, 0)),) if config.enable_diloco else ()
        logger.settle()
        self._evaluated = True
        self.log.enter("evaluation")
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
        """Defer the save. In an iteration MaxText saves before it hands over the step's metrics; save after that."""
        if self._in_iteration and step is not None:
            self._pending = (manager, config, iterator)
        else:
            self._save_now(manager, state, config, iterator, step)

    def _save_now(self, *args: Any) -> None:
        from maxtext.utils import exceptions

        try:
            self._maybe_save(*args)
        except exceptions.StopTraining:  # raised for one reason: a host received SIGTERM, and all agree to stop
            self.preempted = True
            raise
        # Without checkpoints MaxText does not check for the signal, and would continue until it is killed.
        if args[0] is None and self.steps_done and self._stop_reached(None, self.steps_done - 1):
            self.preempted = True
            raise exceptions.StopTraining("stop signal received, and checkpoints are disabled")

    def _save_after_metrics(self, manager: Any, step: int, *args: Any, **kwargs: Any) -> Any:
        self._logger.settle()
        self.log.enter("checkpoint")
        started = time.perf_counter()
        if self._stop_reached(manager, step):
            # Orbax skips a checkpoint while it still writes the previous one; this one has no second chance.
            self._wait(manager)
            args = args[:3]  # state, config, data iterator; the next is `force`
            kwargs["force"] = True
        saved = self._save(manager, step, *args, **kwargs)
        if saved:
            seconds = time.perf_counter() - started
            self.telemetry.checkpoint_saved(seconds)
            self.log.checkpoint(step, seconds)
        if self.steps_done < self.log.steps:  # else it is written in the background until the end of the run
            self.log.enter("training")
        return saved

    def _logger_class(self, metric_logger: Any) -> type[Any]:
        hooks = self

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
                        _purge(self.writer, start_step)

            def resume(self) -> None:
                """Start the time of the next step, and its phase."""
                self._last = time.perf_counter()
                hooks.log.enter("training")

            def loop_starts(self) -> None:
                hooks.log.enter("training")
                self._last = time.perf_counter()

            def mark_eval_loop_start(self) -> None:
                hooks._evaluated = True
                # The step before an evaluation is written after it, so record now when the step finished.
                hooks._last_loss.block_until_ready()
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
                    measures = hooks._evaluation.take() if hooks._evaluation is not None else {}
                    line = {"step": step + 1, "eval_loss": loss, **measures, "time": now()}
                if self._file is not None and line is not None:
                    self._file.write(line)
                    hooks.telemetry.line(line)
                    (hooks.log.evaluation if "eval_loss" in line else hooks.log.step)(line)
                super().write_metrics(metrics, step, metric_type)

            def _train_line(self, scalars: Mapping[str, Any], step: int) -> dict[str, Any]:
                import jax

                loss = hooks.loss = float(scalars["learning/loss"])  # waits until the device has finished the step
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
                if hooks._reader is not None:
                    line |= hooks._reader.measured(scalars)
                if hooks._shares is not None:
                    line["mixture"] = hooks._shares.of(scalars)
                    if "epoch" in line:
                        line["epoch"] = min(source["epoch"] for source in line["mixture"].values())
                return line

        return Logger


@contextlib.contextmanager
def _data_errors_are_errors(config: Any) -> Iterator[None]:
    """Replaces MaxText's guard, which ends the run as if it were complete when data fails or runs out."""
    try:
        yield
    except StopIteration as error:
        raise ConfigError(
            "The data ends before the last step; add text, raise train.num_epoch, or lower train.steps."
        ) from error


def _purge(writer: Any, start_step: int) -> None:
    """Make TensorBoard drop the steps of a previous attempt that are repeated from here."""
    from tensorboardX.proto.event_pb2 import Event, SessionLog

    if start_step:
        writer.file_writer.add_event(Event(step=start_step, session_log=SessionLog(status=SessionLog.START)))


def _elapsed(started: float) -> Any:
    return datetime.timedelta(seconds=time.perf_counter() - started)


def _replacer(stack: contextlib.ExitStack) -> Any:
    def replace(module: Any, name: str, new: Any) -> Any:
        old = getattr(module, name)
        setattr(module, name, new)
        stack.callback(setattr, module, name, old)
        return old

    return replace


def environment(config: RunConfig) -> dict[str, str]:
    """Return the environment that a training process needs before JAX is imported; the values' worker.env overrides."""
    kind = config.accelerator["kind"]
    # The CPU in addition to the chips: offloading to the host and Orbax use it.
    variables = {"JAX_PLATFORMS": {"cpu": "cpu", "gpu": "cuda,cpu", "tpu": "tpu,cpu"}[kind]}
    if kind == "cpu":
        # Without this the CPU client of several processes has no collectives.
        variables["JAX_CPU_COLLECTIVES_IMPLEMENTATION"] = "gloo"
    own = (config.tree.get("worker") or {}).get("env") or {}
    return {**variables, **{name: str(value) for name, value in own.items() if value is not None}}


def set_environment(config: RunConfig) -> None:
    """Set the environment in this process. Variables that are already set (in the pod, in the shell) are kept."""
    for name, value in environment(config).items():
        os.environ.setdefault(name, value)
