"""Turn the runs of a trace into jobs: their queue, priority, requests, and the flavors that they accept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from launcher.config.suggest import closest
from launcher.products.planner.scheduler.model import Job, PodSetRequest
from launcher.products.planner.simulation.platform import RESOURCES, Platform, SliceFlavor
from launcher.products.planner.simulation.trace import InvalidTrace, TraceRun


def jobs_of(runs: Iterable[TraceRun], platform: Platform) -> dict[str, Job]:
    """Return a job for each run, by name. Raises InvalidTrace with file and line."""
    return {run.name: _job(run, platform) for run in runs}


def chips_of(job: Job) -> int:
    """Return the number of chips that a job requests."""
    return int(
        sum((pod_set.amounts.get(resource, Decimal()) for pod_set in job.pod_sets for resource in RESOURCES), Decimal())
    )


def team_of(run: TraceRun, platform: Platform) -> str:
    """Return the team of a run: its own, or that of its queue."""
    return run.team or platform.team_of(run.queue)


def _job(run: TraceRun, platform: Platform) -> Job:
    queue = _queue(run, platform)
    return Job(
        name=run.name,
        queue=queue,
        pod_sets=tuple(_pod_sets(run, queue, platform)),
        priority=_priority(run, platform),
        created=run.arrives,
        takes=run.lasts,
        checkpoint_every=run.checkpoint_every,
        admission_delay=run.admission_delay,
    )


def _queue(run: TraceRun, platform: Platform) -> str:
    if run.team:
        team = platform.teams.get(run.team)
        if team is None:
            raise InvalidTrace(f'{run.place}: there is no team "{run.team}"{_near(run.team, platform.teams)}')
        return team.queue
    if run.queue not in platform.queue_names:
        raise InvalidTrace(
            f'{run.place}: there is no ClusterQueue "{run.queue}"{_near(run.queue, platform.queue_names)}'
        )
    return run.queue


def _priority(run: TraceRun, platform: Platform) -> int:
    if isinstance(run.priority, int):
        return run.priority
    if run.priority not in platform.priorities:
        raise InvalidTrace(
            f'{run.place}: there is no priority "{run.priority}"{_near(run.priority, platform.priorities)}'
        )
    return platform.priorities[run.priority]


def _pod_sets(run: TraceRun, queue: str, platform: Platform) -> Iterable[PodSetRequest]:
    wants_chips = run.chips is not None or not run.amounts or run.topology or run.accelerator
    if wants_chips:
        accepted = _accepted(run, queue, platform)
        resources = {flavor.resource for flavor in accepted}
        if len(resources) != 1:
            raise InvalidTrace(
                f"{run.place}: the run matches flavors with different chips; set accelerator or flavors."
            )
        amount = run.chips
        if amount is None:
            sizes = {flavor.chips for flavor in accepted}
            if len(sizes) != 1 or sizes == {0}:
                raise InvalidTrace(
                    f"{run.place}: the run matches flavors with slices of different sizes; set topology or chips."
                )
            amount = run.slices * sizes.pop()
        names = frozenset(flavor.name for flavor in accepted)
        yield PodSetRequest({resources.pop(): Decimal(amount)}, names, "workers" if run.amounts else "main")
    if run.amounts:
        without_chips = {flavor.name for flavor in platform.flavors.values() if not flavor.has_chips}
        yield PodSetRequest(dict(run.amounts), frozenset(without_chips) or None, "head" if wants_chips else "main")


def _accepted(run: TraceRun, queue: str, platform: Platform) -> Sequence[SliceFlavor]:
    """Return the flavors with chips that the run's pods accept."""
    known = platform.flavors
    for name in run.flavors:
        if name not in known:
            raise InvalidTrace(f'{run.place}: there is no flavor "{name}"{_near(name, known)}')
        if not known[name].has_chips:
            raise InvalidTrace(f'{run.place}: the flavor "{name}" has no chips.')
    if run.flavors:
        return [known[name] for name in run.flavors]
    of_queue = {
        flavor
        for each in platform.cluster_queues
        if each.name == queue
        for group in each.groups
        for flavor in group.flavors
    }
    flavors = [
        flavor
        for flavor in known.values()
        if flavor.has_chips
        and (flavor.name in of_queue if not (run.accelerator or run.topology) else True)
        and run.accelerator in ("", flavor.accelerator)
        and run.topology in ("", flavor.topology)
        and (flavor.provisioning in run.provisioning or ("on-demand" in run.provisioning and flavor.accepts_any_run))
    ]
    if not flavors:
        wanted = " ".join(filter(None, [run.accelerator, run.topology])) or "chips"
        have = ", ".join(sorted(flavor.name for flavor in known.values() if flavor.has_chips)) or "none"
        raise InvalidTrace(
            f"{run.place}: no flavor has {wanted} ({' or '.join(run.provisioning)}); the flavors with chips are {have}."
        )
    return flavors


def _near(word: str, words: Iterable[str]) -> str:
    names = sorted(words)
    near = closest(word, names)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; there are {', '.join(names[:10])}." if names else "."


def without_flavor(jobs: Mapping[str, Job], flavor: str, platform: Platform) -> dict[str, Job]:
    """Return the jobs, none of which accepts the flavor any more."""
    everything = frozenset(platform.flavors)
    return {
        name: replace(
            job,
            pod_sets=tuple(
                replace(pod_set, flavors=(everything if pod_set.flavors is None else pod_set.flavors) - {flavor})
                for pod_set in job.pod_sets
            ),
        )
        for name, job in jobs.items()
    }
