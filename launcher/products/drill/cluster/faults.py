"""The faults of a drill in a cluster: each touches only the objects of the drill.

The API server is not stopped, nor a node drained: other users would lose them, too. The eviction of a pod is what a
drain does to it, and outage.py takes the API server from a command of the drill.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from launcher import api
from launcher.backends.base import State
from launcher.config.kinds import RunKind
from launcher.errors import LauncherError
from launcher.k8s import label_keys
from launcher.k8s.client import POD, Cluster
from launcher.k8s.pods import Pod, newest
from launcher.k8s.rbac import Permission
from launcher.products.drill.cluster import access, outage, process
from launcher.products.drill.cluster.run import ClusterRun
from launcher.products.drill.faults import TRAINER, WORKER, Fault

_WAITS = (State.QUEUED, State.ADMITTED, State.STARTING)


@dataclass(frozen=True)
class ClusterFault(Fault[ClusterRun]):
    """A fault in a cluster, for runs of these `kinds`. `rights` are what it needs beyond a run; `preempts`: a run of
    a higher priority takes the quota of the run; `impossible` returns why it cannot be injected with this cluster."""

    rights: tuple[Permission, ...] = ()
    kinds: tuple[RunKind, ...] = (RunKind.RAY_JOB, RunKind.JOB_SET)
    preempts: bool = False
    impossible: Callable[[Cluster], str] = lambda _: ""


def _host(run: ClusterRun) -> Pod:
    hosts = run.place.backend.hosts(run.name)
    if not hosts:
        raise LookupError("the run has no pods")
    return hosts[-1]


def _head(run: ClusterRun) -> Pod:
    head = newest(pod for pod in run.pods() if pod.label(label_keys.RAY_NODE_TYPE) == "head")
    if head is None:
        raise LookupError("the run has no head")
    return head


def _delete(run: ClusterRun, pod: Pod) -> None:
    """Delete a pod without a grace period, as if its machine were gone."""
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    _send(run, "DELETE", pod, "", {**options, "preconditions": {"uid": pod.uid}})


def _evict(run: ClusterRun, pod: Pod) -> None:
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod.name}}
    _send(run, "POST", pod, "/eviction", eviction)


def _send(run: ClusterRun, method: str, pod: Pod, subresource: str, body: Mapping[str, object]) -> None:
    path = f"{POD.path(pod.namespace)}/{pod.name}{subresource}"
    headers = {"Content-Type": "application/json"}
    run.place.cluster.request(method, path, body=json.dumps(body).encode(), headers=headers)


def _kill_process(run: ClusterRun) -> None:
    ray = run.place.kind is RunKind.RAY_JOB
    process.kill(run.place.cluster, _host(run), WORKER if ray else TRAINER)


def _preempt(run: ClusterRun) -> None:
    """Submit a run of a higher priority, wait until it holds the quota, and cancel it."""
    place = run.place
    plan = place.urgent()
    if refused := place.others().against_preemption():
        raise LauncherError(refused)
    if api.backend_for(plan, place.target).has_room(plan):
        raise LauncherError(
            "The queue has room for both runs, so none would be preempted; use a queue whose quota the training fills."
        )
    with place.submitted(plan):
        deadline = time.monotonic() + place.patience
        while (now := api.status(plan.name, target=place.target)).state in _WAITS:
            if run.status().state.ended:
                raise LauncherError("The run ended before another run took its quota; set more train.steps.")
            if time.monotonic() > deadline:
                raise LauncherError(f"The run of a higher priority is still {now.state}: {now.reason}")
            time.sleep(place.pause)


FAULTS: tuple[ClusterFault, ...] = (
    ClusterFault(
        "process-killed",
        "SIGKILL to the process that trains in the pod of a host, which stays",
        _kill_process,
        rights=access.EXEC,
        in_place=True,
    ),
    ClusterFault(
        "pod-killed",
        "the pod of a host is deleted without a grace period, as if its machine were gone",
        lambda run: _delete(run, _host(run)),
        rights=(access.DELETE_PODS,),
    ),
    ClusterFault(
        "head-killed",
        "the pod of Ray's head, with the driver, is deleted without a grace period",
        lambda run: _delete(run, _head(run)),
        rights=(access.DELETE_PODS,),
        kinds=(RunKind.RAY_JOB,),
    ),
    ClusterFault(
        "evicted",
        "the pod of a host is evicted, as by the drain of its node",
        lambda run: _evict(run, _host(run)),
        free=True,
        notified=("preempted", "ended"),
        rights=(access.EVICT_PODS,),
    ),
    ClusterFault(
        "preempted",
        "a run of a higher priority takes the quota, and gives it back",
        _preempt,
        free=True,
        notified=("preempted", "ended"),
        preempts=True,
    ),
    ClusterFault(
        "api-server-gone",
        "for a minute, the command that follows the run does not reach the API server",
        outage.cut_off,
        notified=("ended",),
        apart=True,
        impossible=outage.impossible,
        undo=outage.end,
        check=outage.problems,
    ),
    ClusterFault(
        "webhook-down",
        "the webhook refuses connections",
        lambda _: None,
        free=True,
        notified=(),
        silent=True,
    ),
)
