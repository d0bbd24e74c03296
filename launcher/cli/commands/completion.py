from __future__ import annotations

import click

from launcher.cli import output
from launcher.cli.completion import SHELLS
from launcher.cli.main import cli


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
def command(shell: str) -> None:
    """Print the completion script for a shell.

    \b
    bash:  eval "$(launcher completion bash)"
    zsh:   eval "$(launcher completion zsh)"
    fish:  launcher completion fish | source
    """

    script = SHELLS[shell](cli, {}, "launcher", "_LAUNCHER_COMPLETE").source()
    output.emit_exactly(script + "\n")
