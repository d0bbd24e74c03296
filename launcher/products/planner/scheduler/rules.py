"""The rules of Kueue's scheduler that differ between its versions, by the release notes of Kueue 0.16 to 0.19."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.products.planner.scheduler.model import Version

MINOR_VERSIONS = ((0, 16), (0, 17), (0, 18), (0, 19))
"""The minor versions of Kueue that are simulated."""

GATES = {
    "ConcurrentAdmission": False,
    "FairSharingPreemptWithinNominal": True,
    "FairSharingPrioritizeNonBorrowing": True,
    "FairSharingReevaluatePreemptionCandidates": False,
    "FlavorFungibility": True,
    "FlavorFungibilityPreserveScanProgress": True,
    "PreserveFlavorScanProgress": True,
    "PrioritizePreemptorWorkloads": False,
    "PrioritySortingWithinCohort": True,
    "RecomputeAssignmentUponPreemptionTargetsOverlap": False,
    "SchedulingEquivalenceHashing": True,
}
"""The feature gates of Kueue that change what the scheduler decides, with the value that is simulated: the default."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one version.

    `batched_retries`: what was set aside is tried again in batches, not at once. `nominal_first`: with fair sharing, a
    workload within the quota of its queue comes before one that borrows, and may preempt regardless of the shares.
    `by_shape`: a workload that arrives is set aside if others of its shape are. `keeps_progress`: a workload that has
    flavors left to try continues with them, even if another workload was admitted or evicted. `no_candidates_last`: a
    flavor that needs a preemption and has no candidates is the last choice with every preference.
    `frees_the_head`: a workload whose preemption did not help does not stay first in its queue.
    """

    batched_retries: bool
    nominal_first: bool
    by_shape: bool
    keeps_progress: bool
    no_candidates_last: bool
    frees_the_head: bool

    @classmethod
    def of(cls, version: Version) -> Rules:
        return cls(
            batched_retries=version >= (0, 17),
            nominal_first=version >= (0, 17),
            by_shape=version >= (0, 18),
            keeps_progress=_has_fix(version, (0, 18, 5), (0, 19, 1)),  # PreserveFlavorScanProgress
            no_candidates_last=_has_fix(version, (0, 18, 5), (0, 19, 1)),
            frees_the_head=_has_fix(version, (0, 18, 7), (0, 19, 3)),
        )


def parse_version(text: str) -> Version | None:
    """Return a version such as "v0.19.2" or "0.19" as numbers; None if it is not simulated."""
    parts = text.removeprefix("v").split("-")[0].split(".")[:3]
    if not all(part.isdecimal() for part in parts):
        return None
    version = tuple(int(part) for part in parts)
    return version if version[:2] in MINOR_VERSIONS else None


def _has_fix(version: Version, *fixed: Version) -> bool:
    """Return whether a version has a fix: the first fixed version of each minor version. Without a patch: the newest.

    All later minor versions have it.
    """
    for first in fixed:
        if version[:2] == first[:2]:
            return len(version) < len(first) or version >= first
    return version > fixed[-1]
