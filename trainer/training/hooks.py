"""The replacements in MaxText's loop, and the state of a run's steps."""

from __future__ import annotations

import contextlib
import datetime
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

from trainer.config import RunConfig
from trainer.errors import ConfigError
from trainer.metrics import write_event
from trainer.profiling import Profiler
from trainer.run_log import RunLog
from trainer.starting_weights import saved_steps
from trainer.stop_signal import LocalStopSignal, stop_all_hosts
from trainer.telemetry import Telemetry
from trainer.training import kept_step, restored_state, step_logger, tracing
from trainer.training.batches import Batches
from trainer.training.saving import Saving
from trainer.training.slow_hosts import SlowHost, SlowHosts
from trainer.training.tuned_steps import TunedSteps
from trainer.tuning import lora, preferences
from trainer.tuning.settings import DPO


class Hooks:
    """The replacements in MaxText during training, and the state that they record."""

    def __init__(self, config: RunConfig, telemetry: Telemetry, log: RunLog) -> None:
        self.config = config
        self.telemetry = telemetry
        self.log = log
        self.batches = Batches(config)
        self.saving = Saving(self)
        self.tuned = TunedSteps(config, self.batches, log)
        self.steps_done = 0
        self.loss, self.loss_step = 0.0, 0  # that of the last line, and its step, counted from 1
        self.last_loss: Any = None
        self.in_iteration = False
        self.stepped = False
        self.evaluated = False
        self.target_reached = False
        self.stop: Callable[[], bool] = stop_all_hosts
        self.logger: Any = None
        self._profiler: Profiler | None = None
        self._slow_hosts: SlowHosts | None = None

    @contextlib.contextmanager
    def installed(self, maxtext_train: Any) -> Iterator[None]:
        """Install the replacements while the context lasts. They call the original functions."""
        import jax
        from flax import nnx
        from jax._src import distributed
        from maxtext.common import checkpointing, data_loader, metric_logger
        from maxtext.utils import max_utils, maxtext_utils, model_creation_utils, train_utils

        tuning, client = self.config.tuning, distributed.global_state.client
        with contextlib.ExitStack() as stack:
            replace = _replacer(stack)
            texts = step_logger.Texts(max_utils.add_text_to_summary_writer)
            replace(max_utils, "add_text_to_summary_writer", texts.add)
            if saved_steps(self.config):
                replace(train_utils, "jit_eval_step", tracing.on_demand(train_utils.jit_eval_step))
                create = model_creation_utils.get_nnx_create_model_fn
                replace(model_creation_utils, "get_nnx_create_model_fn", tracing.model_once(create))
            replace(train_utils, "jit_train_step", kept_step.kept(train_utils.jit_train_step))
            replace(metric_logger, "MetricLogger", step_logger.logger_class(metric_logger, self, texts))
            replace(data_loader, "loader_exception_guard", _data_errors_are_errors)
            replace(nnx, "eval_shape", tracing.once(nnx.eval_shape))
            self._load = replace(data_loader.DataLoader, "load_next_batch_pre_sharding", self._loaded())
            self._iteration = replace(maxtext_train, "training_loop_iteration", self._iterate)
            self._set_up = replace(train_utils, "setup_train_loop", self._set_up_before_compiling)
            self.batches.install(replace, stack)
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
                if client is None:  # else JAX handles SIGTERM
                    stack.enter_context(alone.listening())
                replace(checkpointing, "reached_preemption", alone.reached)
            else:
                self._slow_hosts = SlowHosts(client, jax.process_index(), self._report_slow)
            self.saving.install(replace, client)  # after the replacement of the stop signal
            if jax.process_index() == 0:
                self._profiler = stack.enter_context(Profiler(self.config.folder))
            yield

    def _loaded(self) -> Any:
        """Return MaxText's function that loads a batch, which also counts how long the chips waited for it."""
        hooks = self

        def load(loader: Any) -> Any:
            if not hooks.in_iteration or hooks.last_loss is None:
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

    def _set_up_before_compiling(self, *args: Any, **options: Any) -> Any:
        result = self._set_up(*args, **options)
        self.log.enter("compile")
        return result

    def _iterate(self, device_state: dict[str, Any], variables: dict[str, Any], constants: dict[str, Any]) -> Any:
        step, last = variables["step"], constants["steps"] - 1
        self.logger = variables["metric_logger_instance"]
        evaluates = variables["eval_data_iterator"] is not None
        if step == constants["start_step"]:
            self.tuned.start(step, device_state, constants, evaluates=evaluates)
            device_state["p_train_step"] = self._watched(device_state["p_train_step"])
            self.logger.loop_starts()
            self.saving.starts(step, constants["steps"])
            gc.freeze()  # what the start has created stays to the end: do not scan it again
            gc.enable()
        if step == 0 and evaluates:
            self._evaluate(device_state, variables, constants, after_step=-1)
            self._write_samples(device_state, constants)
        if self._profiler is not None:
            self._profiler.before_step(step, self.last_loss)
        self.in_iteration = True
        try:
            metrics = self._iteration(device_state, variables, constants)
        finally:
            self.in_iteration = False
        self.steps_done = step + 1
        self.stepped = True
        if self._slow_hosts is not None:
            self._slow_hosts.after_step(self.steps_done, self.last_loss)
        if step == last and evaluates and self.logger.evaluated_after != step:
            self._evaluate(device_state, variables, constants, after_step=step)
        self._write_samples(device_state, constants)
        self.saving.save_pending(device_state["state"], step)
        return metrics

    def _watched(self, train_step: Any) -> Any:
        """Return the compiled step, unchanged, with its last result recorded so that callers can wait for it."""
        pairs = self.config.tuning.reads_pairs

        def step(state: Any, batch: Any, *args: Any) -> Any:
            counts = self.batches.counts(batch)
            state, metrics = train_step(state, self.tuned.batch(batch, state), *args)
            metrics["scalar"] |= counts
            if pairs:
                preferences.measures(metrics["scalar"])
            self.last_loss = metrics["scalar"]["learning/loss"]
            return state, metrics

        return step

    def _write_samples(self, device_state: dict[str, Any], constants: dict[str, Any]) -> None:
        evaluated, self.evaluated = self.evaluated, False
        if evaluated and self.tuned.write_samples(device_state, constants, self.steps_done):
            self.logger.resume()

    def _evaluate(
        self, device_state: dict[str, Any], variables: dict[str, Any], constants: dict[str, Any], *, after_step: int
    ) -> None:
        """Evaluate the held-out part once outside MaxText's own schedule, with its compiled step."""
        import jax
        from flax.core.spmd import logical_axis_rules
        from maxtext.utils import sharding

        config, mesh, logger = constants["config"], device_state["mesh"], self.logger
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
            elapsed = datetime.timedelta(seconds=time.perf_counter() - started)
            logger.buffer_and_write_metrics(metrics, count - 1, step_time_delta=elapsed, is_training=False)
            if count >= constants["eval_steps"]:
                break
        logger.finish_evaluation(after_step)


@contextlib.contextmanager
def _data_errors_are_errors(config: Any) -> Iterator[None]:
    """Replaces MaxText's guard, which ends the run as if it were complete when data fails or runs out."""
    try:
        yield
    except StopIteration as error:
        raise ConfigError(
            "The data ends before the last step; add text, raise train.num_epoch, or lower train.steps."
        ) from error


def _replacer(stack: contextlib.ExitStack) -> Callable[..., Any]:
    """Return a function that replaces a name of a module until `stack` closes, and returns what it replaced."""

    def replace(module: Any, name: str, new: Any) -> Any:
        old = getattr(module, name)
        setattr(module, name, new)
        stack.callback(setattr, module, name, old)
        return old

    return replace
