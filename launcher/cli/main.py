"""The command line: `launcher VERB …`, one file per verb under commands/, imported when the verb is called."""

from __future__ import annotations

from importlib import import_module

import click

# In the order of a run's lifecycle, which is the order in `launcher --help`.
VERBS = (
    "submit",
    "render",
    "values",
    "check",
    "forecast",
    "diff",
    "install",
    "uninstall",
    "list",
    "status",
    "logs",
    "wait",
    "cancel",
    "delete",
    "explain",
    "report",
    "dashboard",
    "doctor",
    "image",
    "completion",
)


class LazyGroup(click.Group):
    """A group whose commands are modules: launcher.cli.commands.VERB with an attribute `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"launcher.cli.commands.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(error.command_name, possibilities=VERBS, ctx=ctx) from None


def _version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        text = version("slipway")
    except PackageNotFoundError:
        text = "(a checkout that is not installed)"
    click.echo(f"launcher, Slipway {text}")
    ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version and exit."
)
def cli() -> None:
    """Train an LLM on this machine or on a shared slice, with one command."""
