from __future__ import annotations

from pathlib import Path

import click

from launcher.cli import output
from launcher.cli.options import format_option
from launcher.products.image import api as image_api


@click.group()
def command() -> None:
    """Build the image that all pods run."""


@command.command()
@click.option(
    "--accelerator", type=click.Choice(["cpu", "tpu", "gpu"]), required=True, help="The hosts that the image is for."
)
@click.option(
    "--repository", required=True, metavar="HOST/PATH", help="The image's name; the tag depends on its content."
)
@click.option("--push", is_flag=True, help="Push the image, unless the registry already has it.")
@click.option(
    "--write",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the image's name to this values file, under image.",
)
@click.option("--base", metavar="IMAGE", help="The base image, with Python 3.12 (default: Docker's own).")
@click.option(
    "--tool",
    type=click.Choice(["docker", "podman", "buildah", "gcloud"]),
    help="The build tool (default: the first of these that works).",
)
@click.option("--dry-run", is_flag=True, help="Print the commands without running them.")
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

    The image contains Ray, MaxText and the trainer in the versions of this Slipway. The same content gets the same tag
    on every machine. Arguments after -- are passed to the tool's build command. Without --push, the image stays where
    the tool stores it, and its name with the tag is printed.
    """

    plan = image_api.plan_image(accelerator, repository, base=base, push=push, write=write, tool=tool, more=more)
    if dry_run:
        commands = image_api.image_commands(plan)
        output.narrate("CONTEXT is a folder with docker/ and trainer/, which the build creates.")
        output.emit({"image": plan.name, "commands": commands}, form, "\n".join(commands))
        return
    image = image_api.build_image(plan, output.narrate)
    output.emit(image.as_json(), form, image.digest or plan.name)
