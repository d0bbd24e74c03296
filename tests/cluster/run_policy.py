"""Members of teams in front of the admission policy of charts/queues, and honest runs for them to change.

A real API server applies the chart's Roles and policies. The objects are those that the charts render. Most requests
are dry runs, which admission treats like any other.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from launcher.paths import charts_dir
from tests.charts.helm import template
from tests.charts.queues_chart import BASE, merged, render, tree
from tests.cluster.api import Api, ApiError, Object, path_of
from tests.cluster.control_plane import ControlPlane
from tests.cluster.test_rbac_workloads import until
from tests.tools import tool

OURS, THEIRS = "policy-research", "policy-product"
TEAMS = f"""
priorities: {{low: {{value: 1, pods: true}}, normal: {{value: 2, pods: true}}, high: {{value: 3}}}}
policies: {{nodeLabels: [example.com/pool], tolerations: [example.com/slow], gatewayClasses: [istio]}}
teams:
  research:
    namespace: {OURS}
    members: {{alice: User}}
    createClusters: true
    clusters: [shared]
    k8sTokenAuth: true
    helm: true
    allow: {{buckets: [runs, texts]}}
  product:
    namespace: {THEIRS}
    members: {{bob: User}}
    podSecurity: privileged
    priorities: [low]
    allow:
      autoscaling: true
      queues: [night]
      serviceAccounts: [loader]
      buckets: [models]
      csiDrivers: [scratch.example.com]
      claims: [ours]
      capabilities: [IPC_LOCK]
"""
KINDS = {
    *("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"),
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
}
# The rights of the controllers on runs, as their installations grant them.
CONTROLLER: Object = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "policy-controller"},
    "rules": [
        {
            "apiGroups": ["ray.io", "jobset.x-k8s.io"],
            "resources": [*("rayjobs", "rayclusters", "jobsets"), *("rayclusters/status", "jobsets/status")],
            "verbs": ["get", "create", "patch", "update", "delete"],
        }
    ],
}
CONTROLLER_BINDING: Object = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "policy-controller"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "policy-controller"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "operator"}],
}
RUN = """
run: {kind: KIND, name: demo}
team: {name: TEAM, namespace: SPACE}
slice: {accelerator: v6e, topology: 4x4}
image: {repository: example.invalid/trainer, tag: v1}
storage: {kind: gcsfuse, bucket: runs}
data: {files: [/data/text]}
train: {model_name: llama3-8b, steps: 30}
"""
SERVE = """
team: {name: TEAM, namespace: SPACE}
slice: {accelerator: v6e, topology: 2x2}
image: {repository: example.invalid/server, tag: v1}
storage: {kind: gcsfuse, bucket: runs}
serve: {model: models/llama, apiKey: {name: key}}
"""
QUEUE, PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
OWNER = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "tiny", "uid": "1-2", "controller": True}

Change = Callable[[Object], None]


class Users(NamedTuple):
    admin: Api
    alice: Api  # a member of the team research, who may create Ray clusters
    bob: Api  # a member of the team product, whose team has every exception
    operator: Api  # a controller: may update the status of a run
    objects: dict[str, Object]  # a run of research of each kind, its long-lived Ray cluster, and its served model

    def attempt(self, user: Api, obj: Object, *, name: str = "") -> str:
        """Create an object in a dry run. Returns the message of the API server if it refuses, else ""."""
        made = renamed(obj, name) if name else copy.deepcopy(obj)
        path = path_of({**made, "metadata": {"name": "x", **made["metadata"]}}).rpartition("/")[0]
        try:
            user.request("POST", f"{path}?dryRun=All", made)
        except ApiError as error:
            return str(error.body["message"])
        return ""

    def patch(self, user: Api, obj: Object, change: Object) -> str:
        try:
            user.request("PATCH", f"{path_of(obj)}?dryRun=All", change, "application/merge-patch+json")
        except ApiError as error:
            return str(error.body["message"])
        return ""


@contextlib.contextmanager
def installed(control_plane: ControlPlane, folder: Path, over: Mapping[str, Any] | None = None) -> Iterator[Users]:
    """Install the Roles and policies of charts/queues for TEAMS, with `over` merged into the values."""
    values = merged(merged(BASE, tree(TEAMS)), dict(over or {}))
    rendered = render(tool("helm"), values, folder)
    ours = [obj for obj in rendered if obj["metadata"].get("namespace", OURS) in (OURS, THEIRS)]
    made = [obj for obj in ours if obj["kind"] in KINDS] + [CONTROLLER, CONTROLLER_BINDING]
    for name in (OURS, THEIRS):
        control_plane.add_namespace(name)
    for obj in made:
        control_plane.api.create(obj)
    alice, bob, operator = (Api(control_plane.kubeconfig_for(name)) for name in ("alice", "bob", "operator"))
    found = Users(control_plane.api, alice, bob, operator, rendered_runs(folder))
    try:
        # Rights and policies take effect with a delay.
        until(lambda: "'x-runs'" in found.attempt(found.alice, without_queue(found.objects["JobSet"])))
        until(lambda: found.attempt(found.alice, found.objects["RayCluster"]) == "")
        until(lambda: found.attempt(found.operator, without_queue(found.objects["JobSet"])) == "")
        yield found
    finally:
        for user in (alice, bob, operator):
            user.close()
        # The namespaces stay for the next file: Kubernetes needs seconds to delete one.
        for obj in made:
            control_plane.api.delete(path_of(obj))


def many_teams(count: int = 200) -> dict[str, Any]:
    """Return values for teams that differ in what the policy has tables of."""
    return {
        f"team-number-{n}": {
            "clusterQueue": "research",
            "members": {f"user-{n}": "User"},
            "priorities": ["low"] if n % 2 else [],
            "allow": {"buckets": [f"bucket-of-team-{n}"], "queues": [f"night-{n}"], "serviceAccounts": [f"loader-{n}"]},
        }
        for n in range(count)
    }


def seconds_added(found: Users) -> float:
    """Return the seconds that the policy adds to a create: the median of a member, minus that of an administrator.

    An administrator has the same path without the policy. They alternate, because the load of the machine changes.
    """
    times: dict[str, list[float]] = {"admin": [], "alice": []}
    for kind in ("JobSet", "RayJob") * 20:
        for name, user in (("admin", found.admin), ("alice", found.alice)):
            start = time.perf_counter()
            assert found.attempt(user, found.objects[kind]) == ""
            times[name].append(time.perf_counter() - start)
    return statistics.median(times["alice"]) - statistics.median(times["admin"])


def rendered_runs(folder: Path, team: str = "research", space: str = OURS, over: str = "") -> dict[str, Object]:
    """Return what each chart renders for a team, by kind; with the text `over` added to the values."""
    objects: dict[str, Object] = {}
    for chart, kind in (("run", "job-set"), ("run", "ray-job"), ("ray-cluster", "ray-cluster"), ("serve", "serve")):
        file, more = folder / f"{team}-{kind}.yaml", folder / f"{team}-{kind}-more.yaml"
        text = (SERVE if chart == "serve" else RUN).replace("KIND", kind).replace("TEAM", team).replace("SPACE", space)
        file.write_text(text.replace("run: {", "run: {cluster: demo, ") if chart == "ray-cluster" else text)
        more.write_text(over or "{}")
        (obj,) = yaml.safe_load_all(template(tool("helm"), charts_dir() / chart, [file, more], "--namespace", space))
        objects[obj["kind"]] = obj
    return objects


def renamed(obj: Object, name: str) -> Object:
    """Return a copy with another name, which the labels have, too."""
    old = obj["metadata"]["name"]

    def walk(node: Any, key: str = "") -> Any:
        if isinstance(node, dict):
            return {below: walk(value, below) for below, value in node.items()}
        if isinstance(node, list):
            return [walk(value) for value in node]
        named = key == "name" or key.startswith(("app.kubernetes.io/name", "slipway.dev/"))
        return name if named and node == old else node

    made: Object = walk(obj)
    return made


def without_queue(obj: Object) -> Object:
    made = copy.deepcopy(obj)
    del made["metadata"]["labels"][QUEUE]
    return made


def set_at(*keys: str | int, value: Any) -> Change:
    """Return a function that sets the value at the keys of an object. A list gets an item if the key is its length."""

    def change(obj: Object) -> None:
        node: Any = obj
        for key, after in itertools.pairwise((*keys, "")):
            last = after == ""
            below: Any = copy.deepcopy(value) if last else [] if isinstance(after, int) else {}
            if isinstance(node, list) and key == len(node):
                node.append(below)
            elif last or (isinstance(node, dict) and key not in node):
                node[key] = below
            node = node[key]

    return change


def without(*keys: str | int) -> Change:
    """Return a function that removes the key of an object."""

    def change(obj: Object) -> None:
        node: Any = obj
        for key in keys[:-1]:
            node = node[key]
        del node[keys[-1]]

    return change
