"""Runs the user's own program, run.command, on every host of a Ray cluster, in place of the training.

A host is a bundle of a placement group with all of its chips; its program is a child of an actor there and ends with
it. A failure on one host ends the program on all of them, and all start again, as often as run.maxRestarts says.
"""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

from trainer.config import RunConfig
from trainer.errors import ConfigError, GaveUp
from trainer.ray_driver import prepare_environment

_PR_SET_PDEATHSIG = 1


def replace_process(config: RunConfig) -> None:
    """Become the program; for one host without Ray. Raises ConfigError where it cannot be started."""
    try:
        os.execvp(config.command[0], config.command)  # noqa: S606 - running it is what the user asked for
    except OSError as error:
        raise ConfigError(_not_started(config, error)) from error


def run(config: RunConfig) -> None:
    """Run the program to its end on every host of the Ray cluster that RAY_ADDRESS names, or of one on this machine.

    Raises ConfigError where it cannot be started, GaveUp where no restart is left.
    """
    prepare_environment()
    import ray

    ray.init(logging_level="WARNING")
    try:
        left = config.max_restarts
        while True:
            failure, counts = _once(config)
            if failure is None:
                return
            if counts and left == 0:
                raise GaveUp(failure)
            left -= counts
            print(f"{failure} It starts again; {left} restarts are left.", flush=True)  # noqa: T201 - the run's log
    finally:
        ray.shutdown()


def _once(config: RunConfig) -> tuple[str | None, int]:
    """One start on all hosts: what failed (None: nothing), and whether it counts, 1 or 0."""
    import ray
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    chips = int(config.accelerator["chipsPerHost"])
    bundle = {"tpu": {"TPU": chips}, "gpu": {"GPU": chips}}.get(config.accelerator["kind"], {"CPU": 1})
    group = placement_group([dict(bundle) for _ in range(config.hosts)], strategy="SPREAD")
    ray.get(group.ready())
    ended: queue.Queue[tuple[int, int | BaseException]] = queue.Queue()
    try:
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
            threading.Thread(target=_follow, args=(config, index, actor, ended), daemon=True).start()
        for _ in range(config.hosts):
            index, end = ended.get()
            if isinstance(end, ray.exceptions.RayActorError):
                # A node that was told to go (a preemption, a drain) is nobody's failure.
                return f"Host {index} was lost.", 0 if getattr(end, "preempted", False) else 1
            if isinstance(end, ray.exceptions.RayTaskError) and isinstance(end.cause, OSError):
                raise ConfigError(_not_started(config, end.cause)) from end
            if isinstance(end, BaseException):
                raise end
            if end:
                return f"The command on host {index} ended with exit code {end}.", 1
        return None, 0
    finally:
        remove_placement_group(group)  # ends the actors, and with them what is left of the program


def _follow(config: RunConfig, index: int, actor: Any, ended: queue.Queue[tuple[int, int | BaseException]]) -> None:
    """Print what the host's program prints, as it does; put how it ended.

    Ray's own forwarding of what actors print may leave out the last lines.
    """
    import ray

    try:
        code = 1
        for reference in actor.run.options(num_returns="streaming").remote(config.command, _environment(config, index)):
            said = ray.get(reference)
            if isinstance(said, int):
                code = said
            else:
                print(f"(host {index}) {said}" if config.hosts > 1 else said, flush=True)  # noqa: T201 - the log
        ended.put((index, code))
    except BaseException as error:  # told to the main thread, which raises it
        ended.put((index, error))


class _Host:
    """One host's program."""

    def run(self, command: list[str], environment: dict[str, str]) -> Iterator[str | int]:
        """Each line that it prints, and in the end its exit code."""
        prctl = ctypes.CDLL(None).prctl
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),  # the actor may be killed at any time
        )
        assert process.stdout is not None  # noqa: S101 - for the type checker
        for line in process.stdout:
            yield line.rstrip("\n")
        yield process.wait()


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
