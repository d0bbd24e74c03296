"""The options and arguments that several verbs share."""

from __future__ import annotations

import functools
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


def place_options(command: _Command) -> _Command:
    """`--context` and `-n`, as kubectl takes them: the command gets them as `place`, a Place."""
    return _placed(command, local=False)


def run_place_options(command: _Command) -> _Command:
    """The same, and `--local`, for verbs that look for runs on this machine too."""
    return _placed(command, local=True)


def _placed(command: _Command, *, local: bool) -> _Command:
    @functools.wraps(command)
    def placed(*args: Any, context: str | None, namespace: str | None, local: bool = False, **options: Any) -> Any:
        from launcher.place import Place

        if local and (context is not None or namespace is not None):
            raise click.UsageError("--local means this machine; leave out --context and --namespace.")
        return command(*args, place=Place(context, namespace, local), **options)

    if local:
        placed = click.option("--local", is_flag=True, help="Look among this machine's runs only.")(placed)
    placed = click.option(
        "-n", "--namespace", metavar="NAMESPACE", help="A namespace of the cluster (default: the context's)."
    )(placed)
    return click.option("--context", metavar="NAME", help="A context of the kubeconfig (default: the current one).")(
        placed
    )


def run_argument(command: _Command) -> _Command:
    return click.argument("name", metavar="NAME", shell_complete=_run_names)(command)


def _run_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from launcher import api
    from launcher.place import Place

    given = {key: ctx.params.get(key) for key in ("context", "namespace")}
    place = Place(given["context"], given["namespace"], bool(ctx.params.get("local")))
    try:
        runs = api.list_runs(place=place)
        names = dict.fromkeys([*(status.sweep for status in runs if status.sweep), *(status.name for status in runs)])
        return [name for name in names if name.startswith(incomplete)]
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
