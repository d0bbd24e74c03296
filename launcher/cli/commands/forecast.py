from __future__ import annotations

import math
from typing import Any

import click

from launcher.cli.options import format_option, values_options


class Tokens(click.ParamType[float]):
    """A number of tokens: "1e9", "15T", "300B", "500M"."""

    name = "tokens"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value)
        factor = {"T": 1e12, "B": 1e9, "M": 1e6}.get(text[-1:].upper(), 0)
        try:
            tokens = float(text[:-1]) * factor if factor else float(text)
        except ValueError:
            tokens = 0
        if not 1 <= tokens <= 1e18:
            self.fail(f'"{text}" is no number of tokens; write 500M, 300B, 15T or 1e9.', param, ctx)
        return tokens


class Minutes(click.FloatRange):
    """Minutes; not NaN, which is neither more nor less than anything, and would last for ever."""

    def __init__(self, *, min_open: bool = False) -> None:
        super().__init__(min=0, min_open=min_open)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if math.isnan(minutes := super().convert(value, param, ctx)):
            self.fail(f"{value!r} is no number of minutes.", param, ctx)
        return minutes


@click.command()
@values_options
@click.option("--tokens", type=Tokens(), metavar="NUMBER", help="What the cost is for, instead of train.steps: 15T.")
@click.option(
    "--search",
    type=Minutes(),
    metavar="MINUTES",
    help="Compile changes for so long: those that make it fit (default: 10; 0: none), or where it fits, that make it "
    "faster (default: none).",
)
@click.option(
    "--timeout",
    type=Minutes(min_open=True),
    default=30,
    metavar="MINUTES",
    help="What one compile may take (default: 30).",
)
@click.option(
    "--finish",
    is_flag=True,
    help="Let the compiler make the chip's code, too, which takes ten times as long: its own cycles count, and kernels "
    "that are too large for VMEM are found.",
)
@click.option("--no-cache", is_flag=True, help="Compile what was compiled before, too.")
@format_option
def command(
    files: tuple[str, ...],
    sets: tuple[str, ...],
    tokens: float | None,
    search: float | None,
    timeout: float,
    finish: bool,
    no_cache: bool,
    form: str,
) -> int:
    """Say what will happen on the chips: does it fit, how fast is a step, what does the run cost.

    The TPU compiler tells, which needs no TPU: it compiles the very step that would run, up to where its memory and its
    schedule are settled. That takes half a minute, and the answer is kept. Only slice and train have to be in the
    values. Nothing is submitted.

    Exit code 0 where the run fits; 1 where it does not, or where that cannot be told (CPUs and GPUs).
    """
    from launcher import api
    from launcher.cli import forecast_text as texts
    from launcher.cli import output
    from launcher.cli.forecast_progress import shown

    with shown() as watch:
        found = api.forecast(
            files,
            sets,
            tokens=tokens,
            search_seconds=None if search is None else search * 60,
            timeout_seconds=timeout * 60,
            finish=finish,
            fresh=no_cache,
            watch=watch,
        )
    output.emit(found.as_json(), form, texts.text(found))
    if not found.fits:
        output.narrate(f"Error: {found.says}")
    return 0 if found.fits else 1
