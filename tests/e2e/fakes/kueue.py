"""A fake Kueue: quota with one flavor for each resource, priority, preemption within a ClusterQueue. Only for tests of
the suite; see __init__.py. The conditions and their order are those of recordings/preempted-by-priority."""

from __future__ import annotations

import contextlib
from decimal import Decimal
from typing import Any

from launcher.k8s.objects import quantity
from tests.cluster.api import Api, ApiError, Object, path_of
from tests.cluster.fake_controllers import Conditions, has_ended, is_suspended, is_true

_BASE = "/apis/kueue.x-k8s.io/v1beta2"
_QUEUE, _PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
RUNS = {
    "RayJob": "/apis/ray.io/v1/rayjobs",
    "RayService": "/apis/ray.io/v1/rayservices",
    "RayCluster": "/apis/ray.io/v1/rayclusters",
    "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/jobsets",
}
KIND = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload"}
_VERSIONS = {kind: path.removeprefix("/apis/").rpartition("/")[0] for kind, path in RUNS.items()}

Amounts = dict[str, Decimal]


class Kueue:
    """`step` reads the whole cluster once, and does the next action for each object."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def step(self) -> None:
        queues = {queue["metadata"]["name"]: queue for queue in self.api.items(f"{_BASE}/clusterqueues")}
        local = self.api.items(f"{_BASE}/localqueues")
        for queue in queues.values():
            self._activate({"apiVersion": KIND["apiVersion"], "kind": "ClusterQueue", **queue})
        for queue in local:
            self._activate({"apiVersion": KIND["apiVersion"], "kind": "LocalQueue", **queue})
        runs = {
            run["metadata"]["uid"]: {"apiVersion": _VERSIONS[kind], "kind": kind, **run}
            for kind, path in RUNS.items()
            for run in self.api.items(path)
            if _QUEUE in run["metadata"].get("labels", {})
            and not run["metadata"].get("ownerReferences")  # the cluster of a RayJob or RayService
        }
        workloads = [{**KIND, **one} for one in self.api.items(f"{_BASE}/workloads")]
        owners = {_owner(one) for one in workloads}
        for uid, run in runs.items():
            if uid not in owners and not has_ended(run) and "deletionTimestamp" not in run["metadata"]:
                with contextlib.suppress(ApiError):  # deleted or created in the meantime
                    self._create_workload(run)
        targets = {(q["metadata"]["namespace"], q["metadata"]["name"]): q["spec"]["clusterQueue"] for q in local}
        for one in workloads:
            with contextlib.suppress(ApiError):
                self._reconcile(one, runs.get(_owner(one)))
        for name, queue in queues.items():
            mine = [
                one
                for one in workloads
                if targets.get((one["metadata"]["namespace"], one["spec"].get("queueName", ""))) == name
            ]
            with contextlib.suppress(ApiError):
                self._schedule(queue, mine, runs)

    def _activate(self, queue: Object) -> None:
        if not is_true(queue, "Active"):
            conditions = Conditions(queue)
            conditions.set("Active", "True", "Ready", "Can admit new workloads")
            self._status(queue, {"conditions": conditions.all})

    def _create_workload(self, run: Object) -> None:
        """Suspend the run, as Kueue's webhook does when the run is created, and create its Workload."""
        if not _suspend_of(run):
            self._set_suspend(run, True)
        metadata, labels = run["metadata"], run["metadata"]["labels"]
        spec: Object = {"active": True, "podSets": _pod_sets(run), "queueName": labels[_QUEUE], "priority": 0}
        if called := labels.get(_PRIORITY):
            found = self.api.get(f"{_BASE}/workloadpriorityclasses/{called}")
            spec["priority"] = found["value"]
            spec["priorityClassRef"] = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": called}
        owner = {"apiVersion": run["apiVersion"], "kind": run["kind"], "name": metadata["name"], "uid": metadata["uid"]}
        self.api.create(
            {
                **KIND,
                "metadata": {
                    "name": f"{run['kind'].lower()}-{metadata['name']}-{metadata['uid'][:5]}",
                    "namespace": metadata["namespace"],
                    "finalizers": ["kueue.x-k8s.io/resource-in-use"],
                    "labels": {"kueue.x-k8s.io/job-uid": metadata["uid"]},
                    "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
                },
                "spec": spec,
            }
        )

    def _reconcile(self, one: Object, run: Object | None) -> None:
        """Do what does not depend on the other Workloads in the queue."""
        if "deletionTimestamp" in one["metadata"]:
            self.api.merge(path_of(one), {"metadata": {"finalizers": None}})
        elif run is None or is_true(one, "Finished"):
            return
        elif has_ended(run):
            conditions = Conditions(one)
            conditions.set("Finished", "True", "Succeeded", "Job finished")
            self._status(one, {"conditions": conditions.all})
        elif one["spec"].get("active") is False:
            self._evict(one, run, "Deactivated", "The workload is deactivated")
        elif is_true(one, "Evicted"):
            entry = next(c for c in one["status"]["conditions"] if c["type"] == "Evicted")
            self._evict(one, run, entry["reason"], entry["message"])
        elif is_true(one, "Admitted") and _counts(one["spec"]["podSets"]) != _counts(_pod_sets(run)):
            # As Kueue does if a run no longer matches its Workload: it stops, and waits in the queue again.
            self._set_suspend(run, True)
            self.api.delete(path_of(one))
        elif is_true(one, "Admitted") and _suspend_of(run):
            self._start(one, run)

    def _evict(self, one: Object, run: Object, reason: str, message: str) -> None:
        """Do the next step: set the condition, then suspend the run, then release its quota."""
        conditions = Conditions(one)
        back = "False" if reason == "Deactivated" else "True"
        if not is_true(one, "Evicted"):
            conditions.set("Evicted", "True", reason, message)
            self._status(one, {"conditions": conditions.all, **_one_more_eviction(one, reason)})
        elif not _suspend_of(run):
            self._set_suspend(run, True)
        elif _has_stopped(run) and (conditions.status("QuotaReserved"), conditions.status("Requeued")) != (
            "False",
            back,
        ):
            conditions.set("Requeued", back, reason, message)
            conditions.set("QuotaReserved", "False", "Pending", message)
            if conditions.status("Admitted"):
                conditions.set("Admitted", "False", "NoReservation", "The workload has no reservation")
            self._status(one, {"conditions": conditions.all, "admission": None})

    def _start(self, one: Object, run: Object) -> None:
        """Resume the run, with the node labels of its flavors."""
        labels: dict[str, str] = {}
        for assignment in one["status"]["admission"]["podSetAssignments"]:
            for flavor in set(assignment["flavors"].values()):
                labels |= self.api.get(f"{_BASE}/resourceflavors/{flavor}")["spec"].get("nodeLabels") or {}
        spec: Object = _suspended(run, False)
        if run["kind"] == "JobSet":
            spec["replicatedJobs"] = run["spec"]["replicatedJobs"]
            for job in spec["replicatedJobs"]:
                pods = job["template"]["spec"]["template"]["spec"]
                pods["nodeSelector"] = {**(pods.get("nodeSelector") or {}), **labels}
        self.api.merge(path_of(run), {"spec": spec})

    def _schedule(self, queue: Object, mine: list[Object], runs: dict[str, Object]) -> None:
        holding = [one for one in mine if is_true(one, "QuotaReserved") and not is_true(one, "Finished")]
        quota, flavors = _quota(queue)
        used: Amounts = {}
        for one in holding:
            _add(used, _requests(one))
        waiting = [
            one
            for one in mine
            if one["spec"].get("active", True)
            and not is_true(one, "QuotaReserved")
            and not is_true(one, "Finished")
            and "deletionTimestamp" not in one["metadata"]
            and (run := runs.get(_owner(one))) is not None
            and _has_stopped(run)
        ]
        order = sorted(
            waiting, key=lambda o: (-o["spec"]["priority"], o["metadata"]["creationTimestamp"], _creation_order(o))
        )
        self._write_usage(queue, used, {"admittedWorkloads": len(holding), "pendingWorkloads": len(waiting)})
        for one in order:
            wanted = _requests(one)
            short = {key: used.get(key, Decimal(0)) + wanted[key] - quota.get(key, Decimal(0)) for key in wanted}
            if all(amount <= 0 for amount in short.values()):
                self._admit(one, queue, flavors, wanted)
                _add(used, wanted)
                continue
            resource = next(key for key, amount in short.items() if amount > 0)
            message = (
                f"couldn't assign flavors to pod set {one['spec']['podSets'][0]['name']}: insufficient unused quota "
                f"for {resource} in flavor {flavors.get(resource, 'none')}, {short[resource]:f} more needed"
            )
            if queue["spec"].get("preemption", {}).get("withinClusterQueue") == "LowerPriority":
                self._preempt(one, holding, short)
            conditions = Conditions(one)
            if conditions.status("QuotaReserved") != "False" or not any(
                message == c["message"] for c in conditions.all
            ):
                conditions.set("QuotaReserved", "False", "Pending", message)
                self._status(one, {"conditions": conditions.all})

    def _write_usage(self, queue: Object, used: Amounts, counts: dict[str, int]) -> None:
        """Write the used quota and the numbers of runs into the queue's status."""
        usage = [
            {
                "name": flavor["name"],
                "resources": [
                    {"name": resource["name"], "total": _quantity(used.get(resource["name"], Decimal(0)))}
                    for resource in flavor["resources"]
                ],
            }
            for group in queue["spec"].get("resourceGroups", ())
            for flavor in group["flavors"]
        ]
        status = {"flavorsReservation": usage, "flavorsUsage": usage, **counts}
        if any(queue.get("status", {}).get(key) != value for key, value in status.items()):
            self.api.merge(f"{_BASE}/clusterqueues/{queue['metadata']['name']}/status", {"status": status})

    def _preempt(self, one: Object, holding: list[Object], short: Amounts) -> None:
        lower = [h for h in holding if h["spec"]["priority"] < one["spec"]["priority"]]
        lower.sort(key=lambda h: (h["spec"]["priority"], h["metadata"]["creationTimestamp"]))
        missing, victims = dict(short), []
        for victim in lower:
            if any(amount > 0 for amount in missing.values()):
                missing = {key: amount - _requests(victim).get(key, Decimal(0)) for key, amount in missing.items()}
                victims.append(victim)
        if any(amount > 0 for amount in missing.values()):
            return
        for victim in victims:
            if is_true(victim, "Evicted"):
                continue
            message = (
                f"Preempted to accommodate a workload (UID: {one['metadata']['uid']}, JobUID: {_owner(one)}) due to "
                "prioritization in the ClusterQueue"
            )
            conditions = Conditions(victim)
            conditions.set("Evicted", "True", "Preempted", message)
            conditions.set("Preempted", "True", "InClusterQueue", message)
            self._status(victim, {"conditions": conditions.all, **_one_more_eviction(victim, "Preempted")})

    def _admit(self, one: Object, queue: Object, flavors: dict[str, str], wanted: Amounts) -> None:
        name = queue["metadata"]["name"]
        conditions = Conditions(one)
        conditions.set("QuotaReserved", "True", "QuotaReserved", f"Quota reserved in ClusterQueue {name}")
        for kind in ("Evicted", "Preempted"):
            if conditions.status(kind):
                conditions.set(kind, "False", "QuotaReserved", f"Previously: {kind}")
        conditions.set("Admitted", "True", "Admitted", "The workload is admitted")
        assignments = []
        for pods in one["spec"]["podSets"]:
            usage = {key: _quantity(amount) for key, amount in _pod_set_requests(pods).items()}
            assignments.append(
                {
                    "name": pods["name"],
                    "count": pods["count"],
                    "flavors": {key: flavors[key] for key in usage},
                    "resourceUsage": usage,
                }
            )
        admission = {"clusterQueue": name, "podSetAssignments": assignments}
        self._status(one, {"conditions": conditions.all, "admission": admission})
        one["status"] = {"conditions": conditions.all, "admission": admission}

    def _set_suspend(self, run: Object, suspend: bool) -> None:
        self.api.merge(path_of(run), {"spec": _suspended(run, suspend)})

    def _status(self, obj: Object, status: Object) -> None:
        self.api.merge(f"{path_of(obj)}/status", {"status": status})


def _suspended(run: Object, suspend: bool) -> Object:
    """The part of the spec that suspends or resumes the run."""
    return {"rayClusterConfig": {"suspend": suspend}} if run["kind"] == "RayService" else {"suspend": suspend}


def _suspend_of(run: Object) -> bool:
    spec = run["spec"]["rayClusterConfig"] if run["kind"] == "RayService" else run["spec"]
    return bool(spec.get("suspend"))


def _has_stopped(run: Object) -> bool:
    """Whether a suspended run has stopped. Kueue asks whether a RayService is ready."""
    if run["kind"] == "RayService":
        return _suspend_of(run) and not is_true(run, "Ready")
    return is_true(run, "RayClusterSuspended") if run["kind"] == "RayCluster" else is_suspended(run)


def _counts(pod_sets: list[Object]) -> dict[str, int]:
    return {pods["name"]: int(pods["count"]) for pods in pod_sets}


def _owner(one: Object) -> str:
    return str((one["metadata"].get("ownerReferences") or [{"uid": ""}])[0]["uid"])


def _creation_order(one: Object) -> int:
    """The resourceVersion, which orders Workloads that were created in the same second."""
    return int(one["metadata"]["resourceVersion"]) if not one.get("status") else 0


def _pod_sets(run: Object) -> list[Object]:
    if run["kind"] == "JobSet":
        return [
            {
                "name": job["name"],
                "count": job["replicas"] * job["template"]["spec"]["parallelism"],
                "template": job["template"]["spec"]["template"],
            }
            for job in run["spec"]["replicatedJobs"]
        ]
    part = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}.get(run["kind"])
    cluster = run["spec"][part] if part else run["spec"]
    workers = cluster["workerGroupSpecs"]
    return [
        {"name": "head", "count": 1, "template": cluster["headGroupSpec"]["template"]},
        *(
            {"name": w["groupName"], "count": w["replicas"] * w.get("numOfHosts", 1), "template": w["template"]}
            for w in workers
        ),
    ]


def _pod_set_requests(pods: dict[str, Any]) -> Amounts:
    amounts: Amounts = {}
    for container in pods["template"]["spec"]["containers"]:
        for key, amount in container.get("resources", {}).get("requests", {}).items():
            amounts[key] = amounts.get(key, Decimal(0)) + quantity(amount) * pods["count"]
    return amounts


def _requests(one: Object) -> Amounts:
    total: Amounts = {}
    for pods in one["spec"]["podSets"]:
        _add(total, _pod_set_requests(pods))
    return total


def _add(total: Amounts, more: Amounts) -> None:
    for key, amount in more.items():
        total[key] = total.get(key, Decimal(0)) + amount


def _quantity(amount: Decimal) -> str:
    """The amount as a Kubernetes quantity: an integer, or in thousandths."""
    return str(int(amount)) if amount == int(amount) else f"{int(amount * 1000)}m"


def _quota(queue: Object) -> tuple[Amounts, dict[str, str]]:
    """The quota and the flavor of each resource, from the first flavor that has it."""
    amounts: Amounts = {}
    flavors: dict[str, str] = {}
    for group in queue["spec"].get("resourceGroups", ()):
        for flavor in group["flavors"]:
            for resource in flavor["resources"]:
                amounts.setdefault(resource["name"], quantity(resource["nominalQuota"]))
                flavors.setdefault(resource["name"], flavor["name"])
    return amounts, flavors


def _one_more_eviction(one: Object, reason: str) -> Object:
    """The status in which Kueue counts the evictions of a Workload, by reason."""
    counted = (one.get("status", {}).get("schedulingStats") or {}).get("evictions") or []
    before = sum(entry["count"] for entry in counted if entry["reason"] == reason)
    others = [entry for entry in counted if entry["reason"] != reason]
    return {"schedulingStats": {"evictions": [*others, {"reason": reason, "underlyingCause": "", "count": before + 1}]}}
