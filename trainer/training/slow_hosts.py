"""Finds the slow host of a run: each host times a small calculation of its own, and the first host compares the times.

The hosts wait for each other in each step, so all of them report the same seconds for a step. A slow one only shows in
work that needs no other host: a calculation on its chips, while the chips of all hosts are idle after the same step,
and the time that it waits for its text. The times go through the key-value store of jax.distributed, not the storage.
"""

from __future__ import annotations

import json
import math
import os
import socket
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_SECONDS_BETWEEN_PROBES = 5.0
_SECONDS_BETWEEN_REPORTS = 10.0
_SAMPLES = 12
"""The probes of the last minute. A host that is paused now and then shows in their mean, not in their minimum."""
_LEAST_SAMPLES = 4
_LEAST_STEPS = 10
_SLOWER = 1.25
_SLOWER_ON_CPU = 1.5  # the hosts of a test share one machine
"""Times the median of the other hosts: less is normal."""
_LEAST_WAIT = 0.1
"""Seconds per step that a host must wait for text longer than the others, at least, and a fifth of the step."""
_PREFIX = "slipway/host/"


@dataclass(frozen=True)
class HostTimes:
    """The means of a host in the last minute, in seconds: the probe, the wait for text per step, and the step.

    `node` is the Kubernetes node of the host; "" if the host is not a pod, or its pod does not know it.
    """

    name: str
    probe: float
    wait: float
    step: float
    samples: int
    node: str = ""


@dataclass(frozen=True)
class SlowHost:
    """A slow host. `slower` is the part by which the probe or the step takes longer than on the other hosts."""

    host: int
    node: str
    slower: float
    message: str


def slow(times: Mapping[int, HostTimes], most: float) -> list[SlowHost]:
    """Return the hosts that are slower than `most` times the median of the others, slowest first."""
    known = {host: row for host, row in times.items() if row.samples >= _LEAST_SAMPLES}
    rows = []
    for host, row in known.items():
        others = [other for number, other in known.items() if number != host]
        if not others:
            continue
        probe, wait = (statistics.median(getattr(other, key) for other in others) for key in ("probe", "wait"))
        name = f"Host {host} ({row.name}{f' on the node {row.node}' if row.node else ''})"
        if row.probe > most * probe:
            slower = row.probe / probe - 1
            text = f"{name} is slow: the same calculation takes {slower:.0%} longer than on the other hosts."
            rows.append(SlowHost(host, row.node, slower, text))
        elif row.wait - wait > max(_LEAST_WAIT, row.step / 5):
            text = f"{name} waits {row.wait:.1f} s per step for its text, the other hosts {wait:.1f} s."
            rows.append(SlowHost(host, row.node, (row.wait - wait) / row.step, text))
    return sorted(rows, key=lambda row: -row.slower)


class SlowHosts:
    """The probe of one host. `report` receives each slow host once, on the first host, in a thread of this object."""

    def __init__(self, client: Any, host: int, report: Callable[[SlowHost], None]) -> None:
        """`client` is jax.distributed's, `host` the index of this process."""
        self._client, self._host, self._report = client, host, report
        self._work: Any = None
        self._probes: deque[float] = deque(maxlen=_SAMPLES)
        self._waits: deque[float] = deque(maxlen=50)
        self._steps: deque[float] = deque(maxlen=50)
        self._wait = 0.0
        self._last: float | None = None
        self._shared = time.monotonic()
        self._sharing = threading.Lock()
        self._before: set[int] = set()
        self._reported: set[int] = set()

    def waited(self, seconds: float) -> None:
        """Count seconds that this host waited for its text in the current step."""
        self._wait += seconds

    def after_step(self, done: int, loss: Any) -> None:
        """Time the probe after some steps: after the same ones on all hosts, because a probe delays all of them.

        `done` is the number of finished steps, `loss` the result of the last one.
        """
        at = time.perf_counter()
        if self._last is not None:
            self._steps.append(at - self._last)
            self._waits.append(self._wait)
        self._last, self._wait = at, 0.0
        if len(self._steps) < _LEAST_STEPS:
            return
        # A power of two, so that hosts whose clocks differ a little probe after the same steps.
        every = 2 ** max(0, round(math.log2(_SECONDS_BETWEEN_PROBES / max(1e-6, statistics.median(self._steps)))))
        if done % every:
            return
        loss.block_until_ready()
        self._probe()
        if time.monotonic() - self._shared >= _SECONDS_BETWEEN_REPORTS:
            self._shared = time.monotonic()
            threading.Thread(target=self._share, args=(self._times(),), name="slow-hosts", daemon=True).start()
        self._last = time.perf_counter()  # without the probe

    def _probe(self) -> None:
        first = self._work is None
        if first:
            self._work = _calculation()
        started = time.perf_counter()
        self._work()
        if not first:  # it compiles
            self._probes.append(time.perf_counter() - started)

    def _times(self) -> HostTimes:
        probe = statistics.mean(self._probes) if self._probes else 0.0
        wait, step = statistics.mean(self._waits), statistics.mean(self._steps)
        node = os.environ.get("SLIPWAY_NODE", "")
        return HostTimes(socket.gethostname(), probe, wait, step, len(self._probes), node)

    def _share(self, times: HostTimes) -> None:
        if not self._sharing.acquire(blocking=False):  # the one before has not ended
            return
        try:
            self._client.key_value_set(f"{_PREFIX}{self._host}", json.dumps(vars(times)), allow_overwrite=True)
            if self._host == 0:
                self._compare()
        except Exception:  # noqa: S110 - the coordinator ends with the run, and no measurement is worth a run
            pass
        finally:
            self._sharing.release()

    def _compare(self) -> None:
        import jax

        entries = self._client.key_value_dir_get(_PREFIX)
        times = {int(key.rpartition("/")[2]): HostTimes(**json.loads(value)) for key, value in entries}
        rows = slow(times, _SLOWER_ON_CPU if jax.default_backend() == "cpu" else _SLOWER)
        now = {row.host for row in rows}
        for row in rows:
            if row.host in self._before and row.host not in self._reported:  # twice in a row
                self._reported.add(row.host)
                self._report(row)
        self._reported &= now
        self._before = now


def _calculation() -> Callable[[], None]:
    """Return a function that multiplies matrices on all chips of this host: some milliseconds on CPU, one on a TPU."""
    import jax
    import jax.numpy as jnp

    size, times, kind = (256, 8, jnp.float32) if jax.default_backend() == "cpu" else (1024, 64, jnp.bfloat16)
    matrices = [jax.device_put(jnp.full((size, size), 1 / size, kind), device) for device in jax.local_devices()]
    multiply = jax.jit(lambda matrix: jax.lax.fori_loop(0, times, lambda _, product: product @ matrix, matrix))

    def work() -> None:
        jax.block_until_ready([multiply(matrix) for matrix in matrices])

    return work
