"""The preStop hook of the pods of a Ray cluster: `python -m trainer.prestop --seconds N`.

In a worker's pod it reports to Ray that the node is going away. Ray Train then notifies all workers of the run: they
agree on a step, write a checkpoint at it, and end, which does not count as a failure. With `--head`, in the head's pod,
where the whole run ends at once, it signals each driver (SIGUSR1, to trainer/driver_supervisor.py), which stops the
workers the same way. In both cases it waits until they have ended, for at most N seconds minus the time that Ray needs
to end. If the checkpoint cannot be written in that time, the last complete one is used.

With `--serve`, the pod has a replica of a served model (charts/serve). Ray Serve sends a draining node no new requests,
starts a replica elsewhere, and ends this one after its requests. The hook waits for that.

It imports only the standard library: a spot machine disappears 15 seconds after its notice.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_SECONDS_FOR_RAY = 3
# Ray Train checks once a second for draining nodes (trainer/ray_driver.py), and workers check a moment later.
_SECONDS_TO_BE_SEEN = 3
_SECONDS_TO_DRAIN = 15
_SECONDS_TO_ANSWER = 1
_PAUSE = 0.1
# Ray sets the title of an actor's process to the actor's class.
_TRAINING, _COMMAND = "ray::RayTrainWorker", "ray::_Host"
_REPLICA = "ray::ServeReplica:"


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    command: tuple[str, ...]

    def above(self, those: dict[int, Process]) -> Iterator[Process]:
        """Yield the ancestors of this process."""
        process = those.get(self.parent)
        while process is not None:
            yield process
            process = those.get(process.parent)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m trainer.prestop", description="Stop this node's training cleanly.")
    parser.add_argument("--seconds", type=float, required=True, help="seconds until the pod is killed")
    parser.add_argument("--head", action="store_true", help="this is the head's pod: notify the drivers")
    parser.add_argument("--serve", action="store_true", help="this pod serves a model: wait for its requests")
    parser.add_argument("--node-id", default="", help="Ray's id of the node, if a machine has several")
    arguments = parser.parse_args()
    began = time.monotonic()
    deadline = began + max(1.0, arguments.seconds - _SECONDS_FOR_RAY)
    node = arguments.node_id or _own_node()
    if not node:
        return 0  # Ray has ended already, or never started
    if arguments.head:
        _signal_drivers(node)
        _wait(deadline, lambda: not _drivers(node))
        return 0
    with _drain(node, arguments.seconds) as drain:

        def training() -> bool:
            return bool(_actors(node, *((_REPLICA,) if arguments.serve else (_TRAINING, _COMMAND))))

        def drained() -> bool:
            return drain.poll() is not None or not (training() or _answers(head))

        # If the whole cluster ends, Ray may be unreachable; the head's pod has then notified the workers. At
        # the end of a run there is no process left to notify.
        head = _head_of(node)
        _wait(min(deadline, began + _SECONDS_TO_DRAIN), drained)
        _wait(min(deadline, time.monotonic() + _SECONDS_TO_BE_SEEN), lambda: not training())
        _signal_programs(node)
        _wait(deadline, lambda: not training())
        return drain.poll() or 0


def _wait(deadline: float, over: Callable[[], bool]) -> None:
    while not over() and time.monotonic() < deadline:
        time.sleep(_PAUSE)


# --- a worker's pod -----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _drain(node: str, seconds: float) -> Iterator[subprocess.Popen[bytes]]:
    """Run Ray's command that drains the node. Kills the command on exit if it is still running."""
    command = [
        *("ray", "drain-node", "--node-id", node),
        *("--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "The pod is being stopped."),
        *("--deadline-remaining-seconds", str(int(seconds))),
    ]
    with subprocess.Popen(command) as process:
        try:
            yield process
        finally:
            process.kill()


def _own_node() -> str:
    """Return the id of this pod's Ray node, from the command line of its raylet, or "" if there is none."""
    return next((_node_of(process) for process in _processes().values() if _node_of(process)), "")


def _node_of(raylet: Process) -> str:
    if not raylet.command or not raylet.command[0].endswith("raylet"):
        return ""
    return next((word.removeprefix("--node_id=") for word in raylet.command if word.startswith("--node_id=")), "")


def _head_of(node: str) -> tuple[str, int] | None:
    """Return the address of Ray's control plane that the node's raylet uses."""
    option = "--gcs-address="
    for process in _processes().values():
        if _node_of(process) == node:
            for word in process.command:
                host, _, port = word.removeprefix(option).rpartition(":")
                if word.startswith(option) and port.isdigit():
                    return host.strip("[]"), int(port)
    return None


def _answers(head: tuple[str, int] | None) -> bool:
    """Return whether the address accepts connections; True if the address is unknown."""
    if head is None:
        return True
    with contextlib.suppress(OSError), socket.create_connection(head, timeout=_SECONDS_TO_ANSWER):
        return True
    return False


def _actors(node: str, *titles: str) -> list[Process]:
    """Return the processes of the node's raylet that have one of these titles."""
    return [process for process in _of_node(node, _processes()) if process.command[0].startswith(titles)]


def _of_node(node: str, those: dict[int, Process]) -> Iterator[Process]:
    """Yield the processes that the node's raylet started, directly or indirectly."""
    for process in those.values():
        if any(_node_of(above) == node for above in process.above(those)):
            yield process


def _signal_programs(node: str) -> None:
    """Send SIGTERM to the user's own programs (run.command), as in a pod without Ray."""
    hosts = {process.pid for process in _actors(node, _COMMAND)}
    for process in _processes().values():
        if process.parent in hosts:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)


# --- the head's pod -----------------------------------------------------------------------------------------------


def _is_trainer(process: Process) -> bool:
    words = process.command
    return any(words[at : at + 2] == ("-m", "trainer") for at in range(len(words)))


def _drivers(node: str) -> list[Process]:
    """Return the drivers. Each is a fork of its supervisor, and so has the same command line."""
    those = _processes()
    return [
        process
        for process in _of_node(node, those)
        if _is_trainer(process) and (above := those.get(process.parent)) and above.command == process.command
    ]


def _signal_drivers(node: str) -> None:
    for supervisor in {process.parent for process in _drivers(node)}:
        if _catches(supervisor, signal.SIGUSR1):
            with contextlib.suppress(ProcessLookupError):
                os.kill(supervisor, signal.SIGUSR1)


def _catches(pid: int, number: signal.Signals) -> bool:
    """Return whether the process has a handler for the signal. Without one the signal would end it."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _processes() -> dict[int, Process]:
    """Return every process of this pod (or machine) by its id, without zombies."""
    by_id = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                words = Path(entry.path, "cmdline").read_bytes().rstrip(b"\0").decode(errors="replace").split("\0")
                # "pid (name) state ppid …"; the name may contain any character, including parentheses.

                stat = Path(entry.path, "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
                if stat[0] not in "ZX":
                    by_id[int(entry.name)] = Process(int(entry.name), int(stat[1]), tuple(words))
    return by_id


if __name__ == "__main__":
    sys.exit(main())
