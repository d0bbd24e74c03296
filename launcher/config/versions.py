"""Supported versions. Their only source is the annotations of the charts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from launcher.config.values.files import read_file
from launcher.errors import LauncherError
from launcher.paths import charts_dir

Version = tuple[int, int]
_VERSION = re.compile(r"v?(\d{1,9})\.(\d{1,9})(?:[.+-].*)?")


@dataclass(frozen=True)
class Range:
    """A range of versions; `oldest` and `newest` are (major, minor)."""

    oldest: Version
    newest: Version

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.oldest))} to {'.'.join(map(str, self.newest))}"


def parse(text: str) -> Version | None:
    """Return major and minor of "v1.36.2", "0.19", "v1.34.1-gke.100" or "1.7.0"; None if it is not a version."""
    match = _VERSION.fullmatch(text)
    return (int(match[1]), int(match[2])) if match else None


def kubernetes_without_cluster() -> str:
    """Return the Kubernetes version that Helm renders for if no cluster is asked: the newest supported one."""
    return f"{'.'.join(map(str, supported('kubernetes').newest))}.0"


@cache
def supported(component: str) -> Range:
    """Return the range that chart `run` declares for kubernetes, kueue, kuberay or jobset."""
    chart = read_file(str(charts_dir() / "run" / "Chart.yaml")).tree
    text = str(chart["annotations"][f"slipway.dev/{component}"])
    ends = [parse(end.strip()) for end in text.split(" - ")]
    if len(ends) != 2 or ends[0] is None or ends[1] is None:
        raise LauncherError(
            f'Chart run names "{text}" as the versions of {component}; it must have the form 0.16 - 0.19.'
        )
    return Range(ends[0], ends[1])


def image_parts(image: str) -> tuple[str, str]:
    """Return an image's repository and tag; the tag is "" if there is none.

    "quay.io/kuberay/operator:v1.7.0@sha256:…" -> "quay.io/kuberay/operator", "v1.7.0".
    """
    named = image.partition("@")[0]
    folder, slash, last = named.rpartition("/")
    base, _, tag = last.partition(":")
    return folder + slash + base, tag
