"""Build the image that all pods run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.products.image.build import BuiltImage, ImagePlan


def plan_image(
    accelerator: str,
    repository: str,
    *,
    base: str | None = None,
    push: bool = False,
    write: Path | None = None,
    tool: str | None = None,
    more: Sequence[str] = (),
) -> ImagePlan:
    """Return the plan of the image for "cpu", "tpu" or "gpu". Its name is `repository`:tag; the content sets the tag.

    `write` is a values file to write the name to, `tool` is one of launcher.products.image.tools.NAMES, and `more` are
    further arguments for the tool's build command. Builds nothing. Raises LauncherError if the build cannot work.
    """
    from launcher.products.image.build import plan

    return plan(accelerator, repository, base=base, push=push, write=write, tool=tool, more=more)


def image_commands(plan: ImagePlan) -> list[str]:
    """Return the commands that `build_image` would run. Raises LauncherError if no build tool works here."""
    from launcher.products.image.build import dry_run

    return dry_run(plan)


def build_image(plan: ImagePlan, say: Callable[..., None] = lambda *_: None) -> BuiltImage:
    """Build and push the image unless the registry has it, and write its name to the plan's values file.

    `say` is called with the tool's output, line by line. Raises LauncherError if no tool works, the base image or a
    package is not available, the disk is full, or the registry denies access; a failed attempt leaves nothing behind.
    """
    from launcher.products.image.build import build

    return build(plan, say)
