"""A first values file."""

from __future__ import annotations

from pathlib import Path

from launcher import paths
from launcher.k8s.target import DEFAULT_TARGET, Target


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
