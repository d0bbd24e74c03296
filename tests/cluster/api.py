"""The tests' own client of an API server: sends and receives JSON by path. Independent of the code under test."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import urllib3

Object = dict[str, Any]

PLURALS = {
    **{"NetworkPolicy": "networkpolicies", "Ingress": "ingresses", "Cohort": "cohorts", "Topology": "topologies"},
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
}
CLUSTER_SCOPED = {
    *("Namespace", "Node", "ClusterRole", "ClusterRoleBinding", "PriorityClass", "CustomResourceDefinition"),
    *("ClusterQueue", "ResourceFlavor", "Cohort", "Topology", "AdmissionCheck", "WorkloadPriorityClass"),
    "ProvisioningRequestConfig",
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    *("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "PersistentVolume", "StorageClass"),
}


class ApiError(AssertionError):
    """The API server returned an error. `status` is the HTTP code, `body` the Status object."""

    def __init__(self, method: str, path: str, status: int, text: str) -> None:
        try:
            self.body: Object = json.loads(text)
        except ValueError:
            self.body = {"message": text}
        self.status = status
        super().__init__(f"{method} {path}: {status} {self.body.get('message', text)}")


class Api:
    """Sends requests as the user of a kubeconfig."""

    def __init__(self, kubeconfig: Path | None = None, context: str | None = None) -> None:
        import kubernetes

        # Supports all credentials of a kubeconfig: certificates, tokens, a command that prints a token.
        self._client = kubernetes.config.new_client_from_config(str(kubeconfig) if kubeconfig else None, context)
        self.server = str(self._client.configuration.host)

    def close(self) -> None:
        self._client.close()

    def cluster_entry(self) -> Object:
        """The server as the cluster of a kubeconfig, without the credentials of this client."""
        given = self._client.configuration
        entry: Object = {"server": self.server}
        if not given.verify_ssl:
            entry["insecure-skip-tls-verify"] = True
        elif given.ssl_ca_cert:
            entry["certificate-authority-data"] = base64.b64encode(Path(given.ssl_ca_cert).read_bytes()).decode()
        if given.tls_server_name:
            entry["tls-server-name"] = given.tls_server_name
        if given.proxy:
            entry["proxy-url"] = given.proxy
        return entry

    def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """The parsed JSON answer, or else the text. Raises ApiError from code 400 on; retries after 429."""
        deadline = time.monotonic() + 60
        # The API server returns 429 while it reads the objects of a kind from etcd, for example after its start.
        while (response := self.open(method, path, body, content_type)).status == 429 and time.monotonic() < deadline:
            time.sleep(0.2)
        text = response.data.decode()
        if response.status >= 400:
            raise ApiError(method, path, response.status, text)
        return json.loads(text) if "json" in response.headers.get("Content-Type", "") else text

    def open(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        *,
        accept: str = "application/json",
        stream: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        """The raw response. With `stream`, the caller must read and close it."""
        headers: dict[str, str] = {"Accept": accept, "Content-Type": content_type}
        self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        data = None if body is None else json.dumps(body).encode()
        pool: urllib3.PoolManager = self._client.rest_client.pool_manager
        return pool.request(
            method,
            self.server + path,
            body=data,
            headers=headers,
            preload_content=not stream,
            retries=False,
            timeout=60,
        )

    def get(self, kind_path: str) -> Any:
        return self.request("GET", kind_path)

    def find(self, path: str) -> Object | None:
        """The object at `path`, or None if it does not exist."""
        try:
            found: Object = self.request("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return found

    def items(self, path: str) -> list[Object]:
        listed: list[Object] = self.request("GET", path)["items"]
        return listed

    def create(self, obj: Object) -> Object:
        made: Object = self.request("POST", collection(obj), obj)
        return made

    def ensure(self, obj: Object) -> None:
        """Create `obj` if no object with its name exists."""
        try:
            self.create(obj)
        except ApiError as error:
            if error.status != 409:
                raise

    def merge(self, path: str, patch: Object) -> Object:
        made: Object = self.request("PATCH", path, patch, "application/merge-patch+json")
        return made

    def delete(self, path: str, *, grace: int | None = None, propagation: str = "Background") -> None:
        """Delete the object at `path`. Does nothing if it does not exist."""
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        try:
            self.request("DELETE", path, options)
        except ApiError as error:
            if error.status != 404:
                raise

    def lines(self, path: str) -> Iterator[str]:
        """The lines of a stream, such as a followed log."""
        response = self.open("GET", path, stream=True)
        try:
            if response.status >= 400:
                raise ApiError("GET", path, response.status, response.read().decode())
            rest = b""
            for chunk in response.stream(1024):
                *whole, rest = (rest + chunk).split(b"\n")
                yield from (line.decode() for line in whole)
            if rest:
                yield rest.decode()
        finally:
            response.close()


def collection(obj: Object, namespace: str | None = None) -> str:
    """The path of the collection of `obj`: its kind, in its namespace."""
    group = obj["apiVersion"]
    base = f"/api/{group}" if "/" not in group else f"/apis/{group}"
    kind = obj["kind"]
    plural = PLURALS.get(kind) or kind.lower() + ("es" if kind.endswith(("s", "ch", "x")) else "s")
    if kind in CLUSTER_SCOPED:
        return f"{base}/{plural}"
    return f"{base}/namespaces/{namespace or obj['metadata'].get('namespace') or 'default'}/{plural}"


def path_of(obj: Object) -> str:
    """The path of `obj`."""
    return f"{collection(obj)}/{obj['metadata']['name']}"
