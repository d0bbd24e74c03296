"""Rules for submitting an existing name again, by the state and config of its run. All kinds of run share them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from launcher.backends.base import State
from launcher.config.maxtext import models
from launcher.errors import LauncherError

if TYPE_CHECKING:
    from launcher.config.plan import LaunchPlan

_FIT_WEIGHTS = (
    *("hosts", "data.", "tuning.", "train.steps", "train.opt_type", "train.enable_checkpointing", "train.packing"),
    "train.grain_",
)
"""How the obstacles begin that are none for `from`."""


def decide(
    name: str,
    state: State,
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    *,
    accept_changes: bool,
    done: int | None = None,
    where: str = "",
) -> str | None:
    """Return a sentence if nothing is left to do, or None if the submit starts the next attempt.

    `old` is the run's config, and `new` the submitted one. `accept_changes` is `--continue`. `done` is the number of
    steps in the last checkpoint; None if that is unknown. `where` holds the options that a command needs to find the
    run (" -n research"). Raises LauncherError if the configs differ and the run cannot, or must not, continue with the
    new one.
    """
    from launcher.config import plan, resume

    difference = plan.config_difference(old, new)
    if not state.ended:
        if difference:
            raise LauncherError(
                f'The run "{name}" is {state} with a different config:' + _lines(difference),
                f"Cancel it first (launcher cancel {name}{where}), or submit under another name (--name).",
            )
        return f'The run "{name}" is already {state}, with the same config.'
    if difference and not accept_changes:
        raise LauncherError(
            f'The run "{name}" already exists ({state}), with a different config:' + _lines(difference),
            "To continue from its last checkpoint with the new values, use --continue. To start another run, use "
            "--name.",
        )
    # A run that succeeded has a checkpoint. For other runs on a cluster, only the trainer knows if there is one.
    succeeded = state is State.SUCCEEDED
    more = succeeded and bool(difference)
    if (done or (done is None and succeeded)) and (blocked := resume.obstacles(old, new, done, more)):
        hint = f"To start a new run from its weights, use --name NEW --set from={name}{f'@{done - 1}' if done else ''}."
        if not all(text.startswith(_FIT_WEIGHTS) for text in blocked):
            hint = "Its weights fit only its own model: change these values back, or start without them: --name NEW."
        if models.adapter(old.get("tuning")):  # `from` refuses a run with adapters only
            hint = f"To start from its result: launcher export {name} --merge, launcher import, --set from=WEIGHTS."
        if any(text.startswith("data.tokenizer") for text in blocked):
            hint = "The weights know only the ids of the earlier tokenizer: set that one, or start without the weights."
        message = f'The run "{name}" cannot continue from its last checkpoint with these values:' + _lines(blocked)
        raise LauncherError(message, hint)
    if succeeded and not difference:
        return f'The run "{name}" has already succeeded, with the same config; there is nothing to do.'
    return None


def check_sweep(plan: LaunchPlan, sweep: str, *, where: str = "") -> None:
    """Raise LauncherError if the name of a sweep's run belongs to a run of another sweep, or of no sweep.

    `sweep` is the sweep of the existing run, or "". `where` is as in `decide`.
    """
    if plan.member is not None and plan.member.sweep != sweep:
        of = f"it belongs to the sweep {sweep}" if sweep else "it does not belong to a sweep"
        raise LauncherError(
            f'The run "{plan.name}" already exists; {of}.',
            f"Give the sweep another name (--name), or delete the run: launcher delete {plan.name}{where}",
        )


def would_resume(name: str, attempt: int) -> str:
    """Return the sentence of a preview if `decide` returns None. `attempt` is the next attempt."""
    return f'Would resume the run "{name}" as attempt {attempt}.'


def resumed(
    name: str, state: State, attempt: int, *, checkpoint: bool | None, interrupted: bool = False, deleted: bool = False
) -> str:
    """Return the sentence of a submit that created the next attempt, `attempt`, of a run that ended in `state`.

    `checkpoint` is whether the run left a checkpoint; None if that is unknown.
    """
    ended = {State.CANCELLED: "was cancelled"}.get(state, f"had {state}")
    ended = "was deleted" if deleted else "was interrupted" if interrupted else ended
    resumes = {
        True: "continues from its last checkpoint",
        False: "starts again",
        None: "continues from its last checkpoint, if it wrote one,",
    }[checkpoint]
    return f'The run "{name}" {ended}; it {resumes} as attempt {attempt}.'


def _lines(texts: Sequence[str]) -> str:
    return "".join(f"\n  {text}" for text in texts)
