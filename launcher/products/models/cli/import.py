from __future__ import annotations

import click

from launcher import api
from launcher.cli import output
from launcher.cli.options import format_option, submit_target_options
from launcher.cli.values_command import ValuesCommand
from launcher.cli.values_options import any_values_options, name_option
from launcher.config.values.writer import dumps
from launcher.k8s.target import Target
from launcher.products.models import jobs
from launcher.products.models.api import weights


@click.command(cls=ValuesCommand)
@click.argument("source", metavar="SOURCE")
@click.option("--to", metavar="FOLDER", required=True, help="The folder to create; the value of `from` for runs.")
@any_values_options
@name_option
@jobs.detach_options
@submit_target_options
@format_option
def command(
    source: str,
    to: str,
    files: tuple[str, ...],
    sets: tuple[str, ...],
    name: str | None,
    detach: bool,
    dry_run: bool,
    target: Target,
    form: str,
) -> int:
    """Import a model in Hugging Face format as weights to start from.

    SOURCE is hf:ORG/NAME, or a folder in Hugging Face's format. The values are those of a run that will start from the
    weights. If their `train` selects no model, config.json does, and the command prints the keys of `train` for such a
    run. The run then has the folder as `from` in its values.

    The import runs on this machine if run.kind is local, if the values set no storage, or with --local. Otherwise, a
    run called NAME-import does it in the cluster of these values: on one CPU host, with their image, team, queue and
    storage. FOLDER is then a path below storage.mountPath, or its URL in the bucket. For a private model, set HF_TOKEN:
    in the environment on this machine, and in worker.secretEnv for a cluster.
    """

    tree = api.values(files, sets).tree
    kind = (tree.get("run") or {}).get("kind")
    if target.local or kind == "local" or not (kind or tree.get("storage")):
        if detach or dry_run:
            raise click.UsageError(
                "--detach and --dry-run are for an import in a cluster; this one is on this machine."
            )
        done = weights.import_weights(source, to, files, sets, say=output.narrate)
        if done.state == "present":
            output.narrate("The same import already exists there; nothing was changed.")
        output.emit(done, form, done.to)
        if done.train:
            values = dumps({"from": done.to, "train": dict(done.train)})
            output.narrate(f"To start a run from it, add these lines to its values:\n{values.rstrip()}")
        else:
            output.narrate(f"To start a run from it: --set from={done.to}")
        return 0
    plan = weights.plan_import(source, to, files, sets, name=name)
    return jobs.submit(plan, target, form, detach=detach, dry_run=dry_run)
