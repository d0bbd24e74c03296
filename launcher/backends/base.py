"""The model of a run, which all kinds share, and the interface that each kind of run implements.

The verbs use only this module: `status`, `logs` and `cancel` call the `Backend` that has the run, and `submit` the
`Submitter` of its kind. The packages local, kubernetes and ray_cluster each implement both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from launcher.backends.log_excerpt import WHOLE, Excerpt
from launcher.config.kinds import RunKind
from launcher.errors import LauncherError

if TYPE_CHECKING:
    from launcher.config.checks.problems import Problem
    from launcher.config.plan import LaunchPlan
    from launcher.k8s.client import Cluster
    from launcher.k8s.pods import Pod


class State(StrEnum):
    """The state of a run. All kinds use the same states."""

    QUEUED = "queued"
    ADMITTED = "admitted"
    STARTING = "starting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    RESTARTING = "restarting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in (State.SUCCEEDED, State.FAILED, State.CANCELLED)


@dataclass(frozen=True, repr=False)
class RunStatus:
    """The current status of a run. Scripts read its fields as JSON: add fields, never rename them.

    `reason` explains the state or the current activity. `step` is the number of finished steps, out of `steps`.
    `loss` is the loss of the last step, `eval_loss` that of the last held-out evaluation; the fields with `_first`
    hold the first values. Times are RFC 3339 in UTC and belong to the current attempt. `restarts` is the number of
    times that training restarted after a failure within the attempt, and `preemptions` how often it was preempted.
    `folder` is a local path or a URL and holds metrics.jsonl. `tokens_per_second` is the total of all devices: over the
    last steps while the run is active, and over all steps (for a long run, about the last thousand) after its end.
    `seconds_left` is an estimate from the last steps.

    On a cluster, `position` is the run's place in its queue, from 1; `accelerator` is the accelerator of a slice with
    its topology ("v6e 4x4"); `slices` is the number of slices; `provisioning` is how its machines are provisioned, ""
    if on demand ("spot"; for a run with alternatives the flavor that it got, "flavor v6e-spot"); `context` is the
    kubectl context. `sweep` is the sweep that contains the run, and `sweep_values` the values that the sweep set, by
    key. `stuck` is True if the run waits for something that waiting does not fix; `reason` then describes the fix.
    `uncounted_chips` is the number of chips that its pods use although no quota counts them, and `uncounted_reason` is
    why; only `list` finds them. `foreign` is True for an object in a queue that Slipway did not create: its `kind` is
    then the Kubernetes kind. A field that is unknown, or that does not apply to the kind, is None or empty.
    """

    name: str
    namespace: str
    kind: str
    state: State
    reason: str = ""
    step: int | None = None
    steps: int | None = None
    loss: float | None = None
    submitted: str | None = None
    started: str | None = None
    ended: str | None = None
    restarts: int = 0
    attempt: int = 1
    folder: str = ""
    loss_first: float | None = None
    eval_loss_first: float | None = None
    eval_loss: float | None = None
    tokens_per_second: float | None = None
    seconds_left: float | None = None
    team: str = ""
    queue: str = ""
    priority: str = ""
    position: int | None = None
    accelerator: str = ""
    slices: int | None = None
    context: str = ""
    sweep: str = ""
    sweep_values: Mapping[str, Any] = field(default_factory=dict)
    stuck: bool = False
    preemptions: int = 0
    provisioning: str = ""
    foreign: bool = False
    uncounted_chips: int = 0
    uncounted_reason: str = ""

    def __repr__(self) -> str:
        """Show the fields that most readers want, so that a list of runs is readable in a notebook."""
        shown = ("name", "kind", "state", "reason", "step", "steps", "loss", "eval_loss")
        known = {key: value for key in shown if (value := getattr(self, key)) not in (None, "")}
        known |= {"kind": str(self.kind), "state": str(self.state)}
        return f"RunStatus({', '.join(f'{key}={value!r}' for key, value in known.items())}, …)"

    @property
    def machines(self) -> str:
        """The slices of a run on a cluster: "2 x v6e 4x4, spot"; "" if they are unknown."""
        if not self.slices or not self.accelerator:
            return ""
        return ", ".join(filter(None, [f"{self.slices} x {self.accelerator}", self.provisioning]))

    @property
    def has_object(self) -> bool:
        """Whether the run has its own Kubernetes object; see RunKind."""
        return not self.foreign and RunKind(self.kind).has_object

    @property
    def in_cluster(self) -> bool:
        return self.foreign or RunKind(self.kind) is not RunKind.LOCAL

    @property
    def can_be_cancelled(self) -> bool:
        """Whether a cancel changes the run: it has not ended, or a submit is about to start its next attempt."""
        return not self.state.ended or self.reason == BEING_SWITCHED

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "sweep_values": dict(self.sweep_values)}  # ten times as fast as asdict

    def carry_over(self, now: RunStatus) -> RunStatus:
        """Return the later status `now`, completed with the steps and losses of this one.

        A run's log is deleted with its pods, so a later status may lack them.
        """
        if now.attempt != self.attempt:
            return now
        seen = ("loss", "loss_first", "eval_loss", "eval_loss_first", "tokens_per_second", "step")
        kept = {key: getattr(self, key) for key in seen if getattr(now, key) is None}
        # A later status may read only the end of a long log, so the earlier value is closer to the first loss.
        first = {key: getattr(self, key) for key in ("loss_first", "eval_loss_first")}
        return replace(now, **{**kept, **{key: value for key, value in first.items() if value is not None}})


@dataclass(frozen=True)
class Submission:
    """The result of a submit: the run's status, and one sentence that describes what was done.

    `created` is False if a run with that name and config already existed.
    """

    status: RunStatus
    message: str
    created: bool


@dataclass(frozen=True)
class Preview:
    """The effect that a submit would have: the run config for the trainer, and one sentence.

    `waiting` is the object of a new run that would wait in a queue of a cluster.
    """

    config: Mapping[str, Any] = field(repr=False)
    message: str
    waiting: Mapping[str, Any] | None = field(default=None, repr=False)


def found_or_deleted(status: RunStatus | None, name: str) -> RunStatus:
    """Return the status. Raises LauncherError if it is None, because the run was deleted in the meantime."""
    if status is None:
        raise LauncherError(f'The run "{name}" was deleted in the meantime.')
    return status


BEING_CANCELLED = "It is being cancelled."
"""The reason of a run that is being cancelled. The run can be deleted once it holds no resources."""

BEING_SWITCHED = "launcher submit replaces it with another alternative of slice.any."
"""The reason of a run that launcher submit cancelled for its next attempt. `cancel` also prevents that attempt."""
SWITCH_SECONDS = 30.0
"""How long the next attempt of a run that is being switched is waited for. A submit that was killed creates none."""
GAP_SECONDS = 3.0
"""How long a run that is not found is looked for again, because a switch that was not observed may create it."""


class Backend(Protocol):
    """A kind of run: read and end its runs. Every method raises LauncherError with a sentence if it fails."""

    report_progress: Callable[[str], None]
    """Called with a sentence if a method waits for a long time."""

    @property
    def cluster(self) -> Cluster | None:
        """The cluster that has the runs; None for this machine."""
        ...

    @property
    def stuck_seconds(self) -> float | None:
        """Seconds that a run may be stuck before a client that follows it cancels it; None: no limit."""
        ...

    @property
    def description(self) -> str:
        """The cluster, context and namespace, to print before a change; "" for this machine."""
        ...

    @property
    def cli_args(self) -> str:
        """The options that a command needs after a run's name to find it: " --context lab -n research"."""
        ...

    @property
    def poll_seconds(self) -> float:
        """The interval in seconds at which a client that follows a run may call `status`."""
        ...

    @property
    def max_parallel(self) -> int:
        """The number of runs that can be created or ended in parallel, each in its own thread."""
        ...

    def list(self, warn: Callable[[str], None], *, sweep: str = "") -> Sequence[RunStatus]:
        """Return every run of this kind, newest first. Call `warn` with a sentence for each run that cannot be read.

        With `sweep`, return only the runs of the sweep with that name.
        """
        ...

    def status(self, name: str) -> RunStatus | None:
        """Return the run's status, or None if this kind has no run with that name."""
        ...

    def summary(self, name: str) -> RunStatus | None:
        """Return `status` without the fields that need more requests: steps, losses, and the position in the queue."""
        ...

    def config_of(self, name: str) -> Mapping[str, Any]:
        """Return the run's config; {} if the run does not exist or its config cannot be read."""
        ...

    def hosts(self, name: str) -> Sequence[Pod]:
        """Return the pods of the run's hosts, in the order of the hosts; [] if it has none now, or none at all."""
        ...

    def metrics(self, name: str) -> Sequence[dict[str, Any]]:
        """Return the entries that the trainer wrote to metrics.jsonl, in order, including those of repeated steps."""
        ...

    def logs(self, name: str, *, follow: bool, worker: int | None, excerpt: Excerpt = WHOLE) -> Iterator[str]:
        """Yield the run's output by line, without trailing newlines; with `follow`, until the run ends.

        `excerpt` selects among the lines that exist at the start.
        """
        ...

    def cancel(self, name: str, *, reason: str = "") -> RunStatus:
        """Stop the run and release its resources, but keep its record and checkpoints. Idempotent.

        `reason` explains the cancellation of a stuck run; `status` returns it. Only a kind with `stuck_seconds` has it.
        """
        ...

    def delete(self, name: str) -> None:
        """Remove the record of a run that has ended, including its folder and checkpoints."""
        ...


class Submitter(Backend, Protocol):
    """A kind of run that can be started. Verbs that only read and end runs do not import its implementation."""

    def prepare(self, plans: Sequence[LaunchPlan]) -> None:
        """Do the work that the plans share. Called before many plans are previewed and submitted."""
        ...

    def problems(self, plan: LaunchPlan) -> Sequence[Problem]:
        """Return the errors and warnings of a plan that only the target cluster or machine can detect."""
        ...

    def preview(self, plan: LaunchPlan, *, accept_changes: bool) -> Preview:
        """Return what `submit` would do now, without creating anything. Raises the errors that `submit` would raise."""
        ...

    def submit(self, plan: LaunchPlan, *, accept_changes: bool) -> Submission:
        """Create the run, or find or resume the run with that name, in one atomic step that is safe to race.

        `accept_changes` is `--continue`: continue from the last checkpoint with a different config.
        """
        ...

    def has_room(self, plan: LaunchPlan) -> bool:
        """Return whether the queue has the free quota for the plan now; False for kinds without alternatives."""
        ...

    def switch(self, plan: LaunchPlan) -> RunStatus | None:
        """Replace the run by another alternative of it; None if nothing was done, as for kinds without alternatives."""
        ...


class WithoutAlternatives:
    """The part of a Submitter whose runs have no alternatives."""

    def has_room(self, _: LaunchPlan) -> bool:
        return False

    def switch(self, _: LaunchPlan) -> RunStatus | None:
        return None
