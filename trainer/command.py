"""Runs the user's own program, run.command, on every host of a Ray cluster, in place of the training.

A host is a bundle of a placement group with all of its chips; its program is a child of an actor there and ends with
it. A failure on one host ends the program on all of them, and all start again, as often as run.maxRestarts says.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
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
    try:
        host = ray.remote(_Host)
        actors = [
            host.options(
                num_cpus=bundle.get("CPU", 0),
                resources={key: value for key, value in bundle.items() if key == "TPU"},
                num_gpus=bundle.get("GPU", 0),
                scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
            ).remote()
            for index in range(config.hosts)
        ]
        hosts = {
            actor.run.remote(config.command, _environment(config, index)): index for index, actor in enumerate(actors)
        }
        waiting = list(hosts)
        while waiting:
            [done], waiting = ray.wait(waiting, num_returns=1)
            try:
                code = ray.get(done)
            except ray.exceptions.RayActorError as error:
                # A node that was told to go (a preemption, a drain) is nobody's failure.
                gone = bool(getattr(error, "preempted", False))
                return f"Host {hosts[done]} was lost.", 0 if gone else 1
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, OSError):
                    raise ConfigError(_not_started(config, error.cause)) from error
                raise
            if code:
                return f"The command on host {hosts[done]} ended with exit code {code}.", 1
        return None, 0
    finally:
        remove_placement_group(group)  # ends the actors, and with them what is left of the program


class _Host:
    """One host's program."""

    def run(self, command: list[str], environment: dict[str, str]) -> int:
        prctl = ctypes.CDLL(None).prctl
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),  # the actor may be killed at any time
        )
        return process.wait()


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
