from __future__ import annotations

from typing import Any

import click

from launcher.cli import output
from launcher.cli.options import format_option
from launcher.cli.values_command import ValuesCommand
from launcher.cli.values_options import values_options
from launcher.products.common.number_option import Number
from launcher.products.planner.api import forecasts
from launcher.products.planner.cli import forecast_text as texts
from launcher.products.planner.cli.forecast_progress import shown


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
            self.fail(f'"{text}" is not a valid number of tokens; use 500M, 300B, 15T or 1e9.', param, ctx)
        return tokens


@click.command(cls=ValuesCommand)
@values_options
@click.option(
    "--tokens",
    type=Tokens(),
    metavar="NUMBER",
    help="Compute the cost of so many tokens, such as 15T, instead of train.steps.",
)
@click.option(
    "--search",
    type=Number(min=0),
    metavar="MINUTES",
    help="How long to compile changes: changes that make the run fit (default: 10; 0: none) or, if it fits, changes "
    "that make it faster (default: none).",
)
@click.option(
    "--timeout",
    type=Number(min=0, min_open=True),
    default=30,
    metavar="MINUTES",
    help="The time limit of one compile (default: 30).",
)
@click.option(
    "--finish",
    is_flag=True,
    help="Compile down to the chip's code, which takes ten times as long: the forecast then uses the compiler's own "
    "cycle counts, and finds kernels that are too large for VMEM.",
)
@click.option("--no-cache", is_flag=True, help="Ignore the cache, and compile again.")
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
    """Forecast whether a run fits, how fast it is and what it costs.

    The TPU compiler, which needs no TPU, compiles the same step that would run, up to the point where its memory and
    its schedule are settled. This takes half a minute, and the result is cached. The values need to set only slice and
    train. Nothing is submitted.

    The exit code is 0 if the run fits, and 1 if it does not fit or if that is unknown (CPUs and GPUs). Each alternative
    in slice.any is forecast; one that fits is enough.
    """

    with shown() as watch:
        forecast = forecasts.forecast(
            files,
            sets,
            tokens=tokens,
            search_seconds=None if search is None else search * 60,
            timeout_seconds=timeout * 60,
            finish=finish,
            fresh=no_cache,
            watch=watch,
        )
    output.emit(forecast.as_json(), form, texts.text(forecast))
    if any(one.fits for one in (forecast, *forecast.others)):
        return 0
    output.narrate(f"Error: {'No alternative fits.' if forecast.others else forecast.says}")
    return 1
