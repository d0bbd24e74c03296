"""Sets up jax.distributed without Ray: one process per host, as in the pods of a JobSet."""

from __future__ import annotations

import os
import socket

from trainer.config import RunConfig
from trainer.errors import ConfigError

_PORT = 8476
_INITIALIZATION_SECONDS = 300  # JAX's default
_REPLACEMENT_SECONDS = 3600  # a slice that JobSet creates again may wait for machines


def initialize(config: RunConfig) -> None:
    """Join the run's other processes. Does nothing for a run of one host.

    On TPU, JAX reads the other hosts from GKE's environment. Elsewhere the position of this process comes from
    SLIPWAY_COORDINATOR (host or host:port of process 0) and either SLIPWAY_HOST_INDEX or the variables of a JobSet's
    pods: JOB_INDEX (the slice) and JOB_COMPLETION_INDEX (the host in the slice). Raises ConfigError if they are
    missing or the coordinator's port is in use.
    """
    if config.hosts == 1:
        return
    import jax

    seconds = _REPLACEMENT_SECONDS if config.restarts_slices else _INITIALIZATION_SECONDS
    if config.accelerator["kind"] == "tpu":
        jax.distributed.initialize(initialization_timeout=seconds)
        return
    coordinator = os.environ.get("SLIPWAY_COORDINATOR", "")
    if not coordinator:
        raise ConfigError(
            f"The run has {config.hosts} hosts and no Ray, but SLIPWAY_COORDINATOR is not set: "
            "it is the address of process 0, the same in every process."
        )
    address, _, port = coordinator.partition(":")
    index = host_index(config)
    if index == 0:
        _require_free(int(port or _PORT))
    jax.distributed.initialize(f"{address}:{port or _PORT}", config.hosts, index, initialization_timeout=seconds)


def host_index(config: RunConfig) -> int:
    """Return the index of this process among all of the run's, from 0."""
    if config.hosts == 1:
        return 0
    given = os.environ.get("SLIPWAY_HOST_INDEX")
    if given is None and "JOB_COMPLETION_INDEX" in os.environ:
        per_slice = int(config.accelerator["hosts"])
        given = str(int(os.environ.get("JOB_INDEX", "0")) * per_slice + int(os.environ["JOB_COMPLETION_INDEX"]))
    if given is None or not given.isdigit() or int(given) >= config.hosts:
        raise ConfigError(
            f"SLIPWAY_HOST_INDEX is {given!r}; it must be this process's number, 0 to {config.hosts - 1} "
            "(or JOB_INDEX and JOB_COMPLETION_INDEX, as in a JobSet's pods)."
        )
    return int(given)


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            raise ConfigError(
                f"Port {port} of the coordinator is in use on this host; set another one in SLIPWAY_COORDINATOR."
            ) from error
