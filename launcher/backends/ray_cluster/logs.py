"""The output of a run in a standing Ray cluster: its driver's log, whole or as it grows, of all workers or of one."""

from __future__ import annotations

import queue
import re
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator

from launcher.backends.ray_cluster.jobs import ENDED, RayJobs
from launcher.errors import LauncherError
from launcher.k8s.client import Response, Unreachable

# A stream in which nothing comes for so long is looked at again: a proxy may have dropped it without a word.
_SILENCE_SECONDS = 120.0
# Ray's "(RayTrainWorker pid=7, ip=10.0.0.1) ", without the address on the head's own node, before what a worker prints,
_WORKER = re.compile(r"^\(RayTrainWorker pid=(?P<pid>\d+)(?:, ip=(?P<ip>[^)]+))?\) ")
# what Ray Train says of each when they have started, and the trainer's mark where run.command runs on several hosts.
_RANK = re.compile(r"\(ip=(?P<ip>[^,]+), pid=(?P<pid>\d+)\) world_rank=(?P<rank>\d+)")
_HOST = re.compile(r"^\(host (?P<rank>\d+)\) ")
_KEPT_LINES = 2000


def lines(jobs: RayJobs, submission: str, *, follow: bool, pause: float) -> Iterator[str]:
    """The lines that the job's driver printed; with `follow`, until the job ends, over streams that are lost."""
    rest, count = b"", 0
    while True:
        try:
            # Asked before reading: what was printed before the end is read after it.
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
    """The lines of one worker, counted from 0. Raises LauncherError where the log knows others, but not this one.

    Which process is which worker Ray Train tells only after the first of their lines, so those wait for it.
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
            # On the head's own node the lines bear no address.
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
        raise LauncherError(f"There is no worker {worker}: the run has {len(known)}, counted from 0.")


def _after(parts: Iterable[bytes], count: int) -> Iterator[bytes]:
    """What comes after the first `count` bytes."""
    for part in parts:
        if count < len(part):
            yield part[count:]
        count = max(0, count - len(part))


def _live(jobs: RayJobs, submission: str, stream: Response | None, pause: float) -> Iterator[bytes]:
    """What comes in a stream that ends by itself only when it is lost, until the job has ended."""
    if stream is None:
        return
    arrived: queue.Queue[bytes | None] = queue.Queue()

    def read() -> None:
        try:
            for part in stream.parts():
                arrived.put(part)
        except (Unreachable, ValueError, AttributeError):  # lost, or cut below while it waited
            pass
        finally:
            arrived.put(None)
            stream.close()

    # Reading blocks, and the job's end shows elsewhere.
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
