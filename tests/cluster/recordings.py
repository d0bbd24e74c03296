"""Reads recordings of what the real controllers wrote (tests/upstream/recordings), and translates them.

`Translation` converts a recorded object for this API server: it changes uids, namespaces and names, and shifts times.
It recognizes uids and times by their format, and names only in places that can have the name of an object.
"""

from __future__ import annotations

import datetime
import functools
import gzip
import json
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests import upstream

Object = dict[str, Any]

UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
# A name in a text: not a part of a longer name, and not of a key such as ray.io/rayjob-finalizer.
TOKEN = re.compile(r"(?<!\.io/)(?<![A-Za-z0-9_-])[a-z0-9]+(?:-[a-z0-9]+)*(?![A-Za-z0-9_-])")
# Fields in which a run's short name ("lost", "fails") can also be an English word.
PROSE = {"message", "reason", "type", "phase", "action", "status", "note", "image", "entrypoint"}
SHORT = re.compile(r"(?P<before>JobSet |RayJob |[/\"'])(?P<name>[a-z0-9-]+)(?![A-Za-z0-9-])")
QUEUE = re.compile(r"(?P<before>[Cc]luster ?[Qq]ueue:? \"?)(?P<name>[a-z0-9-]+)(?=[\s\",;.]|$)(?! is inactive,)")
COHORT_PATH = re.compile(r"(?<=path: )(?:/[a-z0-9-]+)+")


class Change(NamedTuple):
    """One line: `t` in seconds since the start, `type` ADDED, MODIFIED or DELETED."""

    t: float
    type: str
    obj: Object


@functools.cache
def names() -> list[str]:
    """The names of all recordings."""
    return sorted(file.name.removesuffix(".jsonl.gz") for file in upstream.RECORDINGS.glob("*.jsonl.gz"))


def read(name: str) -> list[Change]:
    """The changes of a recording, in order. Raises FileNotFoundError."""
    lines = gzip.decompress((upstream.RECORDINGS / f"{name}.jsonl.gz").read_bytes()).splitlines()
    return [Change(line["t"], line["type"], line["object"]) for line in map(json.loads, lines)]


def length(changes: list[Change]) -> float:
    return changes[-1].t


def started(changes: list[Change]) -> datetime.datetime:
    """When the recording started: the creation time of an object, in whole seconds, minus its `t`."""
    first = next(change for change in changes if change.type == "ADDED" and change.obj["kind"] == "ClusterQueue")
    return _time(first.obj["metadata"]["creationTimestamp"]) - datetime.timedelta(seconds=first.t)


@dataclass
class Translation:
    """namespaces, queues, names: recorded -> live, for namespaces, cluster queues and cohorts, and other objects;
    runs: the same for runs' short names; shift: added to all times; uids: recorded -> live, filled by the replayer.
    """

    namespaces: dict[str, str] = field(default_factory=dict)
    queues: dict[str, str] = field(default_factory=dict)
    local_queues: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)
    shift: datetime.timedelta = datetime.timedelta()
    uids: dict[str, str] = field(default_factory=dict)

    def __call__(self, obj: Object) -> Object:
        """A translated copy."""
        text = UID.sub(lambda match: self.uids.get(match[0], match[0]), json.dumps(obj))
        made: Object = json.loads(TIME.sub(lambda match: self._shifted(match[0]), text))
        if self.names or self.runs:
            made = self._named(made, "")
        if self.namespaces or self.queues or self.local_queues:
            self._placed(made)
        return made

    def _shifted(self, text: str) -> str:
        moved = _time(text) + self.shift
        return moved.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if "." in text else "%Y-%m-%dT%H:%M:%SZ")

    def _named(self, value: Any, key: str) -> Any:
        if isinstance(value, dict):
            return {below: self._named(item, below) for below, item in value.items()}
        if isinstance(value, list):
            return [self._named(item, key) for item in value]
        if not isinstance(value, str):
            return value
        if key in ("message", "note"):
            value = SHORT.sub(lambda match: match["before"] + self.runs.get(match["name"], match["name"]), value)
        return TOKEN.sub(lambda match: self._name(match[0], prose=key in PROSE), value)

    def _name(self, token: str, *, prose: bool) -> str:
        if token in self.names:
            return self.names[token]
        for run, live in self.runs.items():
            if token == run and not prose:
                return live
            if token.startswith(f"{run}-"):  # a name that a controller derives from it, such as a Service's
                return live + token[len(run) :]
        return token

    def _placed(self, obj: Object) -> None:
        metadata = obj["metadata"]
        kind = obj["kind"]
        if "namespace" in metadata:
            metadata["namespace"] = self.namespaces.get(metadata["namespace"], metadata["namespace"])
        if kind == "ClusterQueue":
            metadata["name"] = self._queue(metadata["name"])
            if "cohortName" in obj["spec"]:
                obj["spec"]["cohortName"] = self._queue(obj["spec"]["cohortName"])
        elif kind == "LocalQueue":
            obj["spec"]["clusterQueue"] = self._queue(obj["spec"]["clusterQueue"])
            metadata["name"] = self.local_queues.get(metadata["name"], metadata["name"])
        elif kind == "Workload":
            if admission := obj.get("status", {}).get("admission"):
                admission["clusterQueue"] = self._queue(admission["clusterQueue"])
            queue = obj["spec"].get("queueName", "")
            obj["spec"]["queueName"] = self.local_queues.get(queue, queue)
        elif kind == "Event":
            involved = obj["involvedObject"]
            if "namespace" in involved:
                involved["namespace"] = self.namespaces.get(involved["namespace"], involved["namespace"])
        self._deep(obj, "")

    def _deep(self, value: Any, path: str) -> None:
        """Translate queues in labels and messages, and namespaces in messages and addresses, at any depth."""
        entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, item in list(entries):
            if not isinstance(item, str):
                self._deep(item, str(key))
            elif key == "kueue.x-k8s.io/cluster-queue-name":
                value[key] = self._queue(item)
            elif key in ("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/local-queue-name"):
                value[key] = self.local_queues.get(item, item)
            else:
                value[key] = self._text(item)

    def _text(self, text: str) -> str:
        text = QUEUE.sub(lambda match: match["before"] + self._queue(match["name"]), text)
        text = COHORT_PATH.sub(lambda match: "/".join(self._queue(part) for part in match[0].split("/")), text)
        for recorded, live in self.namespaces.items():
            if recorded in text:
                text = re.sub(rf"(?<![/\w-]){recorded}(?=/[a-z])|(?<=\.){recorded}(?=\.svc)", live, text)
        return text

    def _queue(self, name: str) -> str:
        return self.queues.get(name, name)


def _time(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)
