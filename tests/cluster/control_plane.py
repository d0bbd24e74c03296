"""A real Kubernetes control plane on this machine: etcd, API server, controller manager, scheduler, and KWOK.

    with ControlPlane.start(with_crds=True) as plane:
        plane.add_nodes("v6e-a", "tpu-v6e-slice", "4x4", hosts=4, chips=4)
        kubeconfig = plane.kubeconfig_for("alice", ["research"], namespace="research")

Real: admission, validation, RBAC, garbage collection, Jobs, scheduling, the service proxy. Simulated: nodes and their
pods (KWOK starts, ends and deletes them without a container), logs (kubelet.py). Missing: Kueue, JobSet and KubeRay;
replay.py replays what they wrote, and fake_controllers.py does the few things that tests need live.

All processes run as this user on loopback, on free ports, in a folder under /tmp that is removed at the end. There is
no pod network. A Service reaches a process of this machine through a pod with the machine's own address (`serve`),
because the API server proxies only to addresses of pods, and not to loopback addresses.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import datetime
import json
import signal
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil
import urllib3

from tests.cluster import crds, flags
from tests.cluster.api import Api, ApiError
from tests.cluster.certificates import Authority
from tests.cluster.kubelet import LogServer
from tests.cluster.nodes import nodes
from tests.cluster.processes import Processes
from tests.tools import tool

API_SERVER = "kube-apiserver"
_FINALIZED = tuple(
    f"/{api}/namespaces/{{}}/{plural}"
    for api, plural in (
        ("apis/kueue.x-k8s.io/v1beta2", "workloads"),
        ("apis/ray.io/v1", "rayjobs"),
        ("apis/ray.io/v1", "rayclusters"),
        ("apis/ray.io/v1", "rayservices"),
        ("apis/jobset.x-k8s.io/v1alpha2", "jobsets"),
        ("apis/batch/v1", "jobs"),
        ("api/v1", "pods"),
    )
)
BINARIES = ("etcd", API_SERVER, "kube-controller-manager", "kube-scheduler", "kwok")


class ControlPlane:
    """One running control plane. `api` is a client with the rights of a cluster admin, `admin` its kubeconfig."""

    def __init__(self) -> None:
        self.processes = Processes("slipway-cluster-")
        self.folder = self.processes.folder
        pki = self.folder / "pki"
        pki.mkdir()
        self.authority = Authority(pki)
        self.etcd_port, self.etcd_peer_port, self.port = free_ports(3)
        self.server = f"https://127.0.0.1:{self.port}"
        self._issued: dict[tuple[str, tuple[str, ...]], tuple[Path, Path]] = {}
        self._kubeconfigs = 0
        self._flags: list[str] = []
        self.log_server = LogServer(*self.authority.issue("kubelet", hosts=("127.0.0.1",)))
        self.admin = self.kubeconfig_for("admin", ["system:masters"], context="admin")
        self.api = Api(self.admin)

    @classmethod
    def start(cls, *, with_crds: bool | dict[str, str] = False, attempts: int = 3, emulates: str = "") -> Self:
        """Start a control plane and wait until it is ready. Raises RuntimeError with the ends of its logs.

        with_crds: install upstream's CRDs (of these versions, by default the newest) before the controller manager
        starts, so that ResourceQuotas count their objects at once; it notices later CRDs only from time to time.
        Retries if another process took a free port first. `emulates` is an older version of Kubernetes, whose APIs and
        CEL the API server has then.
        """
        for attempt in range(attempts):
            plane = cls()
            try:
                plane._start(with_crds=with_crds, emulates=emulates)
            except RuntimeError as error:
                plane.stop()
                if attempt + 1 == attempts or "address already in use" not in str(error):
                    raise
            except BaseException:
                plane.stop()
                raise
            else:
                return plane
        raise AssertionError("unreachable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- users ---------------------------------------------------------------------------------------------------

    def kubeconfig_for(
        self,
        user: str,
        groups: Iterable[str] = (),
        namespace: str = "default",
        context: str | None = None,
        *,
        token: str | None = None,
    ) -> Path:
        """Write a new kubeconfig for `user`, with a client certificate, or with `token` (any text, valid or not).

        context: its name, by default "<user>@test".
        """
        context = context or f"{user}@test"
        if token is None:
            key = (user, tuple(groups))
            if key not in self._issued:
                self._issued[key] = self.authority.issue(*key)
            certificate, private = self._issued[key]
            credentials = {"client-certificate": str(certificate), "client-key": str(private)}
        else:
            credentials = {"token": token}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": self.server, "certificate-authority": str(self.authority.certificate)},
                }
            ],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": context, "context": {"cluster": "test", "user": user, "namespace": namespace}}],
            "current-context": context,
        }
        self._kubeconfigs += 1
        file = self.folder / f"{self._kubeconfigs}.kubeconfig"
        file.write_text(json.dumps(config, indent=1))  # JSON is YAML
        file.chmod(0o600)
        return file

    def service_account_token(self, namespace: str, name: str, seconds: int = 3600) -> str:
        """A token of the service account, valid for `seconds` (at least 600)."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        return str(self.api.request("POST", path, body)["status"]["token"])

    def kubeconfig_for_service_account(self, namespace: str, name: str, context: str | None = None) -> Path:
        token = self.service_account_token(namespace, name)
        return self.kubeconfig_for(name, namespace=namespace, context=context, token=token)

    # -- what is in the cluster ------------------------------------------------------------------------------------

    def install_crds(self, **versions: str) -> None:
        """Install upstream's CRDs of kueue, jobset and kuberay, by default the newest (other: kueue="0.18.6").

        Replaces installed CRDs of another version.
        """
        crds.install(self.api, versions)

    def add_namespace(self, name: str, labels: dict[str, str] | None = None) -> None:
        """Create a namespace in which pods can be created at once."""
        add_namespace(self.api, name, labels)

    def add_nodes(self, pool: str, accelerator: str, topology: str, hosts: int, chips: int, **labels: str) -> list[str]:
        """Create ready nodes `<pool>-0` … like those of GKE, and return their names.

        accelerator: "cpu", or for example "tpu-v6e-slice". labels: other labels, for example
        **{"cloud.google.com/gke-spot": "true"}.
        """
        made = nodes(pool, accelerator, topology, hosts, chips, labels, self.log_server.port, _now())
        self.create_all(made)
        return [node["metadata"]["name"] for node in made]

    def add_node(self, name: str, pool: str) -> None:
        """Create one cpu node with this name."""
        (node,) = nodes(pool, "cpu", "", 1, 0, {}, self.log_server.port, _now())
        node["metadata"]["name"] = name
        node["metadata"]["labels"]["kubernetes.io/hostname"] = name
        self.api.create(node)

    def create_all(self, objects: Sequence[dict[str, Any]], workers: int = 8) -> list[dict[str, Any]]:
        """Create objects in parallel, in any order."""
        if len(objects) < 2:
            return [self.api.create(obj) for obj in objects]
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            return list(pool.map(self.api.create, objects))

    def serve(self, namespace: str, name: str, address: str, ports: dict[str, int], **labels: str) -> None:
        """Create a Service `name` whose named `ports` lead to a process of this machine.

        address: an address of the machine, not a loopback address. labels: of the Service and its pod, by default
        app=NAME. The Service selects a running pod of the same name, because the API server proxies only to pods.
        Returns when the API server proxies; to find out, it sends GET requests to the first port.
        """
        labels = labels or {"app": name}
        here = {"name": name, "namespace": namespace, "labels": labels}
        self.add_local_pod(namespace, name, address, labels)
        spec = {
            "selector": labels,
            "ports": [{"name": port, "port": number, "targetPort": number} for port, number in ports.items()],
        }
        self.api.create({"apiVersion": "v1", "kind": "Service", "metadata": here, "spec": spec})
        path = f"/api/v1/namespaces/{namespace}/services/{name}:{next(iter(ports))}/proxy/"
        deadline = time.monotonic() + 60
        # The endpoints appear with a delay. Until then, the API server itself answers, with a Status.
        while (answer := self.api.open("GET", path)).status in (404, 503) and b'"kind":"Status"' in answer.data:
            assert time.monotonic() < deadline, answer.data.decode()
            time.sleep(0.05)

    def add_local_pod(self, namespace: str, name: str, address: str, labels: dict[str, str]) -> None:
        """Create a running pod with `address`, on the node local-0. The scheduler and KWOK ignore it."""
        if self.api.find("/api/v1/nodes/local-0") is None:
            self.add_nodes("local", "cpu", "", 1, 0)
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {
                "schedulerName": "recorded",
                "containers": [{"name": "main", "image": "example.invalid/main:1"}],
                "nodeName": "local-0",
            },
        }
        self.api.create(pod)
        now = _now()
        conditions = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in ("Initialized", "Ready")]
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": conditions}
        self.api.merge(f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": status})

    # -- logs of simulated pods --------------------------------------------------------------------------------------

    def write_log(
        self, namespace: str, pod: str, container: str, lines: Iterable[str], at: datetime.datetime | None = None
    ) -> None:
        """Add lines to the container's log, with the current time or `at`. Followers receive them at once."""
        self.log_server.write((namespace, pod, container), list(lines), at)

    def end_log(self, namespace: str, pod: str, container: str) -> None:
        """End the container's log. Followers receive the end."""
        self.log_server.end((namespace, pod, container))

    def restart_log(self, namespace: str, pod: str, container: str) -> None:
        """Start the container's log again. The old lines become the previous log."""
        self.log_server.restart((namespace, pod, container))

    def cut_logs(self) -> None:
        """Cut all followed streams, although their containers still run, as when a kubelet restarts."""
        self.log_server.cut()

    def revision(self) -> int:
        """The number of changes of all objects up to now, from etcd itself."""
        response = urllib3.request("POST", f"http://127.0.0.1:{self.etcd_port}/v3/maintenance/status", body=b"{}")
        return int(response.json()["header"]["revision"])

    # -- failures ----------------------------------------------------------------------------------------------------

    def stop_api_server(self) -> None:
        """Kill the API server. Connections to it are refused."""
        self.processes.kill(API_SERVER)

    def start_api_server(self) -> None:
        """Start the API server again, and wait until it serves all kinds."""
        self._run(API_SERVER, self._flags)
        self._wait_ready(time.monotonic() + 180)
        crds.wait_readable(self.api)

    def restart_api_server(self) -> None:
        """Restart the API server at the same address, with its data. Takes some seconds."""
        self.stop_api_server()
        self.start_api_server()

    @contextlib.contextmanager
    def paused_api_server(self) -> Iterator[None]:
        """While this is open, the API server accepts connections but does not answer, as if packets were dropped."""
        self.processes.signal(API_SERVER, signal.SIGSTOP)
        try:
            process = psutil.Process(self.processes.pid(API_SERVER))
            deadline = time.monotonic() + 20
            # A busy thread stops with a delay.
            while process.status() != psutil.STATUS_STOPPED:
                assert time.monotonic() < deadline, f"{API_SERVER} does not stop: it is {process.status()}"
                time.sleep(0.01)
            yield
        finally:
            self.processes.signal(API_SERVER, signal.SIGCONT)

    def stop(self) -> None:
        """End all processes and remove the folder. A second call does nothing."""
        self.api.close()
        self.log_server.close()
        self.processes.stop()

    # -- starting ----------------------------------------------------------------------------------------------------

    def _start(self, *, with_crds: bool | dict[str, str], emulates: str) -> None:
        deadline = time.monotonic() + 180
        etcd, peer = (f"http://127.0.0.1:{port}" for port in (self.etcd_port, self.etcd_peer_port))
        self._run("etcd", flags.etcd(self.folder / "etcd", etcd, peer))
        account_keys = self.authority.key_pair("service-accounts")
        self._flags = flags.api_server(self.authority, account_keys, etcd, self.port)
        self._flags += [f"--emulated-version={emulates}"] if emulates else []
        self._run(API_SERVER, self._flags)
        self._wait_ready(deadline)
        if with_crds:
            self.install_crds(**(with_crds if isinstance(with_crds, dict) else {}))
        manager = self.kubeconfig_for("system:kube-controller-manager")
        self._run("kube-controller-manager", flags.controller_manager(manager, self.authority, account_keys))
        self._run("kube-scheduler", flags.scheduler(self.kubeconfig_for("system:kube-scheduler")))
        self._run("kwok", flags.kwok(self.admin))

    def _run(self, name: str, given: list[str]) -> None:
        self.processes.start(name, [tool(name), *given])

    def _wait_ready(self, deadline: float) -> None:
        while time.monotonic() < deadline:
            if ended := self.processes.ended():
                raise RuntimeError(f"{', '.join(ended)} ended at once:\n{self.processes.last_lines()}")
            try:
                self.api.get("/readyz")
            except (ApiError, urllib3.exceptions.HTTPError):
                time.sleep(0.1)
            else:
                return
        raise RuntimeError(f"The API server is not ready in time:\n{self.processes.last_lines()}")


def add_namespace(api: Api, name: str, labels: dict[str, str] | None = None) -> None:
    """Create a namespace, if it does not exist, and the service account that all pods need."""
    api.ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels or {}}})
    # The controller manager also creates it, but with a delay.
    api.ensure({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}})


def remove_namespace(api: Api, name: str) -> None:
    """Delete a namespace with its objects.

    No kubelet here ends pods, and no controller removes its finalizers. With them in it, the controller of namespaces
    would try to delete the namespace until the control plane ends; 50 of these took half a core.
    """
    for kind in _FINALIZED:
        path = kind.format(name)
        for obj in (api.find(path) or {"items": ()})["items"]:  # a test can have no CRDs
            if obj["metadata"].get("finalizers"):
                try:
                    api.merge(f"{path}/{obj['metadata']['name']}", {"metadata": {"finalizers": None}})
                except ApiError as error:
                    if error.status != 404:  # a controller can delete the object first
                        raise
    api.delete(f"/api/v1/namespaces/{name}")
    api.delete(f"/api/v1/namespaces/{name}/pods", grace=0)


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 on which no process listens."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
