"""The options and arguments that several verbs share."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import click

from launcher import formatting
from launcher.cli import output
from launcher.errors import Interrupted, UsageError
from launcher.k8s.target import Target

_Command = Callable[..., Any]


def format_option(command: _Command) -> _Command:
    return format_options()(command)


def format_options(*more: str, note: str = "") -> Callable[[_Command], _Command]:
    """Return the option of the output format, with `more` formats than text, json and yaml, and a note on them."""
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(["text", "json", "yaml", *more], case_sensitive=False),
        default="text",
        help=f"The output format (default: text){note or '.'}",
    )


def target_options(command: _Command) -> _Command:
    """Add `--context` and `-n`, as in kubectl. The command receives them as `target`, a Target."""
    return _with_target(command)


def run_target_options(command: _Command) -> _Command:
    """Add the options of target_options and `--local`, for verbs that also find runs on this machine."""
    return _with_target(command, local_help="Search only the runs of this machine.")


def init_target_options(command: _Command) -> _Command:
    """Add the same options for init."""
    return _with_target(command, local_help="Write a file for runs on this machine.")


def submit_target_options(command: _Command) -> _Command:
    """Add the same options for submit. They must agree with the values, which determine where the run goes."""
    return _with_target(
        command,
        local_help="Reject a run that goes to a cluster: run.kind must be local.",
        namespace_help="The namespace, if the values set no team (default: the team's, else the context's).",
    )


def _with_target(
    command: _Command,
    *,
    local_help: str = "",
    namespace_help: str = "The namespace in the cluster (default: the context's).",
) -> _Command:
    """Add the target options. Without `local_help`, `--local` is not added."""

    @functools.wraps(command)
    def with_target(*args: Any, context: str | None, namespace: str | None, local: bool = False, **options: Any) -> Any:
        if local and (context is not None or namespace is not None):
            raise click.UsageError("--local cannot be used with --context or --namespace.")
        return command(*args, target=Target(context, namespace, local), **options)

    if local_help:
        with_target = click.option("--local", is_flag=True, help=local_help)(with_target)
    with_target = click.option("-n", "--namespace", metavar="NAMESPACE", help=namespace_help)(with_target)
    return click.option("--context", metavar="NAME", help="The context of the kubeconfig (default: the current one).")(
        with_target
    )


def need_terminal(does: str = "delete") -> None:
    """Check that a question can be answered. Raises UsageError if there is no terminal."""
    if not sys.stdin.isatty():
        raise UsageError(f"Confirmation needs a terminal; to {does} without confirmation, use --yes.")


def confirm(question: str, nothing_done: str = "Nothing was deleted.") -> bool:
    """Ask the question on stderr. If the answer is no, print `nothing_done` and return False.

    Raises Interrupted on Ctrl-C, with the same sentence.
    """
    try:
        answer = click.confirm(question, err=True)
    except click.Abort as abort:
        if isinstance(abort.__context__, KeyboardInterrupt):
            raise Interrupted(f"\n{nothing_done}") from None
        answer = False
        output.narrate("")
    if not answer:
        output.narrate(nothing_done)
    return answer


class WholeNumber(click.IntRange):
    """A whole number in a range. For a word, click's own message would be "not a valid integer range"."""

    name = "whole number"


class Seconds(click.ParamType[float]):
    """A duration: "90", "90s", "5m", "1.5h", "7d", "1h30m"."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = formatting.seconds(str(value))
        if seconds is None:
            self.fail(f'"{value}" is not a valid duration; use 90, 90s, 5m, 1.5h, 1h30m or 7d.', param, ctx)
        return seconds
