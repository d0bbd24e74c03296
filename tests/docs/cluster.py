"""Pages in front of a cluster: a real API server, with what Kueue, JobSet and KubeRay did to a run played into it.

A block's options: `cluster` asks the server as it is, from the team research's namespace. `replay=RECORDING run=NAME`
and, where not all of it is meant, `until=SECONDS` submit a run under the name that the block's first command has, of
`slices=N` in the queue `queue=NAME`, and let happen to it what happened to the recorded one; that is done in a
namespace of its own, whose name is printed as research.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.api import Api, ApiError, Object, path_of
from tests.cluster.control_loop import control_loop
from tests.cluster.control_plane import ControlPlane, add_namespace
from tests.cluster.launching import PATHS, LauncherCli
from tests.cluster.replay import follow_as
from tests.cluster.site import base_cluster
from tests.docs.laptop import FreshMachine
from tests.docs.pages import Block, Page, runs_in_cluster
from tests.docs.shown import differs

TEAM = "research"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
# What the recordings' site has, and a page's own queues may have under the same names.
_SITE = ("resourceflavors", "workloadpriorityclasses")


@dataclass
class ClusterSession:
    """Somebody of the team research, an admin too, in front of the control plane."""

    plane: ControlPlane
    laptop: FreshMachine

    def run(self, command: str, namespace: str = TEAM) -> str:
        """What it prints, with `namespace` as the context's."""
        kubeconfig = str(self._kubeconfig(namespace))
        return self.laptop.run(command, KUBECONFIG=kubeconfig).replace(namespace, TEAM)

    def _kubeconfig(self, namespace: str) -> Path:
        config = json.loads(self.plane.kubeconfig_for("alice", ["system:masters"], namespace, "lab").read_text())
        config["clusters"][0]["name"] = config["contexts"][0]["context"]["cluster"] = "lab"
        file = self.laptop.folder.parent / "kubeconfig"
        file.write_text(json.dumps(config))
        return file

    def follow(self, page: Page) -> None:
        """Do what the page says in front of a cluster; fails with what is not as shown."""
        for block in page.blocks:
            if block.file:
                self.laptop.write(block.file, block.text)
            if not runs_in_cluster(block):
                continue
            namespace = self._play(block) if "replay" in block.options else TEAM
            for example in block.examples:
                said = differs(example.shown, self.run(example.command, namespace))
                assert not said, f"{page.name}, line {block.line}: $ {example.command}\n{said}"

    def _play(self, block: Block) -> str:
        """The run of the block's first command, and what became of it; its namespace."""
        options, recording = block.options, block.options["replay"]
        name = block.examples[0].command.split()[2]
        namespace = f"page-{secrets.token_hex(3)}"
        add_namespace(self.plane.api, namespace)
        desk = LauncherCli(self.plane.admin, namespace, self.laptop.folder.parent / "values")
        # Some situations are of a RayJob; the recording tells by its name.
        kind = "ray-job" if recording.startswith(("rayjob-", "head-")) else "job-set"
        queue, count = options.get("queue", "multislice"), int(options.get("slices", "1"))
        slices = {"accelerator": "v5e", "topology": "2x4", "count": count}
        file = desk.values(kind, name, queue={"name": queue}, slice=slices)
        done = desk("submit", "-f", file, "--detach", "--force")
        assert done.code == 0, done.err
        live = self.plane.api.get(f"{PATHS[kind].format(namespace)}/{name}")
        player = follow_as(self.plane, recording, live, run=options["run"], skip_queues=False)
        player.step_to(float(options["until"]) if "until" in options else None)
        return namespace


@contextlib.contextmanager
def queues_of_their_own(plane: ControlPlane) -> Iterator[None]:
    """While this is open, the flavors and priorities of the recordings' site are away, and Kueue calls queues active.

    A stand-in for the latter, since Kueue's controller cannot be had here. What a page has installed goes at the end.
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
                    said = {"type": "Active", "status": "True", "reason": "Ready", "message": "Can admit workloads"}
                    said["lastTransitionTime"] = queue["metadata"]["creationTimestamp"]
                    path = path_of({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, **queue})
                    with contextlib.suppress(ApiError):  # gone in this moment
                        api.merge(f"{path}/status", {"status": {"conditions": [said]}})

    try:
        with control_loop(kueue, every=0.2, name="kueue"):
            yield
    finally:
        for path in _there(api) - before:
            with contextlib.suppress(ApiError):
                api.merge(path, {"metadata": {"finalizers": None}})
                api.delete(path)
        deadline = time.monotonic() + 120  # the next page may have namespaces of these names
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
    """The paths of what a release of queues, and runs in them, can leave in a cluster."""
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
