"""The logs of a served model's pods: of its head, or of a host.

The log of a host has the output of its replica, because charts/serve sets RAY_LOG_TO_STDERR. On the head, Ray writes
the logs of its actors to files in the pod. KubeRay copies the messages of Ray Serve's controller to the RayService.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

from launcher.backends.kubernetes.logs import container, ray_workers
from launcher.backends.log_excerpt import WHOLE, Excerpt
from launcher.errors import LauncherError
from launcher.k8s import label_keys
from launcher.k8s.client import Cluster, Unreachable
from launcher.k8s.errors import Invalid, NotFound
from launcher.k8s.pods import Pod, newest
from launcher.products.models.serving import models
from launcher.products.models.serving.models import ServedModel


class _NothingWritten(LauncherError):
    """A pod has no log yet."""


def lines(
    cluster: Cluster,
    model: ServedModel,
    *,
    follow: bool,
    worker: int | None,
    excerpt: Excerpt = WHOLE,
    pause: float = 2.0,
) -> Iterator[str]:
    """Yield the log of the newest head, or of a host, by line.

    With `follow`, continue with the pod that replaces it, until the served model is deleted. A line is not repeated
    after a lost connection.
    """
    pod = _pod(cluster, model, worker)
    if pod is None:
        raise _no_pods(model)
    tail = excerpt.tail
    since = "" if excerpt.since is None else f"{datetime.fromtimestamp(excerpt.since, UTC):%Y-%m-%dT%H:%M:%S}Z"
    last, count = "", 0  # the time of the last line, and the number of lines with this time
    while True:
        skip = count
        try:
            stream = cluster.logs(
                pod.name, container=container(pod), follow=follow, tail=tail, since=since or None, timestamps=True
            )
            for raw in stream:
                stamp, _, text = raw.partition(" ")
                if stamp < last:
                    continue
                if stamp == last and skip:
                    skip -= 1
                    continue
                last, count = stamp, count + 1 if stamp == last else 1
                yield text
        except (Invalid, NotFound) as error:
            if not follow:  # the container has not started, or the pod was just deleted
                raise _NothingWritten(
                    f'The pod {pod.name} of the served model "{model.name}" has written nothing yet.',
                    f"To find out why: launcher explain {model.name} -n {model.namespace}",
                ) from error
        except Unreachable:
            if not follow:
                raise
        if not follow:
            return
        time.sleep(pause)
        try:
            now = models.named(cluster, model.name)
            if now is None:
                return
            replacement = _pod(cluster, now, worker)
        except Unreachable:
            continue
        if replacement is not None and replacement.uid != pod.uid:
            pod, tail, since, last, count = replacement, None, "", "", 0
        elif last:
            tail, since = None, f"{last.rstrip('Z').partition('.')[0]}Z"


def not_ready(cluster: Cluster, model: ServedModel, *, excerpt: Excerpt = WHOLE) -> Iterator[str]:
    """Yield the logs of the head and of each host, and the messages of Ray Serve's controller, each after a title.

    For a model that does not answer: a replica that fails may be on any host. `excerpt` selects lines of each log.
    """
    head = _pod(cluster, model, None)
    if head is None:
        raise _no_pods(model)
    pods, newest_cluster = models.pods_of(cluster, model), head.label(label_keys.RAY_CLUSTER)
    own = [pod for pod in pods if pod.label(label_keys.RAY_CLUSTER) == newest_cluster]
    for number in (None, *range(len(ray_workers(own)))):
        try:
            printed = list(lines(cluster, model, follow=False, worker=number, excerpt=excerpt))
        except _NothingWritten as error:  # a pod that has not started must not hide the others
            printed = [error.message]
        yield "==> head <==" if number is None else f"==> worker {number} <=="
        yield from printed
    messages = list(_serve_messages(model))
    if messages:
        yield "==> Ray Serve <=="
        yield from messages


def _no_pods(model: ServedModel) -> LauncherError:
    return LauncherError(
        f'The served model "{model.name}" is {model.state_and_reason[0]} and has no pods yet.',
        f"To find out why: launcher explain {model.name} -n {model.namespace}",
    )


def _serve_messages(model: ServedModel) -> Iterator[str]:
    applications = (model.pending or model.active).get("applicationStatuses") or {}
    for name, application in applications.items():
        parts = {f"application {name}": application}
        for deployment, status in (application.get("serveDeploymentStatuses") or {}).items():
            parts[f"deployment {deployment}"] = status
        for what, status in parts.items():
            title, _, rest = (status.get("message") or "").strip().partition("\n")
            yield f"{what} is {status.get('status')}" + (f": {title}" if title else "")
            yield from rest.splitlines()


def _pod(cluster: Cluster, model: ServedModel, worker: int | None) -> Pod | None:
    """Return the head, or a host of the newest Ray cluster that has pods; None without pods."""
    pods = models.pods_of(cluster, model)
    for name in (model.newest_cluster, str(model.active.get("rayClusterName") or "")):
        own = [pod for pod in pods if pod.label(label_keys.RAY_CLUSTER) == name]
        if not own:
            continue
        if worker is None:
            return newest(pod for pod in own if pod.label(label_keys.RAY_NODE_TYPE) == "head")
        hosts = ray_workers(own)
        if worker >= len(hosts):
            raise LauncherError(
                f'Host {worker} was not found: the served model "{model.name}" has {len(hosts)}, counted from 0.',
                f"To show its pods: launcher status {model.name} -n {model.namespace}",
            )
        return hosts[worker]
    return None
