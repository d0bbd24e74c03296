"""Runs as jobs of a long-lived Ray cluster (charts/ray-cluster), which exists before and after them.

An attempt of a run is one job, whose submission id is the run's name and the attempt's number. Ray accepts an id once,
so concurrent submits create one run, and a submit whose response was lost can be repeated. The job's metadata hold the
run config, for the trainer and for later submits of the name. Ray keeps jobs in the head's memory: if the head is lost,
only the run's folder remains.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from launcher.backends import log_excerpt, progress
from launcher.backends.base import RunStatus, State
from launcher.backends.kubernetes import logs as kubernetes_logs
from launcher.backends.kubernetes.run_object import folder_of, read_values
from launcher.backends.log_excerpt import WHOLE, Excerpt
from launcher.backends.progress import Progress
from launcher.config.kinds import RunKind
from launcher.errors import LauncherError
from launcher.k8s import label_keys, objects
from launcher.k8s.client import POD, RAY_CLUSTER, Cluster, ClusterError, Forbidden, Unreachable
from launcher.k8s.label_keys import RUN, SWEEP, SWEEP_VALUES, TEAM
from launcher.k8s.objects import Object
from launcher.k8s.pods import Pod, pods
from launcher.products.ray_cluster import clusters as ray_clusters
from launcher.products.ray_cluster import logs as ray_cluster_logs
from launcher.products.ray_cluster.attempts import (
    Attempt,
    classify,
    newest_attempts,
    time_of,
)
from launcher.products.ray_cluster.clusters import RayClusterStatus
from launcher.products.ray_cluster.jobs import ENDED, RayHead, RayJobs
from launcher.products.ray_cluster.tokens import TokenNotSent
from launcher.trainer_output import metrics_in_log

if TYPE_CHECKING:
    pass

_TAIL_LINES = 1000
_LISTED_TAILS = 20
_STOP_SECONDS = 60.0


class RayClusterBackend:
    """Runs in the long-lived Ray clusters of a namespace; see base.Backend for the contract of each method."""

    stuck_seconds = None
    max_parallel = 1  # Ray starts the jobs of a sweep in the order of their submission

    def __init__(self, cluster: Cluster, *, all_namespaces: bool = False, poll_seconds: float = 2.0) -> None:
        self.cluster = cluster
        self.all_namespaces = all_namespaces  # `list` shows all namespaces
        self.poll_seconds = poll_seconds
        self.report_progress: Callable[[str], None] = lambda _: None
        self._readers: dict[str, progress.Reader] = {}
        self._read: set[str] = set()  # jobs that had ended when their log was read: the log is complete
        self._seen: dict[str, Attempt] = {}

    @property
    def description(self) -> str:
        return self.cluster.description

    @property
    def cli_args(self) -> str:
        return self.cluster.cli_args

    # --- reading ---

    def list(self, warn: Callable[[str], None], *, sweep: str = "") -> Sequence[RunStatus]:
        newest: list[Attempt] = []
        try:
            existing = ray_clusters.all_clusters(self.cluster, all_namespaces=self.all_namespaces)
        except Forbidden as error:
            warn(error.message)
            return []
        for ray_cluster in existing:
            try:
                newest += newest_attempts(self._jobs(ray_cluster, named=False)).values()
            except TokenNotSent as error:
                warn(f"{error.message} {error.hint}")
            except LauncherError as error:
                if ray_clusters.state_of(ray_cluster)[0] != "suspended":  # it waits in its queue, and has no runs
                    warn(error.message)
        newest = [attempt for attempt in newest if sweep in ("", attempt.metadata.get(SWEEP, ""))]
        newest.sort(key=lambda attempt: int(attempt.job.get("start_time") or 0), reverse=True)
        statuses = []
        for number, attempt in enumerate(newest):
            active = attempt.job["status"] not in ENDED
            statuses.append(self._status(attempt, read=active or number < _LISTED_TAILS, whole=False))
        return sorted(statuses, key=lambda status: (status.submitted or "", status.name), reverse=True)

    def status(self, name: str) -> RunStatus | None:
        seen = self._seen.get(name)
        if seen is not None and seen.job["status"] not in ENDED:  # followed: request one job, not all
            job = seen.jobs.get(seen.id)
            if job is not None:
                return self._status(Attempt(seen.jobs, job))
        attempt = self._find(name)
        if attempt is not None:
            return self._status(attempt)
        if seen is not None:
            raise LauncherError(
                f'The run "{name}" was not found any more in {seen.jobs.head.description}: its record was deleted, or '
                "the head was restarted, which deletes Ray's jobs.",
                f"Submit it again to continue from its last checkpoint in {self._folder(seen)}.",
            )
        return None

    def logs(self, name: str, *, follow: bool, worker: int | None, excerpt: Excerpt = WHOLE) -> Iterator[str]:
        attempt = self._known(name)
        log_excerpt.check_times(excerpt, attempt.config())

        def lines(*, follow: bool) -> Iterator[str]:
            printed = ray_cluster_logs.lines(attempt.jobs, attempt.id, follow=follow, pause=self.poll_seconds)
            return printed if worker is None else ray_cluster_logs.of_worker(printed, worker)

        if excerpt.is_whole:
            return lines(follow=follow)
        existing = list(lines(follow=False))
        later = islice(lines(follow=True), len(existing), None) if follow else ()
        return chain(excerpt.of(existing), later)

    def clusters(self, name: str | None = None) -> Sequence[RayClusterStatus]:
        """Return the namespace's long-lived Ray clusters (or the one with that name), each with its pods and runs."""
        ray_objects = ray_clusters.all_clusters(self.cluster)
        if name is not None and self.cluster.unreadable:
            self.cluster.get(RAY_CLUSTER, name)  # raises the error of this one
        return [
            ray_clusters.describe(self.cluster, each, runs=self._runs(each, named=name is not None))
            for each in ray_objects
            if name in (None, objects.name(each))
        ]

    def summary(self, name: str) -> RunStatus | None:
        return self.status(name)

    def metrics(self, name: str) -> Sequence[dict[str, Any]]:
        return list(metrics_in_log(self.logs(name, follow=False, worker=None)))

    def config_of(self, name: str) -> dict[str, Any]:
        """Return the run config of a run; {} if the run does not exist."""
        attempt = self._find(name)
        return {} if attempt is None else attempt.config()

    def cluster_of(self, name: str) -> str | None:
        """Return the name of the run's Ray cluster, or None if the run does not exist."""
        attempt = self._find(name)
        return None if attempt is None else attempt.jobs.head.name

    def hosts(self, name: str) -> Sequence[Pod]:
        """Return the pods of the run's Ray cluster, whose hosts all its runs share."""
        cluster = self.cluster_of(name)
        if cluster is None:
            return []
        return kubernetes_logs.ray_workers(pods(self.cluster.list(POD, labels=f"{label_keys.RAY_CLUSTER}={cluster}")))

    def _runs(self, ray_cluster: Object, *, named: bool) -> Sequence[str] | None:
        """Return the names of the active runs of the cluster; None if Ray does not answer or refuses the request."""
        try:
            attempts = newest_attempts(self._jobs(ray_cluster, named=named)).values()
        except LauncherError:
            return None
        return sorted(each.name for each in attempts if each.job["status"] not in ENDED)

    # --- ending ---

    def cancel(self, name: str, *, reason: str = "") -> RunStatus:
        attempt = self._known(name)
        if attempt.job["status"] not in ENDED:
            attempt.jobs.stop(attempt.id)
        # The head's grace period limits the driver's time for one more checkpoint; it may differ from the run's.
        grace = (attempt.config().get("run") or {}).get("graceSeconds")
        patience = _STOP_SECONDS + (grace if isinstance(grace, int | float) else 0)
        deadline = time.monotonic() + patience
        while attempt.job["status"] not in ENDED:
            if time.monotonic() > deadline:
                raise LauncherError(
                    f'The run "{name}" was asked to stop, but has not ended in {patience:g} s; its log may show why.',
                    f"launcher logs {name}{self.cli_args}",
                )
            time.sleep(0.2)
            job = attempt.jobs.get(attempt.id)
            if job is None:
                raise LauncherError(f'The run "{name}" was deleted in the meantime.')
            attempt = Attempt(attempt.jobs, job)
        return self._status(attempt)

    def delete(self, name: str) -> None:
        attempt = self._known(name)
        if attempt.job["status"] not in ENDED:
            raise LauncherError(
                f'The run "{name}" has not ended.', f"Cancel it first: launcher cancel {name}{self.cli_args}"
            )
        for job in attempt.jobs.list():
            if (job.get("metadata") or {}).get(RUN) == name:
                attempt.jobs.delete(str(job["submission_id"]))
        self._seen.pop(name, None)

    # --- inside ---

    def _jobs(self, ray_cluster: Object, *, named: bool) -> RayJobs:
        """Return the Jobs API of the cluster. `named`: whether the command names it or a run; see tokens.token_of."""
        return RayJobs(RayHead(self.cluster, ray_cluster, named=named))

    def _known(self, name: str) -> Attempt:
        attempt = self._find(name)
        if attempt is None:
            raise LauncherError(f'The run "{name}" was not found in a long-lived Ray cluster ({self.description}).')
        return attempt

    def _find(self, name: str, *, first: RayJobs | None = None) -> Attempt | None:
        """Return the run's newest attempt from the namespace's long-lived Ray clusters, or None.

        Clusters whose token the user may not read, or that receive none, are skipped: they have no runs of the user.
        The same applies if the user may not list Ray clusters at all. Errors of `first` are raised. If another cluster
        does not answer, it may have the run: without `first`, raises Unreachable if no cluster has it.
        """
        silent: LauncherError | None = None
        attempts: list[Attempt] = []
        try:
            existing = ray_clusters.all_clusters(self.cluster)
        except Forbidden:
            return None
        for ray_cluster in existing:
            ours = first is not None and objects.name(ray_cluster) == first.head.name
            try:
                jobs = first if ours and first is not None else self._jobs(ray_cluster, named=True)
                newest = newest_attempts(jobs).get(name)
            except (Forbidden, TokenNotSent):
                continue
            except LauncherError as error:
                if ours:
                    raise
                # A cluster that was never ready has no runs yet: it waits in its queue, or KubeRay has not created its
                # token's Secret.
                starts = isinstance(error, ClusterError) and ray_clusters.state_of(ray_cluster)[0] != "suspended"
                if starts or objects.is_true(ray_cluster, "RayClusterProvisioned"):
                    silent = error
                continue
            attempts += [newest] if newest is not None else []
        if attempts:
            # If the run moved from one cluster to another, use the later attempt.
            best = max(attempts, key=lambda attempt: (attempt.attempt, int(attempt.job.get("start_time") or 0)))
            self._seen[name] = best
            return best
        if silent is not None and first is None:
            # A search over several backends treats a cluster with a wrong token like one that does not answer.
            raise Unreachable(silent.message, silent.hint) from silent
        return None

    def _status(self, attempt: Attempt, *, read: bool = True, whole: bool = True) -> RunStatus:
        job, config = attempt.job, attempt.config()
        slice_, row = config.get("slice") or {}, config.get("accelerator") or {}
        known = self._progress(attempt, config, whole=whole) if read else Progress()
        state, reason = classify(job, known)
        steps = (config.get("train") or {}).get("steps")
        training = not (config.get("run") or {}).get("command")
        begun = time_of(job.get("start_time"))
        status = RunStatus(
            name=attempt.name,
            namespace=attempt.jobs.head.namespace,
            kind=RunKind.RAY_CLUSTER,
            state=state,
            reason=reason,
            steps=steps if training and isinstance(steps, int) and steps > 0 else None,
            submitted=begun,
            started=begun if state is not State.QUEUED else None,
            ended=time_of(job.get("end_time")) if state.ended else None,
            attempt=attempt.attempt,
            folder=self._folder(attempt),
            team=attempt.metadata.get(TEAM, ""),
            accelerator=" ".join(filter(None, (str(row.get("name") or ""), str(row.get("topology") or "")))),
            slices=slice_.get("count"),
            context=self.cluster.context,
            sweep=attempt.metadata.get(SWEEP, ""),
            sweep_values=read_values(attempt.metadata.get(SWEEP_VALUES, "")),
        )
        self._seen[attempt.name] = attempt
        return progress.apply(status, known)

    def _folder(self, attempt: Attempt) -> str:
        return folder_of(attempt.config())

    def _progress(self, attempt: Attempt, config: Mapping[str, Any], *, whole: bool) -> Progress:
        """Return the progress in the log. `whole` reads all of it once, and then only its end; else only its end."""
        chips = int((config.get("accelerator") or {}).get("chips") or 1)
        devices = chips * int((config.get("slice") or {}).get("count") or 1)
        reader = self._readers.get(attempt.id)
        if reader is None and not whole:
            lines = list(_text_lines(attempt.jobs.log(attempt.job, lines=_TAIL_LINES)))
            known = progress.read(lines, steps=None, devices=devices)
            return known if len(lines) < _TAIL_LINES else without_beginning(known)
        if attempt.id not in self._read:
            lines_wanted = -1 if reader is None else _TAIL_LINES
            reader = reader or progress.Reader(steps=None, devices=devices)
            reader.feed(_text_lines(attempt.jobs.log(attempt.job, lines=lines_wanted)))
            self._readers[attempt.id] = reader
            if attempt.job["status"] in ENDED:
                self._read.add(attempt.id)
        return reader.progress() if reader is not None else Progress()


def _text_lines(parts: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        yield from (line.decode("utf-8", "replace") for line in whole)
    if rest:
        yield rest.decode("utf-8", "replace")


def without_beginning(progress: Progress) -> Progress:
    """Return the progress read from the end of a long log, without the first losses and with at least one loop.

    The first losses and the start of the loop come before the lines that were read.
    """
    return replace(progress, loops=max(1, progress.loops), loss_first=None, eval_loss_first=None)
