from __future__ import annotations

from pathlib import Path

import click

from launcher.cli.options import format_option


@click.group()
def command() -> None:
    """Build the image that every pod starts from."""


@command.command()
@click.option(
    "--accelerator", type=click.Choice(["cpu", "tpu", "gpu"]), required=True, help="The hosts that it is for."
)
@click.option("--repository", required=True, metavar="HOST/PATH", help="What to call it; the tag is its content's.")
@click.option("--push", is_flag=True, help="Push it, unless the registry has it already.")
@click.option(
    "--write", type=click.Path(path_type=Path), metavar="FILE", help="Write it into this values file, under image."
)
@click.option("--base", metavar="IMAGE", help="An image with Python 3.12 to start from, instead of Docker's own.")
@click.option(
    "--tool",
    type=click.Choice(["docker", "podman", "buildah", "gcloud"]),
    help="What builds it (default: the first of these that works).",
)
@click.option("--dry-run", is_flag=True, help="Print the commands; run none.")
@click.argument("more", nargs=-1, metavar="[-- ARGUMENT...]")
@format_option
def build(
    accelerator: str,
    repository: str,
    push: bool,
    write: Path | None,
    base: str | None,
    tool: str | None,
    dry_run: bool,
    more: tuple[str, ...],
    form: str,
) -> None:
    """Build the image, push it, and print its digest.

    Ray, MaxText and the trainer are those of this Slipway, and the same content gets the same tag on any machine. What
    stands after -- goes to the tool's build. Without --push the image stays where the tool keeps it, and its name with
    the tag is printed.
    """
    from launcher import api
    from launcher.cli import output

    plan = api.plan_image(accelerator, repository, base=base, push=push, write=write, tool=tool, more=more)
    if dry_run:
        commands = api.image_commands(plan)
        output.narrate("CONTEXT stands for a folder with docker/ and trainer/ in it, which the build makes for itself.")
        output.emit({"image": plan.name, "commands": commands}, form, "\n".join(commands))
        return
    image = api.build_image(plan, output.narrate)
    output.emit(image.as_json(), form, image.digest or plan.name)
