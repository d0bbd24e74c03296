"""The presets: the values files that users combine, with what each of them is for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from launcher import paths
from launcher.config import accelerators
from launcher.config.values.files import chart_defaults, read_file
from launcher.config.values.tree import Values, with_defaults
from launcher.errors import UsageError


@dataclass(frozen=True)
class Preset:
    """A preset: its name, as `-f` accepts it, and the first sentence of its file.

    accelerator, topology, hosts and chips are those of all its slices together; they are null if it sets no slice, and
    chips is null on CPUs.
    """

    name: str
    about: str
    accelerator: str | None
    topology: str | None
    hosts: int | None
    chips: int | None
    file: str


def presets(what: str = "") -> list[Preset]:
    """Return the presets with `what` in their names. Raises UsageError if there is none."""
    names = paths.presets()
    matching = [name for name in names if what.lower() in name]
    if not matching:
        folders = sorted({name.partition("/")[0] for name in names if "/" in name})
        raise UsageError(
            f'No preset has "{what}" in its name.',
            f"Use launcher presets, or one of its folders: {', '.join(folders)}.",
        )
    defaults = chart_defaults("run")
    return [_preset(name, defaults) for name in matching]


def _preset(name: str, defaults: Values) -> Preset:
    file = paths.presets_dir() / f"{name}.yaml"
    user = read_file(str(file))
    slice_, count = None, 1
    if user.tree.get("slice"):
        tree = with_defaults(user, defaults).tree
        slice_, count = accelerators.resolve(tree["slice"], tree["common"]["accelerators"]), tree["slice"]["count"]
    return Preset(
        name,
        _first_sentence(file.read_text(encoding="utf-8")),
        slice_.accelerator if slice_ else None,
        slice_.topology if slice_ else None,
        slice_.hosts * count if slice_ else None,
        slice_.chips * count if slice_ and slice_.kind != "cpu" else None,
        str(file),
    )


def _first_sentence(text: str) -> str:
    """Return the first sentence of the comment at the top of a file, without the point."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    match = re.match(r".*?(?=[.:]?$|\.\s|:\n)", "\n".join(lines), re.DOTALL)
    return " ".join(match[0].split()) if match else ""
