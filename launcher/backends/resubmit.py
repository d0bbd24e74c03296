"""Submitting a name again: what the run of that name, and its config, make of it; the same for every kind of run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from launcher.backends.base import State
from launcher.errors import LauncherError

if TYPE_CHECKING:
    from launcher.config.plan import LaunchPlan


def decide(name: str, state: State, difference: Sequence[str], *, accept_changes: bool, where: str = "") -> str | None:
    """What a submit finds done already, in a sentence; None where there is work to do: the next attempt.

    `difference` is config_difference (launcher.config.plan) of the run's config and the submitted one, and
    `accept_changes` is `--continue`; `where` are the options that a command needs to find the run (" -n research").
    Raises LauncherError if the configs differ and the run cannot, or must not, go on with the new one.
    """
    if not state.ended:
        if difference:
            raise LauncherError(
                f'The run "{name}" is {state} with another config:' + _lines(difference),
                f"Cancel it first (launcher cancel {name}{where}), or submit under another name (--name).",
            )
        return f'The run "{name}" is {state} already, with the same config.'
    if difference and not accept_changes:
        raise LauncherError(
            f'There is a run "{name}" ({state}) with another config:' + _lines(difference),
            "--continue goes on from its last checkpoint with the new values; --name starts another run.",
        )
    if state is State.SUCCEEDED and not difference:
        return f'The run "{name}" has succeeded already, with the same config; there is nothing left to do.'
    return None


def check_sweep(plan: LaunchPlan, found: str, *, where: str = "") -> None:
    """Raises LauncherError where a run of a sweep finds its name taken by one of another sweep, or of none.

    `found` is the sweep of the run that is there, "" for none; `where` as for `verdict`.
    """
    if plan.member is not None and plan.member.sweep != found:
        of = f"is one of the sweep {found}" if found else "is none of a sweep's"
        raise LauncherError(
            f'There is a run "{plan.name}" already, and it {of}.',
            f"Give the sweep another name (--name), or delete the run: launcher delete {plan.name}{where}",
        )


def would_resume(name: str, attempt: int) -> str:
    """What a preview says where `verdict` finds work to do; `attempt` is the next one."""
    return f'Would resume the run "{name}" as attempt {attempt}.'


def resumed(
    name: str, state: State, attempt: int, *, checkpoint: bool | None, interrupted: bool = False, deleted: bool = False
) -> str:
    """What a submit says that made the next attempt, `attempt`, of a run that had ended in `state`.

    `checkpoint` is whether it left one to go on from; None where that cannot be seen from here.
    """
    ended = {State.CANCELLED: "was cancelled"}.get(state, f"had {state}")
    if interrupted:
        ended = "was interrupted"
    if deleted:
        ended = "was deleted"
    resumes = {
        True: "goes on from its last checkpoint",
        False: "starts again",
        None: "goes on from its last checkpoint, if it wrote one,",
    }[checkpoint]
    return f'The run "{name}" {ended}; it {resumes} as attempt {attempt}.'


def _lines(texts: Sequence[str]) -> str:
    return "".join(f"\n  {text}" for text in texts)
