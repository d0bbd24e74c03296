"""The options that select several runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from launcher.backends.base import State
from launcher.backends.selection import RunFilter
from launcher.cli.options import Seconds
from launcher.cli.run_arguments import complete_run_names

_Command = Callable[..., Any]


def run_selection(command: _Command) -> _Command:
    """Add `NAME...`, `--state` and `--older-than`. The command receives `names`, and `only`, a RunFilter."""

    @functools.wraps(command)
    def given(*args: Any, states: frozenset[Any], older_than: float | None, **options: Any) -> Any:
        return command(*args, only=RunFilter(states, older_than), **options)

    given = click.option(
        "--older-than",
        type=Seconds(),
        metavar="TIME",
        help="Only runs that ended (or, while active, were submitted) at least this long ago: 90s, 5m, 1.5h, 7d.",
    )(given)
    given = click.option(
        "--state",
        "states",
        type=States(),
        default="",
        metavar="STATE,...",
        help="Only runs in one of these states, such as failed,cancelled.",
    )(given)
    return click.argument("names", metavar="[NAME...]", nargs=-1, shell_complete=complete_run_names)(given)


class States(click.ParamType[frozenset[Any]]):
    """States of runs, separated by commas."""

    name = "states"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[Any]:
        words = [word.strip() for word in str(value).split(",") if word.strip()]
        words = [word.lower() for word in words]
        for word in words:
            if word not in list(State):
                self.fail(f'"{word}" is not a valid state; the states are {", ".join(State)}.', param, ctx)
        return frozenset(State(word) for word in words)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, word = incomplete.rpartition(",")
        return [CompletionItem(f"{before}{comma}{state}") for state in State if state.startswith(word)]
