"""RayServices of the fake KubeRay: their clusters, Services and status. Only for tests of the suite; see __init__.py.

It follows rayservice_controller.go of KubeRay 1.7 for the strategies NewCluster and None: the pending cluster that
becomes the active one when its application runs, the hash of the cluster's spec without its numbers of replicas, so
that a change of these numbers alone changes nothing (issue 2331), and a changed `suspend` that replaces the cluster's
spec (pull request 4739). It writes the statuses of tests/cluster/fake_kuberay.py.

Unlike the real one, it reports that a suspended service is not ready. Upstream returns before it writes the status if
the head has no pod, and Kueue then waits until the suspended service is not ready.
"""

from __future__ import annotations

import json
import secrets
import time
from typing import Any

import yaml

from tests.cluster.api import Api, Object, path_of
from tests.cluster.fake_controllers import Conditions, is_true
from tests.e2e.fakes.replicas import Replicas

_SERVICE = {"apiVersion": "ray.io/v1", "kind": "RayService"}
_CLUSTER = {"apiVersion": "ray.io/v1", "kind": "RayCluster"}
_HASH = "ray.io/hash-without-replicas-and-workers-to-delete"


class RayServices:
    """`reconcile` does the next action for a RayService."""

    def __init__(self, api: Api, replicas: Replicas) -> None:
        self.api, self.replicas = api, replicas
        self._superseded: dict[str, float] = {}  # by the name of the cluster

    def reconcile(self, found: Object, clusters: list[Object]) -> None:
        service = {**_SERVICE, **found}
        if "deletionTimestamp" in service["metadata"]:
            return
        status = service.get("status", {})
        names = {each: _name(status, each) for each in ("active", "pending")}
        by_name = {cluster["metadata"]["name"]: cluster for cluster in clusters}
        self._delete_old(service, clusters, set(names.values()))
        if names["pending"] and names["pending"] not in by_name:
            self.api.create(_cluster(service, names["pending"]))
            return
        active, pending = by_name.get(names["active"]), by_name.get(names["pending"])
        suspended = bool(service["spec"]["rayClusterConfig"].get("suspend"))
        for cluster in filter(None, (pending, active if pending is None else None)):
            if bool(cluster["spec"].get("suspend")) != suspended:
                goal = _cluster(service, cluster["metadata"]["name"])
                self.api.merge(path_of(cluster), {"metadata": goal["metadata"], "spec": goal["spec"]})
                return
        newest = pending or active
        if newest is None or (newest["metadata"]["annotations"][_HASH] != _hash(service) and _upgrades(service)):
            # Before the config of Ray Serve is applied: an old cluster keeps its config.
            names["pending"] = _new_name(service)
            self._write(service, names, {"active": active, "pending": None}, "")
            return
        state = self._deploy(service, newest)
        if state == "RUNNING" and newest is pending:
            names = {"active": names["pending"], "pending": ""}
            active, pending = pending, None
        if state == "RUNNING":
            self._point_services_to(service, names["active"])
        self._write(service, names, {"active": active, "pending": pending}, state)

    def _delete_old(self, service: Object, clusters: list[Object], used: set[str]) -> None:
        """Delete clusters that are no longer used after the delay, which is ten times as short here."""
        delay = service["spec"]["rayClusterDeletionDelaySeconds"] / 10
        for cluster in clusters:
            name = cluster["metadata"]["name"]
            if name not in used and time.monotonic() - self._superseded.setdefault(name, time.monotonic()) >= delay:
                self.api.delete(path_of(cluster))

    def _deploy(self, service: Object, cluster: Object) -> str:
        """Apply Ray Serve's config to the cluster, and return the state of the application; "" before its head is up.

        A replica needs a host of its own. More replicas than hosts wait indefinitely.
        """
        if not is_true(cluster, "HeadPodReady"):
            return ""
        (application,) = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
        (deployment,) = application["deployments"]
        wanted = deployment.get("num_replicas") or deployment["autoscaling_config"]["min_replicas"]
        selector = f"ray.io/cluster={cluster['metadata']['name']},ray.io/serve=true"
        pods = self.api.items(f"/api/v1/namespaces/{cluster['metadata']['namespace']}/pods?labelSelector={selector}")
        running = [pod for pod in pods if pod["status"].get("phase") == "Running"][:wanted]
        for pod in running:
            self.replicas.serve(pod, application["args"])
        if any(self.replicas.failure(pod["metadata"]["uid"]) for pod in running):
            return "DEPLOY_FAILED"
        return "RUNNING" if len([pod for pod in running if is_true(pod, "Ready")]) == wanted else "DEPLOYING"

    def _point_services_to(self, service: Object, cluster: str) -> None:
        """Let the Services of the model select the pods of the cluster."""
        metadata = service["metadata"]
        wanted: list[tuple[str, Object, Object]] = [
            ("head", {"ray.io/node-type": "head"}, {"name": "dashboard", "port": 8265, "targetPort": "dashboard"}),
            ("serve", {"ray.io/serve": "true"}, {"name": "serve", "port": 8000, "targetPort": "serve"}),
        ]
        for suffix, selector, port in wanted:
            made: Object = {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {
                    "name": f"{metadata['name']}-{suffix}-svc",
                    "namespace": metadata["namespace"],
                    "ownerReferences": [_owner(service)],
                },
                "spec": {"selector": {"ray.io/cluster": cluster, **selector}, "ports": [port]},
            }
            live = self.api.find(path_of(made))
            if live is None:
                self.api.create(made)
            elif live["spec"]["selector"] != made["spec"]["selector"]:
                self.api.merge(path_of(made), {"spec": {"selector": made["spec"]["selector"]}})

    def _write(
        self, service: Object, names: dict[str, str], clusters: dict[str, Object | None], application: str
    ) -> None:
        metadata = service["metadata"]
        selector = f"labelSelector=kubernetes.io/service-name={metadata['name']}-serve-svc"
        path = f"/apis/discovery.k8s.io/v1/namespaces/{metadata['namespace']}/endpointslices?{selector}"
        endpoints = {
            endpoint["targetRef"]["uid"]
            for part in self.api.items(path)
            for endpoint in part.get("endpoints") or ()
            if endpoint["conditions"].get("ready")
        }
        conditions = Conditions(service)
        if not conditions.all:
            for kind in ("Ready", "UpgradeInProgress"):
                conditions.set(kind, "False", "Initializing", "RayService is initializing")
        if endpoints:
            text = "Number of serve endpoints is greater than 0"
            conditions.set("Ready", "True", "NonZeroServeEndpoints", text)
        elif conditions.status("Ready") == "True":
            conditions.set("Ready", "False", "ZeroServeEndpoints", "Number of serve endpoints dropped to 0")
        if names["active"] and names["pending"]:
            text = "Both active and pending Ray clusters exist"
            conditions.set("UpgradeInProgress", "True", "BothActivePendingClustersExist", text)
        elif names["active"]:
            text = "Active Ray cluster exists and no pending Ray cluster"
            conditions.set("UpgradeInProgress", "False", "NoPendingCluster", text)
        newest = "pending" if names["pending"] else "active"
        parts: dict[str, Any] = {f"{each}ServiceStatus": _part(names[each], clusters[each]) for each in names}
        if application and clusters[newest] is not None:
            deployment = {"status": "HEALTHY" if application == "RUNNING" else "UPDATING"}
            parts[f"{newest}ServiceStatus"]["applicationStatuses"] = {
                "model": {"status": application, "serveDeploymentStatuses": {"Model": deployment}}
            }
        status = {
            "conditions": conditions.all,
            "serviceStatus": "Running" if endpoints else "",
            "numServeEndpoints": len(endpoints),
            "observedGeneration": metadata["generation"],
            **parts,
        }
        if service.get("status") != status:
            # Not a merge patch, which would keep what is no longer in the status.
            self.api.request("PUT", f"{path_of(service)}/status", {**service, "status": status})


def _cluster(service: Object, name: str) -> Object:
    metadata = service["metadata"]
    origin = {"ray.io/originated-from-cr-name": metadata["name"], "ray.io/originated-from-crd": "RayService"}
    return {
        **_CLUSTER,
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": {**metadata.get("labels", {}), **origin},
            "annotations": {_HASH: _hash(service)},
            "ownerReferences": [_owner(service)],
        },
        "spec": service["spec"]["rayClusterConfig"],
    }


def _hash(service: Object) -> str:
    spec = service["spec"]["rayClusterConfig"]
    numbers = ("replicas", "minReplicas", "maxReplicas")
    groups = [{key: value for key, value in group.items() if key not in numbers} for group in spec["workerGroupSpecs"]]
    return json.dumps({**spec, "suspend": None, "workerGroupSpecs": groups}, sort_keys=True)


def _upgrades(service: Object) -> bool:
    return bool(service["spec"]["upgradeStrategy"]["type"] == "NewCluster")


def _new_name(service: Object) -> str:
    return f"{service['metadata']['name']}-{secrets.token_hex(3)[:5]}"


def _name(status: Object, which: str) -> str:
    return str((status.get(f"{which}ServiceStatus") or {}).get("rayClusterName") or "")


def _part(name: str, cluster: Object | None) -> Object:
    made: Object = {"rayClusterName": name} if name else {}
    if cluster is not None and (status := cluster.get("status")):
        made["rayClusterStatus"] = status
    return made


def _owner(service: Object) -> Object:
    metadata = service["metadata"]
    return {
        **_SERVICE,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
