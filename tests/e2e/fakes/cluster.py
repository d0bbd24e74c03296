"""A cluster in which the suite finds Kueue, JobSet, KubeRay and KWOK.

The control plane (tests/cluster) and KWOK are real. Everything else is fake; __init__.py gives the reason.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
from collections.abc import Callable, Iterator, Sequence

import urllib3

from tests.cluster.api import Api, ApiError, Object
from tests.cluster.control_loop import control_loop
from tests.cluster.control_plane import ControlPlane, add_namespace
from tests.cluster.nodes import nodes
from tests.e2e.facts import WITHOUT_RAY
from tests.e2e.fakes.jobset import JobSets
from tests.e2e.fakes.kubelet import Kubelets
from tests.e2e.fakes.kuberay import KubeRay
from tests.e2e.fakes.kueue import Kueue
from tests.e2e.fakes.replicas import replicas
from tests.e2e.fakes.trainer import Trainer

IMAGES = {
    "kueue": ("kueue-system", "kueue/kueue:v0.19.2"),
    "jobset": ("jobset-system", "jobset/jobset:v0.12.0"),
    "kuberay": ("kuberay-operator", "kuberay/operator:v1.7.0"),
    "kwok": ("kube-system", "kwok/kwok:v0.8.0"),
}


@contextlib.contextmanager
def controllers(plane: ControlPlane, which: Sequence[str] = tuple(IMAGES), machines: int = 1) -> Iterator[None]:
    """While this is open, the controllers `which` (keys of IMAGES) appear installed, and `machines` nodes accept
    ordinary pods."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    made = nodes("machine", "cpu", "", machines, 0, {}, plane.log_server.port, now)
    for node in made:
        node["metadata"]["annotations"] = {}  # without its annotation, KWOK leaves the node to the fake kubelet
        # The API server forwards a command in a pod as a websocket. To other kubelets it speaks SPDY.
        node["status"]["declaredFeatures"] = ["ExtendWebSocketsToKubelet"]
        node["status"]["addresses"] = [{"type": "InternalIP", "address": "127.0.0.1"}]
    plane.create_all(made)
    steps: list[Callable[[Api], Callable[[], None]]] = []
    trainer = Trainer(lambda key, lines: plane.log_server.write(key, lines))
    known: dict[str, Callable[[Api], Callable[[], None]]] = {
        "kueue": lambda api: Kueue(api).step,
        "jobset": lambda api: JobSets(api).step,
        "kuberay": lambda api: KubeRay(api, trainer, serving).step,
    }
    steps = [known[name] for name in which if name in known]
    with contextlib.ExitStack() as stack:
        serving = stack.enter_context(replicas())
        Kubelets(plane.api, trainer, serving, plane.log_server).make_class()
        # Its pods proceed with the time, without a change of an object.
        kubelets = _run_step(plane, lambda api: Kubelets(api, trainer, serving, plane.log_server).step, timed=True)
        stack.enter_context(kubelets)
        for name in which:
            _install(plane, *IMAGES[name])
        for step in steps:
            stack.enter_context(_run_step(plane, step))
        yield
    for name in which:
        _uninstall(plane, IMAGES[name][0])
    for node in made:
        plane.api.delete(f"/api/v1/nodes/{node['metadata']['name']}")
    plane.api.delete("/apis/storage.k8s.io/v1/storageclasses/fake")


@contextlib.contextmanager
def _run_step(plane: ControlPlane, make: Callable[[Api], Callable[[], None]], *, timed: bool = False) -> Iterator[None]:
    """While this is open, a thread repeats the step. An exception of the step is raised at the end."""
    with contextlib.closing(Api(plane.admin)) as api:
        step = make(api)

        def ignore_conflicts() -> bool:
            try:
                step()
            except (ApiError, urllib3.exceptions.HTTPError) as error:
                # Two controllers wrote to one object, or it was deleted. The next step reads it again. Any other error
                # is a bug.
                if isinstance(error, ApiError) and error.status not in (404, 409):
                    raise
                return True
            return False

        with control_loop(ignore_conflicts, revision=None if timed else plane.revision, name="fake-controller"):
            yield


def _install(plane: ControlPlane, namespace: str, image: str) -> None:
    """Create a Deployment like the controller's own, and wait until the fake kubelet runs its pod."""
    add_namespace(plane.api, namespace)
    labels = {"app": image.partition("/")[0]}
    container = {"name": "manager", "image": image}
    spec: Object = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    metadata = {
        "name": f"{labels['app']}-controller",
        "namespace": namespace,
        "annotations": {WITHOUT_RAY: "the fake KubeRay starts no Ray"} if image.startswith("kuberay/") else {},
    }
    plane.api.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{metadata['name']}"
    for _ in range(300):
        if plane.api.get(path)["status"].get("availableReplicas"):
            return
        threading.Event().wait(0.1)
    raise AssertionError(f"{namespace} has no available pod")


def _uninstall(plane: ControlPlane, namespace: str) -> None:
    for deployment in plane.api.items(f"/apis/apps/v1/namespaces/{namespace}/deployments"):
        plane.api.delete(f"/apis/apps/v1/namespaces/{namespace}/deployments/{deployment['metadata']['name']}")
