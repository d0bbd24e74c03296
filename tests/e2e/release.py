"""The charts of the release before this one, from the checkout's history, without a network."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

import yaml

_CHART = "charts/queues/Chart.yaml"


@dataclass(frozen=True)
class Earlier:
    """The earlier charts: a commit, or a folder. If there is neither, `why` gives the reason."""

    commit: str = ""
    folder: Path | None = None
    called: str = ""
    why: str = ""


def find(root: Path, wanted: str = "") -> Earlier:
    """The newest tag, or else the newest commit, before this one with another version of charts/queues.

    wanted: the revision or folder to use instead (SLIPWAY_E2E_RELEASE).
    """
    if wanted and Path(wanted).is_dir():
        folder = Path(wanted).resolve()
        if not (folder / "queues" / "Chart.yaml").is_file():
            return Earlier(why=f"SLIPWAY_E2E_RELEASE names the folder {wanted}, in which there is no queues/Chart.yaml")
        return Earlier(folder=folder, called=str(wanted))
    if _git(root, "rev-parse", "HEAD") is None:
        return Earlier(why="this is no checkout with a history")
    if wanted:
        commit = _git(root, "rev-parse", "--verify", "--quiet", f"{wanted}^{{commit}}")
        if not commit:
            return Earlier(why=f"SLIPWAY_E2E_RELEASE names {wanted}, which is neither a revision nor a folder")
        return Earlier(commit=commit, called=wanted)
    now = version_at(root, "")
    tags = (_git(root, "tag", "--merged", "HEAD", "--sort=-creatordate") or "").splitlines()
    for tag in tags:
        if version_at(root, tag) not in ("", now):
            return Earlier(commit=_git(root, "rev-parse", f"{tag}^{{commit}}") or "", called=tag)
    for commit in (_git(root, "log", "--format=%H", "HEAD", "--", _CHART) or "").splitlines():
        # The parent of a commit that changes the version has the last state of the version before.
        before = _git(root, "rev-parse", "--verify", "--quiet", f"{commit}^")
        if before and version_at(root, before) not in ("", now):
            return Earlier(commit=before, called=f"{version_at(root, before)} ({before[:7]})")
    if _git(root, "rev-parse", "--is-shallow-repository") == "true":
        return Earlier(why="the checkout is shallow; git fetch --unshallow brings its history")
    return Earlier(why=f"the history has no other version of charts/queues than {now}")


def charts(root: Path, earlier: Earlier, folder: Path) -> Path:
    """The folder of the earlier charts, unpacked into `folder`."""
    if earlier.folder is not None:
        return earlier.folder
    packed = subprocess.run(
        ["git", "archive", "--format=tar", earlier.commit, "charts"], cwd=root, capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="tar")  # "data" rejects the symbolic links in the charts of old releases
    return folder / "charts"


def version_at(root: Path, commit: str) -> str:
    """The version of charts/queues at `commit`, or in the checkout itself if `commit` is ""; "" if there is none."""
    text = _git(root, "show", f"{commit}:{_CHART}") if commit else (root / _CHART).read_text()
    if not text:
        return ""
    found = str(yaml.safe_load(text).get("version", ""))
    return found if re.match(r"\d+\.\d+\.\d+", found) else ""


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
