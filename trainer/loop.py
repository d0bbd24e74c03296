"""The training loop of one process: MaxText's own, with Slipway's text, metrics and evaluations.

MaxText's loop runs unchanged, except for five functions that are replaced in memory, for this process only:
the source of documents, the handling of metrics, when a checkpoint is written relative to them, how it is loaded
(restored_state.py), and the handling of a data error (MaxText turns it into a normal end). Everything else, including
the step itself, is unchanged, so a step costs the same as in plain MaxText.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import gc
import math
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer import (
    checkpoint_period,
    data,
    deferred_imports,
    end_token,
    maxtext_setup,
    mixture,
    restored_state,
    step_logger,
    storage_errors,
)
from trainer.config import RunConfig
from trainer.errors import ConfigError
from trainer.maxtext_keys import maxtext_argv
from trainer.metrics import print_line, write_event
from trainer.profiling import Profiler
from trainer.run_log import RunLog
from trainer.slow_hosts import SlowHost, SlowHosts
from trainer.starting_weights import saved_steps
from trainer.stop_signal import LocalStopSignal, Watch, stop_all_hosts, watching
from trainer.telemetry import Telemetry
from trainer.tuning import lora, pipeline, precomputed, preferences, reading, samples
from trainer.tuning.settings import DPO

_MOST_SHARING_MILLISECONDS = 600_000
"""How long a host waits for the first one, which may wait for the storage."""


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
        maxtext_setup.require_gpus(jax)
    maxtext_setup.quieten(first=jax.process_index() == 0)
    if config.accelerator["kind"] == "cpu":
        # A small model compiles in many pieces, each shorter than the cache's default minimum of one second.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        if jax.process_index() > 0:
            maxtext_setup.write_own_cache_entries()
    log.enter("data")
    maxtext_config, recorder = maxtext_setup.initialize(maxtext_train, maxtext_argv(config))
    telemetry = Telemetry(config, host=jax.process_index(), devices=jax.local_devices(), reporter=log.reporter)
    hooks = Hooks(config, telemetry, log)
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
            if hooks.stepped or not isinstance(error, maxtext_setup.REFUSALS):
                raise
            traceback.print_exc()
            raise ConfigError(maxtext_setup.sentence(error)) from error
    if hooks.target_reached or hooks.steps_done >= maxtext_config.steps:
        return Outcome(hooks.steps_done, hooks.target_reached)
    if hooks.preempted:
        who = "A host" if config.hosts > 1 else "The run"
        raise PreemptedError(
            f"{who} received a stop signal: training stopped after {hooks.steps_done} steps.", hooks.steps_done
        )
    raise TrainingStoppedError(f"Training stopped after {hooks.steps_done} of {maxtext_config.steps} steps.")


def is_first(config: RunConfig) -> bool:
    """Return whether this is known to be the process of the first host: not before jax.distributed is set up.

    Does not start JAX's backends, which MaxText configures.
    """
    if config.hosts == 1:
        return True
    distributed = sys.modules.get("jax._src.distributed")
    state = getattr(distributed, "global_state", None)
    return state is not None and state.client is not None and state.process_id == 0


class Hooks:
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
        self.last_loss: Any = None
        self.reader: pipeline.Reader | None = None
        self.shares: mixture.Shares | None = None
        self._resources = contextlib.ExitStack()
        self._host = (0, 1)
        self._reference: preferences.Reference | None = None
        self._samples: samples.Samples | None = None
        self.evaluated = False
        self.evaluation = preferences.Evaluation() if config.tuning.reads_pairs else None
        self._profiler: Profiler | None = None
        # A checkpoint that MaxText requested before it handed over the step's metrics.
        self._pending: tuple[Any, ...] | None = None
        self._in_iteration = False
        self._slow_hosts: SlowHosts | None = None
        self._period: checkpoint_period.AutoPeriod | None = None

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
            replace(metric_logger, "MetricLogger", step_logger.logger_class(metric_logger, self))
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
            set_up = maxtext_utils.setup_initial_state
            replace(maxtext_utils, "setup_initial_state", restored_state.without_copy(set_up))
            if jax.process_count() == 1:
                alone = LocalStopSignal()
                self.stop = alone.give
                if distributed.global_state.client is None:  # else JAX handles SIGTERM
                    stack.enter_context(alone.listening())
                replace(checkpointing, "reached_preemption", alone.reached)
            else:
                self._slow_hosts = SlowHosts(distributed.global_state.client, jax.process_index(), self._report_slow)
            if checkpoint_period.applies(self.config):
                first, share = jax.process_index() == 0, _shared(distributed.global_state.client)
                self._period = checkpoint_period.AutoPeriod(
                    self.config, first=first, share=share, report=self._report_period
                )
            if jax.process_index() == 0:
                self._profiler = stack.enter_context(Profiler(self.config.folder))
            self._stop_reached = checkpointing.reached_preemption
            self._wait = checkpointing.wait_until_finished
            yield

    def _loaded(self) -> Any:
        """Return MaxText's function that loads a batch, which also counts how long the chips waited for it."""
        hooks = self

        def load(loader: Any) -> Any:
            if not hooks._in_iteration or hooks.last_loss is None:
                return hooks._load(loader)
            started = time.perf_counter()
            busy = not hooks.last_loss.is_ready()
            batch = hooks._load(loader)
            # If the step before was still running at the end, the chips had work all the time. If it ended meanwhile,
            # the whole time counts: it is an upper bound.
            if not busy or hooks.last_loss.is_ready():
                seconds = time.perf_counter() - started
                hooks.telemetry.waited_for_data(seconds)
                if hooks._slow_hosts is not None:
                    hooks._slow_hosts.waited(seconds)
            return batch

        return load

    def _report_slow(self, row: SlowHost) -> None:
        with contextlib.suppress(OSError):  # a full disk must not end the training
            step = self.steps_done
            write_event(self.config.folder, "slow_host", message=row.message, host=row.host, node=row.node, step=step)

    def _report_period(self, sentence: str) -> None:
        print_line(f"checkpoint period: {sentence}")
        with contextlib.suppress(OSError):
            write_event(self.config.folder, "checkpoint_period", message=sentence, step=self.steps_done)

    def _documents(self, *args: Any, **options: Any) -> Any:
        """Replaces MaxText's file reader: Slipway's stream of documents, or one for each source of a mixture."""
        corpus = self.config.corpus
        if corpus is None:
            raise TypeError("MaxText requested documents, but the run config sets none")
        held_out = options["split"] == "eval"
        self._host = options["dataloading_host_index"], options["dataloading_host_count"]
        if self.config.tuning.applies and self.reader is None:
            self.reader = reading.reader(self.config)
        if not corpus.sources or (held_out and data.is_separate(corpus)):
            return self._stream(corpus, options, held_out=held_out)
        if not held_out:
            self.shares = mixture.Shares(list(corpus.sources))
        return mixture.Mixture(
            {name: self._stream(each, options, held_out=held_out, name=name) for name, each in corpus.sources.items()},
            {name: each.weight for name, each in corpus.sources.items()},
            None if held_out else self.shares,
        )

    def _stream(self, corpus: data.Corpus, options: Mapping[str, Any], *, held_out: bool, name: str = "") -> Any:
        """Return the documents of a corpus, or of the source `name` of a mixture."""
        read = data.reader(corpus)
        if self.reader is not None:
            read = (self.reader.for_held_out() if held_out else self.reader).of_stream()
        if name and not held_out and self.shares is not None:
            read = self.shares.reading(name, read)
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
            if self.reader is not None and self.config.tuning.samples and variables["eval_data_iterator"] is not None:
                self._samples = samples.Samples(
                    self.config.tuning.samples,
                    self.reader.template,
                    constants["config"],
                    device_state["mesh"],
                    device_state["model"],
                )
            if self.config.tuning.lora is not None:
                self.log.adapters(*lora.size(device_state["state"]))
            device_state["p_train_step"] = self._watched(device_state["p_train_step"])
            if self.evaluation is not None and device_state["p_eval_step"] is not None:
                device_state["p_eval_step"] = self._with_measures(device_state["p_eval_step"])
            self._logger.loop_starts()
            if self._period is not None:
                self._period.starts(step, constants["steps"])
            gc.freeze()  # what the start has created stays to the end: do not scan it again
            gc.enable()
        evaluates = variables["eval_data_iterator"] is not None
        if step == 0 and evaluates:
            self._evaluate(device_state, variables, constants, after_step=-1)
            self._write_samples(device_state, constants)
        if self._profiler is not None:
            self._profiler.before_step(step, self.last_loss)
        self._in_iteration = True
        try:
            metrics = self._iteration(device_state, variables, constants)
        finally:
            self._in_iteration = False
        self.steps_done = step + 1
        self.stepped = True
        if self._slow_hosts is not None:
            self._slow_hosts.after_step(self.steps_done, self.last_loss)
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
        table = reading.reference_table(self.config)
        if self.reader is None or corpus is None or table is None:
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
                    read=self.reader.keyed(),
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
            counts = pipeline.counts(batch, pairs=pairs) if self.reader is not None else {}
            counts |= self.shares.scalars() if self.shares is not None else {}
            state, metrics = train_step(state, self._with_reference(batch, state), *args)
            metrics["scalar"] |= counts
            if pairs:
                preferences.measures(metrics["scalar"])
            self.last_loss = metrics["scalar"]["learning/loss"]
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
            if self.evaluation is not None:
                self.evaluation.add(metrics["scalar"])
            return metrics

        return step

    def _write_samples(self, device_state: dict[str, Any], constants: dict[str, Any]) -> None:
        """Write the answers to the prompts of tuning.samples, if an evaluation has just run."""
        evaluated, self.evaluated = self.evaluated, False
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
        self.evaluated = True
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

        manager, step = args[0], args[-1]
        period = self._period if manager is not None and step is not None else None
        # MaxText's own period is 1 then, so it writes a checkpoint at each step that it is called for.
        if period is not None and not period.due(step) and not self._stop_reached(manager, step):
            return
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
        last = self.steps_done >= self.log.steps
        if self._stop_reached(manager, step) or (last and self._period is not None):
            # Orbax skips a checkpoint while it still writes the previous one; this one has no second chance.
            self._wait(manager)
            args = args[:3]  # state, config, data iterator; the next is `force`
            kwargs["force"] = True
        saved = self._save(manager, step, *args, **kwargs)
        if saved:
            seconds = time.perf_counter() - started
            self.telemetry.checkpoint_saved(seconds)
            self.log.checkpoint(step, seconds)
            if self._period is not None and not last:
                self._period.saved(step, seconds)
        if not last:  # else it is written in the background until the end of the run
            self.log.enter("training")
        return saved


@contextlib.contextmanager
def _data_errors_are_errors(config: Any) -> Iterator[None]:
    """Replaces MaxText's guard, which ends the run as if it were complete when data fails or runs out."""
    try:
        yield
    except StopIteration as error:
        raise ConfigError(
            "The data ends before the last step; add text, raise train.num_epoch, or lower train.steps."
        ) from error


def _shared(client: Any) -> Callable[[str, str], str]:
    """Return a function that gives all hosts the value of the first one, with jax.distributed's `client`."""
    if client is None:
        return lambda _, value: value
    import jax

    def share(key: str, value: str) -> str:
        if jax.process_index() == 0:
            client.key_value_set(key, value, allow_overwrite=True)
            return value
        shared: str = client.blocking_key_value_get(key, _MOST_SHARING_MILLISECONDS)
        return shared

    return share


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
