"""`make charts`: copy what the charts share into each chart (docs/decisions/0012-copies-in-the-charts.md).

A chart must contain all its files: Flux, ZIP files and most registries drop symbolic links. The sources are edited, and
this writes the copies. `make lint` and tests/charts/test_copies.py compare them.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]

COPIES = {
    "queues/charts/slipway-common": "common",
    "ray-cluster/charts/slipway-common": "common",
    "ray-cluster/values.schema.json": "run/values.schema.json",
    "ray-cluster/values.yaml": "run/values.yaml",
    "run/charts/slipway-common": "common",
    "serve/charts/slipway-common": "common",
    "serve/values.schema.json": "run/values.schema.json",
    "serve/values.yaml": "run/values.yaml",
}
"""The source of each copied file or folder, as paths in the folder of the charts."""


def outdated(charts: Path) -> list[str]:
    """Return the copies that differ from their source, and symbolic links, as paths in the folder `charts`."""
    found = {copy for copy, source in COPIES.items() if _content(charts / copy) != _content(charts / source)}
    found |= {str(path.relative_to(charts)) for path in charts.rglob("*") if path.is_symlink()}
    return sorted(found)


def faults(charts: Path) -> list[str]:
    """Return a sentence for each copy that is outdated."""
    return [
        f"{charts.name}/{path} is not a copy of {charts.name}/{COPIES[path]}; edit that one and run `make charts`."
        if path in COPIES
        else f"{charts.name}/{path} is a symbolic link, which many tools drop; replace it with its target."
        for path in outdated(charts)
    ]


def write(charts: Path) -> None:
    """Write every copy in the folder `charts`."""
    for copy, source in COPIES.items():
        target = charts / copy
        if target.is_symlink() or target.is_file():
            target.unlink()
        elif target.exists():
            shutil.rmtree(target)
        target.parent.mkdir(exist_ok=True)
        if (charts / source).is_dir():
            shutil.copytree(charts / source, target)
        else:
            shutil.copyfile(charts / source, target)


def _content(path: Path) -> dict[str, bytes]:
    """Return the content of a file, or of every file in a folder by its path in it; empty if there is none."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


if __name__ == "__main__":
    write(CHECKOUT / "charts")
    sys.exit("\n".join(faults(CHECKOUT / "charts")) or 0)
