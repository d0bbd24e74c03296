"""Teams that a test creates for itself, with their own queues, and runs in these queues."""

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
from tests.e2e.cli import Cli
from tests.e2e.members import Member
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
"""The requests of a host, and of the head, of a training run."""

ADMIT, START, TRAINED, REMOVED = 120.0, 600.0, 1200.0, 180.0
"""Time limits in seconds: admission by Kueue; the start of pods, including the pull of the image; a whole training; the
end of pods."""


@dataclass
class Session:
    """One run of the suite. `ident` is its id, with which all names begin."""

    settings: Settings
    facts: Facts
    ident: str
    api: Api
    cli: Cli
    folder: Path
    charts: Path | None = None
    skipped: dict[str, list[Any]] = field(default_factory=dict)
    teams: int = 0

    @property
    def chips(self) -> bool:
        """Whether slices have simulated chips. If not, they are shares of the cpu of real nodes."""
        return not self.facts.simulated

    def make_nodes(self) -> None:
        """Create the simulated slices, once in a session. Only pods of queues with the session's flavor run there."""
        if self.api.find(f"/api/v1/nodes/{self.ident}-a-0") is not None:
            return
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for letter in "abc"[:POOLS]:
            mark = {LABEL: self.ident}
            made = simulated.nodes(
                f"{self.ident}-{letter}", "tpu-v5-lite-podslice", "2x4", HOSTS, CHIPS, mark, 10250, now
            )
            for node in made:
                # Only the controller of a cloud provider deletes nodes that have no machine.
                self.api.create(node)


@dataclass
class Team:
    """A team of one test. Its namespace, ClusterQueue, LocalQueue and release all have the same name.

    `member` submits and reads the runs; the administrator (`session.cli`) installs the queues and the storage.
    """

    session: Session
    name: str
    member: Member
    values: Tree = field(default_factory=dict)
    queues: bool = False

    # -- queues ------------------------------------------------------------------------------------------------------

    def slices(self, count: int = POOLS, *, preemption: bool = False, clusters: tuple[str, ...] = ()) -> Tree:
        """Values of charts/queues with quota for `count` slices of runs of `sleeper`."""
        if self.session.chips:
            flavor = {"accelerator": "v5e", "topology": "2x4", "nodeLabels": {LABEL: self.session.ident}}
            queue: Tree = {"chipsAlone": True, "quota": {f"{self.name}-v5e": {"slices": count}}}
            flavors: Tree = {f"{self.name}-v5e": flavor}
        else:
            cores, memory = count * HOSTS * 50, count * HOSTS * 32
            flavors = {f"{self.name}-cpu": {"accelerator": "cpu"}}
            queue = {"quota": {f"{self.name}-cpu": {"cpu": f"{cores}m", "memory": f"{memory}Mi"}}}
        return self._queues(flavors, queue, preemption, clusters)

    def hosts(
        self,
        hosts: int,
        heads: int = 0,
        *,
        preemption: bool = False,
        clusters: tuple[str, ...] = (),
        helm: bool = False,
    ) -> Tree:
        """Values of charts/queues with quota for that many hosts and heads of training runs.

        helm: whether members may install releases, such as served models.
        """
        amount = hosts + heads
        quota = {"cpu": f"{amount * 500}m", "memory": f"{amount * 3}Gi"}
        flavors = {f"{self.name}-cpu": {"accelerator": "cpu"}}
        return self._queues(flavors, {"quota": {f"{self.name}-cpu": quota}}, preemption, clusters, helm)

    def _queues(
        self, flavors: Tree, queue: Tree, preemption: bool, clusters: tuple[str, ...], helm: bool = False
    ) -> Tree:
        if preemption:
            queue["preemption"] = {"withinClusterQueue": "LowerPriority"}
        controller = self.session.facts.controllers.get("kuberay")
        operators = ["gke-managed-ray-operator", "kuberay-operator", "kuberay-system", "ray-system"]
        if controller is not None and controller.namespace not in operators:
            operators.append(controller.namespace)
        # Members install long-lived clusters and served models themselves: Helm's release is a Secret.
        own_clusters = {"clusters": list(clusters), "createClusters": True} if clusters else {}
        cidrs = [f"{address}/{128 if ':' in address else 32}" for address in self.session.facts.node_addresses[:50]]
        return {
            "flavors": flavors,
            "clusterQueues": {self.name: queue},
            "teams": {
                self.name: {
                    "clusterQueue": self.name,
                    "members": {self.member.account: "ServiceAccount"},
                    "helm": helm or bool(clusters),
                    **own_clusters,
                }
            },
            # Priority classes are cluster-scoped. The test creates its own and leaves the default ones alone.
            "priorities": {
                **dict.fromkeys(("low", "normal", "high")),
                f"{self.name}-low": {"value": 100},
                f"{self.name}-high": {"value": 1000},
            },
            "network": {"operatorNamespaces": operators, "proxyCidrs": cidrs},
        }

    def install(self, values: Tree) -> Tree:
        """Run `launcher install queues` and return its JSON. The release is in the session's namespace."""
        self.values, self.queues = values, True
        file = self.session.cli.values(f"{self.name}-queues", values)
        made: Tree = self.session.cli.query("install", "queues", self.name, "-f", file, "-n", self.session.ident)
        return made

    def uninstall(self, *options: str) -> Tree:
        """Run `launcher uninstall` and return its JSON."""
        made: Tree = self.session.cli.query("uninstall", self.name, "-n", self.session.ident, "--yes", *options)
        self.queues = False
        return made

    def make_claim(self, name: str = "runs") -> None:
        """Create the claim for the checkpoints of training runs."""
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

    def sleeper(
        self, name: str, slices: int = 1, *, priority: str = "", kind: str = "job-set", action: str = "RestartJobSet"
    ) -> list[str]:
        """Options of submit for a run that holds slices and does nothing. On real nodes it ends after 90 seconds.

        action: run.restartAction.
        """
        tree: Tree = {
            "run": {"name": name, "kind": kind, "maxRestarts": 2, "restartAction": action, "graceSeconds": 1},
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
        return ["-f", self.session.cli.values(f"{self.name}-{name}", tree)]

    def filler(self, name: str, hosts: int, seconds: int, *, priority: str) -> list[str]:
        """Options of submit for a run that sleeps for `seconds` on hosts of a training run's size."""
        tree: Tree = {
            "run": {"name": name, "kind": "job-set", "graceSeconds": 1, "command": ["sleep", str(seconds)]},
            "team": {"name": self.name},
            "queue": {"priority": f"{self.name}-{priority}"},
            "slice": {"accelerator": "cpu", "hosts": hosts},
            "worker": HOST,
            "image": split_image(self.session.settings.plain_image),
            "storage": {"kind": "local"},
        }
        return ["-f", self.session.cli.values(f"{self.name}-{name}", tree)]

    def trainer(
        self, name: str, kind: str, *, priority: str = "", cluster: str = "", slices: bool = False
    ) -> list[str]:
        """Options of submit for a run that trains on two CPU hosts. The file in SLIPWAY_E2E_VALUES overrides them.

        slices: each host is a slice, which JobSet restarts alone.
        """
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
        if slices:
            tree["slice"] |= {"hosts": 1, "count": HOSTS}
            tree["run"]["restartAction"] = "RestartJob"
        if user_storage(self.session.settings):
            del tree["storage"]
        options = ["-f", self.session.cli.values(f"{self.name}-{name}", tree)]
        if self.session.settings.values:
            options += ["-f", self.session.settings.values]
        return options

    def model(self, name: str, replicas: int) -> list[str]:
        """Options of serve for a model with this name in requests, on hosts of half a core."""
        tree: Tree = {
            "team": {"name": self.name},
            "slice": {"accelerator": "cpu"},
            "image": self.session.settings.image_values,
            "storage": {"kind": "pvc", "claim": "runs"},
            "run": {"graceSeconds": 5},
            "head": {"cpu": "250m", "memory": "2Gi"},
            "worker": {"cpu": "500m", "memory": "2Gi"},
            "serve": {
                "engine": "mlx",
                "name": name,
                "replicas": {"min": replicas, "max": replicas},
                # The suite sends requests by the API server's proxy, which removes the header with the key.
                "apiKey": {"required": False},
                "upgrade": {"deleteOldSeconds": 10},
                "health": {"drainSeconds": 5},
            },
        }
        if user_storage(self.session.settings):
            del tree["storage"]
        options = ["-f", self.session.cli.values(f"{self.name}-{name}-{replicas}", tree)]
        if self.session.settings.values:
            options += ["-f", self.session.settings.values]
        return options

    # -- runs --------------------------------------------------------------------------------------------------------

    def submit(self, options: list[str], *more: str) -> Tree:
        """Run `launcher submit --detach` and return the run's status."""
        made: Tree = self.member.query("submit", *options, "--detach", *more)
        return made

    def write(self, name: str, folder: str, files: Mapping[str, str], kind: str = "job-set") -> None:
        """Write files into a folder of the claim, with a run of this name and kind."""
        program = (
            f"import json, pathlib; folder = pathlib.Path({folder!r}); folder.mkdir(parents=True, exist_ok=True); "
            f"[(folder / name).write_text(text) for name, text in json.loads({json.dumps(files)!r}).items()]"
        )
        alone: Tree = {"run": {"command": ["python", "-c", program]}, "slice": {"hosts": 1}}
        file = self.member.values(f"{self.name}-{name}-program", alone)
        self.submit([*self.trainer(name, kind), "-f", file])
        self.becomes(name, "succeeded", seconds=START)

    def delete(self, run: str) -> None:
        """Run `launcher delete` for a run that has ended."""
        done = self.member.launcher("delete", run, "-n", self.name, "--yes")
        assert done.code == 0, str(done)

    def status(self, run: str) -> Tree:
        """The JSON of `launcher status`."""
        found: Tree = self.member.query("status", run, "-n", self.name)
        return found

    def listed(self) -> dict[str, Tree]:
        """The runs of `launcher list`, by name."""
        return {run["name"]: run for run in self.member.query("list", "-n", self.name)}

    def becomes(self, run: str, *states: str, seconds: float) -> Tree:
        """Wait until the run has one of these states and return its status. Fails at once if it ends in another."""
        last: Tree = {}

        def reached() -> Tree | None:
            last.clear()
            last.update(self.status(run))
            return dict(last) if last["state"] in states else None

        def impossible() -> str:
            ended = last.get("state") in ("succeeded", "failed", "cancelled")
            return f"It is {last['state']}: {last.get('reason') or 'no reason is known'}." if ended else ""

        found: Tree = self.member.wait(
            f"the run {self.name}/{run} to be {' or '.join(states)}",
            reached,
            seconds,
            run=run,
            namespace=self.name,
            seen=lambda: json.dumps({key: last.get(key) for key in ("state", "reason", "step", "restarts")}),
            impossible=impossible,
        )
        return found

    def pods(self, run: str) -> list[Object]:
        """The run's pods that have not ended and are not being deleted."""
        found = self.session.api.items(f"/api/v1/namespaces/{self.name}/pods?labelSelector=slipway.dev/run={run}")
        ended = ("Succeeded", "Failed")
        return [p for p in found if p["status"].get("phase") not in ended and "deletionTimestamp" not in p["metadata"]]

    def finish(self, *runs: str) -> None:
        """Let these runs of `sleeper` succeed: end simulated pods here, and wait for real pods to end."""
        if self.session.chips:
            for run in runs:
                for pod in self.pods(run):
                    end_pod(self.session.api, pod)
        for run in runs:
            self.becomes(run, "succeeded", seconds=START)

    def workload(self, run: str, kind: str = "job-set") -> Object:
        """The run's Workload."""
        owner = self.session.api.get(f"{PATHS[kind].format(self.name)}/{run}")["metadata"]["uid"]
        found = self.session.api.items(f"{KUEUE}/namespaces/{self.name}/workloads")
        return next(
            one for one in found if any(o["uid"] == owner for o in one["metadata"].get("ownerReferences") or [])
        )

    def log(self, file: Path) -> logs.Log:
        """The output of `launcher logs -f` in `file` so far."""
        return logs.read(file.read_text(errors="replace"))

    def remove(self) -> None:
        """Remove all objects of the team, in any state. Runs after every test."""
        left = leftovers.clean(self.session.api, self.name, print, seconds=REMOVED * self.session.settings.patience)
        assert not left, f"These objects were not removed: {', '.join(left)}"


def end_pod(api: Api, pod: Object, code: int = 0) -> None:
    """End a simulated pod's containers with this exit code: no kubelet does, because KWOK simulates the pod."""
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
        if error.status != 404:  # already deleted
            raise


def user_storage(settings: Settings) -> bool:
    """Whether the file in SLIPWAY_E2E_VALUES sets the storage of training runs."""
    if not settings.values:
        return False
    tree = yaml.safe_load(Path(settings.values).read_text())
    return bool(isinstance(tree, Mapping) and (tree.get("storage") or {}).get("kind"))
