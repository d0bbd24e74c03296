"""Submit sweeps. A sweep has no record of its own: submitting a partly submitted sweep again completes it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from launcher.backends.base import Preview, State, Submission, Submitter
from launcher.backends.sweeps import Sweep, in_parallel, merged, same_refusals
from launcher.errors import LauncherError

if TYPE_CHECKING:
    from launcher.config.plan import LaunchPlan
    from launcher.products.sweeps.plan import SweepPlan


@dataclass(frozen=True)
class SweepSubmission:
    """The result of submitting a sweep: a Submission for each run, in order.

    `message` is one sentence that describes what was done, followed by warnings, one per line.
    """

    name: str
    submissions: tuple[Submission, ...]
    message: str

    @property
    def sweep(self) -> Sweep:
        return Sweep(self.name, tuple(submission.status for submission in self.submissions))


def preview(plan: SweepPlan, backend: Submitter, *, accept_changes: bool) -> list[Preview]:
    """Return the effect of submitting on each run, without creating anything.

    Raises LauncherError with everything that would be refused. On a cluster, runs are created in a dry run, one
    for all that differ only in their name and training, so refusals (a policy) are known before the first is created.
    """
    if backend.status(plan.name) is not None:
        raise LauncherError(
            f'The run "{plan.name}" already exists; a sweep needs its own name.', "Use another name (--name)."
        )
    backend.prepare(plan.plans)
    return in_parallel(
        backend, plan.plans, lambda each: backend.preview(each, accept_changes=accept_changes), same_refusals
    )


def submit(plan: SweepPlan, backend: Submitter, *, accept_changes: bool) -> SweepSubmission:
    """Create the missing runs, resume the failed runs, and find the others.

    Creates nothing if the preview of one run is refused. Raises LauncherError if the cluster refuses a run only on
    creation (a namespace's quota is used up): the runs created so far stay, and submitting again creates the rest.
    """
    preview(plan, backend, accept_changes=accept_changes)
    made: list[Submission] = []

    def one(run_plan: LaunchPlan) -> Submission:
        submission = backend.submit(run_plan, accept_changes=accept_changes)
        made.append(submission)
        return submission

    def stopped(failures: Sequence[tuple[str, LauncherError]]) -> LauncherError:
        error = same_refusals(failures)
        there = f"{len(made)} of the {len(plan.plans)} runs of the sweep were created"
        return LauncherError(f"{error.message}\n{there}; submit it again to create the others.", error.hint)

    submissions = in_parallel(backend, plan.plans, one, stopped)
    # Warnings, one per line, may follow a submission's sentence. Most differ only in the run's name.
    warnings = [(each.status.name, line) for each in submissions for line in each.message.splitlines()[1:]]
    text = "\n".join([_sentence(plan, submissions, backend.description), *merged(warnings)])
    return SweepSubmission(plan.name, tuple(submissions), text)


def _sentence(plan: SweepPlan, submissions: Sequence[Submission], where: str) -> str:
    """Return one sentence that describes what was done."""
    new = sum(each.created and each.status.attempt == 1 for each in submissions)
    resumed = sum(each.created and each.status.attempt > 1 for each in submissions)
    place = "" if where else " on this machine"
    if new == len(submissions):
        return f'The sweep "{plan.name}" was submitted: {_count(new)}{place}.'
    parts = [f"{new} submitted"] if new else []
    parts += [f"{resumed} resumed"] if resumed else []
    counts = Counter(each.status.state for each in submissions if not each.created)
    parts += [f"{counts[state]} already {state}" for state in State if counts[state]]
    return f'The sweep "{plan.name}", {_count(len(submissions))}{place}: {", ".join(parts)}.'


def _count(runs: int) -> str:
    return f"{runs} runs" if runs != 1 else "1 run"
