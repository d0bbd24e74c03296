"""The image that every pod starts from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from launcher.image.build import BuiltImage, ImagePlan


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
    """The image for "cpu", "tpu" or "gpu", to be called `repository`:tag, with a tag that follows from its content.

    `write` is a values file to write its name to, `tool` one of launcher.image.tools.NAMES, `more` further arguments
    of the tool's build. Raises LauncherError for what cannot work; nothing is built yet.
    """
    from launcher.image.build import plan

    return plan(accelerator, repository, base=base, push=push, write=write, tool=tool, more=more)


def image_commands(plan: ImagePlan) -> list[str]:
    """The commands that `build_image` would run. Raises LauncherError where no tool for it works here."""
    from launcher.image.build import dry_run

    return dry_run(plan)


def build_image(plan: ImagePlan, say: Callable[..., None] = lambda *_: None) -> BuiltImage:
    """Build the image and push it, unless the registry has it; then write its name down. `say` gets the tool's lines.

    Raises LauncherError where there is no tool, the base image or the packages cannot be had, the disk is full, or the
    registry refuses; nothing is left of the attempt then.
    """
    from launcher.image.build import build

    return build(plan, say)
