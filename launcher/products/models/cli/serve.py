from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from launcher.cli import output, release_verbs
from launcher.cli.options import Seconds, WholeNumber, format_option, run_target_options
from launcher.cli.run_arguments import run_argument
from launcher.cli.values_command import ValuesCommand
from launcher.cli.values_options import cluster_values_options
from launcher.errors import UsageError
from launcher.k8s.target import Target
from launcher.products.models.api import inference, serving
from launcher.products.models.cli.step_option import step_option

if TYPE_CHECKING:
    from launcher.products.models.inference.serve import Served


@click.command(cls=ValuesCommand)
@run_argument
@step_option
@click.option(
    "--name", "model", metavar="MODEL", help="The model's name in requests (default: that of the run or the folder)."
)
@click.option("--port", type=WholeNumber(1, 65535), default=8000, metavar="PORT", help="The port (default: 8000).")
@click.option(
    "--context-length",
    "context_length",
    type=WholeNumber(1),
    default=8192,
    metavar="N",
    help="The most tokens of a request and its answer, if the model's context is longer (default: 8192).",
)
@click.option(
    "--api-key-file",
    metavar="FILE",
    help="A file with the API key that requests need (default: SLIPWAY_API_KEY, else a new key, which is printed).",
)
@cluster_values_options
@click.option("--release", metavar="RELEASE", help="In a cluster: the release (default: as the run or the folder).")
@click.option("--dry-run", is_flag=True, help="In a cluster: show what would change, without changing it.")
@click.option(
    "--timeout",
    type=Seconds(),
    help="In a cluster: how long to wait until the model answers, such as 15m; 0 does not wait (default: 30m).",
)
@click.option("-y", "--yes", is_flag=True, help="In a cluster: do not ask for confirmation.")
@run_target_options
@format_option
def command(
    name: str,
    step: str | None,
    model: str | None,
    port: int,
    context_length: int,
    api_key_file: str | None,
    files: tuple[str, ...],
    sets: tuple[str, ...],
    release: str | None,
    dry_run: bool,
    timeout: float | None,
    yes: bool,
    target: Target,
    form: str,
) -> int:
    """Serve a checkpoint of a run with OpenAI's API: on this machine, or with -f on a cluster.

    NAME is a run, a sweep (its best run), a run's folder, or a Hugging Face folder (both with a slash in it: ./NAME).
    The command serves the model until Ctrl-C, on the CPU of this machine, and only to programs of this machine. It
    prints the URL when the model has generated a token. Every request needs the API key. Several requests are answered
    in turn, token by token.

    The checkpoint of a run is exported once into the run's folder. A newer checkpoint needs a restart.

    With -f or --set, the values of charts/serve, the command installs or upgrades a release in the cluster, as launcher
    install serve does, and sets serve.model. NAME is then a run of the cluster that launcher export has exported,
    hf:ORG/NAME, or a folder of the storage in the values: exports/llama or gs://BUCKET/exports/llama.
    """

    if files or sets:
        _refuse("on this machine", ("port", "context_length", "api_key_file", "local"))
        plan = serving.plan_serving(
            name,
            files,
            sets,
            step=step,
            model=model,
            release=release,
            target=target,
            warn=lambda sentence: output.narrate(f"Warning: {sentence}"),
        )
        return release_verbs.apply(plan, form, dry_run=dry_run, yes=yes, timeout=timeout)
    _refuse("in a cluster, which -f FILE selects", ("release", "dry_run", "timeout", "yes"))

    from launcher.products.models.inference.serve import KEY_VARIABLE, read_key

    key = read_key(api_key_file)
    with inference.serve(
        name, step=step, model=model, port=port, context=context_length, key=key, say=output.narrate, target=target
    ) as served:
        kept = None if key is None else f"$(cat {api_key_file})" if api_key_file else f"${KEY_VARIABLE}"
        output.narrate(*_instructions(served, kept))
        data = {"name": name, "step": served.step, "model": served.model, "url": served.url, "chat": served.chat}
        output.emit(data, form, served.url)
        try:
            served.wait()
        except KeyboardInterrupt:
            output.narrate(f"\n{served.model} is no longer served.")
    return 0


def _refuse(where: str, names: Sequence[str]) -> None:
    """Raise UsageError if one of the options is given."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"--{name.replace('_', '-')} is for a model {where}.")


def _instructions(served: Served, kept: str | None) -> list[str]:
    """Return what a user needs for a request. `kept` is where the shell finds the key; None: it is new."""
    body: dict[str, object] = {"model": served.model}
    body |= {"messages": [{"role": "user", "content": "Hello"}]} if served.chat else {"prompt": "def main("}
    data = json.dumps({**body, "max_tokens": 100, "stream": True})
    endpoint = "chat/completions" if served.chat else "completions"
    checkpoint = "" if served.step is None else f" (checkpoint {served.step})"
    return [
        f"ready: {served.model}{checkpoint} answers at {served.url}, requests of up to {served.context:,} tokens with "
        "their answers.",
        *([f"API key: {served.key}"] if kept is None else []),
        "To send a request:",
        f"  curl -N {served.url}/{endpoint} -H \"Authorization: Bearer {kept or served.key}\" -d '{data}'",
        "To talk with it, in another terminal:",
        f"  launcher chat {served.model}",
        "Press Ctrl-C to stop.",
    ]
