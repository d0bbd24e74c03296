"""The part of an API server that `helm install --dry-run=server` reads: discovery, objects by name, and lists.

It replaces a cluster in tests that only read; it cannot create anything. tests/cluster has the tests against a real API
server.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Tree = dict[str, Any]

KINDS = {
    "v1": [
        ("Namespace", "namespaces", False),
        ("Pod", "pods", True),
        ("ResourceQuota", "resourcequotas", True),
        ("Secret", "secrets", True),
        ("ServiceAccount", "serviceaccounts", True),
    ],
    "admissionregistration.k8s.io/v1": [
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies", False),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", False),
    ],
    "scheduling.k8s.io/v1": [("PriorityClass", "priorityclasses", False)],
    "networking.k8s.io/v1": [("NetworkPolicy", "networkpolicies", True)],
    "rbac.authorization.k8s.io/v1": [
        ("ClusterRole", "clusterroles", False),
        ("ClusterRoleBinding", "clusterrolebindings", False),
        ("Role", "roles", True),
        ("RoleBinding", "rolebindings", True),
    ],
    "kueue.x-k8s.io/v1beta2": [
        ("AdmissionCheck", "admissionchecks", False),
        ("ClusterQueue", "clusterqueues", False),
        ("Cohort", "cohorts", False),
        ("LocalQueue", "localqueues", True),
        ("ProvisioningRequestConfig", "provisioningrequestconfigs", False),
        ("ResourceFlavor", "resourceflavors", False),
        ("Topology", "topologies", False),
        ("Workload", "workloads", True),
        ("WorkloadPriorityClass", "workloadpriorityclasses", False),
    ],
}
"""(kind, plural, whether it is namespaced) of each kind, by apiVersion."""


@contextlib.contextmanager
def cluster(objects: list[Tree], folder: Path, *, kueue: bool = True) -> Iterator[Path]:
    """Yield a kubeconfig for a cluster with these objects; without `kueue` the cluster does not serve Kueue's kinds."""
    kinds = {version: found for version, found in KINDS.items() if kueue or not version.startswith("kueue")}
    paths = {path(obj): obj for obj in objects}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url_path = self.path.partition("?")[0]
            answer = _discovery(url_path, kinds) or paths.get(url_path) or _list(url_path, objects, kinds)
            status = 200 if answer else 404
            if answer is None:
                answer = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield _kubeconfig(folder, f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def path(obj: Tree) -> str:
    """Return the URL path of the object on an API server."""
    version = obj["apiVersion"]
    plural, spaced = next((plural, spaced) for kind, plural, spaced in KINDS[version] if kind == obj["kind"])
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    space = f"/namespaces/{obj['metadata']['namespace']}" if spaced else ""
    return f"{base}{space}/{plural}/{obj['metadata']['name']}"


def _list(url_path: str, objects: list[Tree], kinds: dict[str, list[tuple[str, str, bool]]]) -> Tree | None:
    """Return the list at the path, of one namespace or of all."""
    for version, found in kinds.items():
        base = f"/apis/{version}" if "/" in version else f"/api/{version}"
        for kind, plural, _ in found:
            match = re.fullmatch(rf"{base}(?:/namespaces/([^/]+))?/{plural}", url_path)
            if match:
                items = [obj for obj in objects if (obj["apiVersion"], obj["kind"]) == (version, kind)]
                items = [obj for obj in items if match[1] in (None, obj["metadata"].get("namespace"))]
                return {"apiVersion": version, "kind": f"{kind}List", "metadata": {}, "items": items}
    return None


def _discovery(url_path: str, kinds: dict[str, list[tuple[str, str, bool]]]) -> Tree | None:
    if url_path == "/version":
        return {"major": "1", "minor": "35", "gitVersion": "v1.35.0"}
    if url_path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if url_path == "/apis":
        groups = []
        for version in kinds:
            group, _, short = version.rpartition("/")
            entry = {"groupVersion": version, "version": short}
            groups += [{"name": group, "versions": [entry], "preferredVersion": entry}] * bool(group)
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    version = url_path.removeprefix("/apis/").removeprefix("/api/")
    if version not in kinds:
        return None
    resources = [
        {"name": plural, "singularName": kind.lower(), "kind": kind, "namespaced": spaced, "verbs": ["get", "list"]}
        for kind, plural, spaced in kinds[version]
    ]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}


def _kubeconfig(folder: Path, url: str) -> Path:
    file = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": {"server": url}}],
        "users": [{"name": "here", "user": {}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "here"}}],
        "current-context": "here",
    }
    file.write_text(json.dumps(config))
    return file
