"""Cancel and delete runs, also while other clients change them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from launcher.backends.base import RunStatus
from launcher.backends.kubernetes import reader as kube_view
from launcher.backends.kubernetes import states
from launcher.backends.kubernetes.polling import Wait
from launcher.backends.kubernetes.reading_backend import ReadingBackend, RunDeleted
from launcher.backends.kubernetes.run_object import RunObject
from launcher.backends.kubernetes.states import ObservedRun
from launcher.backends.switches import GAP_SECONDS, SWITCH_SECONDS
from launcher.errors import LauncherError
from launcher.k8s import label_keys, objects
from launcher.k8s.client import WORKLOAD, Cluster, Conflict, Invalid, NotFound
from launcher.k8s.objects import Object

# Timeouts in seconds: for Kueue to create a Workload, for a deleted object to disappear, and, in addition to the run's
# own grace period, for pods to end.
_WORKLOAD_SECONDS = 15.0
_GONE_SECONDS = 90.0
_FREED_SECONDS = 90.0


class EndingBackend(ReadingBackend):
    """The methods of base.Backend that end and delete runs."""

    def __init__(self, cluster: Cluster, *, all_namespaces: bool = False, poll_seconds: float = 2.0) -> None:
        super().__init__(cluster, all_namespaces=all_namespaces, poll_seconds=poll_seconds)
        self.report_progress: Callable[[str], None] = lambda _: None

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
        if not run.being_switched and states.classify(kube_view.observe(self.cluster, run))[0].ended:
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

    def _refuse_release(self, run: RunObject, what: str) -> None:
        if run.release:
            raise LauncherError(
                f'The run "{run.name}" is the Helm release {run.release}, and cannot {what} without it.',
                f"To remove it: helm uninstall {run.release} -n {self.cluster.namespace}",
            )


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
