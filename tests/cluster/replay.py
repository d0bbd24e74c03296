"""Replays a recording in a real API server, so that clients read what Kueue, JobSet and KubeRay wrote.

    replay(plane, "rayjob-succeeds", namespace="test-1")              # the whole recording, at once
    replayer = RecordingReplayer(plane, "preempted-by-priority", namespace="test-2")
    replayer.step_to(12.5)                                            # up to 12.5 s after the start; can continue
    replayer = follow_as(plane, "rayjob-succeeds", created)           # the same, for an existing run

Differences from the recording: uids and creation times are the server's own, and are translated in all references. All
other times are shifted so that the recording ends now. Pods' schedulerName and Jobs' managedBy are "recorded", so the
real scheduler, Job controller and KWOK ignore them. Owner references are kept: the real garbage collector deletes the
same objects as in the recording, sometimes a moment before the replayer.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import time
from collections.abc import Iterator, Sequence
from typing import Any

from tests.cluster import recordings
from tests.cluster.api import ApiError, Object, path_of
from tests.cluster.changes import deletion, difference, part_of, stripped, without_server_fields
from tests.cluster.control_loop import control_loop
from tests.cluster.control_plane import ControlPlane
from tests.cluster.recorded_cluster import base_cluster
from tests.cluster.recordings import Change, Translation

JOB_MANAGER = "slipway.example/recorded"


def replay(
    plane: ControlPlane, name: str, namespace: str = "", until: float | None = None, **more: Any
) -> RecordingReplayer:
    """Replay the recording `name` up to `until` seconds, or to its end, at once. `more`: see RecordingReplayer."""
    replayer = RecordingReplayer(plane, name, namespace, **more)
    replayer.step_to(until)
    return replayer


class RecordingReplayer:
    """A recording, and the position of its replay.

    namespace: replaces the recording's namespace research, and <namespace>-search replaces search. It is also a suffix
    of all cluster queues and cohorts, so that several recordings can be in one cluster. "" keeps all recorded names.
    runs: other names for recorded runs. skip: kinds that are not replayed, for example queues if a test has its own.
    start: the new time of the recording's start; by default, the recording ends now.
    """

    def __init__(
        self,
        plane: ControlPlane,
        name: str,
        namespace: str = "",
        *,
        runs: dict[str, str] | None = None,
        queues: dict[str, str] | None = None,
        local_queues: dict[str, str] | None = None,
        skip: Sequence[str] = (),
        start: datetime.datetime | None = None,
    ) -> None:
        self.name = name
        self.api = plane.api
        self.plane = plane
        self.changes = [change for change in recordings.read(name) if change.obj["kind"] not in skip]
        self.position = 0
        self.deleted: set[str] = set()  # recorded uids of objects that are deleted or being deleted
        self.adopted: dict[str, Object] = {}
        self._last: dict[str, Object] = {}
        now = datetime.datetime.now(datetime.UTC)
        start = start or now - datetime.timedelta(seconds=recordings.length(self.changes))
        found = {change.obj["metadata"].get("namespace", "") for change in self.changes} - {""}
        self.translation = Translation(
            namespaces={old: _namespace(old, namespace) for old in found},
            queues=_queues(self.changes, f"-{namespace}" if namespace else "") | (queues or {}),
            local_queues=local_queues or {},
            names=_names(self.changes, runs or {}),
            runs=runs or {},
            shift=start - recordings.started(recordings.read(name)),
        )

    @property
    def namespace(self) -> str:
        """The live name of the recording's namespace research."""
        return self.translation.namespaces.get("research", "research")

    def step_to(self, until: float | None = None) -> None:
        """Continue up to `until` seconds after the recording's start, or to its end."""
        if self.position == 0:
            base_cluster(self.plane)
            for namespace in self.translation.namespaces.values():
                self.plane.add_namespace(namespace)
        while self.position < len(self.changes):
            change = self.changes[self.position]
            if until is not None and change.t > until:
                return
            self._play(change)
            self.position += 1

    def step_past(self, kind: str, run: str = "", **fields: str) -> float:
        """Continue through the change after which an object of `kind` has these values in its status.

        Returns the time of that change. A field is a key of the status (phase="Running", jobStatus="SUCCEEDED") or the
        type of a condition (Admitted="True"). run: the recorded name of the object's run; "": any run.
        """
        for change in self.changes[self.position :]:
            if run and f"-{run}-" not in f"-{change.obj['metadata']['name']}-":
                continue
            if change.obj["kind"] == kind and all(_has_value(change.obj, *wanted) for wanted in fields.items()):
                self.step_to(change.t)
                return change.t
        raise AssertionError(f"{self.name} has no {kind} with {fields} after change {self.position}")

    @contextlib.contextmanager
    def playing(self, speed: float = 10) -> Iterator[None]:
        """While this is open, continue in a thread at `speed` times the recorded speed. The rest follows at the end."""
        begun, origin = time.monotonic(), self.changes[min(self.position, len(self.changes) - 1)].t

        def step() -> None:
            self.step_to(origin + (time.monotonic() - begun) * speed)

        with control_loop(step, every=0.02, name=f"replay {self.name}"):
            yield
        self.step_to()

    def expected(self) -> list[Object]:
        """The last state of all objects that exist now, translated, without Events."""
        last: dict[str, Object] = {}
        for change in self.changes[: self.position]:
            uid = change.obj["metadata"]["uid"]
            last.pop(uid, None)
            if change.type != "DELETED" and change.obj["kind"] != "Event":
                last[uid] = change.obj
        return [self.translation(obj) for obj in last.values()]

    # -- one change --------------------------------------------------------------------------------------------------

    def _play(self, change: Change) -> None:
        uid = change.obj["metadata"]["uid"]
        obj = self._prepared(change.obj)
        if change.type == "DELETED":
            self._delete(uid, obj)
        elif uid in self._last:
            self._modify(uid, self._last[uid], obj)
        elif uid in self.adopted:
            self._modify(uid, stripped(self.adopted[uid]), obj)
        elif change.obj["kind"] == "Event":
            # An Event from before the recording, about an object that it does not contain, can already exist.
            self.api.ensure(without_server_fields(obj))
        else:
            self._create(uid, obj)
        self._last[uid] = obj

    def _prepared(self, recorded: Object) -> Object:
        """The object to write for this recorded object."""
        obj = self.translation(recorded)
        if obj["kind"] == "Pod":
            obj["spec"]["schedulerName"] = "recorded"
            self._apply_run_template(obj)
        elif obj["kind"] == "Job":
            obj["spec"]["managedBy"] = JOB_MANAGER
        return stripped(obj) if recorded["metadata"]["uid"] in self.adopted else obj

    def _create(self, uid: str, obj: Object) -> None:
        body = copy.deepcopy(without_server_fields(obj))
        status = body.pop("status", None)
        node = ""
        if obj["kind"] == "Pod":
            node = body["spec"].pop("nodeName", "")
        elif obj["kind"] == "Job":
            _remove_selector(body)
        made = self.api.create(body)
        self.translation.uids[uid] = made["metadata"]["uid"]
        if node:
            self._bind(obj, node)
        if status:
            self.api.merge(f"{path_of(obj)}/status", {"status": status})

    def _modify(self, uid: str, old: Object, new: Object) -> None:
        path = path_of(new)
        patch: Object = {}
        for part in ("metadata", "spec"):
            changed = difference(part_of(old, part), part_of(new, part))
            if changed:
                patch[part] = changed
        if new["kind"] == "Event":
            patch = {key: value for key, value in new.items() if key not in ("metadata",) and old.get(key) != value}
        try:
            if new["kind"] == "Pod" and (node := patch.get("spec", {}).pop("nodeName", "")):
                self._bind(new, node)
            if any(patch.values()):
                self.api.merge(path, patch)
            if (status := difference(old.get("status", {}), new.get("status", {}))) and new["kind"] != "Event":
                self.api.merge(f"{path}/status", {"status": status})
            if deletion(new) != deletion(old):
                self.deleted.add(uid)
                how = "Foreground" if "foregroundDeletion" in new["metadata"].get("finalizers", ()) else "Background"
                self.api.delete(path, grace=new["metadata"]["deletionGracePeriodSeconds"], propagation=how)
        except ApiError as error:
            # The real garbage collector was faster.
            if error.status not in (404, 409) or not self._is_deleting(uid, new):
                raise

    def _delete(self, uid: str, obj: Object) -> None:
        self.deleted.add(uid)
        path = path_of(obj)
        found = self.api.find(path)
        if found is None or found["metadata"]["uid"] != self.translation.uids.get(uid, ""):
            return
        with contextlib.suppress(ApiError):  # deleted in the meantime
            if found["metadata"].get("finalizers"):
                self.api.merge(path, {"metadata": {"finalizers": None}})
            self.api.delete(path, grace=0)

    def _is_deleting(self, uid: str, obj: Object) -> bool:
        """Whether this object or its owner is being deleted."""
        live = {self.translation.uids.get(recorded, recorded) for recorded in self.deleted}
        owners = {owner["uid"] for owner in obj["metadata"].get("ownerReferences", ())}
        return uid in self.deleted or bool(owners & live)

    def _bind(self, pod: Object, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod["metadata"]["name"]}, "target": target}
        self.api.request("POST", f"{path_of(pod)}/binding", body)

    # -- an existing run ---------------------------------------------------------------------------------------------

    def adopt(self, recorded_uid: str, live: Object) -> None:
        """Apply the changes of the recorded run to `live` from now on."""
        self.adopted[recorded_uid] = live
        self.translation.uids[recorded_uid] = live["metadata"]["uid"]

    def _apply_run_template(self, pod: Object) -> None:
        """Give a pod of an adopted run the labels, annotations and containers of the run's template."""
        labels = pod["metadata"].get("labels", {})
        for live in self.adopted.values():
            name = live["metadata"]["name"]
            if labels.get("jobset.sigs.k8s.io/jobset-name") == name or labels.get("ray.io/cluster", "").startswith(
                f"{name}-"
            ):
                _apply_template(pod, _template(live, labels))


def follow_as(
    plane: ControlPlane, name: str, live: Object, *, run: str = "", skip_queues: bool = True, **more: Any
) -> RecordingReplayer:
    """A replayer of the recording `name` in which `live`, an existing RayJob or JobSet, is the recorded run `run`.

    run: the recorded run's name; "": the recording's first run of that kind. Nothing is replayed yet. skip_queues:
    leave out the recording's queues, and use the names of the existing queues of `live`.
    """
    changes = recordings.read(name)
    runs = [c.obj["metadata"] for c in changes if c.obj["kind"] == live["kind"] and c.type == "ADDED"]
    recorded = next((metadata for metadata in runs if run in ("", metadata["name"])), None)
    assert recorded, f"{name} has no {live['kind']} {run}"
    metadata = live["metadata"]
    if skip_queues:
        queue = metadata.get("labels", {}).get("kueue.x-k8s.io/queue-name", "")
        found = plane.api.find(f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{metadata['namespace']}/localqueues/{queue}")
        cluster_queue = found["spec"]["clusterQueue"] if found else "research"
        more.setdefault("skip", ("ClusterQueue", "LocalQueue"))
        more.setdefault("local_queues", {"multislice": queue})
        more.setdefault("queues", dict.fromkeys(_queues(changes, ""), cluster_queue))
    replayer = RecordingReplayer(plane, name, metadata["namespace"], runs={recorded["name"]: metadata["name"]}, **more)
    replayer.adopt(recorded["uid"], live)
    return replayer


def _namespace(recorded: str, wanted: str) -> str:
    if not wanted:
        return recorded
    return wanted if recorded == "research" else f"{wanted}-{recorded}"


def _queues(changes: list[Change], suffix: str) -> dict[str, str]:
    found = {c.obj["metadata"]["name"] for c in changes if c.obj["kind"] == "ClusterQueue"}
    found |= {c.obj["spec"]["cohortName"] for c in changes if "cohortName" in c.obj.get("spec", {})}
    return {name: f"{name}{suffix}" for name in found}


def _names(changes: list[Change], runs: dict[str, str]) -> dict[str, str]:
    """New names for the objects of these runs. The run's part is shortened if a name exceeds 63 characters."""
    names = {}
    for name in {c.obj["metadata"]["name"] for c in changes if c.obj["kind"] != "Event"}:
        for run, live in runs.items():
            before, found, after = f"-{name}-".rpartition(f"-{run}-")
            if found and name not in names and name != run:
                rest = len(before.strip("-")) + len(after.strip("-")) + 2
                names[name] = "-".join(
                    part for part in (before.strip("-"), live[: 63 - rest], after.strip("-")) if part
                )
    return names


def _remove_selector(job: Object) -> None:
    """Remove the Job's selector, which the server generates from the uid."""
    job["spec"].pop("selector", None)
    job["spec"].pop("manualSelector", None)
    for labels in (job["spec"]["template"]["metadata"].get("labels", {}), job["metadata"].get("labels", {})):
        for key in ("batch.kubernetes.io/controller-uid", "controller-uid"):
            labels.pop(key, None)


def _template(run: Object, labels: dict[str, str]) -> Object:
    """The pod template of a run from which a pod with these labels was created."""
    spec = run["spec"]
    if run["kind"] == "JobSet":
        jobs = spec["replicatedJobs"]
        wanted = labels.get("jobset.sigs.k8s.io/replicatedjob-name")
        job = next((job for job in jobs if job["name"] == wanted), jobs[0])
        return dict(job["template"]["spec"]["template"])
    cluster = spec["rayClusterSpec"]
    if labels.get("ray.io/node-type") == "head":
        return dict(cluster["headGroupSpec"]["template"])
    return dict(cluster["workerGroupSpecs"][0]["template"])


def _apply_template(pod: Object, template: Object) -> None:
    metadata = template.get("metadata", {})
    for field in ("labels", "annotations"):
        pod["metadata"][field] = {**metadata.get(field, {}), **pod["metadata"].get(field, {})}
    renamed = {
        old["name"]: new["name"]
        for old, new in zip(pod["spec"]["containers"], template["spec"]["containers"], strict=False)
    }
    node = pod["spec"].get("nodeName")
    pod["spec"] = {**template["spec"], "schedulerName": "recorded", **({"nodeName": node} if node else {})}
    pod["spec"].pop("serviceAccountName", None)  # the team's service account can be missing in this namespace
    pod.get("status", {}).pop("qosClass", None)  # the server sets it from the containers
    for status in pod.get("status", {}).get("containerStatuses", ()):
        status["name"] = renamed.get(status["name"], status["name"])


def _has_value(obj: Object, key: str, value: str) -> bool:
    status = obj.get("status", {})
    conditions = {c["type"]: c["status"] for c in status.get("conditions", ())}
    return bool(status.get(key) == value or conditions.get(key) == value)
