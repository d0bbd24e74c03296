"""Kill the process that trains in a pod, and not the pod: SIGKILL from a command in its container."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from launcher.backends.kubernetes.logs import container
from launcher.k8s.client import Cluster
from launcher.k8s.pods import Pod
from launcher.products.common import pod_exec

_PROGRAM = """
import os, pathlib, signal, sys

def command_line(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(bytes(1), b" ").decode(errors="replace")
    except OSError:  # it has just ended
        return ""

pids = [int(each) for each in os.listdir("/proc") if each.isdigit() and int(each) != os.getpid()]
found = sorted(pid for pid in pids if sys.argv[1] in command_line(pid))
if not found:
    sys.exit(f'it has no process "{sys.argv[1].strip()}"')
os.kill(found[-1], signal.SIGKILL)
"""


def command(pattern: str) -> Sequence[str]:
    """Return a command that kills the newest process with `pattern` in its command line, in the same container."""
    return ["python", "-c", _PROGRAM, pattern]


def kill(cluster: Cluster, pod: Pod, pattern: str) -> None:
    """Run that command in the pod. Raises LookupError if it fails, and ClusterError if it cannot be started."""
    printed = b""
    with contextlib.closing(
        pod_exec.start(cluster, pod.name, container(pod), command(pattern), terminal=False)
    ) as session:
        while session.exit_code is None:
            printed += b"".join(content for _, content in session.messages())
    if session.exit_code:
        raise LookupError(f"the pod {pod.name}: {printed.decode(errors='replace').strip()}")
