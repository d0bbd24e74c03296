"""The option that selects a checkpoint of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

_Command = Callable[..., Any]


def step_option(command: _Command) -> _Command:
    """Add `--step`, which selects a checkpoint of a run."""
    return click.option(
        "--step", type=Step(), metavar="STEP", help='The checkpoint: its number, "best" or "last" (default: last).'
    )(command)


class Step(click.ParamType[str]):
    """A checkpoint: a number, "best" or "last"."""

    name = "step"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if text in ("best", "last"):
            return text
        if not (text.isascii() and text.isdecimal()):
            self.fail(f'"{text}" is not a step; give a number, last or best.', param, ctx)
        return str(int(text))
