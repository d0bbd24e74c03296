"""One model of a run for every kind, and the interface that a kind of run stands behind.

The verbs use only this module: `submit`, `status`, `logs` and `cancel` call the `Backend` that has the run. The
packages local, kubernetes and ray_cluster beside it have one each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from launcher.config.kinds import RunKind
from launcher.errors import LauncherError

if TYPE_CHECKING:
    from launcher.config.checks.problems import Problem
    from launcher.config.plan import LaunchPlan
    from launcher.k8s.client import Cluster


class State(StrEnum):
    """Where a run is in its life; the same words for every kind."""

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


@dataclass(frozen=True)
class RunStatus:
    """What is known of a run now. Scripts read its fields as JSON: add, never rename.

    `reason` says why the run is where it is, or what it is busy with. `step` counts finished steps, of
    `steps`; `loss` is the last step's, `eval_loss` the last held-out evaluation's, and those with `_first`
    the first ones; times are RFC 3339 in UTC and belong to the current attempt; `restarts` counts the
    times that training started again within it; `folder` is a local path or a URL and holds
    metrics.jsonl. `tokens_per_second` is of all devices together, over the last steps while the run goes on and
    over all of them (of a long run, the last thousand or so) after its end; `seconds_left` is an estimate from the
    last steps. On a cluster: `position` is the run's place in its queue, from 1; `accelerator` a slice's, with its
    topology ("v6e 4x4"), and `slices` their number; `context` is kubectl's. `sweep` is the sweep that the run is one
    of, and `sweep_values` the values that this gave it, by key. `stuck`: it waits for what no waiting mends, and
    `reason` says how to mend it. What is not known (yet), or means nothing for the
    kind, is None or empty.
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

    @property
    def has_object(self) -> bool:
        """Whether the run is a Kubernetes object of its own; see RunKind."""
        return RunKind(self.kind).has_object

    @property
    def in_cluster(self) -> bool:
        return RunKind(self.kind) is not RunKind.LOCAL

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def carry_over(self, now: RunStatus) -> RunStatus:
        """The later status `now` with what was seen of steps and losses: a run's log goes with its pods."""
        if now.attempt != self.attempt:
            return now
        seen = ("loss", "loss_first", "eval_loss", "eval_loss_first", "tokens_per_second", "step")
        kept = {key: getattr(self, key) for key in seen if getattr(now, key) is None}
        # The first loss that was seen is nearer to the first than that of a later look at the end of a long log.
        first = {key: getattr(self, key) for key in ("loss_first", "eval_loss_first")}
        return replace(now, **{**kept, **{key: value for key, value in first.items() if value is not None}})


@dataclass(frozen=True)
class Submission:
    """What became of a submit: the run's status, and one sentence that says what was done.

    `created` is False where a run of that name and config was there already and was only found again.
    """

    status: RunStatus
    said: str
    created: bool


@dataclass(frozen=True)
class Preview:
    """What a submit would do: the run config that it would hand to the trainer, and one sentence."""

    config: Mapping[str, Any]
    said: str


def found_or_deleted(status: RunStatus | None, name: str) -> RunStatus:
    """Return the status. Raises LauncherError if it is None: the run, which existed a moment ago, was deleted."""
    if status is None:
        raise LauncherError(f'The run "{name}" was deleted meanwhile.')
    return status


BEING_CANCELLED = "It is being cancelled."
"""The reason of a run that was told to end; it can be deleted once it holds nothing."""


class Backend(Protocol):
    """A kind of run. Every method raises LauncherError with a sentence when it cannot do its work."""

    report_progress: Callable[[str], None]
    """Called with a sentence if a method waits for long."""

    @property
    def cluster(self) -> Cluster | None:
        """The cluster that has the runs; None for this machine."""
        ...

    @property
    def stuck_seconds(self) -> float | None:
        """How long a stuck run may stay so before whoever follows it calls `cancel_stuck`; None: for ever."""
        ...

    @property
    def where(self) -> str:
        """The cluster, context and namespace, to be named before anything is changed; "" for this machine."""
        ...

    @property
    def option(self) -> str:
        """What a command needs behind a run's name to find it there: " --context lab -n research"."""
        ...

    @property
    def poll_seconds(self) -> float:
        """How often `status` may be asked while somebody follows a run."""
        ...

    @property
    def max_parallel(self) -> int:
        """How many runs may be made or ended at the same time, by as many threads."""
        ...

    def prepare(self, plans: Sequence[LaunchPlan]) -> None:
        """Told before many plans are previewed and submitted, so that what they share is done once."""
        ...

    def problems(self, plan: LaunchPlan) -> Sequence[Problem]:
        """What only the place can tell of a plan: what stands against it there, and what it warns of."""
        ...

    def preview(self, plan: LaunchPlan, *, accept_changes: bool) -> Preview:
        """What `submit` would do now. Raises what it would raise, and creates nothing."""
        ...

    def submit(self, plan: LaunchPlan, *, accept_changes: bool) -> Submission:
        """Make the run, or find or resume the one that has its name; one atomic step, safe to race.

        `accept_changes` is `--continue`: go on from the last checkpoint with a config that differs.
        """
        ...

    def list(self, warn: Callable[[str], None], *, sweep: str = "") -> Sequence[RunStatus]:
        """Every run of this kind, newest first; what cannot be read is told to `warn`, a sentence each.

        With `sweep`, the runs of the sweep of that name only.
        """
        ...

    def status(self, name: str) -> RunStatus | None:
        """The run's status, or None where this kind has no run of that name."""
        ...

    def summary(self, name: str) -> RunStatus | None:
        """`status`, without the fields that take more requests: steps, losses, and the position in the queue."""
        ...

    def config_of(self, name: str) -> Mapping[str, Any]:
        """The run config of the run; {} if it is gone or cannot be read."""
        ...

    def metrics(self, name: str) -> Sequence[dict[str, Any]]:
        """The entries that the trainer wrote to metrics.jsonl, in their order, also those of repeated steps."""
        ...

    def logs(self, name: str, *, follow: bool, worker: int | None) -> Iterator[str]:
        """The run's output line by line (no newline at the end); with `follow`, until the run ends."""
        ...

    def cancel(self, name: str) -> RunStatus:
        """Stop the run and free all that it holds; record and checkpoints stay. Idempotent."""
        ...

    def cancel_stuck(self, name: str, reason: str) -> RunStatus:
        """`cancel`, with `reason` in the run's record."""
        ...

    def delete(self, name: str) -> None:
        """Remove the record of a run that has ended, with its folder and checkpoints."""
        ...
