from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from launcher.cli import output
from launcher.cli.main import cli


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script for a shell.

    \b
    bash:  eval "$(launcher completion bash)"
    zsh:   eval "$(launcher completion zsh)"
    fish:  launcher completion fish | source
    """

    completion = get_completion_class(shell)
    if completion is None:
        raise LookupError(f"click has no completion for {shell}, which is one of the choices above")
    script = completion(cli, {}, "launcher", "_LAUNCHER_COMPLETE").source()
    output.emit_exactly(script + "\n")
