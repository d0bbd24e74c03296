"""The options and arguments that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from launcher.errors import LauncherError

_Command = Callable[..., Any]


def values_options(command: _Command) -> _Command:
    """`-f FILE…` and `--set K=V`: the layers of values, in the order given."""
    command = click.option(
        "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set one value over the files; may be repeated."
    )(command)
    return click.option(
        "-f",
        "--file",
        "files",
        multiple=True,
        metavar="FILE",
        help="A values file, or a preset's name; may be repeated, the later one wins.",
    )(command)


def name_option(command: _Command) -> _Command:
    return click.option("--name", metavar="NAME", help="The run's name, instead of run.name.")(command)


def format_option(command: _Command) -> _Command:
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(["text", "json", "yaml"]),
        default="text",
        help="How to print the result (default: text).",
    )(command)


def run_argument(command: _Command) -> _Command:
    return click.argument("name", metavar="NAME", shell_complete=_run_names)(command)


def _run_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from launcher import api

    try:
        return [status.name for status in api.list_runs() if status.name.startswith(incomplete)]
    except LauncherError:
        return []


class Seconds(click.ParamType[float]):
    """A span of time: "90", "90s", "5m", "1.5h"."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value)
        factor = {"s": 1, "m": 60, "h": 3600, "d": 86400}.get(text[-1:], 0)
        try:
            seconds = float(text[:-1]) * factor if factor else float(text)
        except ValueError:
            seconds = -1
        if not 0 <= seconds < float("inf"):
            self.fail(f'"{text}" is no span of time; write 90, 90s, 5m or 1.5h.', param, ctx)
        return seconds
