"""Readiness of a served model, after its release was installed."""

from __future__ import annotations

from launcher.k8s import label_keys, objects
from launcher.k8s.client import RAY_CLUSTER, Cluster
from launcher.k8s.objects import Manifest
from launcher.products.common import ray_hosts
from launcher.products.models.serving.models import ServedModel
from launcher.releases.readiness import Final


def not_ready(cluster: Cluster, live: Manifest) -> str:
    """Return why the RayService of a release does not answer; "" if it does."""
    called = f"RayService {objects.name(live)}"
    status = objects.status(live)
    if not status and live["spec"]["rayClusterConfig"].get("suspend"):
        queue = objects.label(live, label_keys.KUEUE_QUEUE)
        return f"{called} waits in the queue {queue} for its chips." if queue else f"{called} is suspended."
    model = ServedModel(live)
    if model.given_up:
        message = objects.condition(live, "Ready").message or model.given_up
        return Final(f"{called} failed: {message.rstrip('.')}.")
    if not model.observed:
        return f"{called}: KubeRay has not processed it yet."
    if model.answers and not model.pending:
        low, _ = model.replica_limits
        few = low is not None and model.replicas < low
        return f"{called}: {model.replicas} of at least {low} replicas answer." if few else ""
    if model.failure:
        return f"{called}: the model does not answer: {model.failure}."
    name = model.newest_cluster
    ray = cluster.get(RAY_CLUSTER, name, objects.namespace(live)) if name else None
    if ray is not None and (why := ray_hosts.not_ready(cluster, ray)):
        return why
    upgrade = " The old replicas still answer." if model.answers else ""
    return f"{called}: the model is being loaded.{upgrade}"
