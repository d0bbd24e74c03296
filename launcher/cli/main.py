"""The command line: `launcher VERB …`, one file per verb under commands/, imported when the verb is called."""

from __future__ import annotations

from importlib import import_module

import click

from launcher import distribution
from launcher.cli import examples, output

GROUPS = {
    "Train": {
        "submit": "Check the values, start the run, and follow it until it ends.",
        "list": "List the runs of this machine and of the namespace.",
        "status": "Show the status of a run, a sweep, a served model or a long-lived Ray cluster.",
        "logs": "Print the output of a run's current attempt, or of a served model.",
        "attach": "Follow a run or a sweep again, until it ends.",
        "wait": "Wait until a run ends, or all runs of a sweep.",
        "cancel": "Stop runs or sweeps, and release their resources.",
        "delete": "Delete runs that have ended, or all runs of a sweep.",
    },
    "Understand": {
        "explain": "Explain why a run waits or failed, or why a served model does not answer, and how to fix it.",
        "forecast": "Forecast whether a run fits, how fast it is and what it costs.",
        "simulate": "Simulate when runs start, and what a change of the queues would do.",
        "report": "Write a report that compares runs, as one HTML page.",
        "tensorboard": "Serve TensorBoard for a run on this machine, until Ctrl-C.",
        "profile": "Record a profile of the next steps of a run.",
        "dashboard": "Serve Ray's dashboard on a local port, until Ctrl-C.",
        "shell": "Open a shell in the pod of a host of a run, or run a command there.",
        "doctor": "Check whether this machine and the cluster can start runs.",
    },
    "Use": {
        "checkpoints": "List the checkpoints of a run, with their held-out losses.",
        "export": "Export a checkpoint as a model in Hugging Face format.",
        "import": "Import a model in Hugging Face format as weights to start from.",
        "generate": "Generate text with a checkpoint of a run.",
        "eval": "Evaluate checkpoints of runs on tasks of lm-eval.",
        "serve": "Serve a checkpoint of a run with OpenAI's API: on this machine, or with -f on a cluster.",
        "chat": "Talk with a model that launcher serve serves.",
    },
    "Values": {
        "presets": "List the presets: models, slices, queues, clusters, tutorials, tuned runs.",
        "init": "Write a values file for this machine or for your namespace.",
        "values": "Print the values files and --set, merged and not validated.",
        "check": "Check the values against all rules that need no chips.",
        "render": "Print the manifests that submit would create.",
        "diff": "Show what submit or install would change in the cluster.",
    },
    "Platform": {
        "cluster": "Plan, create, change and delete a GKE cluster for the queues.",
        "install": "Install or upgrade a platform's queues, a Ray cluster or a served model.",
        "uninstall": "Remove a release of queues or of a Ray cluster.",
        "image": "Build the image that all pods run.",
    },
    "Shell": {
        "completion": "Print the completion script for a shell.",
    },
}
"""The verbs and their one-line helps, in the groups of `launcher --help`, which imports no verb. A test compares them
with the verbs' own."""
VERBS = {verb: text for group in GROUPS.values() for verb, text in group.items()}

_OTHER_NAMES = {
    **dict.fromkeys(("run", "train", "start", "launch", "apply", "create"), "launcher submit"),
    **dict.fromkeys(("resume", "restart", "continue"), "launcher submit, which resumes a run of the same name"),
    **dict.fromkeys(("ps", "ls", "get", "jobs", "runs", "queue"), "launcher list"),
    **dict.fromkeys(("stop", "kill", "abort"), "launcher cancel"),
    **dict.fromkeys(("rm", "remove", "clean"), "launcher delete"),
    **dict.fromkeys(("describe", "show", "inspect"), "launcher status, or launcher explain"),
    **dict.fromkeys(("top", "progress", "stat", "watch", "follow"), "launcher attach, or launcher status --watch"),
    **dict.fromkeys(("why", "debug", "events"), "launcher explain"),
    **dict.fromkeys(("log", "tail"), "launcher logs"),
    **dict.fromkeys(("models", "templates", "examples", "preset", "gpus", "tpus"), "launcher presets"),
    **dict.fromkeys(("new", "scaffold"), "launcher init"),
    "sweep": "launcher submit --sweep KEY=V1,V2",
    **dict.fromkeys(("template", "manifest"), "launcher render"),
    **dict.fromkeys(("validate", "lint"), "launcher check"),
    **dict.fromkeys(("config", "show-values", "set"), "launcher values"),
    **dict.fromkeys(("estimate", "plan", "cost", "price"), "launcher forecast"),
    **dict.fromkeys(("upgrade", "deploy"), "launcher install"),
    **dict.fromkeys(("build", "push"), "launcher image build"),
    **dict.fromkeys(("server", "host", "api"), "launcher serve"),
    **dict.fromkeys(("talk", "ask", "prompt"), "launcher chat"),
    **dict.fromkeys(("ui", "web"), "launcher dashboard"),
    **dict.fromkeys(("exec", "ssh"), "launcher shell"),
    **dict.fromkeys(("convert", "push-to-hub", "upload"), "launcher export, or launcher import"),
    **dict.fromkeys(("sample", "complete", "infer", "predict", "inference"), "launcher generate"),
    **dict.fromkeys(("evaluate", "benchmark", "lm-eval"), "launcher eval"),
}
"""What to use instead of a word that other tools have as a command."""


_OTHER_OPTIONS = {
    "--all": 'To select all runs, use the pattern "*".',
    "--chips": "The slice determines the chips: -f slices/v6e-4x4, or --set slice.topology=4x4.",
}
"""What to use instead of an option that other tools have."""


class LazyGroup(click.Group):
    """A group whose commands are modules: launcher.cli.commands.VERB with an attribute `command`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Accept `launcher help [VERB…]` and `launcher version`, which users of other tools type."""
        if args and args[0] == "help":
            args = [*args[1:], "--help"]
        elif args and args[0] == "version":
            args = ["--version"]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"launcher.cli.commands.{cmd_name}").command
        command.epilog = examples.epilog(cmd_name)
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
        width = max(map(len, VERBS))
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(verb.ljust(width), text) for verb, text in verbs.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:
            if error.command_name in _OTHER_NAMES:
                message = f"No such command '{error.command_name}'. Use: {_OTHER_NAMES[error.command_name]}."
                raise click.UsageError(message, ctx) from None
            raise click.exceptions.NoSuchCommand(error.command_name, possibilities=list(VERBS), ctx=ctx) from None


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
