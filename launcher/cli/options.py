"""The options and arguments that several verbs share."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from threading import Thread
from typing import TYPE_CHECKING, Any

import click

from launcher import api, formatting
from launcher.backends.base import State
from launcher.backends.selection import RunFilter
from launcher.cli import completion, output
from launcher.config.values.defaults import default_files
from launcher.errors import Interrupted, LauncherError, UsageError
from launcher.k8s.target import Target
from launcher.paths import CHARTS

if TYPE_CHECKING:
    pass

_Command = Callable[..., Any]

_COMPLETION_SECONDS = 2.0


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


def run_argument(command: _Command) -> _Command:
    return click.argument("name", metavar="NAME", shell_complete=_run_names)(command)


def step_option(command: _Command) -> _Command:
    """Add `--step`, which selects a checkpoint of a run."""
    return click.option(
        "--step", type=Step(), metavar="STEP", help='The checkpoint: its number, "best" or "last" (default: last).'
    )(command)


def run_names_argument(command: _Command) -> _Command:
    return click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=_run_names)(command)


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
    return click.argument("names", metavar="[NAME...]", nargs=-1, shell_complete=_run_names)(given)


def _run_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    given = {key: ctx.params.get(key) for key in ("context", "namespace")}
    target = Target(given["context"], given["namespace"], bool(ctx.params.get("local")))
    names: list[str] = []

    def look(where: Target) -> None:
        with contextlib.suppress(LauncherError):
            for backend in api.backends(where):
                runs = backend.list(lambda _: None)
                names.extend(status.sweep for status in runs if status.sweep)
                names.extend(status.name for status in runs)

    # Completion must be fast: a cluster that does not respond in time contributes no names.
    def look_everywhere() -> None:
        if target.includes_local:
            look(Target(local=True))
        look(target)

    asked = Thread(target=look_everywhere, daemon=True)
    asked.start()
    asked.join(_COMPLETION_SECONDS)
    return [name for name in dict.fromkeys(tuple(names)) if name.startswith(incomplete)]


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


class WholeNumber(click.IntRange):
    """A whole number in a range. For a word, click's own message would be "not a valid integer range"."""

    name = "whole number"


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


class Seconds(click.ParamType[float]):
    """A duration: "90", "90s", "5m", "1.5h", "7d", "1h30m"."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = formatting.seconds(str(value))
        if seconds is None:
            self.fail(f'"{value}" is not a valid duration; use 90, 90s, 5m, 1.5h, 1h30m or 7d.', param, ctx)
        return seconds
