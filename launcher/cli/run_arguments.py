"""The arguments with names of runs, and their completion."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from threading import Thread
from typing import Any

import click

from launcher import api
from launcher.errors import LauncherError
from launcher.k8s.target import Target

_Command = Callable[..., Any]
_COMPLETION_SECONDS = 2.0


def run_argument(command: _Command) -> _Command:
    return click.argument("name", metavar="NAME", shell_complete=complete_run_names)(command)


def run_names_argument(command: _Command) -> _Command:
    return click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=complete_run_names)(
        command
    )


def complete_run_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
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
