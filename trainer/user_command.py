"""Runs the user's own program, run.command, on every host of a Ray cluster instead of the training.

Each host is a bundle of a placement group with all chips of the host. Its program is a child of an actor in the bundle
and ends with the actor. If the program fails on one host, it ends on all hosts, and all start again, up to
run.maxRestarts times. A failure while a node of the run is going away (a preemption, a drain) is not counted.
"""

from __future__ import annotations

import codecs
import contextlib
import ctypes
import io
import os
import queue
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

from trainer.config import RunConfig
from trainer.errors import PASSING, ConfigError, RestartsExhausted
from trainer.failures import describe
from trainer.metrics import event_line, print_event
from trainer.ray_driver import prepare_environment, private_folder, start_ray

_PR_SET_PDEATHSIG = 1
# Ray sets these in its actors, for its own tasks.
_RAYS_OWN = {"OMP_NUM_THREADS", "PYTHONBREAKPOINT"}
SECONDS_BETWEEN_MESSAGES = 60
_LOG_DRAIN_SECONDS = 1


def replace_process(config: RunConfig) -> None:
    """Replace this process with the program, for one host without Ray. Raises ConfigError if it can never start."""
    try:
        os.execvp(config.command[0], config.command)  # noqa: S606 - running it is what the user asked for
    except OSError as error:
        if error.errno in PASSING:
            raise
        raise ConfigError(_not_started(config, error)) from error


def run(config: RunConfig) -> None:
    """Run the program to its end on every host of the Ray cluster in RAY_ADDRESS, or on this machine.

    Raises ConfigError if the program can never start, RestartsExhausted if no restart is left.
    """
    local = prepare_environment()
    import ray

    folder = private_folder() if local else None
    if folder:
        start_ray(config, folder, processes=config.hosts)
    else:
        ray.init(logging_level="WARNING")
    pod = _Pod()
    try:
        with _Drains() as drains:
            left = config.max_restarts
            while True:
                failure, counts = _once(config, drains, pod, local=local)
                if failure is None:
                    break
                if pod.stops:
                    raise RestartsExhausted(f"{failure} The head's pod received a stop signal.")
                if counts and left == 0:
                    raise RestartsExhausted(failure)
                left -= counts
                print_event(event_line("worker_failed", message=failure))
                print(f"{failure} The command restarts; {left} restarts are left.", flush=True)  # noqa: T201 - the log
    finally:
        ray.shutdown()
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


class _Drains:
    """Tracks the nodes that are draining. Polls once a second, because Ray does not report a node that is gone."""

    def __init__(self) -> None:
        self._nodes: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="drains", daemon=True)

    def __enter__(self) -> _Drains:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(5)

    def among(self, nodes: dict[int, str]) -> list[int]:
        """Return the hosts whose nodes have started to drain so far."""
        self._poll()
        return sorted(index for index, node in nodes.items() if node in self._nodes)

    def _watch(self) -> None:
        while not self._over.wait(1):
            self._poll()

    def _poll(self) -> None:
        from ray._private.state import state

        # Ray's control plane may be busy. The next poll is a second later.
        with contextlib.suppress(Exception):
            self._nodes.update(state.get_draining_nodes() or {})


class _Pod:
    """The head's pod, which may receive a request to end (SIGUSR1, trainer/prestop.py).

    The programs receive the request from their own pods. This process stays until they have ended.
    """

    def __init__(self) -> None:
        self.stops = self.busy = False
        signal.signal(signal.SIGUSR1, self._signalled)

    def _signalled(self, *_: object) -> None:
        self.stops = True
        if not self.busy:
            raise SystemExit(1)


def _once(config: RunConfig, drains: _Drains, pod: _Pod, *, local: bool) -> tuple[str | None, int]:
    """Start once on all hosts. Returns the failure (None: none) and whether it counts, 1 or 0."""
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    chips = int(config.accelerator["chipsPerHost"])
    bundle = {"tpu": {"TPU": chips}, "gpu": {"GPU": chips}}.get(config.accelerator["kind"], {"CPU": 1})
    # In a cluster each node is a host. A local run has a single node for all hosts.
    strategy = "SPREAD" if local or config.hosts == 1 else "STRICT_SPREAD"
    group = placement_group([dict(bundle) for _ in range(config.hosts)], strategy=strategy)
    nodes: dict[int, str] = {}
    ended: queue.Queue[tuple[int, int | BaseException]] = queue.Queue()
    try:
        _wait_for(group, config.hosts, bundle)
        pod.busy = True
        print_event(event_line("command_started", hosts=config.hosts))
        for index in range(config.hosts):
            actor = (
                ray.remote(_Host)
                .options(
                    num_cpus=bundle.get("CPU", 0),
                    resources={key: value for key, value in bundle.items() if key == "TPU"},
                    num_gpus=bundle.get("GPU", 0),
                    scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
                )
                .remote()
            )
            threading.Thread(target=_follow, args=(config, index, actor, nodes, ended), daemon=True).start()
        for _ in range(config.hosts):
            index, end = ended.get()
            failure = failure_of(config, index, end)
            if failure is None:
                continue
            # The first host to fail may be one that lost its connection to the host that is going away.
            if going := drains.among(nodes.copy()):
                return f"{failure} The node of host {going[0]} is draining, so this failure does not count.", 0
            return failure, 0 if getattr(end, "preempted", False) else 1
        return None, 0
    finally:
        pod.busy = False
        remove_placement_group(group)  # ends the actors, and with them the rest of the program


def _wait_for(group: Any, hosts: int, bundle: dict[str, int]) -> None:
    """Wait until all hosts are available, for as long as that takes. Periodically prints what it waits for."""
    import ray

    ready = group.ready()
    ((name, amount),) = bundle.items()
    while not ray.wait([ready], timeout=SECONDS_BETWEEN_MESSAGES)[0]:
        there = [int(node["Resources"].get(name, 0)) for node in ray.nodes() if node["Alive"]]
        print(  # noqa: T201 - the run's log
            f"Waiting for {hosts} hosts with {amount} free {name} each; "
            f"{name} of Ray's {len(there)} nodes now: {', '.join(map(str, there))}.",
            flush=True,
        )


def failure_of(config: RunConfig, index: int, end: int | BaseException) -> str | None:
    """Return a sentence for how a host's program failed, None on success. Raises errors that no restart can fix."""
    import ray

    if isinstance(end, int):
        return f"The command on host {index} ended with exit code {end}." if end else None
    if isinstance(end, ray.exceptions.RayActorError):
        return f"Host {index} was lost."
    if isinstance(end, ray.exceptions.RayTaskError):
        if isinstance(end.cause, OSError):
            if end.cause.errno not in PASSING:
                raise ConfigError(_not_started(config, end.cause)) from end
            return f"Host {index}: {_not_started(config, end.cause)}"
        return f"Host {index} was lost ({describe(end.cause or end)})."
    if isinstance(end, ray.exceptions.RayError):
        return f"Host {index} was lost ({describe(end)})."
    raise end


def _follow(
    config: RunConfig,
    index: int,
    actor: Any,
    nodes: dict[int, str],
    ended: queue.Queue[tuple[int, int | BaseException]],
) -> None:
    """Print the output of the host's program as it arrives. Records its node and puts its result in the queue.

    Ray's own forwarding of actor output may lose the last lines.
    """
    import ray

    try:
        nodes[index] = ray.get(actor.node.remote())
        code = 1
        for reference in actor.run.options(num_returns="streaming").remote(config.command, _environment(config, index)):
            item = ray.get(reference)
            if isinstance(item, int):
                code = item
            else:
                print(f"(host {index}) {item}" if config.hosts > 1 else item, flush=True)  # noqa: T201 - the log
        ended.put((index, code))
    except BaseException as error:  # passed to the main thread, which raises it
        ended.put((index, error))


class _Host:
    """One host's program."""

    def node(self) -> str:
        """Return Ray's id of this node."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def run(self, command: list[str], environment: dict[str, str]) -> Iterator[str | int]:
        """Yield each line of output, then the exit code."""
        prctl = ctypes.CDLL(None).prctl
        process = subprocess.Popen(
            command,
            env={**{name: value for name, value in os.environ.items() if name not in _RAYS_OWN}, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),  # the actor may be killed at any time
        )
        assert process.stdout is not None  # noqa: S101 - for the type checker
        # Ray sends to generators, which a nested list does not support.
        for line in _lines(process, process.stdout.fileno()):  # noqa: UP028
            yield line
        yield process.wait()


def _lines(process: subprocess.Popen[bytes], pipe: int) -> Iterator[str]:
    """Yield the program's output until it exits. A child that it leaves behind may keep the pipe open indefinitely."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    begun = ""
    deadline: float | None = None
    while deadline is None or time.monotonic() < deadline:
        if deadline is None and process.poll() is not None:
            deadline = time.monotonic() + _LOG_DRAIN_SECONDS
        if not poll.poll(200):
            continue
        output = os.read(pipe, 1 << 16)
        if not output:
            break
        *whole, begun = (begun + decoder.decode(output)).split("\n")
        yield from whole
    begun += decoder.decode(b"", final=True)
    if begun:
        yield begun.removesuffix("\n")


def _environment(config: RunConfig, index: int) -> dict[str, str]:
    given: dict[str, Any] = (config.tree.get("worker") or {}).get("env") or {}
    return {
        **{name: str(value) for name, value in given.items()},
        "PYTHONUNBUFFERED": "1",
        "SLIPWAY_HOST_INDEX": str(index),
        "SLIPWAY_HOSTS": str(config.hosts),
        "SLIPWAY_RUN_FOLDER": str(config.folder),
    }


def _not_started(config: RunConfig, error: OSError) -> str:
    return f'run.command: the program "{config.command[0]}" cannot be started: {error.strerror}.'
