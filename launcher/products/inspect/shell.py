"""Start a command, or a shell, in the pod of a host of a run."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.backends.base import Backend, RunStatus
from launcher.backends.kubernetes import logs as kubernetes_logs
from launcher.errors import LauncherError
from launcher.k8s.client import Forbidden
from launcher.k8s.pods import Pod
from launcher.products.common import pod_exec

_SHELL = ("sh", "-c", "if command -v bash >/dev/null; then exec bash; else exec sh; fi")


def start(
    backend: Backend, status: RunStatus, worker: int, command: Sequence[str] = (), *, terminal: bool
) -> pod_exec.Session:
    """Start a command (default: a shell) in the pod of a host of the run, counted from 0.

    Raises LauncherError if the run has no such pod now, or if RBAC denies it.
    """
    cluster = backend.cluster
    if cluster is None:
        raise LauncherError(
            f'The run "{status.name}" is on this machine, so it has no pods. Its folder is {status.folder}.'
        )
    pod = _host(backend, status, worker)
    if pod.phase != "Running":
        raise LauncherError(
            f"The pod {pod.name} of worker {worker} is {pod.phase}; only a running pod can run a command.",
            f"launcher explain {status.name}{backend.cli_args} shows why it is not running.",
        )
    try:
        return pod_exec.start(cluster, pod.name, kubernetes_logs.container(pod), command or _SHELL, terminal=terminal)
    except Forbidden as error:
        raise LauncherError(
            error.message,
            f"teams.NAME.shell: true of charts/queues grants it to the members of a team. {error.hint}",
        ) from error


def _host(backend: Backend, status: RunStatus, worker: int) -> Pod:
    hosts = backend.hosts(status.name)
    if worker < len(hosts):
        return hosts[worker]
    if hosts:
        raise LauncherError(f"Worker {worker} was not found: the run has {len(hosts)}, counted from 0.")
    raise LauncherError(
        f'The run "{status.name}" is {status.state} and has no pods of hosts now.',
        f"To show why: launcher explain {status.name}{backend.cli_args}",
    )
