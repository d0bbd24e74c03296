"""When a checkpoint is written: after the step's metrics, after the steps that `auto` chooses, and at a stop."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainer.metrics import print_line, write_event
from trainer.training import checkpoint_period

if TYPE_CHECKING:
    from trainer.training.hooks import Hooks

_MOST_SHARING_MILLISECONDS = 600_000
"""How long a host waits for the first one, which may wait for the storage."""


class Saving:
    """MaxText's checkpoints, saved in this order. `preempted`: all hosts agreed to stop, after a stop signal."""

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks
        self.preempted = False
        # A checkpoint that MaxText requested before it handed over the step's metrics.
        self._pending: tuple[Any, ...] | None = None
        self._period: checkpoint_period.AutoPeriod | None = None

    def install(self, replace: Callable[..., Any], client: Any) -> None:
        """Replace MaxText's functions. `client` is that of jax.distributed, None with one host."""
        import jax
        from maxtext.common import checkpointing

        self._save = replace(checkpointing, "save_checkpoint", self._save_after_metrics)
        self._maybe_save = replace(checkpointing, "maybe_save_checkpoint", self._defer)
        self._stop_reached = checkpointing.reached_preemption
        self._wait = checkpointing.wait_until_finished
        if checkpoint_period.applies(self.hooks.config):
            first, share = jax.process_index() == 0, _shared(client)
            self._period = checkpoint_period.AutoPeriod(
                self.hooks.config, first=first, share=share, report=self._report_period
            )

    def starts(self, step: int, steps: int) -> None:
        """Call before the first step of this start, `step`. `steps` are those of the run."""
        if self._period is not None:
            self._period.starts(step, steps)

    def save_pending(self, state: Any, step: int) -> None:
        """Write the checkpoint that the iteration has requested."""
        if self._pending is not None:
            manager, maxtext_config, iterator = self._pending
            self._pending = None
            self._save_now(manager, state, maxtext_config, iterator, step)

    def _defer(self, manager: Any, state: Any, config: Any, iterator: Any, step: int | None = None) -> None:
        """Defer the save. In an iteration MaxText saves before it hands over the step's metrics; save after that."""
        if self.hooks.in_iteration and step is not None:
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
        done = self.hooks.steps_done
        if args[0] is None and done and self._stop_reached(None, done - 1):
            self.preempted = True
            raise exceptions.StopTraining("stop signal received, and checkpoints are disabled")

    def _save_after_metrics(self, manager: Any, step: int, *args: Any, **kwargs: Any) -> Any:
        hooks = self.hooks
        hooks.logger.settle()
        hooks.log.enter("checkpoint")
        started = time.perf_counter()
        last = hooks.steps_done >= hooks.log.steps
        if self._stop_reached(manager, step) or (last and self._period is not None):
            # Orbax skips a checkpoint while it still writes the previous one; this one has no second chance.
            self._wait(manager)
            args = args[:3]  # state, config, data iterator; the next is `force`
            kwargs["force"] = True
        saved = self._save(manager, step, *args, **kwargs)
        if saved:
            seconds = time.perf_counter() - started
            hooks.telemetry.checkpoint_saved(seconds)
            hooks.log.checkpoint(step, seconds)
            if self._period is not None and not last:
                self._period.saved(step, seconds)
        if not last:  # else it is written in the background until the end of the run
            hooks.log.enter("training")
        return saved

    def _report_period(self, sentence: str) -> None:
        print_line(f"checkpoint period: {sentence}")
        with contextlib.suppress(OSError):
            write_event(self.hooks.config.folder, "checkpoint_period", message=sentence, step=self.hooks.steps_done)


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
