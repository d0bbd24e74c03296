"""Values files: the presets, the defaults, and a first file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from launcher import paths
from launcher.config.values import defaults
from launcher.k8s.target import DEFAULT_TARGET, Target

if TYPE_CHECKING:
    from launcher.config.presets import Preset


def presets(what: str = "") -> list[Preset]:
    """Return the presets, or those with `what` in their names, such as "models", "v6e" or "llama"."""
    from launcher.config.presets import find

    return find(what)


def default_files() -> list[str]:
    """Return the values files that the command reads before every -f: the user's, the project's, SLIPWAY_VALUES.

    The functions here read only the files that they are given: `api.plan([*api.default_files(), "mine.yaml"])`.
    """

    return defaults.default_files()


def init(out: Path | None = None, *, target: Target = DEFAULT_TARGET) -> str:
    """Return a commented values file for this machine, or for the namespace of the target, and write it to `out`.

    Raises LauncherError if `out` exists.
    """
    from launcher.backends import init_values

    if out is not None:
        init_values.refuse_existing(out)
    schema = paths.presets_dir() / "overlay.schema.json"
    folder = Path.cwd() if out is None else out.absolute().parent
    text = init_values.text(target, str(schema.relative_to(folder) if schema.is_relative_to(folder) else schema))
    if out is not None:
        init_values.write(out, text)
    return text
