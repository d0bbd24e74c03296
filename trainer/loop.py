"""The training of one process: MaxText's own loop, with the replacements of `trainer.training`."""

from __future__ import annotations

import contextlib
import gc
import math
import os
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass

from trainer import (
    deferred_imports,
    maxtext_setup,
    storage_errors,
)
from trainer.config import RunConfig
from trainer.errors import ConfigError
from trainer.maxtext_keys import maxtext_argv
from trainer.run_log import RunLog
from trainer.starting_weights import saved_steps
from trainer.stop_signal import Watch, watching
from trainer.telemetry import Telemetry
from trainer.training.hooks import Hooks


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
                    f"The loss of step {hooks.loss_step} is {hooks.loss}: training has diverged; "
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
    if hooks.saving.preempted:
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
