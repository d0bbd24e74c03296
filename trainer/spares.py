"""Keeps processes ready, in a run under Ray on this machine, that take over after a failure of a worker.

After a failure Ray Train starts new workers for all hosts. Each is a new process that imports Ray, JAX and MaxText,
which is half of the time of a restart. Ray gives an actor a process that it started in advance, if the process has the
same runtime environment and has not run anything. So, when a run trains, its first worker asks Ray for such processes
(the RPC PrestartWorkers), and the hook that Ray calls in each new process of a worker does the imports. A spare does
not start JAX's backend, so it does not touch the chips.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

from trainer import deferred_imports
from trainer.metrics import print_line

HOOK = {"__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR": "trainer.spares.prepare"}
"""The variable by which Ray's workers find `prepare`: `worker_process_setup_hook` sets it for a whole job, too."""
SWITCH = "SLIPWAY_SPARES"
"""The variable that turns spares off with "0"."""
# A spare has 0.25 GB of its own memory, and shares as much with other processes.
_FREE_BYTES = 1 << 30
_KEEP_SECONDS = 10 * 365 * 24 * 3600
_TIMEOUT_SECONDS = 10.0

_is_spare = False


def are_wanted() -> bool:
    """Return whether the values allow processes that wait for a failure (`worker.env` can set SLIPWAY_SPARES to 0)."""
    return os.environ.get(SWITCH) != "0"


def prepare() -> None:
    """In a process of Ray, before it can become a worker: import what a training imports, if it is a spare."""
    global _is_spare
    try:
        if not _store("exists"):
            return
        deferred_imports.import_training()
        importlib.import_module("ray.train.v2.jax")
        importlib.import_module("trainer.ray_driver")
        _is_spare = True
        importlib.import_module("ray._raylet").setproctitle("ray::SPARE")  # until it is a worker
    except Exception as error:  # Ray ends a process whose hook fails
        print_line(f"A spare process could not be prepared: {error!r}.")


def take() -> None:
    """In a worker, before it trains: report whether its process was a spare, so that it needs a new one."""
    if _is_spare:
        print_line("start: in a spare process, whose imports were done in advance")
        _store("del")


def start(count: int) -> None:
    """In a worker that trains: start `count` spares on its host, for the next workers. Never fails.

    It starts none if SLIPWAY_SPARES is "0", if the host has less than 2 GiB of free memory for each, or if Ray did not
    use the earlier ones.
    """
    if not count or not are_wanted():
        return
    try:
        _start(count)
    except Exception as error:  # an internal RPC, which another version of Ray may not have
        print_line(f"No spare process was started, so the next restart takes longer: {error!r}.")


def _start(count: int) -> None:
    if _store("exists"):
        print_line("No spare process was started, because Ray has not used the last one.")
        return
    import ray
    from ray._private.grpc_utils import init_grpc_channel
    from ray._private.utils import get_system_memory, get_used_memory
    from ray.core.generated import common_pb2, node_manager_pb2, node_manager_pb2_grpc

    free = get_system_memory() - get_used_memory()
    if free < (count + 1) * _FREE_BYTES:
        print_line(f"No spare process was started: {free >> 20} MiB of memory are free on this host.")
        return
    context = ray.get_runtime_context()
    node = next(node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
    request = node_manager_pb2.PrestartWorkersRequest(
        language=common_pb2.PYTHON,
        job_id=bytes.fromhex(context.get_job_id()),
        keep_alive_duration_secs=_KEEP_SECONDS,
        num_workers=count,
    )
    # Ray compares this text with that of the worker that it starts.
    request.runtime_env_info.serialized_runtime_env = context.get_runtime_env_string()
    request.runtime_env_info.runtime_env_config.setup_timeout_seconds = 600
    _store("put", b"1")
    with init_grpc_channel(f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}") as channel:
        node_manager_pb2_grpc.NodeManagerServiceStub(channel).PrestartWorkers(request, timeout=_TIMEOUT_SECONDS)


def _store(action: str, *value: bytes) -> Any:
    """Put, delete or look up the key of Ray's key-value store that exists while this host has spares for this job."""
    import ray
    from ray.experimental import internal_kv

    context = ray.get_runtime_context()
    key = f"slipway/spares/{context.get_job_id()}/{context.get_node_id()}".encode()
    return getattr(internal_kv, f"_internal_kv_{action}")(key, *value)
