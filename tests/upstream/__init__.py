"""Upstream's controllers: the CRDs of each supported version, and recordings of what they did.

The CRDs are the original files if they are available, CEL expressions included. Otherwise they are the tables of facts
in tables.json.gz, with the rules in rules.py. The original files are in the first of these folders that exists, each
version in PROJECT-vVERSION/: the folder in SLIPWAY_CRDS, ../shared/crds next to the checkout, and the folder in the
cache that `make upstream` fills. SLIPWAY_CRDS= (empty) selects the tables.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path

import yaml

from tests.tools.go_tools import cache_dir, cached
from tests.upstream import rules, tables
from tests.upstream.tables import Crd

CHECKOUT = Path(__file__).parents[2]
RECORDINGS = Path(__file__).parent / "recordings"
GROUPS = {"kuberay": "ray.io", "kueue": "kueue.x-k8s.io", "jobset": "jobset.x-k8s.io"}
"""The API group of the CRDs, by project."""


def versions() -> dict[str, list[str]]:
    """Return the supported versions of each project, the oldest first: {"kueue": ["0.16.9", …]}."""
    return _tables().versions()


def crds(project: str, version: str) -> list[Crd]:
    """Return the CRDs of a version: the original ones, or those of the tables.

    Without descriptions, printer columns and webhooks. The CRDs share parts, so do not change them. Raises KeyError for
    an unknown project or version.
    """
    folder = originals()
    if folder is None or not (folder / f"{project}-v{version}").is_dir():
        return rules.add(table(project, version))
    return original_crds(folder / f"{project}-v{version}")


def table(project: str, version: str) -> list[Crd]:
    """Return the CRDs of a version as the tables have them, without rules. Raises KeyError."""
    if version not in versions().get(project, ()):
        raise KeyError(f"{project} {version} is not in {tables.FILE.name}")
    return _tables().crds(project, version)


def crd(project: str, version: str, kind: str) -> Crd:
    """Return the CRD of a kind. Raises StopIteration for an unknown kind."""
    return next(crd for crd in crds(project, version) if crd["spec"]["names"]["kind"] == kind)


def originals() -> Path | None:
    """Return the folder of the original files; None if there is none.

    Raises FileNotFoundError if the folder in SLIPWAY_CRDS has no such files.
    """
    named = os.environ.get("SLIPWAY_CRDS")
    if named is not None:
        folder = Path(named).expanduser()
        if named and not any(folder.glob("*-v*/*.yaml")):
            raise FileNotFoundError(
                f"SLIPWAY_CRDS={named}: no file matches {folder}/PROJECT-vVERSION/*.yaml. Set SLIPWAY_CRDS to a folder "
                "with the CRDs of upstream's releases, or unset it."
            )
        return folder if named else None
    folders = (CHECKOUT.parent / "shared" / "crds", cache_dir().parent / "upstream")
    return next((folder for folder in folders if any(folder.glob("*-v*/*.yaml"))), None)


def original_crds(folder: Path) -> list[Crd]:
    """Return the CRDs in the files of a folder. They are cached, because a megabyte of YAML takes half a second."""
    files = sorted(folder.glob("*.yaml"))
    key = b"\0".join([*(file.read_bytes() for file in files), Path(tables.__file__).read_bytes(), b"originals"])

    def write(path: Path) -> None:
        found = [crd for file in files for crd in yaml.load_all(file.read_bytes(), yaml.CSafeLoader) if crd]
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps([tables.kept(crd, expressions=True) for crd in found]))
        draft.rename(path)

    found: list[Crd] = json.loads(cached(key, "crds.json", write).read_text())
    return found


@functools.cache
def _tables() -> tables.Tables:
    return tables.Tables()
