"""A namespace of a cluster as the place of a drill. The names of its runs begin with its own, and it removes them."""

from __future__ import annotations

import contextlib
import json
import secrets
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from launcher import api
from launcher.backends.kubernetes.run_object import KINDS
from launcher.config.kinds import RunKind
from launcher.config.plan import LaunchPlan
from launcher.errors import LauncherError
from launcher.k8s.client import JOB_SET, Cluster
from launcher.k8s.target import Target
from launcher.products.drill.cluster import access, hook
from launcher.products.drill.cluster.faults import FAULTS, ClusterFault
from launcher.products.drill.cluster.hook import Hook
from launcher.products.drill.cluster.run import ClusterRun
from launcher.products.drill.engine import UNDISTURBED
from launcher.products.drill.training import Training

VALUES = str(Path(__file__).with_name("training.yaml"))
_REFUSING = "json http://127.0.0.1:9/"
"""An address at which a pod has no server: port 9 is that of the protocol `discard`."""


class ClusterPlace:
    """The namespace of `target`; see engine.Place. `faults` are those that can be injected here, by name, and
    `left_out` has a sentence for each of the others.

    Raises LauncherError if a drill is not possible, or if one of the faults `only` is not. Creates nothing.
    """

    linger = 30.0

    def __init__(
        self, target: Target, training: Training, only: Sequence[str], patience: float, progress: Callable[[str], None]
    ) -> None:
        self.patience, self.pause, self._training, self._progress = patience, 1.0, training, progress
        self.steps, self.period, self.fault_at = training.steps, training.period, training.fault_at
        plan = training.example
        if not plan.kind.has_object:
            raise LauncherError(f"The runs of a drill are ray-job or job-set (run.kind), not {plan.kind}.")
        self.backend = api.backend_for(plan, target)
        cluster = self.backend.cluster
        if cluster is None:
            raise LauncherError("A drill with --context or --namespace needs a kubeconfig.")
        self.cluster: Cluster = cluster
        self.target = replace(target, namespace=cluster.namespace)
        self.name = f"drill-{secrets.token_hex(3)}"
        self.kind = plan.kind
        self.about = f"{cluster.description}: {plan.kind}, {training.hosts} hosts"
        self._submitted: list[str] = []
        self._hook: Hook | None = None
        self.left_out: dict[str, str] = {}
        self._check_rights()
        self.faults = self._possible(only)

    # --- before the drill ---

    @cached_property
    def has_hook(self) -> bool:
        """Whether a run can receive the notifications: on CPU, because it would hold a whole slice of chips."""
        plan = self._training.example
        return plan.config["accelerator"]["kind"] == "cpu" and bool(self.cluster.served(JOB_SET.group))

    def _check_rights(self) -> None:
        kinds = {KINDS[self.kind], *([JOB_SET] if self.has_hook else [])}
        if lacking := access.missing(self.cluster, access.needed(sorted(kinds))):
            raise access.refusal(self.cluster, lacking)

    def _possible(self, only: Sequence[str]) -> dict[str, ClusterFault]:
        possible: dict[str, ClusterFault] = {}
        for fault in FAULTS:
            if only and fault.name not in only:
                continue
            if not only and self.kind not in fault.kinds:
                continue
            reason, error = self._impossible(fault)
            if reason and only:
                raise error or LauncherError(f"{fault.name} is not possible: {reason}")
            if reason:
                self.left_out[fault.name] = reason
            else:
                possible[fault.name] = fault
        if not possible:
            raise LauncherError("No fault is possible here.", "\n".join(self.left_out.values()))
        return possible

    def _impossible(self, fault: ClusterFault) -> tuple[str, LauncherError | None]:
        """Return why a fault cannot be injected here, and the error that a user who named it gets; "" if it can."""
        kind = self.kind
        if kind not in fault.kinds:
            return f"A {kind} has no head.", None
        if fault.silent and not self.has_hook:
            return "There is no webhook for runs on chips.", None
        if reason := fault.impossible(self.cluster):
            return reason, None
        if lacking := access.missing(self.cluster, fault.rights):
            return f"{access.sentence(self.cluster, lacking)}.", access.refusal(self.cluster, lacking)
        if fault.preempts:
            if not self.queue:
                return "The values set no queue.", None
            if len(self._priorities) < 2:
                return "You may not use two priorities of runs, or cannot read them.", None
            return self.others().against_preemption(), None
        return "", None

    @cached_property
    def queue(self) -> str:
        """The LocalQueue of the runs; "" if Kueue does not manage them."""
        config = self._training.example.config
        return str((config.get("queue") or {}).get("name") or (config.get("team") or {}).get("name") or "")

    def others(self) -> access.Others:
        """Return the runs of others in the queue, now."""
        return access.others(self.cluster, self.queue, self._submitted)

    @cached_property
    def _priorities(self) -> list[str]:
        """The lowest and the highest priority that the API server accepts for a run of the drill: [] if it is one."""
        known = access.priorities(self.cluster)
        own = str((self._training.example.config.get("queue") or {}).get("priority") or "")
        lower, higher = [own] if own in known else known, list(reversed(known))
        low, high = next(filter(self._accepted, lower), ""), next(filter(self._accepted, higher), "")
        return [low, high] if low and high and known.index(low) < known.index(high) else []

    def _accepted(self, priority: str) -> bool:
        try:
            api.preview(self._training.plan(self.name, [f"queue.priority={priority}"]), target=self.target)
        except LauncherError:
            return False
        return True

    def announcement(self) -> list[str]:
        """Return sentences about what the drill will do, for its user to approve."""
        runs = len(self.faults) + 1
        lines = [
            f"The drill submits {runs} trainings, one after the other, to the {self.cluster.description}. Their names "
            f"begin with {self.name}, and it breaks and removes only these: {', '.join(self.faults)}.",
            *(f"{name} is left out: {reason}" for name, reason in self.left_out.items()),
        ]
        warning = self.others().sentence() if self.queue else ""
        return [*lines, *([f"{warning} The drill takes quota from it while it runs."] if warning else [])]

    @property
    def _parts(self) -> Sequence[str]:
        return ("head", "worker") if self.kind is RunKind.RAY_JOB else ("worker",)

    # --- runs ---

    @contextlib.contextmanager
    def opened(self) -> Iterator[ClusterPlace]:
        """Start the webhook. At the end, remove all runs of the drill, also after Ctrl-C."""
        try:
            if self.has_hook:
                mount = str(self._training.example.config["storage"]["mountPath"])
                command = hook.command(f"{mount}/{self.name}-*")
                plan = self._plan("hook", hook.SETS, command=command, urgent=True)
                self._progress(f"Starting {plan.name}, which receives the notifications.")
                self._submit(plan)
                self._hook = Hook(plan.name, self.target)
                self._hook.wait(self.patience)
            yield self
        finally:
            with _uninterrupted():
                self._remove()

    @contextlib.contextmanager
    def run(self, fault: ClusterFault | None) -> Iterator[ClusterRun]:
        address = ""
        if fault is not None and self._hook is not None:
            address = _REFUSING if fault.silent else self._hook.address
        sets = [f"{part}.env.SLIPWAY_NOTIFY={address}" for part in self._parts if address]
        if fault is not None and fault.silent:
            sets.append("notify.events={started,ended}")  # one is sent while the run trains
        plan = self._plan(UNDISTURBED if fault is None else fault.name, sets)
        run = ClusterRun(self, plan, None if fault is None else self._hook)
        self._submitted.append(plan.name)  # first: Ctrl-C can come while the object is created
        try:
            run.submit()
            yield run
        finally:
            run.close()
        self._end(plan.name)

    @contextlib.contextmanager
    def submitted(self, plan: LaunchPlan) -> Iterator[None]:
        """Submit a run, and remove it at the end."""
        self._submit(plan)
        try:
            yield
        finally:
            self._end(plan.name)

    def urgent(self) -> LaunchPlan:
        """Return a run of a higher priority that does nothing and needs as much as a training: all its pods."""
        sets = ["run.graceSeconds=1", "run.maxRestarts=0"]
        if self.kind is RunKind.RAY_JOB and self.has_hook:  # a pod instead of the head
            hosts = int(self._training.example.config["accelerator"].get("hosts") or 1)
            sets += ["run.kind=job-set", f"slice.hosts={hosts + 1}"]
        return self._plan("urgent", sets, command=["sleep", "86400"], urgent=True)

    def _plan(
        self, suffix: str, sets: Sequence[str], *, command: Sequence[str] = (), urgent: bool = False
    ) -> LaunchPlan:
        sets = [*sets, "notify.secret="]  # the team is not notified of a drill
        if any(fault.preempts for fault in self.faults.values()):
            sets = [*sets, f"queue.priority={self._priorities[-1 if urgent else 0]}"]
        name = f"{self.name}-{suffix}"
        if not command:
            return self._training.plan(name, sets)
        with tempfile.TemporaryDirectory(prefix="slipway-") as folder:
            file = Path(folder, "command.yaml")
            file.write_text(json.dumps({"run": {"command": command}}), encoding="utf-8")  # JSON is YAML
            return self._training.plan(name, sets, [str(file)])

    def _submit(self, plan: LaunchPlan) -> None:
        self._submitted.append(plan.name)
        api.submit(plan, target=self.target)

    # --- the end ---

    def _remove(self) -> None:
        """Remove the runs that are left; the webhook last, because it removes their folders from the storage."""
        if not self._submitted:
            return
        self._progress("Removing the runs of the drill.")
        last = self._hook.name if self._hook is not None else ""
        with ThreadPoolExecutor(self.backend.max_parallel) as pool:
            list(pool.map(self._end, [name for name in self._submitted if name != last]))
        if last:
            self._end(last)
        else:
            self._progress(f"The folders {self.name}-* in the storage are left; remove them there.")

    def _end(self, name: str) -> None:
        """Cancel and delete a run. If that fails, print the command to repeat."""
        try:
            with contextlib.suppress(api.NoSuchRun):
                api.cancel(name, target=self.target)  # looks again for a run that is just being created
                api.delete(name, target=self.target)
            self._submitted = [each for each in self._submitted if each != name]
        except LauncherError as error:
            self._progress(
                f'The run "{name}" is not removed: {error.message} Repeat: launcher cancel {name}'
                f"{self.cluster.cli_args}; launcher delete {name}{self.cluster.cli_args}"
            )


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C and SIGTERM: a drill that is interrupted twice must not leave a run behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
