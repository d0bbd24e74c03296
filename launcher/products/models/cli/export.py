from __future__ import annotations

import click

from launcher import api
from launcher.cli import output
from launcher.cli.options import format_option, run_target_options
from launcher.cli.run_arguments import run_argument
from launcher.errors import UsageError
from launcher.k8s.target import Target
from launcher.products.common.storage import is_path, is_url
from launcher.products.models import jobs
from launcher.products.models.api import weights
from launcher.products.models.weights.export import DTYPES


@click.command()
@run_argument
@click.option(
    "--to",
    metavar="DESTINATION",
    help="A folder, gs://BUCKET/FOLDER or hf:ORG/NAME (default, for a run in a cluster: NAME/export/STEP, or for "
    "an adapter NAME/adapter/STEP, in its storage).",
)
@click.option("--step", default="last", metavar="STEP", help="A number, last or best (default: last).")
@click.option("--dtype", type=click.Choice(DTYPES), default="float32", help="The type of the weights.")
@click.option("--merge", is_flag=True, help="Export a whole model instead of the adapter of a run with adapters.")
@click.option("--public", is_flag=True, help="Make a repository that hf:ORG/NAME creates public.")
@jobs.sets_option
@jobs.detach_options
@run_target_options
@format_option
def command(
    name: str,
    to: str | None,
    step: str,
    dtype: str,
    merge: bool,
    public: bool,
    sets: tuple[str, ...],
    detach: bool,
    dry_run: bool,
    target: Target,
    form: str,
) -> int:
    """Export a checkpoint as a model in Hugging Face format.

    The result is a folder with config.json, the weights as safetensors, the tokenizer and a model card, which
    transformers and most other programs load. NAME is a run, a sweep (its best run), or a run's folder (with a slash in
    it: ./NAME). The best step is the one with the lowest held-out loss: see launcher checkpoints.

    The export of a run with adapters (tuning.method: lora) is the adapter, as a folder for peft and vLLM. With --merge
    it is a whole model: the weights that the run started from, changed by the adapter.

    A run of this machine is exported here. For a run in a cluster, a run called NAME-export does it: on one CPU host,
    with the image, team, queue and storage of the run. Its destination is a folder of this storage: a path in the pods,
    or gs://BUCKET/FOLDER for a mounted bucket.

    An export that fails or is interrupted leaves nothing at the destination that a program would load. An existing
    destination is not changed. For hf:ORG/NAME, log in with `hf auth login`, or set HF_TOKEN.
    """

    if not step.isdecimal() and step not in ("last", "best"):
        raise UsageError(f'--step "{step}" is not a step; give a number, last or best.')
    step = str(int(step)) if step.isdecimal() else step
    if public and not (to or "").startswith("hf:"):
        raise UsageError("--public is for a repository on Hugging Face: --to hf:ORG/NAME.")
    if is_url(name):
        raise UsageError(
            f"{name} is a URL; give the name of the run, or a copy of its folder on this machine (./NAME)."
        )
    if is_path(name) or not api.find_best(name, target)[1].in_cluster:
        if sets or detach or dry_run:
            raise UsageError("--set, --detach and --dry-run are for a run in a cluster; this one is on this machine.")
        if to is None:
            raise UsageError("--to is missing: give a folder, gs://BUCKET/FOLDER or hf:ORG/NAME.")
        done = weights.export(
            name, to, step=step, dtype=dtype, merge=merge, public=public, target=target, say=output.narrate
        )
        if done.state == "present":
            output.narrate("The same export already exists there; nothing was changed.")
        output.emit(done, form, done.to)
        return 0
    plan = weights.plan_export(
        name, to, step=step, dtype=dtype, merge=merge, sets=sets, target=target, say=output.narrate
    )
    return jobs.submit(plan, target, form, detach=detach, dry_run=dry_run)
