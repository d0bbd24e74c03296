"""The command line: `launcher VERB …`, one file per verb under commands/, imported when the verb is called."""

from __future__ import annotations

from importlib import import_module

import click

from launcher import distribution
from launcher.cli import output

# In the order of a run's lifecycle, which is the order in `launcher --help`.
VERBS = {
    "submit": "Check the values, start the run, and follow it until it ends.",
    "render": "Print the manifests that submit would create.",
    "values": "Print the values files and --set, merged and not validated.",
    "check": "Check the values against all rules that need no chips.",
    "forecast": "Forecast whether a run fits, how fast it is and what it costs.",
    "diff": "Show what submit or install would change in the cluster.",
    "install": "Install or upgrade a platform's queues or a Ray cluster.",
    "uninstall": "Remove a release of queues or of a Ray cluster.",
    "list": "List the runs of this machine and of the namespace.",
    "status": "Show the status of a run, a sweep or a long-lived Ray cluster.",
    "logs": "Print the output of a run's current attempt.",
    "attach": "Follow a run or a sweep again, until it ends.",
    "wait": "Wait until a run ends, or all runs of a sweep.",
    "cancel": "Stop runs or sweeps, and release their resources.",
    "delete": "Delete runs that have ended, or all runs of a sweep.",
    "explain": "Explain why a run waits or failed, and how to fix it.",
    "report": "Write a report that compares runs, as one HTML page.",
    "tensorboard": "Serve TensorBoard for a run on this machine, until Ctrl-C.",
    "profile": "Record a profile of the next steps of a run on this machine.",
    "dashboard": "Serve Ray's dashboard on a local port, until Ctrl-C.",
    "shell": "Open a shell in the pod of a host of a run, or run a command there.",
    "doctor": "Check whether this machine and the cluster can start runs.",
    "image": "Build the image that all pods run.",
    "completion": "Print the completion script for a shell.",
}
"""The verbs and their one-line helps: `launcher --help` imports no verb. A test compares them with the verbs' own."""


class LazyGroup(click.Group):
    """A group whose commands are modules: launcher.cli.commands.VERB with an attribute `command`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"launcher.cli.commands.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            raise click.exceptions.NoSuchCommand(error.command_name, possibilities=list(VERBS), ctx=ctx) from None


def _version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    text = distribution.version() or "(a checkout that is not installed)"
    output.emit(None, "text", f"launcher, Slipway {text}")
    ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version and exit."
)
def cli() -> None:
    """Train an LLM on this machine or on a shared slice, with one command."""
