"""The output of a run on a cluster, from the log of the pod that prints it, across restarts and lost streams.

The first host of a JobSet prints the run's lines. The driver of a RayJob copies its lines to the log of the head's
container, which continues after the run has ended.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from launcher.backends.base import State
from launcher.backends.kubernetes import states
from launcher.backends.kubernetes.states import ObservedRun
from launcher.backends.log_excerpt import WHOLE, Excerpt
from launcher.errors import LauncherError
from launcher.k8s import label_keys, objects
from launcher.k8s.client import Cluster, Unreachable
from launcher.k8s.errors import Invalid, NotFound
from launcher.k8s.pods import Pod, newest

# The lines at the end of a long log that a status reads: enough for the lines of a step and of an evaluation.
TAIL_LINES = 400
# The seconds for which a stream is still read after the run has ended.
_LAST_SECONDS = 2.0
_COMPLETION, _JOB = label_keys.JOB_COMPLETION, label_keys.JOB_SET_JOB
_RAY_HOST, _RAY_SLICE = label_keys.RAY_HOST, label_keys.RAY_SLICE


def tail(cluster: Cluster, seen: ObservedRun) -> list[str]:
    """Return the last lines of the run's output, or those that KubeRay kept if the pods are deleted; else []."""
    pod = printing_pod(seen)
    if pod is not None:
        try:
            return list(cluster.logs(pod.name, container=container(pod), tail=TAIL_LINES))
        except (Invalid, NotFound):  # not started yet, or deleted
            pass
        except Unreachable as error:
            # The API server returns 500 if the kubelet does not answer: the machine may be down.
            if error.status != 500:
                raise
    return states.log_tail(seen)


def lines(
    cluster: Cluster,
    look: Callable[[], ObservedRun | None],
    *,
    follow: bool,
    worker: int | None,
    pause: float,
    excerpt: Excerpt = WHOLE,
) -> Iterator[str]:
    """Yield the run's output by line, with `follow` until the run ends. `look` returns the current run.

    A lost stream is resumed where it broke. The log of a replacement pod is read from its start.
    """
    source = _Source(cluster, worker, excerpt)
    printed = False
    while True:
        try:
            seen = look()
            if seen is None:
                return
            # If the run ends while its log is read, the log is read once more: the stream may have ended too early.
            last = not follow or _ended(seen)
            over = None if last else _Over(look, pause)
            for line in source.read(seen, over):
                printed = True
                yield line
            again = None if last else look()
        except Unreachable:
            if not follow:
                raise
            time.sleep(pause)
            continue
        if last and not printed and (excerpt.since is None or printing_pod(seen, worker) is None):
            left = _left(seen, worker)
            yield from left if excerpt.tail is None else left[-excerpt.tail :]
        if last:
            return
        if again is not None and not _ended(again):
            time.sleep(pause)


def _ended(seen: ObservedRun) -> bool:
    return states.classify(seen)[0].ended


class _Over:
    """Whether the run has ended, or the run or the pod is deleted, polled every few seconds.

    A stream may outlive the run, and that of a machine that has gone may stay open for minutes.
    """

    def __init__(self, look: Callable[[], ObservedRun | None], pause: float) -> None:
        self._look = look
        self.pod = ""  # the uid of the pod whose stream is read
        self.every = max(3 * pause, 0.5)  # seconds
        self._next = time.monotonic() + self.every

    def __call__(self) -> bool:
        if time.monotonic() < self._next:
            return False
        seen = self._look()
        self._next = time.monotonic() + self.every
        if seen is None or _ended(seen):
            return True
        return seen.pods is not None and all(pod.uid != self.pod for pod in seen.pods)


class _Source:
    """The source of the lines, with the position of the last line read."""

    def __init__(self, cluster: Cluster, worker: int | None, excerpt: Excerpt) -> None:
        self.cluster, self.worker = cluster, worker
        self._pod = ""
        self._tail = excerpt.tail
        self._start = "" if excerpt.since is None else _stamp(excerpt.since)
        # The timestamp of the last line, in comparable form, and the number of lines read with this timestamp.
        self._last, self._count = "", 0

    def read(self, seen: ObservedRun, over: _Over | None) -> Iterator[str]:
        """Yield the new lines; with `over`, also later lines until `over` returns True."""
        pod = printing_pod(seen, self.worker)
        if pod is None:
            return
        if pod.uid != self._pod:
            self._pod, self._last, self._count = pod.uid, self._start, 0
        if over is not None:
            over.pod = pod.uid
        only = _ray_worker_mark(seen, self.worker)
        if self._tail is not None:
            # Lines of other workers are among the last lines, so the API server cannot select those of one worker.
            selected = self._new(pod, only, None, tail=self._tail if only is None else None)
            self._tail, tail = None, deque(selected, maxlen=self._tail)
            yield from tail
            if over is None:
                return
        yield from self._new(pod, only, over)

    def _new(self, pod: Pod, only: str | None, over: _Over | None, *, tail: int | None = None) -> Iterator[str]:
        """Yield the new lines of the pod that contain `only`."""
        stream = self.cluster.logs(
            pod.name,
            container=container(pod),
            follow=over is not None,
            tail=tail,
            since=f"{self._last.partition('.')[0]}Z" if self._last else None,
            timestamps=True,
        )
        known, skip = self._last, self._count
        try:
            for raw in stream if over is None else _until(stream, over):
                stamp, _, text = raw.partition(" ")
                moment = _comparable(stamp)
                if known and moment < known:
                    continue
                if moment == known and skip:
                    skip -= 1
                    continue
                known = ""  # all further lines are new
                if moment == self._last:
                    self._count += 1
                elif moment > self._last:
                    self._last, self._count = moment, 1
                if only is None or only in text:
                    yield text
        except (Invalid, NotFound):
            return  # the container has not started, or the pod was deleted: the caller tries again


def _until(stream: Iterator[str], over: _Over) -> Iterator[str]:
    """Yield the lines of a stream as they arrive, until `over`. Errors of the stream are raised here."""
    arrived: queue.SimpleQueue[str | BaseException | None] = queue.SimpleQueue()
    left = threading.Event()

    def read() -> None:
        end: BaseException | None = None
        try:
            for line in stream:
                if left.is_set():
                    break
                arrived.put(line)
        except BaseException as error:  # raised again in the consumer
            end = error
        arrived.put(end)

    # Reading blocks, and the stream does not show the run's end. An abandoned reader ends with its stream or a timeout.
    threading.Thread(target=read, name="log", daemon=True).start()
    stop = None
    try:
        while stop is None or time.monotonic() < stop:
            if stop is None and over():
                # Wait for the lines in transit: the pod may be deleted by now, so its log cannot be read again.
                stop = time.monotonic() + _LAST_SECONDS
            try:
                line = arrived.get(timeout=over.every if stop is None else _LAST_SECONDS / 4)
            except queue.Empty:
                if stop is not None:
                    return
                continue
            if line is None:
                return
            if isinstance(line, BaseException):
                raise line
            yield line
    finally:
        left.set()


def printing_pod(seen: ObservedRun, worker: int | None = None) -> Pod | None:
    """Return the pod whose log is the run's, or that worker's; None if it does not exist yet, or no longer exists."""
    pods = seen.pods or ()
    if seen.ray:
        return newest(pod for pod in pods if pod.label(label_keys.RAY_NODE_TYPE) == "head")
    by_host = _by_host(pods)
    if worker is not None and by_host and worker >= len(by_host):
        raise LauncherError(f"Worker {worker} was not found: the run has {len(by_host)}, counted from 0.")
    return by_host[worker or 0] if by_host else None


def hosts(seen: ObservedRun) -> list[Pod]:
    """Return the pods of the run's hosts, ordered by slice and host, without Ray's head."""
    return ray_workers(seen.pods or ()) if seen.ray else _by_host(seen.pods or ())


def ray_workers(pods: Sequence[Pod]) -> list[Pod]:
    """Return the pods of the workers of a Ray cluster, ordered by slice and host."""
    workers = [pod for pod in pods if pod.label(label_keys.RAY_NODE_TYPE) == "worker"]
    return sorted(workers, key=lambda pod: (_number(pod, _RAY_SLICE), _number(pod, _RAY_HOST)))


def _by_host(pods: Sequence[Pod]) -> list[Pod]:
    """Return the pods of a JobSet's hosts, ordered by slice and host. For a replaced pod, return the newest."""
    latest: dict[tuple[int, int], Pod] = {}
    for pod in sorted(pods, key=lambda pod: pod.created):
        latest[_number(pod, _JOB), _number(pod, _COMPLETION)] = pod
    return [latest[place] for place in sorted(latest)]


def _ray_worker_mark(seen: ObservedRun, worker: int | None) -> str | None:
    """Return the mark in the lines of one Ray worker: Ray adds the host's address before the worker's output."""
    if worker is None or not seen.ray:
        return None
    pods = ray_workers(seen.pods or ())
    if worker >= len(pods):
        raise LauncherError(f"Worker {worker} was not found: the run has {len(pods)}, counted from 0.")
    return f"ip={pods[worker].address})"


def _left(seen: ObservedRun, worker: int | None) -> list[str]:
    """Return the available output of a run without a pod. Raises LauncherError if there is none."""
    if kept := states.log_tail(seen):
        return kept
    name, (state, _) = seen.run.name, states.classify(seen)
    if not state.ended:
        run = f"{name} -n {seen.run.namespace}"
        waits = state not in (State.RUNNING, State.RESTARTING)
        raise LauncherError(
            f'The run "{name}" is {state} and has written nothing yet.',
            f"To find out why: launcher explain {run}" if waits else f"To wait for its output: launcher logs -f {run}",
        )
    if seen.pods:
        return []
    raise LauncherError(f'The log of the run "{name}" was deleted with its pods.')


def container(pod: Pod) -> str:
    """Return the name of the trainer's container. Other containers belong to the storage and to Ray."""
    names = pod.container_names
    return next((name for name in ("trainer", "ray-head", "ray-worker") if name in names), "".join(names[:1]))


def _number(pod: Pod, key: str) -> int:
    return objects.counted(pod.label(key) or pod.annotation(key)) or 0


def _stamp(seconds: float) -> str:
    """Return seconds since 1970 as _comparable does."""
    return _comparable(f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S.%f}")


def _comparable(stamp: str) -> str:
    """Return an RFC 3339 time in UTC with nine digits of a second, so that the texts sort by time."""
    seconds, _, fraction = stamp.rstrip("Z").partition(".")
    return f"{seconds}.{fraction:0<9}"
