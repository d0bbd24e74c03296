"""Teams that a test makes for itself, with queues of their own, and runs in them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import nodes as simulated
from tests.cluster.api import Api, ApiError, Object
from tests.e2e import leftovers, logs
from tests.e2e.desk import Desk
from tests.e2e.needs import Facts
from tests.e2e.settings import LABEL, Settings, split_image
from tests.tiny_model import TINY_MODEL

Tree = dict[str, Any]

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
PATHS = {
    "ray-job": "/apis/ray.io/v1/namespaces/{}/rayjobs",
    "job-set": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets",
}
POOLS, HOSTS, CHIPS = 3, 2, 4
"""Three v5e slices of 2x4, as in GKE's tutorial on multislice: two hosts of four chips each."""

STEPS, PERIOD = 300, 50
TRAIN: Tree = {
    **TINY_MODEL,
    "learning_rate": 1e-2,
    "steps": STEPS,
    "checkpoint_period": PERIOD,
}
HOST = {"cpu": "500m", "memory": "3Gi"}
"""What a host of a training run, and its head, ask for."""

ADMIT, START, TRAINED, GONE = 120.0, 600.0, 1200.0, 180.0
"""Time limits (s): admission by Kueue; pods with an image to pull; a whole training; the end of pods."""


@dataclass
class Session:
    """One run of the suite. `ident` is its id, which all names begin with."""

    settings: Settings
    facts: Facts
    ident: str
    api: Api
    desk: Desk
    folder: Path
    charts: Path | None = None
    skipped: dict[str, list[Any]] = field(default_factory=dict)
    teams: int = 0

    @property
    def chips(self) -> bool:
        """Whether slices are of simulated chips; else they are of shares of real nodes' cpu."""
        return not self.facts.simulated

    def make_nodes(self) -> None:
        """The simulated slices, once a session. Only pods whose queue has the session's flavor go there."""
        if self.api.find(f"/api/v1/nodes/{self.ident}-a-0") is not None:
            return
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for letter in "abc"[:POOLS]:
            mark = {LABEL: self.ident}
            made = simulated.nodes(
                f"{self.ident}-{letter}", "tpu-v5-lite-podslice", "2x4", HOSTS, CHIPS, mark, 10250, now
            )
            for node in made:
                # A cluster without a cloud's controller leaves nodes alone that no machine stands behind.
                self.api.create(node)


@dataclass
class Team:
    """A team of one test: its namespace, ClusterQueue, LocalQueue and release all have the same name."""

    session: Session
    name: str
    values: Tree = field(default_factory=dict)
    queues: bool = False

    # -- queues ------------------------------------------------------------------------------------------------------

    def slices(self, count: int = POOLS, *, preemption: bool = False, clusters: tuple[str, ...] = ()) -> Tree:
        """Values of charts/queues with quota for `count` slices for the runs of `sleeper`."""
        if self.session.chips:
            flavor = {"accelerator": "v5e", "topology": "2x4", "nodeLabels": {LABEL: self.session.ident}}
            queue: Tree = {"chipsAlone": True, "quota": {f"{self.name}-v5e": {"slices": count}}}
            flavors: Tree = {f"{self.name}-v5e": flavor}
        else:
            cores, memory = count * HOSTS * 50, count * HOSTS * 32
            flavors = {f"{self.name}-cpu": {"accelerator": "cpu"}}
            queue = {"quota": {f"{self.name}-cpu": {"cpu": f"{cores}m", "memory": f"{memory}Mi"}}}
        return self._queues(flavors, queue, preemption, clusters)

    def hosts(self, hosts: int, heads: int = 0, *, preemption: bool = False, clusters: tuple[str, ...] = ()) -> Tree:
        """Values of charts/queues with quota for that many hosts and heads of training runs."""
        amount = hosts + heads
        quota = {"cpu": f"{amount * 500}m", "memory": f"{amount * 3}Gi"}
        flavors = {f"{self.name}-cpu": {"accelerator": "cpu"}}
        return self._queues(flavors, {"quota": {f"{self.name}-cpu": quota}}, preemption, clusters)

    def _queues(self, flavors: Tree, queue: Tree, preemption: bool, clusters: tuple[str, ...]) -> Tree:
        if preemption:
            queue["preemption"] = {"withinClusterQueue": "LowerPriority"}
        controller = self.session.facts.controllers.get("kuberay")
        operators = ["gke-managed-ray-operator", "kuberay-operator", "kuberay-system", "ray-system"]
        if controller is not None and controller.namespace not in operators:
            operators.append(controller.namespace)
        cidrs = [f"{address}/{128 if ':' in address else 32}" for address in self.session.facts.node_addresses[:50]]
        return {
            "flavors": flavors,
            "clusterQueues": {self.name: queue},
            "teams": {
                self.name: {
                    "clusterQueue": self.name,
                    "clusters": list(clusters),
                    "members": {f"{self.name}@example.com": "User"},  # whose rights are made, and used by nobody
                }
            },
            # Priorities are the cluster's: these are the test's own, and nobody else's are touched.
            "priorities": {
                **dict.fromkeys(("low", "normal", "high")),
                f"{self.name}-low": {"value": 100},
                f"{self.name}-high": {"value": 1000},
            },
            "network": {"operatorNamespaces": operators, "proxyCidrs": cidrs},
        }

    def install(self, values: Tree) -> Tree:
        """`launcher install queues`; what it prints as JSON. The release is kept in the session's namespace."""
        self.values, self.queues = values, True
        file = self.session.desk.values(f"{self.name}-queues", values)
        made: Tree = self.session.desk.ask("install", "queues", self.name, "-f", file, "-n", self.session.ident)
        return made

    def uninstall(self, *options: str) -> Tree:
        """`launcher uninstall`; what it prints as JSON."""
        made: Tree = self.session.desk.ask("uninstall", self.name, "-n", self.session.ident, "--yes", *options)
        self.queues = False
        return made

    def make_claim(self, name: str = "runs") -> None:
        """The claim that training runs keep their checkpoints on."""
        if user_storage(self.session.settings):
            return
        facts = self.session.facts
        spec = {
            "accessModes": [facts.access_mode],
            "resources": {"requests": {"storage": "2Gi"}},
            "storageClassName": facts.storage_class,
        }
        metadata = {"name": name, "namespace": self.name, "labels": {LABEL: self.session.ident}}
        self.session.api.create(
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
        )

    # -- values of runs ----------------------------------------------------------------------------------------------

    def sleeper(self, name: str, slices: int = 1, *, priority: str = "", kind: str = "job-set") -> list[str]:
        """Options of submit for a run that holds slices and does nothing; on real nodes it ends by itself."""
        tree: Tree = {
            "run": {"name": name, "kind": kind, "maxRestarts": 2, "graceSeconds": 1},
            "team": {"name": self.name},
            "queue": {"priority": f"{self.name}-{priority}" if priority else ""},
            "image": split_image(self.session.settings.plain_image),
            "storage": {"kind": "local"},
        }
        if self.session.chips:
            tree["slice"] = {"accelerator": "v5e", "topology": "2x4", "count": slices}
            tree["run"]["command"] = ["sleep", "86400"]
        else:
            tree["slice"] = {"accelerator": "cpu", "hosts": HOSTS, "count": slices}
            tree["worker"] = {"cpu": "50m", "memory": "32Mi"}
            tree["run"]["command"] = ["sleep", "90"]
        return ["-f", self.session.desk.values(f"{self.name}-{name}", tree)]

    def filler(self, name: str, hosts: int, seconds: int, *, priority: str) -> list[str]:
        """Options of submit for a run of training hosts' size that sleeps for `seconds`."""
        tree: Tree = {
            "run": {"name": name, "kind": "job-set", "graceSeconds": 1, "command": ["sleep", str(seconds)]},
            "team": {"name": self.name},
            "queue": {"priority": f"{self.name}-{priority}"},
            "slice": {"accelerator": "cpu", "hosts": hosts},
            "worker": HOST,
            "image": split_image(self.session.settings.plain_image),
            "storage": {"kind": "local"},
        }
        return ["-f", self.session.desk.values(f"{self.name}-{name}", tree)]

    def trainer(self, name: str, kind: str, *, priority: str = "", cluster: str = "") -> list[str]:
        """Options of submit for a run that trains on CPU with two hosts; SLIPWAY_E2E_VALUES is laid over it."""
        tree: Tree = {
            "run": {"name": name, "kind": kind, "cluster": cluster, "maxRestarts": 2, "graceSeconds": 60},
            "team": {"name": self.name},
            "queue": {"priority": f"{self.name}-{priority}" if priority else ""},
            "slice": {"accelerator": "cpu", "hosts": HOSTS},
            "image": self.session.settings.image_values,
            "storage": {"kind": "pvc", "claim": "runs"},
            "head": HOST,
            "worker": HOST,
            "data": {"corpus": "python"},
            "train": TRAIN,
        }
        if user_storage(self.session.settings):
            del tree["storage"]
        options = ["-f", self.session.desk.values(f"{self.name}-{name}", tree)]
        if self.session.settings.values:
            options += ["-f", self.session.settings.values]
        return options

    # -- runs --------------------------------------------------------------------------------------------------------

    def submit(self, options: list[str], *more: str) -> Tree:
        """`launcher submit --detach`; the run's status."""
        made: Tree = self.session.desk.ask("submit", *options, "--detach", *more)
        return made

    def delete(self, run: str) -> None:
        """`launcher delete`; the run has ended."""
        done = self.session.desk.launcher("delete", run, "-n", self.name, "--yes")
        assert done.code == 0, str(done)

    def status(self, run: str) -> Tree:
        """`launcher status`."""
        found: Tree = self.session.desk.ask("status", run, "-n", self.name)
        return found

    def listed(self) -> dict[str, Tree]:
        """`launcher list`, by name."""
        return {run["name"]: run for run in self.session.desk.ask("list", "-n", self.name)}

    def becomes(self, run: str, *states: str, seconds: float) -> Tree:
        """The run's status once it has one of these states; at once in vain where it ends with another."""
        last: Tree = {}

        def look() -> Tree | None:
            last.clear()
            last.update(self.status(run))
            return dict(last) if last["state"] in states else None

        def never() -> str:
            ended = last.get("state") in ("succeeded", "failed", "cancelled")
            return f"It is {last['state']}: {last.get('reason') or 'no reason is known'}." if ended else ""

        found: Tree = self.session.desk.wait(
            f"the run {self.name}/{run} to be {' or '.join(states)}",
            look,
            seconds,
            run=run,
            namespace=self.name,
            seen=lambda: json.dumps({key: last.get(key) for key in ("state", "reason", "step", "restarts")}),
            never=never,
        )
        return found

    def pods(self, run: str) -> list[Object]:
        """The run's pods that have neither ended nor been told to."""
        found = self.session.api.items(f"/api/v1/namespaces/{self.name}/pods?labelSelector=slipway.dev/run={run}")
        ended = ("Succeeded", "Failed")
        return [p for p in found if p["status"].get("phase") not in ended and "deletionTimestamp" not in p["metadata"]]

    def finish(self, *runs: str) -> None:
        """The pods of these runs of `sleeper` end well: simulated ones because they are told to, real ones by time."""
        if self.session.chips:
            for run in runs:
                for pod in self.pods(run):
                    end_pod(self.session.api, pod)
        for run in runs:
            self.becomes(run, "succeeded", seconds=START)

    def workload(self, run: str, kind: str = "job-set") -> Object:
        """Kueue's Workload of the run."""
        owner = self.session.api.get(f"{PATHS[kind].format(self.name)}/{run}")["metadata"]["uid"]
        found = self.session.api.items(f"{KUEUE}/namespaces/{self.name}/workloads")
        return next(
            one for one in found if any(o["uid"] == owner for o in one["metadata"].get("ownerReferences") or [])
        )

    def log(self, file: Path) -> logs.Log:
        """What `launcher logs -f` has written to the file so far."""
        return logs.read(file.read_text(errors="replace"))

    def away(self) -> None:
        """All of the team's, whatever state a test has left it in; called after every test."""
        left = leftovers.clean(self.session.api, self.name, print, seconds=GONE * self.session.settings.patience)
        assert not left, f"These do not go: {', '.join(left)}"


def end_pod(api: Api, pod: Object, code: int = 0) -> None:
    """A simulated pod's containers end with this exit code; for nobody but KWOK plays them."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    reason = "Completed" if code == 0 else "Error"
    ready = {"status": "False", "reason": "PodCompleted", "lastTransitionTime": now}
    kept = [c for c in pod["status"].get("conditions") or [] if c["type"] not in ("Ready", "ContainersReady")]
    ended = {"exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now}
    status = {
        "phase": "Succeeded" if code == 0 else "Failed",
        "conditions": [*kept, {"type": "Ready", **ready}, {"type": "ContainersReady", **ready}],
        "containerStatuses": [
            {
                **{"name": container["name"], "image": container["image"], "imageID": ""},
                **{"ready": False, "started": False, "restartCount": 0, "state": {"terminated": ended}},
            }
            for container in pod["spec"]["containers"]
        ],
    }
    metadata = pod["metadata"]
    try:
        api.merge(f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status", {"status": status})
    except ApiError as error:
        if error.status != 404:  # gone by itself
            raise


def user_storage(settings: Settings) -> bool:
    """Whether SLIPWAY_E2E_VALUES says where training runs keep what they write."""
    if not settings.values:
        return False
    tree = yaml.safe_load(Path(settings.values).read_text())
    return bool(isinstance(tree, Mapping) and (tree.get("storage") or {}).get("kind"))
