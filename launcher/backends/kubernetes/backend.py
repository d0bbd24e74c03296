"""Runs on a cluster as RayJobs and JobSets: created by one request, started by Kueue, and kept until deleted.

A submit is one atomic create: concurrent submits create one run, and a killed launcher leaves a complete run or none.
The next attempt of a run that has ended replaces its object. The old object is deleted by its uid, so of several
concurrent submits one succeeds and the others find the new object.

Only `submit` imports what renders and compares plans (0.06 s of processor time), so that other verbs start faster.
"""

from __future__ import annotations

import contextlib
import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from launcher.backends import progress, resubmit
from launcher.backends.base import BEING_SWITCHED, Preview, RunStatus, State, Submission
from launcher.backends.kubernetes import logs as kube_logs
from launcher.backends.kubernetes import pod_failures, states
from launcher.backends.kubernetes import reader as kube_view
from launcher.backends.kubernetes.polling import Wait
from launcher.backends.kubernetes.positions import positions
from launcher.backends.kubernetes.run_object import RunObject
from launcher.backends.kubernetes.snapshot import Snapshot
from launcher.backends.kubernetes.states import ObservedRun
from launcher.backends.log_excerpt import WHOLE, Excerpt
from launcher.backends.switches import GAP_SECONDS, SWITCH_SECONDS
from launcher.config.checks.problems import has_errors
from launcher.config.kinds import RunKind
from launcher.errors import LauncherError
from launcher.k8s import label_keys, objects
from launcher.k8s.client import (
    EVENT,
    NAMESPACE,
    POD,
    WORKLOAD,
    AlreadyExists,
    Cluster,
    ClusterError,
    Conflict,
    Invalid,
    NoNamespace,
    NotFound,
)
from launcher.k8s.errors import QuotaExceeded, Unreachable
from launcher.k8s.kueue.workloads import Workload
from launcher.k8s.objects import Object
from launcher.k8s.pods import Pod
from launcher.trainer_output import metrics_in_log

if TYPE_CHECKING:
    from launcher.config.checks.problems import Problem
    from launcher.config.plan import LaunchPlan

# Timeouts in seconds: for Kueue to create a Workload, for a deleted object to disappear, and, in addition to the run's
# own grace period, for pods to end.
_WORKLOAD_SECONDS = 15.0
_GONE_SECONDS = 90.0
_FREED_SECONDS = 90.0
_RACES = 20
# The annotations with the values of a run's training, in JSON.
_CONFIGS = re.compile(
    rf'"(?:{re.escape(label_keys.RUN_CONFIG)}|{re.escape(label_keys.SWEEP_VALUES)})": "(?:[^"\\]|\\.)*"'
)
_STARTING = (State.STARTING, State.RESTARTING)
_WAITING = (State.QUEUED, State.ADMITTED, State.STARTING)
# Available since KubeRay 1.6.
_CRON, _CRON_JOBS = "RayCronJob", "raycronjobs"


# Returns what a cluster would refuse before the create. launcher.diagnose.preflight, a higher layer, implements it.
type Preflight = Callable[[LaunchPlan, Mapping[str, Any], Snapshot], Sequence[Problem]]


def _no_preflight(plan: LaunchPlan, obj: Mapping[str, Any], snapshot: Snapshot) -> Sequence[Problem]:
    """The preflight of a backend that only reads runs."""
    raise TypeError("a backend that submits needs a preflight")


class KubernetesBackend:
    """Runs as objects of a namespace; see base.Backend for the contract of each method."""

    # The grace period of a stuck run: its Secret may be created late, and a grant takes minutes to take effect.
    stuck_seconds = 300.0
    _ray_kinds: Sequence[str] | None = None
    max_parallel = 8  # the number of connections that the cluster's client keeps

    def __init__(
        self,
        cluster: Cluster,
        *,
        all_namespaces: bool = False,
        poll_seconds: float = 2.0,
        preflight: Preflight = _no_preflight,
    ) -> None:
        self._preflight = preflight
        self.cluster = cluster
        self.all_namespaces = all_namespaces  # `list` shows all namespaces
        self.poll_seconds = poll_seconds
        self.report_progress: Callable[[str], None] = lambda _: None
        self._rendered: dict[str, dict[str, Any]] = {}
        self._absent: set[str] = set()  # names that were unused a moment ago: create them without a lookup
        self._accepted: set[str] = set()  # the shapes of objects that the API server accepted in a dry run
        self._snapshot = Snapshot(cluster)
        self._switching: dict[str, dict[str, Any]] = {}  # next attempts, by name, of runs that `switch` deletes

    @property
    def description(self) -> str:
        return self.cluster.description

    @property
    def cli_args(self) -> str:
        return self.cluster.cli_args

    # --- submit ---

    def prepare(self, plans: Sequence[LaunchPlan]) -> None:
        """Render all plans together, and find the unused names with one request for each kind of run."""
        from launcher.helm.client import run_objects

        def used() -> set[str]:
            try:
                return kube_view.used_names(self.cluster)
            except ClusterError:  # without the right to list, each name is looked up
                return {plan.name for plan in plans}

        kinds = self._kinds(plans)
        with ThreadPoolExecutor(1) as pool:
            names = pool.submit(used)
            made = run_objects(plans, kinds)  # in this thread: asyncio starts processes safely only in one
        self._rendered = {plan.name: obj for plan, obj in zip(plans, made, strict=True)}
        self._absent = set(self._rendered) - names.result()

    def problems(self, plan: LaunchPlan) -> Sequence[Problem]:
        return self._preflight(plan, self.object_of(plan), self._snapshot)

    def preview(self, plan: LaunchPlan, *, accept_changes: bool) -> Preview:
        obj = self.object_of(plan)
        found = None if plan.name in self._absent else self._find(plan.name)
        kind = obj["kind"]
        if found is None:
            warnings = self._warnings_before(plan, obj)
            shape = _shape(obj)
            try:
                if shape not in self._accepted:
                    self.cluster.create(obj, dry_run=True)
            except AlreadyExists:
                if plan.name not in self._absent:
                    raise
                self._absent.discard(plan.name)  # another client has just created it
                return self.preview(plan, accept_changes=accept_changes)
            self._accepted.add(shape)
            self._absent.add(plan.name)
            text = f'Would create the {kind} "{plan.name}" ({self.description}); the API server accepts it.'
            queued = objects.label(obj, label_keys.KUEUE_QUEUE)
            return Preview(plan.config, text + warnings, obj if queued else None)
        resubmit.check_sweep(plan, found.sweep, where=self.cli_args)
        verdict = self._decide(found, obj, accept_changes, finish=False)
        if verdict is not None:
            return Preview(plan.config, f"{verdict} Nothing would be started.")
        warnings = self._warnings_before(plan, obj)
        self._try(obj, found)
        return Preview(plan.config, resubmit.would_resume(plan.name, found.attempt + 1) + warnings)

    def submit(self, plan: LaunchPlan, *, accept_changes: bool) -> Submission:
        obj = self.object_of(plan)
        text, freed = f'The run "{plan.name}" was submitted.', 0
        for _ in range(_RACES):
            found = None if plan.name in self._absent else self._find(plan.name)
            self._absent.discard(plan.name)
            if found is not None:
                resubmit.check_sweep(plan, found.sweep, where=self.cli_args)
                try:
                    verdict = self._decide(found, obj, accept_changes)
                except _RunDeleted:
                    continue  # another client replaced the run: read its object
                if verdict is not None:
                    return Submission(self._status_of(found), verdict, created=False)
            warnings = self._warnings_before(plan, obj)
            if found is not None:
                text = self._replace_attempt(found, obj) or text
                freed = found.attempt
            try:
                made = self.cluster.create(obj)
            except AlreadyExists:
                continue
            except NoNamespace as error:
                raise self._no_namespace(error) from error
            except ClusterError as error:
                if freed:
                    _explain_lost_record(error, plan.name, freed)
                raise
            return Submission(
                kube_view.status(self.cluster, ObservedRun(RunObject.parse(made))), text + warnings, created=True
            )
        raise LauncherError(
            f'The run "{plan.name}" cannot be submitted: another user creates and deletes it at the same time.',
            "Use another name (--name), or try again later.",
        )

    def switch(self, plan: LaunchPlan) -> RunStatus | None:
        """Replace a run that waits for machines with `plan`, another of its alternatives, as the next attempt.

        Returns None, and creates nothing, if another client cancelled, deleted or replaced the run, or if it runs now.
        If this raises Unreachable, call it again.
        """
        name = plan.name
        run = self._find(name)
        obj = self._switching.get(name)
        if obj is None:
            if run is None:
                return None
            obj = self.object_of(plan)
            self._warnings_before(plan, obj)
            _set_attempt(obj, run)
            self._try(obj, run)
        attempt = RunObject.parse(obj).attempt
        if run is not None and run.attempt < attempt and not self._remove_to_switch(run, obj):
            return None
        try:
            made: RunObject | None = RunObject.parse(self.cluster.create(obj))
        except AlreadyExists:
            made = self._own_attempt(obj)
        except Unreachable:
            raise
        except ClusterError as error:
            _explain_lost_record(error, name, attempt - 1)
            raise
        self._switching.pop(name, None)
        return None if made is None else kube_view.status(self.cluster, ObservedRun(made))

    def _remove_to_switch(self, run: RunObject, obj: dict[str, Any]) -> bool:
        """Stop and delete the run, of which `obj` is the next attempt.

        Returns False if another client cancelled, deleted or replaced it, or if it does not wait for machines any more.
        A cancel of another client removes the mark of this one, so the version in the delete makes one of them fail.
        """
        if run.release or not self._mark_to_switch(run):
            return False
        try:
            self._stop_and_wait(run)
        except _RunDeleted:
            return False
        while True:
            now = self._find(run.name)
            if now is None or now.uid != run.uid:
                return run.name in self._switching and now is None
            if not now.being_switched:
                self._switching.pop(run.name, None)
                return False
            if now.deleting and run.name not in self._switching:
                return False
            self._switching[run.name] = obj  # the answer to the delete may be lost
            if not now.deleting:
                try:
                    self.cluster.delete(now.api_kind, now.name, uid=now.uid, version=now.version)
                except Conflict:
                    continue
            self._wait_until_gone(now)
            return True

    def _mark_to_switch(self, run: RunObject) -> bool:
        """Mark a run that waits as cancelled by this submit. Returns False if it does not wait, or was cancelled."""
        now: RunObject | None = run
        while now is not None and now.uid == run.uid:
            if now.cancelled_at:
                return now.being_switched
            state, _ = states.classify(kube_view.observe(self.cluster, now))
            if now.deleting or state not in _WAITING:
                return False
            annotations = {label_keys.CANCELLED: _now(), label_keys.CANCELLED_FOR: BEING_SWITCHED}
            try:
                self._patch(now, {"metadata": {"annotations": annotations, "resourceVersion": now.version}})
            except Conflict:
                now = self._find(run.name)
            except _RunDeleted:
                return False
            else:
                return True
        return False

    def _own_attempt(self, obj: Object) -> RunObject | None:
        """Return the attempt that was created from `obj`, although no answer was received; None if it is another."""
        from launcher.config.plan import config_difference

        found, made = self._find(objects.name(obj)), RunObject.parse(obj)
        if found is None or found.attempt != made.attempt or config_difference(found.config, made.config):
            return None
        return found

    def object_of(self, plan: LaunchPlan) -> dict[str, Any]:
        """Return the object of the plan, as a submit would create it."""
        from launcher.helm.client import run_object

        made = self._rendered.get(plan.name) or run_object(plan, self._kinds([plan]))
        obj: dict[str, Any] = copy.deepcopy(dict(made))
        obj["metadata"]["namespace"] = self.cluster.namespace
        if plan.member is not None:
            obj["metadata"].setdefault("labels", {})[label_keys.SWEEP] = plan.member.sweep
            values = json.dumps(dict(plan.member.values), ensure_ascii=False)
            obj["metadata"].setdefault("annotations", {})[label_keys.SWEEP_VALUES] = values
        return obj

    def _kinds(self, plans: Sequence[LaunchPlan]) -> Sequence[str]:
        """Return the kinds of the cluster from which charts/run detects the features of its KubeRay."""
        if not any(plan.kind is RunKind.RAY_JOB for plan in plans):
            return ()
        if self._ray_kinds is None:
            served = self.cluster.served("ray.io")
            self._ray_kinds = [f"ray.io/{version}/{_CRON}" for version in served if _CRON_JOBS in served[version]]
        return self._ray_kinds

    def _warnings_before(self, plan: LaunchPlan, obj: Object) -> str:
        """Return the cluster's warnings, one per line. Raises CheckFailed if the run could never start there."""

        found = self._preflight(plan, obj, self._snapshot)
        if has_errors(found) and not plan.force:
            from launcher.config.plan import CheckFailed

            self._refuse_no_namespace(obj)
            failed = CheckFailed(found)
            failed.hint = "To submit it anyway, use --force."
            raise failed
        return "".join(f"\nWarning: {problem}" for problem in found)

    def _decide(self, found: RunObject, obj: Object, accept_changes: bool, *, finish: bool = True) -> str | None:
        """Return a sentence if nothing is left to do, or None if the submit creates the next attempt.

        For a run that is being cancelled, wait for its end; without `finish`, assume it. A run that is being deleted
        counts as ended, because it cannot continue.
        """
        from launcher.config.plan import config_difference

        seen = kube_view.observe(self.cluster, found)
        state = _outcome(seen)
        if found.cancelled_at and not state.ended:
            state = self.cancel(found.name).state if finish else State.CANCELLED
        difference = config_difference(found.config, RunObject.parse(obj).config)
        return resubmit.decide(found.name, state, difference, accept_changes=accept_changes, where=self.cli_args)

    def _replace_attempt(self, found: RunObject, obj: dict[str, Any]) -> str:
        """Remove the attempt that has ended, and number `obj` as the next. Return a sentence about it.

        The new object is created in a dry run first, so that the record is kept if the API server refuses it.
        """
        if not found.deleting:
            self._refuse_release(found, "be replaced")
        attempt = _set_attempt(obj, found)
        self._try(obj, found)
        # Read the object again: if it was being cancelled, it has ended by now.
        now = self.cluster.get(found.api_kind, found.name)
        seen = kube_view.observe(self.cluster, found if now is None else RunObject.parse(now))
        stopped = found.deleting and not states.classify(seen)[0].ended
        try:
            if not found.deleting:
                self.cluster.delete(found.api_kind, found.name, uid=found.uid)
        except Conflict:
            return ""  # another object has the name by now; the create reports it
        self._wait_until_gone(found)
        return resubmit.resumed(found.name, _outcome(seen), attempt, checkpoint=None, deleted=stopped)

    def _try(self, obj: dict[str, Any], found: RunObject) -> None:
        """Create the object in a dry run. The API server checks the name last, so AlreadyExists means acceptance."""
        try:
            self.cluster.create(obj, dry_run=True)
        except AlreadyExists:
            pass
        except QuotaExceeded as error:
            # Deleting `found` would release quota a moment later, but another client could take it.
            error.hint = (
                f"The record of the last attempt counts, too. Delete it (launcher delete {found.name}{self.cli_args}) "
                "and submit the run again; it then also continues from its last checkpoint."
            )
            raise

    # --- reading ---

    def list(self, warn: Callable[[str], None], *, sweep: str = "") -> Sequence[RunStatus]:
        listing = kube_view.all_seen(self.cluster, sweep=sweep, all_namespaces=self.all_namespaces)
        everything = self._with_pods(listing.runs)
        workloads = [seen.workload for seen in everything if seen.workload is not None]
        places = positions(self.cluster, workloads, listing.workloads if self.all_namespaces else None)
        statuses = [
            replace(
                self._with_stuck(seen),
                position=places.get(seen.workload.uid) if seen.workload is not None else None,
            )
            for seen in everything
        ]
        if not statuses and not self.all_namespaces and not sweep:
            with contextlib.suppress(ClusterError):  # the user may lack the right to read namespaces
                if self.cluster.get(NAMESPACE, self.cluster.namespace) is None:
                    warn(f"The namespace {self.cluster.namespace} does not exist in {self.cluster.name}.")
        return sorted(statuses, key=lambda status: (status.submitted or "", status.name), reverse=True)

    def _with_pods(self, everything: Sequence[ObservedRun]) -> Sequence[ObservedRun]:
        """Add the pods of the runs that are starting, since those may be stuck. One request reads all pods."""
        starting = {seen.run.uid for seen in everything if states.classify(seen)[0] in _STARTING}
        if not starting:
            return everything
        try:
            pods = self.cluster.list(POD, labels=label_keys.RUN, all_namespaces=self.all_namespaces)
        except ClusterError:  # the status without pods is still useful
            return everything
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
            for seen in everything
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

    # --- ending ---

    def cancel(self, name: str, *, reason: str = "") -> RunStatus:
        run = self._find(name) or self._created_again(name, GAP_SECONDS)
        while True:
            try:
                return self._cancel(run, reason)
            except _RunDeleted:
                # Without the mark, the run was deleted after it was read; a run with its name may be another user's.
                if not run.being_switched and self._find(name) is not None:
                    raise
            self._wait_until_gone(run)
            run = self._created_again(name, SWITCH_SECONDS if run.being_switched else GAP_SECONDS)

    def _cancel(self, run: RunObject, reason: str) -> RunStatus:
        """Cancel the run. Raises _RunDeleted if another client deletes or replaces it at the same time."""
        if run.deleting and run.being_switched:
            raise self._unknown(run.name)
        if not run.being_switched and states.classify(kube_view.observe(self.cluster, run))[0].ended:
            return self._status_of(run)
        if not run.cancelled_at or run.being_switched:
            # A submit that switches to another alternative continues only if it finds its own mark.
            annotations = {label_keys.CANCELLED: _now(), label_keys.CANCELLED_FOR: reason or None}
            now = RunObject.parse(self._patch(run, {"metadata": {"annotations": annotations}}))
            if now.deleting and not run.deleting:
                raise self._unknown(run.name)
        return self._stop_and_wait(run)

    def _created_again(self, name: str, seconds: float) -> RunObject:
        """Wait for the next attempt of a run that a submit deleted, to switch to another alternative, and return it.

        Raises _RunDeleted if there is none, because the submit was stopped or another client deleted the run.
        """
        wait = Wait(seconds, min(0.2, self.poll_seconds), self.report_progress)
        while (found := self._find(name)) is None:
            if wait.over:
                raise self._unknown(name)
            wait.for_(f'Waiting for launcher submit to create the next attempt of the run "{name}"…')
        return found

    def delete(self, name: str) -> None:
        run = self._known(name)
        if not run.deleting:
            seen = kube_view.observe(self.cluster, run)
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
            seen = kube_view.observe(self.cluster, self._known(name))
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
        return _RunDeleted(f'The run "{name}" was not found in the {self.description}.')

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

    def _refuse_no_namespace(self, obj: Object) -> None:
        """Raise LauncherError if the namespace is missing, which causes all other errors."""
        try:
            self.cluster.create(dict(obj), dry_run=True)
        except NoNamespace as error:
            raise self._no_namespace(error) from error
        except ClusterError:
            pass  # reported once the other errors are fixed

    def _no_namespace(self, error: NoNamespace) -> LauncherError:
        return LauncherError(
            f"The namespace {self.cluster.namespace} does not exist in {self.cluster.name}.",
            "charts/queues creates one for each of its teams; team.name and team.namespace select one.",
        )

    def _refuse_release(self, run: RunObject, what: str) -> None:
        if run.release:
            raise LauncherError(
                f'The run "{run.name}" is the Helm release {run.release}, and cannot {what} without it.',
                f"To remove it: helm uninstall {run.release} -n {self.cluster.namespace}",
            )


class _RunDeleted(LauncherError):
    """The object no longer exists, or another object has its name."""


def _replaced(name: str) -> LauncherError:
    return _RunDeleted(f'The run "{name}" was submitted again while it was cancelled; the new attempt is not changed.')


def _explain_lost_record(error: ClusterError, name: str, attempt: int) -> None:
    """Add to an error of a create that the record of the last attempt was deleted before."""
    error.message = (
        f'The record of attempt {attempt} of the run "{name}" was deleted, but attempt {attempt + 1} was not created. '
        f"{error.message}"
    )
    again = "Submit the run again to continue from its last checkpoint; its attempts restart from 1."
    error.hint = f"{error.hint} {again}".strip()


def _set_attempt(obj: dict[str, Any], found: RunObject) -> int:
    """Number `obj` as the attempt after `found`, and return the number. A run of a sweep stays in it."""
    attempt = found.attempt + 1
    obj["metadata"].setdefault("annotations", {})[label_keys.ATTEMPT] = str(attempt)
    for part, key in (("labels", label_keys.SWEEP), ("annotations", label_keys.SWEEP_VALUES)):
        kept = (found.raw["metadata"].get(part) or {}).get(key)
        if kept is not None:  # even if it is submitted alone
            obj["metadata"].setdefault(part, {}).setdefault(key, kept)
    return attempt


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _shape(obj: Object) -> str:
    """Return an object as text without its name and the values of its training.

    The API server and its policies treat objects of the same shape alike. One dry run is enough for all of them.
    """
    text = json.dumps(obj, sort_keys=True, default=str)
    without = _CONFIGS.sub("", text)
    return without.replace(str(obj["metadata"]["name"]), "*")


def _outcome(seen: ObservedRun) -> State:
    """Return the state of the previous attempt; CANCELLED if it is being deleted, or cancelled and idle."""
    state, _ = states.classify(seen)
    if not state.ended and (seen.run.deleting or seen.cancelled_and_idle):
        return State.CANCELLED
    return state


def _held(seen: ObservedRun) -> str:
    pods = len(seen.pods or ())
    if pods:
        return f"{pods} pod{'s' if pods > 1 else ''}"
    if seen.workload is None or not seen.workload.has_quota:
        return "what its controller created for it"
    return "its quota, which Kueue has not released"
