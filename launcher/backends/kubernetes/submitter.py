"""Create runs on a cluster as RayJobs and JobSets: by one request, started by Kueue, and kept until deleted.

A submit is one atomic create: concurrent submits create one run, and a killed launcher leaves a complete run or none.
The next attempt of a run that has ended replaces its object. The old object is deleted by its uid, so of several
concurrent submits one succeeds and the others find the new object.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from launcher.backends import resubmit
from launcher.backends.base import BEING_SWITCHED, Preview, RunStatus, State, Submission
from launcher.backends.kubernetes import reader, states
from launcher.backends.kubernetes.backend import KubernetesBackend, RunDeleted, now_text
from launcher.backends.kubernetes.run_object import RunObject, pod_annotations
from launcher.backends.kubernetes.snapshot import Snapshot
from launcher.backends.kubernetes.states import ObservedRun
from launcher.config.checks.problems import ERROR, Problem, has_errors
from launcher.config.kinds import RunKind
from launcher.config.plan import CheckFailed, LaunchPlan, config_difference
from launcher.errors import LauncherError
from launcher.helm.client import run_object, run_objects
from launcher.k8s import label_keys, objects
from launcher.k8s.client import AlreadyExists, Cluster, ClusterError, Conflict, NoNamespace
from launcher.k8s.errors import QuotaExceeded, Unreachable
from launcher.k8s.objects import Object

_RACES = 20
# The annotations with the values of a run's training, in JSON.
_CONFIGS = re.compile(
    rf'"(?:{re.escape(label_keys.RUN_CONFIG)}|{re.escape(label_keys.SWEEP_VALUES)})": "(?:[^"\\]|\\.)*"'
)
_WAITING = (State.QUEUED, State.ADMITTED, State.STARTING)
# Available since KubeRay 1.6.
_CRON, _CRON_JOBS = "RayCronJob", "raycronjobs"


# Returns what a cluster would refuse before the create. launcher.diagnose.preflight, a higher layer, implements it.
type Preflight = Callable[[LaunchPlan, Mapping[str, Any], Snapshot], Sequence[Problem]]


class KubernetesSubmitter(KubernetesBackend):
    """Creates runs as objects of a namespace; see base.Submitter for the contract of each method."""

    _ray_kinds: Sequence[str] | None = None

    def __init__(
        self,
        cluster: Cluster,
        preflight: Preflight,
        *,
        has_room: Callable[[Mapping[str, Any], Snapshot], bool] = lambda *_: False,
        poll_seconds: float = 2.0,
    ) -> None:
        super().__init__(cluster, poll_seconds=poll_seconds)
        self._preflight = preflight
        self._has_room = has_room
        self._rendered: dict[str, dict[str, Any]] = {}
        self._absent: set[str] = set()  # names that were unused a moment ago: create them without a lookup
        self._accepted: set[str] = set()  # the shapes of objects that the API server accepted in a dry run
        self._snapshot = Snapshot(cluster)
        self._switching: dict[str, dict[str, Any]] = {}  # next attempts, by name, of runs that `switch` deletes

    def prepare(self, plans: Sequence[LaunchPlan]) -> None:
        """Render all plans together, and find the unused names with one request for each kind of run."""

        def used() -> set[str]:
            try:
                return reader.used_names(self.cluster)
            except ClusterError:  # without the right to list, each name is looked up
                return {plan.name for plan in plans}

        kinds = self._kinds(plans)
        with ThreadPoolExecutor(1) as pool:
            names = pool.submit(used)
            made = run_objects(plans, kinds)
        self._rendered = {plan.name: obj for plan, obj in zip(plans, made, strict=True)}
        self._absent = set(self._rendered) - names.result()

    def problems(self, plan: LaunchPlan) -> Sequence[Problem]:
        obj = self._object_of(plan)
        problems = self._preflight(plan, obj, self._snapshot)
        return problems if has_errors(problems) else [*problems, *self._refusal(obj)]

    def has_room(self, plan: LaunchPlan) -> bool:
        return self._has_room(self._object_of(plan), Snapshot(self.cluster))

    def _refusal(self, obj: Mapping[str, Any]) -> Sequence[Problem]:
        """Return why the API server would not let this user create the whole object: a field that it does not know,
        RBAC, a policy, a quota or a webhook."""
        try:
            self.cluster.create(dict(obj), dry_run=True, strict=True)
        except (AlreadyExists, Unreachable):
            return ()
        except ClusterError as error:
            message = "\n  ".join(filter(None, [error.message, error.hint]))
            return (Problem("live.refused", ERROR, message, None, None, ""),)
        return ()

    def preview(self, plan: LaunchPlan, *, accept_changes: bool) -> Preview:
        obj = self._object_of(plan)
        run = None if plan.name in self._absent else self._find(plan.name)
        kind = obj["kind"]
        if run is None:
            warnings = self._warnings_before(plan, obj)
            shape = _shape(obj)
            try:
                if shape not in self._accepted:
                    self.cluster.create(obj, dry_run=True, strict=True)
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
        resubmit.check_sweep(plan, run.sweep, where=self.cli_args)
        verdict = self._decide(run, obj, accept_changes, finish=False)
        if verdict is not None:
            return Preview(plan.config, f"{verdict} Nothing would be started.")
        warnings = self._warnings_before(plan, obj)
        self._try(obj, run)
        return Preview(plan.config, resubmit.would_resume(plan.name, run.attempt + 1) + warnings)

    def submit(self, plan: LaunchPlan, *, accept_changes: bool) -> Submission:
        obj = self._object_of(plan)
        text, freed = f'The run "{plan.name}" was submitted.', 0
        for _ in range(_RACES):
            run = None if plan.name in self._absent else self._find(plan.name)
            self._absent.discard(plan.name)
            if run is not None:
                resubmit.check_sweep(plan, run.sweep, where=self.cli_args)
                try:
                    verdict = self._decide(run, obj, accept_changes)
                except RunDeleted:
                    continue  # another client replaced the run: read its object
                if verdict is not None:
                    return Submission(self._status_of(run), verdict, created=False)
            warnings = self._warnings_before(plan, obj)
            if run is not None:
                text = self._replace_attempt(run, obj) or text
                freed = run.attempt
            try:
                made = self.cluster.create(obj, strict=True)
            except AlreadyExists:
                continue
            except NoNamespace as error:
                raise self._no_namespace(error) from error
            except ClusterError as error:
                if freed:
                    _explain_lost_record(error, plan.name, freed)
                raise
            return Submission(
                reader.status(self.cluster, ObservedRun(RunObject.parse(made))), text + warnings, created=True
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
            obj = self._object_of(plan)
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
        return None if made is None else reader.status(self.cluster, ObservedRun(made))

    def _remove_to_switch(self, run: RunObject, obj: dict[str, Any]) -> bool:
        """Stop and delete the run, of which `obj` is the next attempt.

        Returns False if another client cancelled, deleted or replaced it, or if it does not wait for machines any more.
        A cancel of another client removes the mark of this one, so the version in the delete makes one of them fail.
        """
        if run.release or not self._mark_to_switch(run):
            return False
        try:
            self._stop_and_wait(run)
        except RunDeleted:
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
            state, _ = states.classify(reader.observe(self.cluster, now))
            if now.deleting or state not in _WAITING:
                return False
            annotations = {label_keys.CANCELLED: now_text(), label_keys.CANCELLED_FOR: BEING_SWITCHED}
            try:
                self._patch(now, {"metadata": {"annotations": annotations, "resourceVersion": now.version}})
            except Conflict:
                now = self._find(run.name)
            except RunDeleted:
                return False
            else:
                return True
        return False

    def _own_attempt(self, obj: Object) -> RunObject | None:
        """Return the attempt that was created from `obj`, although no answer was received; None if it is another."""
        run, made = self._find(objects.name(obj)), RunObject.parse(obj)
        if run is None or run.attempt != made.attempt or config_difference(run.config, made.config):
            return None
        return run

    def _object_of(self, plan: LaunchPlan) -> dict[str, Any]:
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

        problems = self._preflight(plan, obj, self._snapshot)
        if has_errors(problems) and not plan.force:
            self._refuse_no_namespace(obj)
            failed = CheckFailed(problems)
            failed.hint = "To submit it anyway, use --force."
            raise failed
        return "".join(f"\nWarning: {problem}" for problem in problems)

    def _decide(self, run: RunObject, obj: Object, accept_changes: bool, *, finish: bool = True) -> str | None:
        """Return a sentence if nothing is left to do, or None if the submit creates the next attempt.

        For a run that is being cancelled, wait for its end; without `finish`, assume it. A run that is being deleted
        counts as ended, because it cannot continue.
        """
        seen = reader.observe(self.cluster, run)
        state = _outcome(seen)
        if run.cancelled_at and not state.ended:
            state = self.cancel(run.name).state if finish else State.CANCELLED
        new = RunObject.parse(obj).config
        return resubmit.decide(run.name, state, run.config, new, accept_changes=accept_changes, where=self.cli_args)

    def _replace_attempt(self, run: RunObject, obj: dict[str, Any]) -> str:
        """Remove the attempt that has ended, and number `obj` as the next. Return a sentence about it.

        The new object is created in a dry run first, so that the record is kept if the API server refuses it.
        """
        if not run.deleting:
            self._refuse_release(run, "be replaced")
        attempt = _set_attempt(obj, run)
        self._try(obj, run)
        # Read the object again: if it was being cancelled, it has ended by now.
        now = self.cluster.get(run.api_kind, run.name)
        seen = reader.observe(self.cluster, run if now is None else RunObject.parse(now))
        stopped = run.deleting and not states.classify(seen)[0].ended
        try:
            if not run.deleting:
                self.cluster.delete(run.api_kind, run.name, uid=run.uid)
        except Conflict:
            return ""  # another object has the name by now; the create reports it
        self._wait_until_gone(run)
        return resubmit.resumed(run.name, _outcome(seen), attempt, checkpoint=None, deleted=stopped)

    def _try(self, obj: dict[str, Any], run: RunObject) -> None:
        """Create the object in a dry run. The API server checks the name last, so AlreadyExists means acceptance."""
        try:
            self.cluster.create(obj, dry_run=True, strict=True)
        except AlreadyExists:
            pass
        except QuotaExceeded as error:
            # Deleting `found` would release quota a moment later, but another client could take it.
            error.hint = (
                f"The record of the last attempt counts, too. Delete it (launcher delete {run.name}{self.cli_args}) "
                "and submit the run again; it then also continues from its last checkpoint."
            )
            raise

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


def _explain_lost_record(error: ClusterError, name: str, attempt: int) -> None:
    """Add to an error of a create that the record of the last attempt was deleted before."""
    error.message = (
        f'The record of attempt {attempt} of the run "{name}" was deleted, but attempt {attempt + 1} was not created. '
        f"{error.message}"
    )
    again = "Submit the run again to continue from its last checkpoint; its attempts restart from 1."
    error.hint = f"{error.hint} {again}".strip()


def _set_attempt(obj: dict[str, Any], run: RunObject) -> int:
    """Number `obj` as the attempt after `run`, and return the number. A run of a sweep stays in it."""
    attempt = run.attempt + 1
    for keys in (obj["metadata"].setdefault("annotations", {}), pod_annotations(obj)):
        keys[label_keys.ATTEMPT] = str(attempt)
    for part, key in (("labels", label_keys.SWEEP), ("annotations", label_keys.SWEEP_VALUES)):
        kept = (run.raw["metadata"].get(part) or {}).get(key)
        if kept is not None:  # even if it is submitted alone
            obj["metadata"].setdefault(part, {}).setdefault(key, kept)
    return attempt


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
