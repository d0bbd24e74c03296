"""Read the runs of a namespace: what they do, how far they are, their logs and hosts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from launcher.backends import progress
from launcher.backends.base import RunStatus, State
from launcher.backends.kubernetes import foreign, pod_failures, states
from launcher.backends.kubernetes import logs as kube_logs
from launcher.backends.kubernetes import reader as kube_view
from launcher.backends.kubernetes.positions import positions
from launcher.backends.kubernetes.run_object import RunObject
from launcher.backends.kubernetes.states import ObservedRun
from launcher.backends.log_excerpt import WHOLE, Excerpt
from launcher.errors import LauncherError
from launcher.k8s import label_keys
from launcher.k8s.client import EVENT, NAMESPACE, POD, Cluster, ClusterError
from launcher.k8s.kueue.workloads import Workload
from launcher.k8s.pods import Pod
from launcher.trainer_output import metrics_in_log

_STARTING = (State.STARTING, State.RESTARTING)


class RunDeleted(LauncherError):
    """The object no longer exists, or another object has its name."""


class ReadingBackend:
    """The methods of base.Backend that read runs."""

    def __init__(self, cluster: Cluster, *, all_namespaces: bool = False, poll_seconds: float = 2.0) -> None:
        self.cluster = cluster
        self.all_namespaces = all_namespaces  # `list` shows all namespaces
        self.poll_seconds = poll_seconds

    @property
    def description(self) -> str:
        return self.cluster.description

    @property
    def cli_args(self) -> str:
        return self.cluster.cli_args

    def list(self, warn: Callable[[str], None], *, sweep: str = "", everything: bool = False) -> Sequence[RunStatus]:
        listing = kube_view.all_seen(
            self.cluster, sweep=sweep, all_namespaces=self.all_namespaces, with_pods=everything
        )
        runs = self._with_pods(listing.runs)
        workloads = [seen.workload for seen in runs if seen.workload is not None]
        places = positions(self.cluster, workloads, listing.workloads if self.all_namespaces else None)
        statuses = [
            replace(
                self._with_stuck(seen),
                position=places.get(seen.workload.uid) if seen.workload is not None else None,
            )
            for seen in runs
        ]
        if everything and not sweep:
            statuses = foreign.add(self.cluster, statuses, listing, warn, all_namespaces=self.all_namespaces)
        if not statuses and not self.all_namespaces and not sweep:
            with contextlib.suppress(ClusterError):  # the user may lack the right to read namespaces
                if self.cluster.get(NAMESPACE, self.cluster.namespace) is None:
                    warn(f"The namespace {self.cluster.namespace} does not exist in {self.cluster.name}.")
        return sorted(statuses, key=lambda status: (status.submitted or "", status.name), reverse=True)

    def _with_pods(self, runs: Sequence[ObservedRun]) -> Sequence[ObservedRun]:
        """Add the pods of the runs that are starting, since those may be stuck. One request reads all pods."""
        starting = {seen.run.uid for seen in runs if states.classify(seen)[0] in _STARTING}
        if not starting:
            return runs
        try:
            pods = self.cluster.list(POD, labels=label_keys.RUN, all_namespaces=self.all_namespaces)
        except ClusterError:  # the status without pods is still useful
            return runs
        of: dict[tuple[str, str], list[Pod]] = {}
        for pod in map(Pod, pods):
            of.setdefault((pod.namespace, pod.label(label_keys.RUN)), []).append(pod)
        return [
            replace(
                seen,
                pods=kube_view.own_pods(seen.run, of.get((seen.run.namespace, seen.run.name), ())),
            )
            if seen.run.uid in starting
            else seen
            for seen in runs
        ]

    def _with_stuck(self, seen: ObservedRun) -> RunStatus:
        status = kube_view.status(self.cluster, seen)
        starts = status.state in _STARTING and not seen.run.cancelled_at
        stuck = pod_failures.fatal_reason(seen.pods) if seen.pods and starts else ""
        return replace(status, reason=stuck, stuck=True) if stuck else status

    def status(self, name: str) -> RunStatus | None:
        run = self._find(name, foreign=True)
        return None if run is None or not run.is_run else self._status_of(run)

    def status_of(self, run: RunObject, workload: Workload) -> RunStatus:
        """Return `status` for a run of the namespace with its Workload; only its pods and its log are read."""
        pods = self.cluster.list(POD, labels=f"{label_keys.RUN}={run.name}")
        return self._with_progress(ObservedRun(run, workload, kube_view.own_pods(run, map(Pod, pods)), True))

    def summary(self, name: str) -> RunStatus | None:
        """Return `status` without what needs more requests: the end of the log, and the position in the queue."""
        run = self._find(name, foreign=True)
        if run is None or not run.is_run:
            return None
        # The Workload shows whether a cancellation is final.
        seen = kube_view.observe(self.cluster, run) if run.cancelled_at else ObservedRun(run)
        return kube_view.status(self.cluster, seen)

    def config_of(self, name: str) -> Mapping[str, Any]:
        run = self._find(name)
        return {} if run is None else run.config

    def hosts(self, name: str) -> Sequence[Pod]:
        run = self._find(name)
        return [] if run is None else kube_logs.hosts(kube_view.observe(self.cluster, run))

    def metrics(self, name: str) -> Sequence[dict[str, Any]]:
        return list(metrics_in_log(self.logs(name, follow=False, worker=None)))

    def logs(self, name: str, *, follow: bool, worker: int | None, excerpt: Excerpt = WHOLE) -> Iterator[str]:
        def look() -> ObservedRun | None:
            run = self._find(name)
            return None if run is None else kube_view.observe(self.cluster, run)

        if look() is None:
            raise self._unknown(name)
        return kube_logs.lines(
            self.cluster, look, follow=follow, worker=worker, excerpt=excerpt, pause=self.poll_seconds
        )

    # --- the object ---

    def _find(self, name: str, *, foreign: bool = False) -> RunObject | None:
        """Return the run, or None. Raises LauncherError if the object with that name is not a run."""
        run = kube_view.find(self.cluster, name)
        if run is not None and not foreign and not run.is_run:
            raise LauncherError(
                f'The {run.kind} "{name}" already exists in the namespace {self.cluster.namespace}, but Slipway did '
                "not create it.",
                "Use another name (--name).",
            )
        return run

    def _known(self, name: str) -> RunObject:
        run = self._find(name)
        if run is None:
            raise self._unknown(name)
        return run

    def _unknown(self, name: str) -> LauncherError:
        return RunDeleted(f'The run "{name}" was not found in the {self.description}.')

    def _status_of(self, run: RunObject) -> RunStatus:
        return self._with_progress(kube_view.observe(self.cluster, run))

    def _with_progress(self, seen: ObservedRun) -> RunStatus:
        """Return the status with the steps, losses and restarts from the run's log."""
        status = kube_view.status(self.cluster, seen)
        if status.state in (State.QUEUED, State.PREEMPTED) and seen.workload is not None:
            place = positions(self.cluster, [seen.workload]).get(seen.workload.uid)
            return replace(status, position=place)
        if stuck := self._stuck(status, seen):
            return replace(status, reason=stuck, stuck=True)
        lines = kube_logs.tail(self.cluster, seen)
        chips = int((seen.run.config.get("accelerator") or {}).get("chips") or 1) * (status.slices or 1)
        reported = progress.read(lines, steps=status.steps, devices=chips)
        if len(lines) >= kube_logs.TAIL_LINES:  # the lines lack the beginning of the log
            reported = replace(reported, loss_first=None, eval_loss_first=None)
        status = progress.apply(status, reported)
        if status.state is State.SUCCEEDED and status.step is None:
            return replace(status, step=status.steps)  # the trainer succeeds only after the last step
        if status.state is State.FAILED and reported.reason:
            return replace(status, reason=reported.reason)
        if status.state is State.RUNNING and reported.failing:
            return replace(status, state=State.RESTARTING, reason=reported.failure)
        if status.state is State.RUNNING and status.steps and status.step is None and not status.reason:
            return replace(status, reason=reported.doing or "Loading and compiling the model; no step is done yet.")
        return status

    def _stuck(self, status: RunStatus, seen: ObservedRun) -> str:
        """Return why the run can never start, from its pods or, if they lack the cause, their events; else ""."""
        if status.state not in _STARTING or not seen.pods or seen.run.cancelled_at:
            return ""
        return pod_failures.fatal_reason(seen.pods) or pod_failures.fatal_reason(
            seen.pods, self._warnings(pod_failures.to_be_asked(seen.pods))
        )

    def _warnings(self, pod: Pod | None) -> Sequence[str]:
        if pod is None:
            return ()
        fields = f"involvedObject.kind=Pod,involvedObject.name={pod.name}"
        try:
            events = self.cluster.list(EVENT, fields=fields)
        except ClusterError:  # the user may lack the right to read events
            return ()
        return pod_failures.warnings(events)
