from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that makes a shell complete words.

    \b
    bash:  eval "$(launcher completion bash)"
    zsh:   eval "$(launcher completion zsh)"
    fish:  launcher completion fish | source
    """
    from click.shell_completion import get_completion_class

    from launcher.cli import cli

    completion = get_completion_class(shell)
    assert completion is not None  # noqa: S101 - the choices above are click's own
    script = completion(cli, {}, "launcher", "_LAUNCHER_COMPLETE").source()
    click.echo(script)
