"""The options and arguments of the verbs that read values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from launcher.cli import completion, output
from launcher.config.values.defaults import default_files
from launcher.errors import UsageError
from launcher.paths import CHARTS

_Command = Callable[..., Any]


def values_options(command: _Command) -> _Command:
    """Add the layers of values: `-f FILE…`, `--set K=V` and `--no-defaults`. At least one value is required.

    The command receives `files`, which begin with the default values files, and `sets`.
    """
    return _values_options(command, required=True)


def any_values_options(command: _Command) -> _Command:
    """Add the options of values_options, but require none of them."""
    return _values_options(command, required=False)


def cluster_values_options(command: _Command) -> _Command:
    """Add the options of values_options for a verb that needs values only in a cluster: -f or --set selects it.

    Without these two, the command receives no files.
    """
    return _values_options(command, required=False, defaults_alone=False)


def _values_options(command: _Command, *, required: bool, defaults_alone: bool = True) -> _Command:
    @functools.wraps(command)
    def with_values(
        *args: Any, files: tuple[str, ...], sets: tuple[str, ...], no_defaults: bool, **options: Any
    ) -> Any:
        unused = no_defaults or not (defaults_alone or files or sets)
        defaults = () if unused else _default_files(options.get("chart"))
        if required and not (files or sets or defaults):
            release = options.get("release")
            raise UsageError(
                "No values are given: use -f FILE or --set."
                + (f' (Here, "{release}" is the name of the release.)' if release else ""),
                "launcher presets lists values files to begin with, such as quickstart; launcher init writes one.",
            )
        return command(*args, files=(*defaults, *files), sets=sets, **options)

    with_values = click.option(
        "--no-defaults", is_flag=True, help="Ignore launcher.yaml and SLIPWAY_VALUES (docs/reference/environment.md)."
    )(with_values)
    with_values = click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="KEY=VALUE",
        shell_complete=completion.value_keys,
        help="Set one value, overriding the files; may be repeated.",
    )(with_values)
    return files_option(
        "-f",
        "--file",
        "files",
        text="A values file, or the name of a preset; may be repeated, later ones override. The -f may be left out.",
    )(with_values)


def files_option(*names: str, text: str) -> Callable[[_Command], _Command]:
    """Return an option that names values files, and may be repeated. `text` is its help."""
    return click.option(*names, multiple=True, metavar="FILE", shell_complete=completion.values_files, help=text)


def _default_files(chart: str | None) -> tuple[str, ...]:
    """Return the default values files, and print which they are. The queues of a platform have none."""
    if chart == "queues":
        return ()

    files = default_files(output.narrate)
    if files:
        output.narrate(f"Defaults: {', '.join(files)}")
    return tuple(files)


def chart_arguments(command: _Command) -> _Command:
    """Add the arguments `[queues|ray-cluster|serve] [RELEASE]`."""
    command = click.argument("release", required=False, metavar="[RELEASE]", shell_complete=completion.values_files)(
        command
    )
    return chart_argument(command)


def chart_argument(command: _Command) -> _Command:
    """Add the argument `[queues|ray-cluster|serve]`: the chart of a release, instead of that of a run."""
    return click.argument(
        "chart",
        type=click.Choice(CHARTS),
        metavar="[queues|ray-cluster|serve]",
        required=False,
        shell_complete=completion.charts_and_files,
    )(command)


def refuse_name(verb: str, chart: str, name: str | None) -> None:
    """Check that --name, the name of a run, is not used with a chart."""
    if name is not None:
        raise UsageError(f"--name is the name of a run; for a release, use: launcher {verb} {chart} RELEASE")


def name_option(command: _Command) -> _Command:
    return click.option("--name", metavar="NAME", help="The run's name; overrides run.name.")(command)
