"""The output of a run in a long-lived Ray cluster: its driver's log, whole or as a stream, of all workers or of one."""

from __future__ import annotations

import queue
import re
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator

from launcher.errors import LauncherError
from launcher.k8s.client import Response, Unreachable
from launcher.products.ray_cluster.jobs import ENDED, RayJobs

# A stream without data for this long is opened again: a proxy may have dropped it silently.
_SILENCE_SECONDS = 120.0
# The prefix of a worker's output, "(RayTrainWorker pid=7, ip=10.0.0.1) ", without the address on the head's own node.
_WORKER = re.compile(r"^\(RayTrainWorker pid=(?P<pid>\d+)(?:, ip=(?P<ip>[^)]+))?\) ")
# Ray Train's line about each worker after the start, and the trainer's mark if run.command runs on several hosts.
_RANK = re.compile(r"\(ip=(?P<ip>[^,]+), pid=(?P<pid>\d+)\) world_rank=(?P<rank>\d+)")
_HOST = re.compile(r"^\(host (?P<rank>\d+)\) ")
_KEPT_LINES = 2000


def lines(jobs: RayJobs, submission: str, *, follow: bool, pause: float) -> Iterator[str]:
    """Yield the lines of the job's driver; with `follow`, until the job ends, reopening lost streams."""
    rest, count = b"", 0
    while True:
        try:
            # Get the status before reading, so that all output before the end is read.
            job = jobs.get(submission)
            if job is None:
                break
            over = not follow or job["status"] in ENDED
            parts = (
                jobs.log(job) if over else _live(jobs, submission, jobs.follow(job, silence=_SILENCE_SECONDS), pause)
            )
            for part in _after(parts, count):
                count += len(part)
                *whole, rest = (rest + part).split(b"\n")
                yield from (line.decode("utf-8", "replace") for line in whole)
        except Unreachable:
            if not follow:
                raise
            over = False
        if over:
            break
        time.sleep(pause)
    if rest:
        yield rest.decode("utf-8", "replace")


def of_worker(source: Iterable[str], worker: int) -> Iterator[str]:
    """Yield the lines of one worker, counted from 0. Raises LauncherError if the log has only other workers.

    Ray Train reports the rank of a process only after its first lines, so these lines are buffered until then.
    """
    ranks: dict[tuple[str, str], int] = {}  # by process id and address
    waiting: deque[tuple[tuple[str, str], str]] = deque(maxlen=_KEPT_LINES)
    known: set[int] = set()
    for line in source:
        if match := _HOST.match(line):
            known.add(int(match["rank"]))
            if int(match["rank"]) == worker:
                yield line
        elif match := _RANK.search(line):
            known.add(int(match["rank"]))
            # On the head's own node, the lines have no address.
            ranks[match["pid"], match["ip"]] = ranks[match["pid"], ""] = int(match["rank"])
            begun = [text for key, text in waiting if ranks.get(key) == worker]
            waiting = deque((entry for entry in waiting if entry[0] not in ranks), maxlen=_KEPT_LINES)
            yield from begun
        elif match := _WORKER.match(line):
            key = match["pid"], match["ip"] or ""
            if key not in ranks:
                waiting.append((key, line))
            elif ranks[key] == worker:
                yield line
    if known and worker not in known:
        raise LauncherError(f"Worker {worker} was not found: the run has {len(known)}, counted from 0.")


def _after(parts: Iterable[bytes], count: int) -> Iterator[bytes]:
    """Yield the data after the first `count` bytes."""
    for part in parts:
        if count < len(part):
            yield part[count:]
        count = max(0, count - len(part))


def _live(jobs: RayJobs, submission: str, stream: Response | None, pause: float) -> Iterator[bytes]:
    """Yield the parts of a stream until the job has ended. The stream ends by itself only if it is lost."""
    if stream is None:
        return
    arrived: queue.Queue[bytes | None] = queue.Queue()

    def read() -> None:
        try:
            for part in stream.parts():
                arrived.put(part)
        except (Unreachable, ValueError, AttributeError):  # lost, or cut below while reading
            pass
        finally:
            arrived.put(None)
            stream.close()

    # Reading blocks, and the stream does not show the job's end.
    threading.Thread(target=read, daemon=True).start()
    try:
        while True:
            try:
                part = arrived.get(timeout=pause)
            except queue.Empty:
                job = jobs.get(submission)
                if job is None or job["status"] in ENDED:
                    return
                continue
            if part is None:
                return
            yield part
    finally:
        stream.cut()
