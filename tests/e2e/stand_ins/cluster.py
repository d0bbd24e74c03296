"""A cluster that the suite takes for one with Kueue, JobSet, KubeRay and KWOK. It proves nothing of the first three:
tests/cluster's control plane is real, KWOK is, and the rest are stand-ins (see __init__.py)."""

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
from tests.e2e.stand_ins.jobset import JobSets
from tests.e2e.stand_ins.kubelet import Kubelets
from tests.e2e.stand_ins.kuberay import KubeRay
from tests.e2e.stand_ins.kueue import Kueue
from tests.e2e.stand_ins.trainer import Trainer

IMAGES = {
    "kueue": ("kueue-system", "kueue/kueue:v0.19.2"),
    "jobset": ("jobset-system", "jobset/jobset:v0.12.0"),
    "kuberay": ("kuberay-operator", "kuberay/operator:v1.7.0"),
    "kwok": ("kube-system", "kwok/kwok:v0.8.0"),
}


@contextlib.contextmanager
def controllers(plane: ControlPlane, which: Sequence[str] = tuple(IMAGES), machines: int = 1) -> Iterator[None]:
    """While this is open, `which` of IMAGES seem to be installed, and `machines` nodes take ordinary pods."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    made = nodes("machine", "cpu", "", machines, 0, {}, plane.log_server.port, now)
    for node in made:
        node["metadata"]["annotations"] = {}  # KWOK leaves it to the stand-in
        node["status"]["addresses"] = [{"type": "InternalIP", "address": "127.0.0.1"}]
    plane.create_all(made)
    steps: list[Callable[[Api], Callable[[], None]]] = []
    trainer = Trainer(lambda key, lines: plane.log_server.write(key, lines))
    known: dict[str, Callable[[Api], Callable[[], None]]] = {
        "kueue": lambda api: Kueue(api).step,
        "jobset": lambda api: JobSets(api).step,
        "kuberay": lambda api: KubeRay(api, trainer).step,
    }
    steps = [known[name] for name in which if name in known]
    kubelets = Kubelets(plane.api, trainer, plane.log_server)
    kubelets.make_class()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_going_on(plane, lambda api: Kubelets(api, trainer, plane.log_server).step))
        for name in which:
            _install(plane, *IMAGES[name])
        for step in steps:
            stack.enter_context(_going_on(plane, step))
        yield
    for name in which:
        _uninstall(plane, IMAGES[name][0])
    for node in made:
        plane.api.delete(f"/api/v1/nodes/{node['metadata']['name']}")
    plane.api.delete("/apis/storage.k8s.io/v1/storageclasses/stand-in")


@contextlib.contextmanager
def _going_on(plane: ControlPlane, make: Callable[[Api], Callable[[], None]]) -> Iterator[None]:
    """The step again and again in a thread of its own; what it raises is raised at the end."""
    with contextlib.closing(Api(plane.admin)) as api:
        step = make(api)

        def patiently() -> None:
            try:
                step()
            except (ApiError, urllib3.exceptions.HTTPError) as error:
                # Two write to one object, or it goes: the next look sees it as it is. All else is a bug.
                if isinstance(error, ApiError) and error.status not in (404, 409):
                    raise

        with control_loop(patiently, name="stand-in"):
            yield


def _install(plane: ControlPlane, namespace: str, image: str) -> None:
    """A Deployment as the controller's own would look, whose pod a stand-in kubelet runs."""
    add_namespace(plane.api, namespace)
    labels = {"app": image.partition("/")[0]}
    container = {"name": "manager", "image": image}
    spec: Object = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    metadata = {"name": f"{labels['app']}-controller", "namespace": namespace}
    plane.api.create({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{metadata['name']}"
    for _ in range(300):
        if plane.api.get(path)["status"].get("availableReplicas"):
            return
        threading.Event().wait(0.1)
    raise AssertionError(f"{namespace} has no pod that runs")


def _uninstall(plane: ControlPlane, namespace: str) -> None:
    for deployment in plane.api.items(f"/apis/apps/v1/namespaces/{namespace}/deployments"):
        plane.api.delete(f"/apis/apps/v1/namespaces/{namespace}/deployments/{deployment['metadata']['name']}")
