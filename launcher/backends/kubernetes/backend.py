"""The runs of a namespace: what they do, how far they are, their logs and hosts; cancel and delete them.

Other clients may change the runs at the same time. submitter.py creates runs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from launcher.backends import progress
from launcher.backends.base import GAP_SECONDS, SWITCH_SECONDS, RunStatus, State
from launcher.backends.kubernetes import logs as kubernetes_logs
from launcher.backends.kubernetes import pod_failures, reader, states
from launcher.backends.kubernetes.polling import Wait
from launcher.backends.kubernetes.positions import positions
from launcher.backends.kubernetes.reader import Listing
from launcher.backends.kubernetes.run_object import RunObject
from launcher.backends.kubernetes.states import ObservedRun
from launcher.backends.log_excerpt import WHOLE, Excerpt
from launcher.errors import LauncherError
from launcher.k8s import label_keys, objects
from launcher.k8s.client import EVENT, POD, WORKLOAD, Cluster, ClusterError, Conflict, lacks_namespace
from launcher.k8s.errors import Invalid, NotFound
from launcher.k8s.kueue.workloads import Workload
from launcher.k8s.objects import Object
from launcher.k8s.pods import Pod
from launcher.trainer_output import metrics_in_log

_STARTING = (State.STARTING, State.RESTARTING)
# Timeouts in seconds: for Kueue to create a Workload, for a deleted object to disappear, and, in addition to the run's
# own grace period, for pods to end.
_WORKLOAD_SECONDS = 15.0
_GONE_SECONDS = 90.0
_FREED_SECONDS = 90.0


class RunDeleted(LauncherError):
    """The object no longer exists, or another object has its name."""


class KubernetesBackend:
    """Runs as objects of a namespace; see base.Backend for the contract of each method."""

    # The grace period of a stuck run: its Secret may be created late, and a grant takes minutes to take effect.
    stuck_seconds = 300.0
    max_parallel = 8  # the number of connections that the cluster's client keeps

    def __init__(self, cluster: Cluster, *, all_namespaces: bool = False, poll_seconds: float = 2.0) -> None:
        self.cluster = cluster
        self.all_namespaces = all_namespaces  # `list` shows all namespaces
        self.poll_seconds = poll_seconds
        self.report_progress: Callable[[str], None] = lambda _: None

    @property
    def description(self) -> str:
        return self.cluster.description

    @property
    def cli_args(self) -> str:
        return self.cluster.cli_args

    def list(self, warn: Callable[[str], None], *, sweep: str = "") -> Sequence[RunStatus]:
        listing = reader.all_seen(self.cluster, sweep=sweep, all_namespaces=self.all_namespaces)
        statuses = self._statuses(listing)
        if not sweep:
            self._warn_without_namespace(statuses, warn)
        return newest_first(statuses)

    def _statuses(self, listing: Listing) -> Sequence[RunStatus]:
        """Return the statuses of `listing.runs`, in that order."""
        runs = self._with_pods(listing.runs)
        workloads = [seen.workload for seen in runs if seen.workload is not None]
        places = positions(self.cluster, workloads, listing.workloads if self.all_namespaces else None)
        return [
            replace(
                self._with_stuck(seen),
                position=places.get(seen.workload.uid) if seen.workload is not None else None,
            )
            for seen in runs
        ]

    def _warn_without_namespace(self, statuses: Sequence[RunStatus], warn: Callable[[str], None]) -> None:
        if not statuses and not self.all_namespaces and lacks_namespace(self.cluster):
            warn(f"The namespace {self.cluster.namespace} does not exist in {self.cluster.name}.")

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
                pods=reader.own_pods(seen.run, of.get((seen.run.namespace, seen.run.name), ())),
            )
            if seen.run.uid in starting
            else seen
            for seen in runs
        ]

    def _with_stuck(self, seen: ObservedRun) -> RunStatus:
        status = reader.status(self.cluster, seen)
        starts = status.state in _STARTING and not seen.run.cancelled_at
        stuck = pod_failures.fatal_reason(seen.pods) if seen.pods and starts else ""
        return replace(status, reason=stuck, stuck=True) if stuck else status

    def status(self, name: str) -> RunStatus | None:
        run = self._find(name, foreign=True)
        return None if run is None or not run.is_run else self._status_of(run)

    def status_of(self, run: RunObject, workload: Workload) -> RunStatus:
        """Return `status` for a run of the namespace with its Workload; only its pods and its log are read."""
        pods = self.cluster.list(POD, labels=f"{label_keys.RUN}={run.name}")
        return self._with_progress(ObservedRun(run, workload, reader.own_pods(run, map(Pod, pods)), True))

    def summary(self, name: str) -> RunStatus | None:
        """Return `status` without what needs more requests: the end of the log, and the position in the queue."""
        run = self._find(name, foreign=True)
        if run is None or not run.is_run:
            return None
        # The Workload shows whether a cancellation is final.
        seen = reader.observe(self.cluster, run) if run.cancelled_at else ObservedRun(run)
        return reader.status(self.cluster, seen)

    def config_of(self, name: str) -> Mapping[str, Any]:
        run = self._find(name)
        return {} if run is None else run.config

    def hosts(self, name: str) -> Sequence[Pod]:
        run = self._find(name)
        return [] if run is None else kubernetes_logs.hosts(reader.observe(self.cluster, run))

    def metrics(self, name: str) -> Sequence[dict[str, Any]]:
        return list(metrics_in_log(self.logs(name, follow=False, worker=None)))

    def logs(self, name: str, *, follow: bool, worker: int | None, excerpt: Excerpt = WHOLE) -> Iterator[str]:
        def look() -> ObservedRun | None:
            run = self._find(name)
            return None if run is None else reader.observe(self.cluster, run)

        if look() is None:
            raise self._unknown(name)
        return kubernetes_logs.lines(
            self.cluster, look, follow=follow, worker=worker, excerpt=excerpt, pause=self.poll_seconds
        )

    # --- the object ---

    def _find(self, name: str, *, foreign: bool = False) -> RunObject | None:
        """Return the run, or None. Raises LauncherError if the object with that name is not a run."""
        run = reader.find(self.cluster, name)
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
        return self._with_progress(reader.observe(self.cluster, run))

    def _with_progress(self, seen: ObservedRun) -> RunStatus:
        """Return the status with the steps, losses and restarts from the run's log."""
        status = reader.status(self.cluster, seen)
        if status.state in (State.QUEUED, State.PREEMPTED) and seen.workload is not None:
            place = positions(self.cluster, [seen.workload]).get(seen.workload.uid)
            return replace(status, position=place)
        if stuck := self._stuck(status, seen):
            return replace(status, reason=stuck, stuck=True)
        lines = kubernetes_logs.tail(self.cluster, seen)
        chips = int((seen.run.config.get("accelerator") or {}).get("chips") or 1) * (status.slices or 1)
        reported = progress.read(lines, steps=status.steps, devices=chips)
        if len(lines) >= kubernetes_logs.TAIL_LINES:  # the lines lack the beginning of the log
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

    # --- ending ---

    def cancel(self, name: str, *, reason: str = "") -> RunStatus:
        run = self._find(name) or self._created_again(name, GAP_SECONDS)
        while True:
            try:
                return self._cancel(run, reason)
            except RunDeleted:
                # Without the mark, the run was deleted after it was read; a run with its name may be another user's.
                if not run.being_switched and self._find(name) is not None:
                    raise
            self._wait_until_gone(run)
            run = self._created_again(name, SWITCH_SECONDS if run.being_switched else GAP_SECONDS)

    def _cancel(self, run: RunObject, reason: str) -> RunStatus:
        """Cancel the run. Raises RunDeleted if another client deletes or replaces it at the same time."""
        if run.deleting and run.being_switched:
            raise self._unknown(run.name)
        if not run.being_switched and states.classify(reader.observe(self.cluster, run))[0].ended:
            return self._status_of(run)
        if not run.cancelled_at or run.being_switched:
            # A submit that switches to another alternative continues only if it finds its own mark.
            annotations = {label_keys.CANCELLED: now_text(), label_keys.CANCELLED_FOR: reason or None}
            now = RunObject.parse(self._patch(run, {"metadata": {"annotations": annotations}}))
            if now.deleting and not run.deleting:
                raise self._unknown(run.name)
        return self._stop_and_wait(run)

    def _created_again(self, name: str, seconds: float) -> RunObject:
        """Wait for the next attempt of a run that a submit deleted, to switch to another alternative, and return it.

        Raises RunDeleted if there is none, because the submit was stopped or another client deleted the run.
        """
        wait = Wait(seconds, min(0.2, self.poll_seconds), self.report_progress)
        while (run := self._find(name)) is None:
            if wait.over:
                raise self._unknown(name)
            wait.for_(f'Waiting for launcher submit to create the next attempt of the run "{name}"…')
        return run

    def delete(self, name: str) -> None:
        run = self._known(name)
        if not run.deleting:
            seen = reader.observe(self.cluster, run)
            state, _ = states.classify(seen)
            if not state.ended and not seen.cancelled_and_idle:
                raise LauncherError(
                    f'The run "{name}" is {state}.', f"Cancel it first: launcher cancel {name}{self.cli_args}"
                )
            self._refuse_release(run, "be deleted")
            try:
                self.cluster.delete(run.api_kind, name, uid=run.uid)
            except Conflict as error:
                raise LauncherError(
                    f'The run "{name}" was submitted again in the meantime; nothing was deleted.'
                ) from error
        self._wait_until_gone(run)

    def _stop_and_wait(self, run: RunObject) -> RunStatus:
        """Stop the run, wait until its pods and quota are released, and return its status.

        The stop is repeated while waiting, because Kueue may create or recreate the Workload in the meantime.
        """
        name = run.name
        grace = (run.config.get("run") or {}).get("graceSeconds")
        seconds = _FREED_SECONDS + (grace if isinstance(grace, int | float) else 0)
        wait = Wait(seconds, min(0.5, self.poll_seconds), self.report_progress)
        while True:
            seen = reader.observe(self.cluster, self._known(name))
            if seen.run.uid != run.uid:
                raise _replaced(name)
            if states.classify(seen)[0].ended:
                return self._with_progress(seen)
            self._stop(seen)
            if seen.holds_nothing and seen.workload is None:
                if wait.elapsed > _WORKLOAD_SECONDS:
                    raise self._no_workload(name)
                wait.for_(f'Waiting for Kueue to create the Workload of the run "{name}", to deactivate it…')
            elif wait.over:
                raise LauncherError(
                    f'The run "{name}" was asked to stop, but still holds {_held(seen)}.',
                    f"To keep waiting: launcher cancel {name}{self.cli_args}. "
                    f"To find the cause: launcher explain {name}{self.cli_args}",
                )
            else:
                wait.for_(f'Waiting for the run "{name}" to release {_held(seen)}…')

    def _stop(self, seen: ObservedRun) -> None:
        """Stop the run permanently.

        Kueue resumes a suspended run as long as it is admitted, so its Workload has to be made inactive.
        """
        if seen.workload is None:
            if not seen.run.suspended:
                self._patch(seen.run, {"spec": {"suspend": True}})
        elif seen.active:
            with contextlib.suppress(NotFound):  # the run has ended or was deleted in the meantime
                self.cluster.patch(WORKLOAD, seen.workload.name, {"spec": {"active": False}})

    def _no_workload(self, name: str) -> LauncherError:
        return LauncherError(
            f'The run "{name}" holds nothing now, but is not cancelled yet: Kueue has not created its Workload, which '
            "would have to be deactivated, and starts the run once it creates it.",
            f"To remove the run: launcher delete {name}{self.cli_args}. To keep its record, repeat launcher cancel "
            f"{name}{self.cli_args} when Kueue is running again (see launcher doctor).",
        )

    def _patch(self, run: RunObject, patch: dict[str, Any]) -> Object:
        # With its uid, the API server refuses the change of another object that has the name by now.
        patch["metadata"] = {**patch.get("metadata", {}), "uid": run.uid}
        try:
            return {**self.cluster.patch(run.api_kind, run.name, patch), "kind": run.kind}
        except NotFound as error:
            raise self._unknown(run.name) from error
        except Invalid as error:
            if self._known(run.name).uid == run.uid:
                raise
            raise _replaced(run.name) from error

    def _wait_until_gone(self, run: RunObject) -> None:
        wait = Wait(_GONE_SECONDS, min(0.2, self.poll_seconds), self.report_progress)
        while True:
            now = self.cluster.get(run.api_kind, run.name)
            if now is None or objects.uid(now) != run.uid:
                return
            held = ", ".join(now["metadata"].get("finalizers") or []) or "its pods"
            if wait.over:
                raise LauncherError(
                    f'The {run.kind} "{run.name}" is being deleted, but is held by {held}.',
                    "The controller that has to release it may be down (see launcher doctor). Try again later.",
                )
            wait.for_(f'Waiting for the {run.kind} "{run.name}" to be deleted: it is held by {held}…')

    def _refuse_release(self, run: RunObject, what: str) -> None:
        if run.release:
            raise LauncherError(
                f'The run "{run.name}" is the Helm release {run.release}, and cannot {what} without it.',
                f"To remove it: helm uninstall {run.release} -n {self.cluster.namespace}",
            )


def newest_first(statuses: Sequence[RunStatus]) -> Sequence[RunStatus]:
    return sorted(statuses, key=lambda status: (status.submitted or "", status.name), reverse=True)


def _replaced(name: str) -> LauncherError:
    return RunDeleted(f'The run "{name}" was submitted again while it was cancelled; the new attempt is not changed.')


def now_text() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _held(seen: ObservedRun) -> str:
    pods = len(seen.pods or ())
    if pods:
        return f"{pods} pod{'s' if pods > 1 else ''}"
    if seen.workload is None or not seen.workload.has_quota:
        return "what its controller created for it"
    return "its quota, which Kueue has not released"
