"""Run the commands that pages show for a cluster: with a real API server, and recordings of Kueue, JobSet and KubeRay.

The options of a block: `cluster` runs the commands in the namespace of the team research. `replay=RECORDING run=NAME`
first submits a run. The first command of the block has its name, `slices=N` its size and `queue=NAME` its queue. Then
the recorded changes of the run NAME are applied to it, up to `until=SECONDS` if this option is set. This happens in a
separate namespace; the output shows its name as research. `served=STATUS` first installs the page's model.yaml as a
release, in a separate namespace in place of my-team. The first command has its name, and the RayService has the status
tests.cluster.fake_kuberay.STATUS.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import fake_kuberay, recordings
from tests.cluster.api import Api, ApiError, Object, path_of
from tests.cluster.control_loop import control_loop
from tests.cluster.control_plane import ControlPlane, add_namespace, remove_namespace
from tests.cluster.launching import PATHS, LauncherCli, add_team, remove_cluster_queue, until
from tests.cluster.recorded_cluster import base_cluster
from tests.cluster.replay import follow_as
from tests.docs.laptop import FreshMachine
from tests.docs.pages import Block, Page, runs_in_cluster
from tests.docs.shown import differs

TEAM = "research"
_MODELS_TEAM = "my-team"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
# The recordings' cluster has objects of these kinds. The queues of a page may have objects with the same names.
_SITE = ("resourceflavors", "workloadpriorityclasses")


@dataclass
class ClusterSession:
    """The control plane, used by a member of the team research who is also an administrator."""

    plane: ControlPlane
    laptop: FreshMachine

    def run(self, command: str, namespace: str = TEAM) -> str:
        """Run the command with `namespace` as the context's namespace, and return its output."""
        kubeconfig = str(self._kubeconfig(namespace))
        return self.laptop.run(command, KUBECONFIG=kubeconfig).replace(namespace, TEAM)

    def _kubeconfig(self, namespace: str) -> Path:
        config = json.loads(self.plane.kubeconfig_for("alice", ["system:masters"], namespace, "lab").read_text())
        config["clusters"][0]["name"] = config["contexts"][0]["context"]["cluster"] = "lab"
        file = self.laptop.folder.parent / "kubeconfig"
        file.write_text(json.dumps(config))
        return file

    def follow(self, page: Page) -> None:
        """Run the page's commands for a cluster. Fails with the output that differs from the page."""
        for block in page.blocks:
            if block.file:
                self.laptop.write(block.file, block.text)
            if not runs_in_cluster(block):
                continue
            if "served" in block.options:
                self._follow_model(page, block)
                continue
            namespace = self._play(block) if "replay" in block.options else TEAM
            for example in block.examples:
                difference = differs(example.shown, self.run(example.command, namespace))
                assert not difference, f"{page.name}, line {block.line}: $ {example.command}\n{difference}"

    def _follow_model(self, page: Page, block: Block) -> None:
        """Install the model of the block's first command, set its status, and run the commands in its namespace."""
        name = block.examples[0].command.split()[2]
        namespace = f"page-{secrets.token_hex(3)}"
        self.plane.add_namespace(namespace)
        add_team(self.plane, namespace)
        try:
            cli = LauncherCli(self.plane.admin, namespace, self.laptop.folder.parent / "values")
            sets = ("--set", f"team.namespace={namespace}", "--set", f"queue.name={namespace}")
            file = str(self.laptop.folder / "model.yaml")
            done = cli("install", "serve", name, "-f", file, *sets, "--timeout", "0", "-n", namespace)
            assert done.code == 0, done.err
            fake_kuberay.write(self.plane.api, namespace, name, getattr(fake_kuberay, block.options["served"]))
            for pod in fake_kuberay.add_pods(self.plane, namespace, name, f"{name}-1", ready=2, chips=8):
                until(functools.partial(self._is_running, f"/api/v1/namespaces/{namespace}/pods/{pod}"))
            for example in block.examples:
                printed = self.run(example.command.replace(_MODELS_TEAM, namespace), namespace)
                difference = differs(example.shown, printed.replace(TEAM, _MODELS_TEAM))
                assert not difference, f"{page.name}, line {block.line}: $ {example.command}\n{difference}"
        finally:
            remove_namespace(self.plane.api, namespace)
            remove_cluster_queue(self.plane.api, namespace)

    def _is_running(self, path: str) -> bool:
        return bool(self.plane.api.get(path).get("status", {}).get("phase") == "Running")

    def _play(self, block: Block) -> str:
        """Submit the run of the block's first command and replay the recording. Return the namespace."""
        options, recording = block.options, block.options["replay"]
        name = block.examples[0].command.split()[2]
        namespace = f"page-{secrets.token_hex(3)}"
        add_namespace(self.plane.api, namespace)
        cli = LauncherCli(self.plane.admin, namespace, self.laptop.folder.parent / "values")
        # The name of a recording shows whether its run is a RayJob.
        kind = "ray-job" if recording.startswith(("rayjob-", "head-")) else "job-set"
        queue, count = options.get("queue", "multislice"), int(options.get("slices", "1"))
        slices = {"accelerator": "v5e", "topology": "2x4", "count": count}
        file = cli.values(kind, name, queue={"name": queue}, slice=slices)
        done = cli("submit", "-f", file, "--detach", "--force")
        assert done.code == 0, done.err
        live = self.plane.api.get(f"{PATHS[kind].format(namespace)}/{name}")
        # The recording ended a minute ago: `explain` reports a state of a few seconds as progress.
        seconds = recordings.length(recordings.read(recording)) + 60
        start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)
        replayer = follow_as(self.plane, recording, live, run=options["run"], skip_queues=False, start=start)
        replayer.step_to(float(options["until"]) if "until" in options else None)
        return namespace


@contextlib.contextmanager
def queues_of_their_own(plane: ControlPlane) -> Iterator[None]:
    """Hide the flavors and priorities of the recordings' cluster in this context, and make queues active.

    A loop sets the status of queues, because Kueue's controller does not run here. At the end, everything that the page
    installed is removed.
    """
    base_cluster(plane)
    api = Api(plane.admin)
    away = [_bare(obj) for kind in _SITE for obj in api.items(f"{KUEUE}/{kind}")]
    before = _there(api)
    for obj in away:
        api.delete(path_of(obj))

    def kueue() -> None:
        for kind in ("ClusterQueue", "LocalQueue"):
            for queue in api.items(f"{KUEUE}/{kind.lower()}s"):
                if not queue.get("status", {}).get("conditions"):
                    condition = {
                        "type": "Active",
                        "status": "True",
                        "reason": "Ready",
                        "message": "Can admit workloads",
                    }
                    condition["lastTransitionTime"] = queue["metadata"]["creationTimestamp"]
                    path = path_of({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, **queue})
                    with contextlib.suppress(ApiError):  # deleted in the meantime
                        api.merge(f"{path}/status", {"status": {"conditions": [condition]}})

    try:
        with control_loop(kueue, every=0.2, revision=plane.revision, name="kueue"):
            yield
    finally:
        for path in _there(api) - before:
            with contextlib.suppress(ApiError):
                api.merge(path, {"metadata": {"finalizers": None}})
                api.delete(path)
        deadline = time.monotonic() + 120  # the next page may use the same namespaces
        while _there(api) - before and time.monotonic() < deadline:
            time.sleep(0.5)
        for obj in away:
            api.ensure(obj)
        api.close()


def _bare(obj: Object) -> Object:
    kept: Object = {key: obj[key] for key in ("apiVersion", "kind", "spec", "value", "description") if key in obj}
    kept["metadata"] = {key: obj["metadata"][key] for key in ("name", "labels") if key in obj["metadata"]}
    return kept


def _there(api: Api) -> set[str]:
    """Return the paths of all objects that a release of queues, and its runs, can leave in a cluster."""
    lists = {
        f"{KUEUE}/": ("clusterqueues", "cohorts", "resourceflavors", "topologies", "workloadpriorityclasses"),
        "/apis/admissionregistration.k8s.io/v1/": (
            *("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
        ),
        "/apis/rbac.authorization.k8s.io/v1/": ("clusterroles", "clusterrolebindings"),
        "/api/v1/": ("namespaces",),
    }
    return {
        f"{prefix}{kind}/{obj['metadata']['name']}"
        for prefix, kinds in lists.items()
        for kind in kinds
        for obj in api.items(f"{prefix}{kind}")
    }
