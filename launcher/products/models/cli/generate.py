from __future__ import annotations

import contextlib
import sys
from typing import Any

import click

from launcher import formatting
from launcher.cli import output
from launcher.cli.options import WholeNumber, format_option, run_target_options
from launcher.cli.run_arguments import run_argument
from launcher.errors import UsageError
from launcher.k8s.target import Target
from launcher.products.common.number_option import Number
from launcher.products.models import jobs
from launcher.products.models.api import inference
from launcher.products.models.cli.pieces import text_in_pieces
from launcher.products.models.cli.step_option import step_option


@click.command()
@run_argument
@click.argument("prompt", metavar="TEXT")
@step_option
@jobs.sets_option
@click.option(
    "--max-tokens", type=WholeNumber(1), default=100, metavar="N", help="The longest text, in tokens (default: 100)."
)
@click.option(
    "--temperature",
    type=Number(min=0),
    default=0.8,
    metavar="T",
    help="How random the text is; 0 selects the most likely token each time (default: 0.8).",
)
@click.option(
    "--top-p",
    type=Number(min=0, max=1, min_open=True),
    default=1.0,
    metavar="P",
    help="Draw only from the most likely tokens that together have this probability (default: 1).",
)
@click.option(
    "--seed", type=WholeNumber(0, (1 << 63) - 1), default=0, metavar="S", help="Another seed gives another text."
)
@click.option("--stop", multiple=True, metavar="TEXT", help="End the text before this one; may be repeated.")
@run_target_options
@format_option
def command(name: str, prompt: str, step: str | None, target: Target, form: str, **options: Any) -> None:
    """Generate text with a checkpoint of a run.

    NAME is a run, a sweep (its best run), a run's folder, or a Hugging Face folder (both with a slash in it: ./NAME).
    TEXT is the prompt, which the model continues; "-" reads it from stdin, without a newline at its end. The text is
    printed while it is generated, and the same options give the same text.

    The checkpoint of a run of this machine is exported once into the run's folder, and the model runs on this machine's
    CPU. For a run on a cluster, both happen in a job in the run's storage.
    """

    if prompt == "-":
        prompt = _read_prompt()
    streamed = text_in_pieces() if form == "text" else contextlib.nullcontext(lambda _: None)
    with streamed as on_text:
        result = inference.generate(
            name, prompt, step=step, target=target, on_text=on_text, say=output.narrate, **options
        )
    output.emit(result, form, "")
    why = {"context": "; the model's context is full", "end": "; the model ended the text"}.get(result.ended, "")
    output.narrate(
        f"{result.tokens} tokens in {result.seconds:.1f} s ({formatting.count(result.tokens_per_second)} tokens/s)"
        + (f", checkpoint {result.step} of {result.name}" if result.step is not None else "")
        + f"{why}."
    )


def _read_prompt() -> str:
    if sys.stdin.isatty():
        output.narrate("Reading the prompt; Ctrl-D ends it.")
    try:
        return sys.stdin.read().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"The prompt on stdin is not valid {error.encoding}.") from error
