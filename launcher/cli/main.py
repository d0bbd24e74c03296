"""The command line: `launcher VERB …`. A verb is a file in commands/ or in a product, imported when it is called."""

from __future__ import annotations

from importlib import import_module

import click

from launcher import distribution, plugins
from launcher.cli import output
from launcher.cli.verbs import CORE, INSTEAD_OF, epilog, groups, verbs
from launcher.errors import LauncherError

_COMMANDS = "launcher.cli.commands"


_OTHER_OPTIONS = {
    "--all": 'To select all runs, use the pattern "*".',
    "--chips": "The slice determines the chips: -f slices/v6e-4x4, or --set slice.topology=4x4.",
}
"""What to use instead of an option that other tools have."""


class LazyGroup(click.Group):
    """A group whose commands are modules with an attribute `command`: launcher.cli.commands.VERB, or a product's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Accept `launcher help [VERB…]` and `launcher version`, which users of other tools type."""
        if args and args[0] == "help":
            args = [*args[1:], "--help"]
        elif args and args[0] == "version":
            args = ["--version"]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(verbs())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        product = None if cmd_name in CORE else plugins.product_of(cmd_name)
        if cmd_name not in CORE and product is None:
            return None
        command = _imported(cmd_name, _COMMANDS if product is None else product.package)
        command.epilog = epilog(CORE[cmd_name] if product is None else product.commands[cmd_name])
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            instead = _OTHER_OPTIONS.get(error.option_name, "")
            if "." in error.option_name:  # a key of the values
                instead = f"To set a value: --set {error.option_name.removeprefix('--')}=VALUE"
            if not instead:
                raise
            message = f"No such option '{error.option_name}'. {instead}"
            raise click.UsageError(message, error.ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, verbs()))
        for title, group in groups().items():
            with formatter.section(title):
                formatter.write_dl([(verb.ljust(width), text) for verb, text in group.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            others = dict(INSTEAD_OF)
            for product in plugins.products():
                others |= product.instead_of
            if error.command_name in others:
                message = f"No such command '{error.command_name}'. Use: {others[error.command_name]}."
                raise click.UsageError(message, ctx) from None
            raise click.exceptions.NoSuchCommand(error.command_name, possibilities=list(verbs()), ctx=ctx) from None


def _imported(verb: str, package: str) -> click.Command:
    """Return the command of a package. Raises LauncherError if another package that it needs is not installed."""
    try:
        command: click.Command = import_module(f"{package}.{verb}").command
    except ModuleNotFoundError as error:
        if package == _COMMANDS:  # a bug, or a broken installation
            raise
        raise LauncherError(
            f'The command "{verb}" needs the Python package {error.name}, which is not installed.',
            "Install it in the environment of the launcher.",
        ) from error
    return command


def _version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    text = distribution.version() or "(a checkout that is not installed)"
    output.emit(None, "text", f"launcher, Slipway {text}")
    ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  launcher submit quickstart --name first
  launcher status first

launcher VERB --help describes a verb. The pages are in docs/ of Slipway's source; begin with docs/index.md.""",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version and exit."
)
def cli() -> None:
    """Train an LLM on this machine or on a shared slice, with one command."""
