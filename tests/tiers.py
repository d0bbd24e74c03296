"""The tiers of the tests, in one place: what each holds, what `make test` runs of it, what shares a process.

    make test        the quick tiers, and the SMOKE tests of the others
    make test-all    every tier but image, browser and e2e, which need more than Python, Go, make and git
    .ci/run          every tier but e2e

tests/conftest.py gives each test the marker of its tier, and the marker `quick` to what `make test` runs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Tier:
    """Tests of one kind. `files` is a pattern of their paths; a file belongs to the first tier that matches.

    quick: `make test` runs all of them. group: tests of one group run in one process, one after the other, because
    they share what is slow to start; "" puts the tests of each file into a group of their own.
    """

    name: str
    about: str
    files: str
    quick: bool = False
    group: str = ""


# In the order in which their groups start: what takes longest comes first, so that no process waits at the end.
TIERS = (
    Tier("e2e", "on your cluster with Kueue, JobSet and KubeRay (make e2e)", r"tests/e2e/", group="e2e"),
    Tier("image", "the image, built and run in containers; as root, with buildah", r"tests/image/", group="image"),
    Tier(
        "training",
        "whole runs of the trainer, with and without Ray; kills and resumes",
        r"tests/(trainer/test_(training|without_ray|told_to_end|ray_job|ray_cluster|storage)|cli/test_training)\.py",
        group="training",
    ),
    Tier(
        "pages",
        "the commands that pages and the notebook show, run as shown",
        r"tests/(docs/test_here|cluster/test_pages|test_notebook)\.py",
    ),
    Tier(
        "cluster",
        "the launcher in front of a real control plane",
        r"tests/(cluster/|charts/test_queues_live\.py)",
        group="cluster",
    ),
    Tier("compiler", "the TPU compiler, in the child of a forecast", r"tests/trainer/test_aot\w*\.py"),
    Tier("harness", "the tools of these tests, and the e2e suite against stand-ins", r"tests/(tools/|unit/test_e2e_)"),
    Tier("browser", "reports in Chromium (make test-browser)", r"tests/browser/", group="browser"),
    Tier("cli", "the launcher as a user types it", r"tests/cli/", quick=True),
    Tier("charts", "the charts, rendered by Helm and checked against the CRDs", r"tests/charts/", quick=True),
    Tier("unit", "functions, tables, pages, the wheel", r"tests/", quick=True),
)

# Tests of slow tiers that `make test` runs too: node ids, without parameters for all of a test's.
SMOKE: frozenset[str] = frozenset()


def tier_of(nodeid: str) -> Tier:
    """The tier of a test, or of a file of tests; its path is relative to the checkout."""
    return next(tier for tier in TIERS if re.match(tier.files, nodeid))


def is_quick(nodeid: str) -> bool:
    """Whether `make test` runs the test."""
    return tier_of(nodeid).quick or not SMOKE.isdisjoint((nodeid, nodeid.partition("[")[0]))


def missing_smoke(collected: Iterable[str]) -> list[str]:
    """The SMOKE tests that are not among the collected ones, though tests of their files are."""
    there = set(collected)
    there |= {nodeid.partition("[")[0] for nodeid in there}
    files = {nodeid.partition("::")[0] for nodeid in there}
    return sorted(nodeid for nodeid in SMOKE if nodeid.partition("::")[0] in files and nodeid not in there)


def summary(seconds: Iterable[tuple[str, float]]) -> list[str]:
    """A table of tiers from the seconds of each phase of each test, by node id."""
    tests: dict[str, set[str]] = {}
    total: Counter[str] = Counter()
    for nodeid, each in seconds:
        name = tier_of(nodeid).name
        tests.setdefault(name, set()).add(nodeid)
        total[name] += each
    return [f"{name:<10}{len(tests[name]):>6} tests{spent:>8.0f} s" for name, spent in total.most_common()]
